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

from vfl_node.crypto.processes import InProcess, ProcessWorkers
from vfl_node.errors import DataError, VflError

TASKS = '''
import os, sys, time
from pathlib import Path
from vfl_node.errors import DataError

def note(folder, name, needs=None):
    """Leave a file; before that, wait for another."""
    while needs and not (Path(folder) / needs).exists():
        time.sleep(0.01)
    with (Path(folder) / "log").open("a") as log:
        log.write(f"{name}\\n")
    return name

def late(value):
    time.sleep(0.2 if value % 4 == 0 else 0)
    return value, os.getpid()

def spin(folder):
    (Path(folder) / f"pid-{os.getpid()}").touch()
    while True:
        pass

def holdings():
    """Names of modules and of what the open file descriptors stand for."""
    links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    return set(sys.modules), [str(link.readlink()) for link in links if link.is_symlink()]

def refuse(value):
    raise DataError("a message", hint="a hint", code="E_TEST")

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__("odd")

def raise_odd():
    raise Odd(1, 2)

def unpicklable():
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
def workers(tasks):
    with closing(ProcessWorkers(2)) as both:
        yield both


@pytest.fixture
def one(tasks):
    with closing(ProcessWorkers(1)) as single:
        yield single


def pid(workers):
    return next(workers.map(os.getpid, [()]))


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
def test_results_come_in_order_from_several_processes(workers, tasks, background):
    values, pids = zip(*workers.map(tasks.late, [(i,) for i in range(12)], background=background), strict=True)
    assert values == tuple(range(12))
    assert len(set(pids)) == 2
    assert os.getpid() not in pids


def test_children_are_kept_for_the_next_work(one):
    assert pid(one) == pid(one)


@pytest.mark.parametrize("both", [InProcess(), None], ids=["here", "children"])
def test_the_same_contract_with_and_without_processes(both, workers):
    both = both or workers
    assert list(both.map(operator.add, ((i, 1) for i in range(50)))) == list(range(1, 51))
    assert list(both.map(operator.add, [])) == []
    results = both.map(operator.floordiv, [(4, 2), (1, 0), (1, 1)])
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_work_begins_at_the_call_and_looks_ahead_a_little(workers):
    taken = []
    blocks = ((taken.append(i) or i, 1) for i in range(100))
    results = workers.map(operator.add, blocks)
    assert len(taken) == 4 * workers.processes
    next(results)
    assert len(taken) == 4 * workers.processes + 1


def test_background_work_all_begins_and_lets_other_work_pass(one, tasks, tmp_path):
    later = one.map(tasks.note, [(tmp_path, "b0", "gate"), *((tmp_path, f"b{i}") for i in range(1, 20))], background=True)
    first = one.map(tasks.note, [(tmp_path, f"f{i}") for i in range(3)])
    (tmp_path / "gate").touch()
    assert list(first) == ["f0", "f1", "f2"]
    assert soon(lambda: len(log(tmp_path)) == 23)  # though nobody takes the results
    assert log(tmp_path) == ["b0", "f0", "f1", "f2", *(f"b{i}" for i in range(1, 20))]
    assert list(later) == [f"b{i}" for i in range(20)]


def test_a_failure_drops_the_rest(one, tasks, tmp_path):
    with pytest.raises(TypeError):
        list(one.map(tasks.note, [(tmp_path, "a"), (None, "b"), *((tmp_path, f"c{i}", "never") for i in range(3))]))
    (tmp_path / "never").touch()  # the one that ran already may finish
    assert pid(one)
    assert log(tmp_path) in (["a"], ["a", "c0"])


@pytest.mark.parametrize("abandon", [lambda box: box[0].close(), lambda box: box.clear()], ids=["closed", "forgotten"])
@pytest.mark.parametrize("background", [False, True])
def test_an_abandoned_iterator_drops_its_work(one, tasks, tmp_path, abandon, background):
    box = [one.map(tasks.note, [(tmp_path, f"a{i}", "gate") for i in range(4)], background=background)]
    abandon(box)
    (tmp_path / "gate").touch()
    assert pid(one)
    assert log(tmp_path) in ([], ["a0"])


def test_an_exception_keeps_its_kind_and_tells_where_it_rose(workers, tasks):
    with pytest.raises(DataError) as caught:
        list(workers.map(tasks.refuse, [(1,)]))
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("E_TEST", "a message", "a hint")
    assert "in refuse" in str(caught.value.__cause__)


def test_what_cannot_be_pickled_is_an_exception_too(workers, tasks):
    with pytest.raises(RuntimeError, match="Odd in a worker process") as caught:
        list(workers.map(tasks.raise_odd, [()]))
    assert "in raise_odd" in str(caught.value.__cause__)
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        list(workers.map(tasks.unpicklable, [()]))
    with pytest.raises((AttributeError, TypeError)):
        list(workers.map(operator.is_, [(lambda: None, 1)]))
    assert list(workers.map(operator.add, [(1, 1)])) == [2]


def test_a_child_that_is_killed_is_told_and_replaced(one, tasks):
    before = pid(one)
    results = one.map(time.sleep, [(600,)])
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
    workers = ProcessWorkers(2)
    busy = workers.map(tasks.spin, [(tmp_path,)] * 5)
    assert soon(lambda: len(list(tmp_path.iterdir())) == 2)
    children = [int(file.name[4:]) for file in tmp_path.iterdir()]
    assert all(map(running, children))
    workers.close()
    assert not any(map(running, children))
    with pytest.raises(VflError, match="E_WORKER"):
        next(busy)
    with pytest.raises(RuntimeError, match="closed"):
        workers.map(operator.add, [(1, 1)])
    workers.close()


@pytest.mark.parametrize("delay", [0, 0.002, 0.01, 0.03, 0.1])
def test_close_does_not_wait_for_a_child_that_is_starting(tasks, tmp_path, delay):
    workers = ProcessWorkers(2)
    busy = workers.map(tasks.spin, [(tmp_path,)] * 3)
    time.sleep(delay)
    workers.close()
    with pytest.raises((VflError, concurrent.futures.CancelledError)):
        next(busy)


def test_who_waits_for_closed_workers_is_told(one, tasks, tmp_path):
    waiting = [one.map(tasks.spin, [(tmp_path,)]) for _ in range(2)]
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
    workers = ProcessWorkers(2)
    children = {child for _, child in workers.map(tasks.late, [(0,), (4,)])}
    assert len(children) == 2
    assert all(map(running, children))
    del workers
    gc.collect()
    assert soon(lambda: not any(map(running, children)))
    assert soon(lambda: set(threading.enumerate()) <= before)


PARENT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by whoever is started in the background
from vfl_node.crypto.processes import ProcessWorkers
import tasks_for_children
workers = ProcessWorkers(3)
busy = workers.map(tasks_for_children.spin, [(sys.argv[1],)] * 2)
sleeping = workers.map(time.sleep, [(600,)])
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
        modules, files = next(one.map(tasks.holdings, [()]))
    assert {"torch", "pytest"} <= set(sys.modules)
    assert not {"torch", "pytest", "grpc"} & modules
    assert sum("socket" in name for name in files) == 1
    assert __file__ not in files


@pytest.mark.parametrize(("fault", "status"), [("EOFError", 0), ("OSError", 0), ("MemoryError", 1)])
def test_a_child_that_hears_nothing_any_more_ends(fault: str, status: int) -> None:
    """Whatever the cause: one that lived on would leave its parent waiting, and outlive it."""
    program = f"""
from vfl_node.crypto import processes

class Deaf:
    def recv_bytes(self):
        raise {fault}

processes._receive(Deaf(), processes.SimpleQueue())
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=240).returncode == status
