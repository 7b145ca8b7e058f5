"""Threads: results in order, little work ahead, and none left behind."""

from __future__ import annotations

import gc
import operator
import threading
import time
from contextlib import closing

import pytest

from vfl_node.engines.threads import Threads


def fail(key, block):
    raise ValueError(block)


def meet(barrier, block):
    barrier.wait()
    return block


def note(done, block):
    done.append(block)
    return block


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order(threads):
    with closing(Threads(threads)) as engine:
        assert list(engine.map(operator.add, range(100), 1)) == list(range(1, 101))


def test_no_blocks():
    assert list(Threads(2).map(operator.add, [], 1)) == []


def test_the_earliest_failure_is_raised():
    with pytest.raises(ValueError, match=r"^0$"):
        list(Threads(3).map(fail, range(10), None))


def test_work_begins_at_the_call_and_runs_side_by_side():
    meeting, engine = threading.Barrier(2, timeout=240), Threads(2)
    first, second = (engine.map(meet, [1], meeting) for _ in range(2))
    assert list(second) == list(first) == [1]  # each waits for the other: lazily or one by one they never meet


def test_workers_go_on_while_the_caller_makes_the_next_chunk_but_not_for_long():
    """64 blocks, about a second of one core, without any taken; then one more for each that is."""
    done, engine = [], Threads(1)
    results = engine.map(note, range(100), done)
    finish(engine)
    assert len(done) == 64
    next(results)
    finish(engine)
    assert len(done) == 65


def closed(results):
    results[0].close()


def forgotten(results):
    results.clear()


def closed_after_some(results):
    assert next(results[0]) == 0
    results[0].close()


def pass_gate(key, block):
    done, gate, *begun = key
    if block and begun:
        begun[0].set()
    assert gate.acquire(timeout=240)
    done.append(block)
    return block


@pytest.mark.parametrize("abandon", [closed, forgotten, closed_after_some])
def test_an_abandoned_call_leaves_no_work_behind(abandon):
    done, gate, engine = [], threading.Semaphore(2), Threads(1)  # the third block waits
    results = [engine.map(pass_gate, range(100), (done, gate))]
    while len(done) < 2:
        time.sleep(0.001)
    abandon(results)
    gate.release(100)
    finish(engine)
    assert len(done) <= 3  # the one that was running


def fail_first(key, block):
    done, failed = key
    if block == 0:
        raise ValueError("first")
    done.append(block)
    failed.wait(240)


def test_a_failure_drops_the_rest():
    done, failed, engine = [], threading.Event(), Threads(2)
    with pytest.raises(ValueError, match="first"):
        list(engine.map(fail_first, range(100), (done, failed)))
    failed.set()
    finish(engine)
    assert len(done) <= 2


def test_close_ends_the_threads_and_drops_what_waits():
    done, gate, engine = [], threading.Semaphore(1), Threads(1)
    begun = threading.Event()
    results = engine.map(pass_gate, range(100), (done, gate, begun))
    assert next(results) == 0
    assert begun.wait(240)  # a block that the thread has not taken yet would be dropped as well
    threading.Timer(0.05, gate.release).start()  # the block under way is done to its end
    engine.close()
    assert len(done) == 2
    assert not any(thread.is_alive() for thread in engine._threads)
    with pytest.raises(RuntimeError, match="closed"):
        engine.map(operator.add, [1], 1)
    engine.close()


def test_a_forgotten_engine_leaves_no_thread():
    engine = Threads(2)
    assert list(engine.map(operator.add, [1], 1)) == [2]
    threads = list(engine._threads)
    del engine
    gc.collect()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)


def finish(engine):
    """Return when all that was handed over before has been worked on or dropped."""
    meeting = threading.Barrier(engine.workers, timeout=240)
    list(engine.map(meet, range(engine.workers), meeting))
