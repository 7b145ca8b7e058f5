from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from vfl_node.crypto.workers import ThreadWorkers

ROWS = np.arange(200, dtype=np.uint8).reshape(100, 2)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block_rows", [1, 7, 100, 1000])
def test_results_come_in_order_and_blocks_do_not_depend_on_threads(threads, block_rows):
    blocks = list(ThreadWorkers(threads).map_rows(lambda block: block[:, :1] + 1, ROWS, block_rows=block_rows))
    assert [len(block) for block in blocks] == [len(ROWS[i : i + block_rows]) for i in range(0, 100, block_rows)]
    np.testing.assert_array_equal(np.concatenate(blocks), ROWS[:, :1] + 1)


def test_no_rows():
    assert list(ThreadWorkers(2).map_rows(lambda block: block, ROWS[:0], block_rows=5)) == []


def test_the_earliest_failure_is_raised():
    def fail(block):
        raise ValueError(int(block[0, 0]))

    with pytest.raises(ValueError, match=r"^0$"):
        list(ThreadWorkers(3).map_rows(fail, ROWS, block_rows=10))


def test_work_begins_at_the_call_and_runs_side_by_side():
    meeting = threading.Barrier(2, timeout=240)

    def meet(block):
        meeting.wait()
        return block

    workers = ThreadWorkers(2)
    first, second = (workers.map_rows(meet, ROWS[:1], block_rows=1) for _ in range(2))
    assert len(list(second)) == len(list(first)) == 1  # each waits for the other: lazily or one by one they never meet


def test_workers_go_on_while_the_caller_makes_the_next_chunk_but_not_for_long():
    """64 blocks, about a second of one core, without any taken; then one more for each that is."""
    done = []
    workers = ThreadWorkers(1)
    blocks = workers.map_rows(lambda block: done.append(1) or block, ROWS, block_rows=1)
    finish(workers)
    assert len(done) == 64
    next(blocks)
    finish(workers)
    assert len(done) == 65


def closed(blocks):
    blocks[0].close()


def forgotten(blocks):
    blocks.clear()


def closed_after_some(blocks):
    assert len(next(blocks[0])) == 1
    blocks[0].close()


@pytest.mark.parametrize("abandon", [closed, forgotten, closed_after_some])
def test_an_abandoned_job_leaves_no_work_behind(abandon):
    done, gate = [], threading.Semaphore(2)  # the third block waits

    def pass_gate(block):
        assert gate.acquire(timeout=240)
        done.append(1)
        return block

    workers = ThreadWorkers(1)
    blocks = [workers.map_rows(pass_gate, ROWS, block_rows=1)]
    while len(done) < 2:
        time.sleep(0.001)
    abandon(blocks)
    gate.release(100)
    finish(workers)
    assert len(done) <= 3  # the one that was running


def test_a_failure_drops_the_rest():
    done, failed = [], threading.Event()

    def fail(block):
        if block[0, 0] == 0:
            raise ValueError("first")
        done.append(1)
        failed.wait(240)
        return block

    workers = ThreadWorkers(2)
    with pytest.raises(ValueError, match="first"):
        list(workers.map_rows(fail, ROWS, block_rows=1))
    failed.set()
    finish(workers)
    assert len(done) <= 2


def finish(workers):
    """Return when all that was handed over before has been worked on or dropped."""
    threads = workers._pool._max_workers
    meeting = threading.Barrier(threads, timeout=240)

    def meet(block):
        meeting.wait()
        return block

    list(workers.map_rows(meet, ROWS[:threads], block_rows=1))
