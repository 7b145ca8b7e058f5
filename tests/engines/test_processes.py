"""Children: what they compute, and that none is left behind."""

from __future__ import annotations

import concurrent.futures
import gc
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes
from vfl_node.errors import DataError, VflError

TASKS = '''
import os, sys, time
from pathlib import Path
from vfl_node.errors import DataError

def note(folder, block):
    """Write a line to the log; before that, wait for a file. The block is the line, and the file's name."""
    name, needs = block
    (Path(folder) / f"begun-{name}").touch()
    while needs and not (Path(folder) / needs).exists():
        time.sleep(0.01)
    with (Path(folder) / "log").open("a") as log:
        log.write(f"{name}\\n")
    return name

def late(_, value):
    time.sleep(0.2 if value % 4 == 0 else 0)
    return value, os.getpid()

def spin(folder, _):
    (Path(folder) / f"pid-{os.getpid()}").touch()
    while True:
        pass

def holdings(*_):
    """Names of modules and of what the open file descriptors stand for."""
    links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    return set(sys.modules), [str(link.readlink()) for link in links if link.is_symlink()]

def refuse(*_):
    raise DataError("a message", hint="a hint", code="E_TEST")

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__("odd")

def raise_odd(*_):
    raise Odd(1, 2)

def pid(*_):
    return os.getpid()

def sleep(_, seconds):
    time.sleep(seconds)

class Key:
    """Counts how often it is read from the pipe."""
    read = 0

    def __setstate__(self, state):
        Key.read += 1

    def __getstate__(self):
        return {"secret": 1}

def times_read(key, _):
    return type(key).read

def unpicklable(*_):
    return lambda: None
'''


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A module that children can import."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "tasks_for_children.py").write_text(TASKS)
    sys.path.insert(0, str(folder))
    import tasks_for_children

    yield tasks_for_children
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def engine(tasks):
    with closing(Processes(2)) as both:
        yield both


@pytest.fixture
def one(tasks):
    with closing(Processes(1)) as single:
        yield single


def pid(engine):
    import tasks_for_children

    return next(engine.map(tasks_for_children.pid, [None], None))


def running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def soon(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def log(folder):
    return (folder / "log").read_text().split() if (folder / "log").exists() else []


@pytest.mark.parametrize("background", [False, True])
def test_results_come_in_order_from_several_processes(engine, tasks, background):
    values, pids = zip(*engine.map(tasks.late, range(12), None, background=background), strict=True)
    assert values == tuple(range(12))
    assert len(set(pids)) == 2
    assert os.getpid() not in pids


def test_children_are_kept_for_the_next_work(one):
    assert pid(one) == pid(one)


@pytest.mark.parametrize("both", [Inline(), None], ids=["here", "children"])
def test_the_same_contract_with_and_without_processes(both, engine):
    both = both or engine
    assert list(both.map(operator.add, range(50), 1)) == list(range(1, 51))
    assert list(both.map(operator.add, [], 1)) == []
    results = both.map(operator.floordiv, [2, 0, 1], 4)
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_work_begins_at_the_call_and_looks_ahead_a_little(engine):
    taken = []
    blocks = (taken.append(i) or i for i in range(100))
    results = engine.map(operator.add, blocks, 1)
    assert len(taken) == 4 * engine.workers
    next(results)
    assert len(taken) == 4 * engine.workers + 1


def test_background_work_all_begins_and_lets_other_work_pass(one, tasks, tmp_path):
    later = one.map(tasks.note, [("b0", "gate"), *((f"b{i}", "") for i in range(1, 20))], tmp_path, background=True)
    assert soon((tmp_path / "begun-b0").exists)  # other work would go before it if the child had not taken it
    first = one.map(tasks.note, [(f"f{i}", "") for i in range(3)], tmp_path)
    (tmp_path / "gate").touch()
    assert list(first) == ["f0", "f1", "f2"]
    assert soon(lambda: len(log(tmp_path)) == 23)  # though nobody takes the results
    assert log(tmp_path) == ["b0", "f0", "f1", "f2", *(f"b{i}" for i in range(1, 20))]
    assert list(later) == [f"b{i}" for i in range(20)]


def test_a_failure_drops_the_rest(one, tasks, tmp_path):
    with pytest.raises(TypeError):
        list(one.map(tasks.note, [("a", ""), None, *((f"c{i}", "never") for i in range(3))], tmp_path))
    (tmp_path / "never").touch()  # the one that ran already may finish
    assert pid(one)
    assert log(tmp_path) in (["a"], ["a", "c0"])


@pytest.mark.parametrize("abandon", [lambda box: box[0].close(), lambda box: box.clear()], ids=["closed", "forgotten"])
@pytest.mark.parametrize("background", [False, True])
def test_an_abandoned_iterator_drops_its_work(one, tasks, tmp_path, abandon, background):
    box = [one.map(tasks.note, [(f"a{i}", "gate") for i in range(4)], tmp_path, background=background)]
    abandon(box)
    (tmp_path / "gate").touch()
    assert pid(one)
    assert log(tmp_path) in ([], ["a0"])


def test_an_exception_keeps_its_kind_and_tells_where_it_rose(engine, tasks):
    with pytest.raises(DataError) as caught:
        list(engine.map(tasks.refuse, [1], None))
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("E_TEST", "a message", "a hint")
    assert "in refuse" in str(caught.value.__cause__)


def test_what_cannot_be_pickled_is_an_exception_too(engine, tasks):
    with pytest.raises(RuntimeError, match="Odd in a worker process") as caught:
        list(engine.map(tasks.raise_odd, [1], None))
    assert "in raise_odd" in str(caught.value.__cause__)
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        list(engine.map(tasks.unpicklable, [1], None))
    with pytest.raises((AttributeError, TypeError)):
        list(engine.map(operator.is_, [lambda: None], 1))
    assert list(engine.map(operator.add, [1], 1)) == [2]


def test_a_key_goes_to_a_child_once_while_it_stays_the_same(one, tasks):
    key, other = tasks.Key(), tasks.Key()
    assert list(one.map(tasks.times_read, range(5), key)) == [1] * 5
    assert list(one.map(tasks.times_read, range(5), key)) == [1] * 5
    assert list(one.map(tasks.times_read, range(5), other)) == [2] * 5
    assert list(one.map(tasks.times_read, range(5), key)) == [3] * 5


def test_a_key_is_sent_again_after_an_error(one, tasks):
    key = tasks.Key()
    with pytest.raises(TypeError):
        list(one.map(operator.add, [1], key))
    assert list(one.map(tasks.times_read, range(2), key)) == [2, 2]


def test_a_child_that_is_killed_is_told_and_replaced(one, tasks):
    before = pid(one)
    results = one.map(tasks.sleep, [600], None)
    os.kill(before, signal.SIGKILL)
    with pytest.raises(VflError, match="exit status -9") as caught:
        next(results)
    assert caught.value.code == "E_WORKER"
    assert pid(one) != before


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signals_for_the_parent_do_not_end_children(one, sent):
    child = pid(one)
    os.kill(child, sent)
    assert pid(one) == child
    assert os.getpgid(child) != os.getpgid(os.getpid())


def test_close_ends_children_in_the_middle_of_a_block(tasks, tmp_path):
    engine = Processes(2)
    busy = engine.map(tasks.spin, range(5), tmp_path)
    assert soon(lambda: len(list(tmp_path.iterdir())) == 2)
    children = [int(file.name[4:]) for file in tmp_path.iterdir()]
    assert all(map(running, children))
    engine.close()
    assert not any(map(running, children))
    with pytest.raises(VflError, match="E_WORKER"):
        next(busy)
    with pytest.raises(RuntimeError, match="closed"):
        engine.map(operator.add, [1], 1)
    engine.close()


@pytest.mark.parametrize("delay", [0, 0.002, 0.01, 0.03, 0.1])
def test_close_does_not_wait_for_a_child_that_is_starting(tasks, tmp_path, delay):
    engine = Processes(2)
    busy = engine.map(tasks.spin, range(3), tmp_path)
    time.sleep(delay)
    engine.close()
    with pytest.raises((VflError, concurrent.futures.CancelledError)):
        next(busy)


def test_who_waits_for_closed_workers_is_told(one, tasks, tmp_path):
    waiting = [one.map(tasks.spin, [0], tmp_path) for _ in range(2)]
    assert soon(lambda: len(list(tmp_path.iterdir())) == 1)
    raised = []

    def wait(results):
        try:
            next(results)
        except (VflError, concurrent.futures.CancelledError) as error:
            raised.append(type(error).__name__)

    threads = [threading.Thread(target=wait, args=(results,)) for results in waiting]
    for thread in threads:
        thread.start()
    one.close()
    for thread in threads:
        thread.join(240)
    assert sorted(raised) == ["CancelledError", "VflError"]


def test_forgotten_workers_leave_no_child_and_no_thread(tasks):
    before = set(threading.enumerate())  # of earlier tests, which may end meanwhile
    engine = Processes(2)
    children = {child for _, child in engine.map(tasks.late, [0, 4], None)}
    assert len(children) == 2
    assert all(map(running, children))
    del engine
    gc.collect()
    assert soon(lambda: not any(map(running, children)))
    assert soon(lambda: set(threading.enumerate()) <= before)


PARENT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by whoever is started in the background
from vfl_node.engines.processes import Processes
import tasks_for_children
engine = Processes(3)
busy = engine.map(tasks_for_children.spin, range(2), sys.argv[1])
sleeping = engine.map(tasks_for_children.sleep, [600], None)
time.sleep(600)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_survives_its_parent(tasks, tmp_path, sent):
    """Two children compute and one sleeps while the parent is ended, without a chance to clean up or with one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=environment, stderr=subprocess.DEVNULL) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        assert soon(lambda: len(list(tmp_path.iterdir())) == 2)
        pids = {
            int(child)
            for task in Path(f"/proc/{parent.pid}/task").iterdir()
            for child in (task / children.name).read_text().split()
        }
        assert len(pids) == 3
        assert all(map(running, pids))
        parent.send_signal(sent)
        parent.wait(240)
    assert soon(lambda: not any(map(running, pids)))


def test_a_child_starts_afresh(one, tasks):
    """It has neither the parent's modules nor its main program, and of its files and sockets only the pipe."""
    import torch  # noqa: F401

    with Path(__file__).open() as file:
        os.set_inheritable(file.fileno(), True)
        modules, files = next(one.map(tasks.holdings, [None], None))
    assert {"torch", "pytest"} <= set(sys.modules)
    assert not {"torch", "pytest", "grpc"} & modules
    assert sum("socket" in name for name in files) == 1
    assert __file__ not in files


@pytest.mark.parametrize(("fault", "status"), [("EOFError", 0), ("OSError", 0), ("MemoryError", 1)])
def test_a_child_that_hears_nothing_any_more_ends(fault: str, status: int) -> None:
    """Whatever the cause: one that lived on would leave its parent waiting, and outlive it."""
    program = f"""
from vfl_node.engines import child

class Deaf:
    def recv_bytes(self):
        raise {fault}

child._receive(Deaf(), child.SimpleQueue())
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=240).returncode == status
