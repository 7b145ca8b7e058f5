"""The engine on a real Ray cluster, by token and TLS: same bytes, whatever is killed; nothing in the open, nothing left."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sessions import limits_from, session
from tests.engines.ray_cluster import STORE_BYTES, TestCluster, link_of, make_certificates, running, soon
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.build import describe_build
from vfl_node.crypto.groups import Curve25519, Scalar
from vfl_node.crypto.groups.contract import Exponent, block_powers
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.contract import Inline
from vfl_node.engines.ray import link as links
from vfl_node.engines.ray import sealing
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.threads import Threads
from vfl_node.errors import DataError, VflError
from vfl_node.job import Align
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.transport.memory import memory_channels, run_together

pytestmark = pytest.mark.ray
GROUP = Curve25519()
EXPONENT = int.from_bytes(b"an exponent of thirty-two bytes\x40", "little") // 8 * 8
POWERS = Exponent(GROUP, EXPONENT, True)


@contextmanager
def refused(said):
    with pytest.raises(VflError, match=said) as caught:
        yield
    assert caught.value.code == "E_WORKER"


@pytest.fixture(scope="module")
def tasks(cluster):
    from vfl_node import tasks_for_tests

    return tasks_for_tests


@pytest.fixture(scope="module")
def engine(cluster):
    with closing(Cluster(cluster.settings, describe_build)) as made:
        yield made


@pytest.fixture(scope="module")
def rows():
    return GROUP.hash_to_group([b"patient-%05d" % number for number in range(40_000)], b"test")


def blocks_of(rows, size):
    return (rows[start : start + size] for start in range(0, len(rows), size))


def powers(engine, rows, size):
    return np.concatenate(list(engine.map(block_powers, blocks_of(rows, size), POWERS)))


@pytest.fixture(scope="module")
def expected(rows):
    with closing(Threads(2)) as threads:
        return powers(threads, rows, 512)


# Same bytes.


@pytest.mark.parametrize(("size", "count"), [(1, 300), (511, 10_000), (16_384, 40_000)])
def test_powers_are_those_of_threads_whatever_the_blocks(engine, rows, expected, size, count):
    assert powers(engine, rows[:count], size).tobytes() == expected[:count].tobytes()


def test_a_group_makes_larger_blocks_for_a_cluster(engine, rows, expected):
    computed = list(GROUP.powers(rows, Scalar(EXPONENT), engine, check=True))
    assert [len(block) for block in computed] == [512 * engine.grain, len(rows) - 512 * engine.grain]
    assert np.concatenate(computed).tobytes() == expected.tobytes()


def test_noise_is_that_of_one_process(engine):
    private = generate(1024, Randomness(bytes(32)))
    encrypted = []
    for each in (Inline(), engine):
        encryptor = Encryptor(private.public, Randomness(bytes(32)), each)
        numbers = encryptor.encrypt(range(200), "numbers")
        encrypted.append(numbers.tobytes() + encryptor.blind(numbers[:20], "blind").tobytes())
    assert encrypted[0] == encrypted[1]


def align_with(machine, folder):
    """Rows that both parties of a whole PSI have in common, as each numbers them."""
    names = ("clinic", "lab")
    ids = [[b"patient-%05d" % number for number in numbers] for numbers in (range(20_000), range(5_000, 25_000))]
    sides = []
    for place, (channel, own) in enumerate(zip(memory_channels(*names, job_id="job"), ids, strict=True)):
        side = session(
            names[place],
            {channel.peer: channel},
            Randomness(bytes([place]) * 32),
            align=Align(protocol="psi"),
            folder=folder / names[place],
            memories={channel.peer: MemoryOfOneRun(Randomness(bytes([place + 2]) * 32))},
            pins=MemoryPins(),
            limits=limits_from(1),
            **machine,
        )
        sides.append((align(side, OwnRecords(Identifiers.from_items(own)), group=GROUP), channel))
    return [result.rows.tolist() for result in run_together(*sides)]


def test_a_whole_intersection_is_that_of_threads(engine, tmp_path):
    with closing(Threads(2)) as threads:
        alone = align_with({"workers": threads}, tmp_path / "threads")
        assert align_with({"workers": engine, "beside": threads}, tmp_path / "cluster") == alone
    assert len(alone[0]) == 15_000


# What the contract says of errors, order and cancelling.


def test_an_exception_keeps_its_kind_and_tells_where_it_rose(engine, tasks):
    with pytest.raises(DataError) as caught:
        list(engine.map(tasks.refuse, [1], None))
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("E_TEST", "a message", "a hint")
    assert "in refuse" in str(caught.value.__cause__)


def test_what_cannot_be_pickled_is_an_exception_too(engine, tasks):
    with pytest.raises(RuntimeError, match="Odd in a worker process"):
        list(engine.map(tasks.raise_odd, [1], None))
    for operation, block in ((tasks.unpicklable, 1), (tasks.same, lambda: None)):
        with pytest.raises((AttributeError, TypeError, RuntimeError)):
            list(engine.map(operation, [block], None))
    assert list(engine.map(tasks.add, [1], 1)) == [2]


def test_an_operation_of_another_package_is_refused(engine):
    with pytest.raises(ValueError, match="not of this package"):
        list(engine.map(os.getpriority, [1], None))


def test_results_come_in_order_from_several_workers(engine, tasks):
    values, processes = zip(*engine.map(tasks.late, range(12), None), strict=True)
    assert values == tuple(range(12))
    assert len(set(processes)) == 2
    assert set(processes) <= set(link_of(engine).workers)


def test_an_abandoned_iterator_drops_its_work(engine, tasks, tmp_path):
    results = engine.map(tasks.note, [(f"a{number}", "gate") for number in range(8)], tmp_path)
    assert soon(lambda: len(list(tmp_path.iterdir())) == 2)
    results.close()
    (tmp_path / "gate").touch()
    assert list(engine.map(tasks.add, range(20), 1)) == list(range(1, 21))
    assert len((tmp_path / "log").read_text().split()) <= engine.workers  # those that were at the workers


def test_a_key_is_gone_from_the_workers_when_its_work_is_done(engine, tasks):
    for number in range(20):
        list(engine.map(tasks.same, range(4), ("secret", number)))
    assert set(map(tuple, engine.map(tasks.keys_held, range(8), "own"))) == {(1,)}


def test_blocks_in_flight_are_bounded(cluster, tasks):
    with closing(Cluster(cluster.settings_with(most_in_flight_mib=3), describe_build)) as engine:
        most, stop = [0], threading.Event()

        def watch():
            while not stop.wait(0.0005):
                most[0] = max(most[0], link_of(engine)._in_flight if link_of(engine) else 0)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        large = [bytes([number]) * (1 << 20) for number in range(30)] + [bytes(5 << 20)]
        assert list(engine.map(tasks.same, large, None)) == large
        stop.set()
        watcher.join()
        assert 1 << 20 < most[0] <= (5 << 20) + 1000  # the last one goes alone


# What is lost.


def test_a_worker_that_is_killed_is_replaced_and_no_byte_differs(engine, rows, expected):
    results = engine.map(block_powers, blocks_of(rows, 4096), POWERS)
    computed = [next(results)]
    before = list(link_of(engine).workers)
    os.kill(before[-1], signal.SIGKILL)
    computed += results
    assert np.concatenate(computed).tobytes() == expected.tobytes()
    assert not running(before[-1])
    assert link_of(engine).process.poll() is None


def test_a_block_that_is_lost_is_computed_again(engine, tasks, tmp_path):
    assert list(engine.map(tasks.die_first, range(3), tmp_path)) == [0, 1, 2]


def test_a_block_that_kills_every_worker_is_given_up_and_others_are_not(cluster, tasks):
    with closing(Cluster(cluster.settings_with(retries=1), describe_build)) as engine:
        fatal = engine.map(tasks.die, [None], None)
        assert list(engine.map(tasks.add, range(50), 1)) == list(range(1, 51))
        with refused("2 workers were lost over it"):
            next(fatal)


def test_a_driver_that_is_killed_ends_its_work_and_the_next_has_another(engine, tasks):
    results = engine.map(tasks.sleep, [600], None)
    assert soon(lambda: link_of(engine) and link_of(engine)._waiting)
    before = link_of(engine)
    os.kill(before.process.pid, signal.SIGKILL)
    with refused("exit status -9"):
        next(results)
    assert soon(lambda: not any(map(running, before.workers)))
    assert list(engine.map(tasks.add, [1], 1)) == [2]


# What ends.


def test_close_in_the_middle_of_a_block_leaves_no_process(cluster, tasks):
    engine = Cluster(cluster.settings_with(slots=3), describe_build)
    list(engine.map(tasks.late, range(8), None))
    busy, link = engine.map(tasks.sleep, [600] * 20, None), link_of(engine)
    assert soon(lambda: len(link._waiting) == engine.workers)
    engine.close()
    assert not running(link.process.pid)
    assert soon(lambda: not any(map(running, link.workers)))
    with pytest.raises((VflError, CancelledError)):
        next(busy)


def test_a_forgotten_engine_leaves_no_process(cluster, tasks):
    engine = Cluster(cluster.settings_with(slots=4), describe_build)
    list(engine.map(tasks.add, [1], 1))
    link = link_of(engine)
    del engine
    gc.collect()
    assert soon(lambda: not running(link.process.pid))
    assert soon(lambda: not any(map(running, link.workers)))


def test_engines_of_one_node_share_workers_and_the_last_one_ends_them(cluster, tasks):
    settings = cluster.settings_with(slots=5)
    first, second = (Cluster(settings, describe_build) for _ in range(2))
    list(first.map(tasks.add, [1], 1)), list(second.map(tasks.add, [1], 1))
    link = link_of(first)
    assert link is link_of(second)
    busy = first.map(tasks.sleep, [0.5] * 4, None)
    first.close()
    with pytest.raises((VflError, CancelledError)):
        next(busy)
    assert list(second.map(tasks.add, range(9), 1)) == list(range(1, 10))
    second.close()
    assert not running(link.process.pid)


NODE = """
import os, sys, time
import vfl_node
vfl_node.__path__.append(os.environ["VFL_TEST_OPERATIONS"])
from vfl_node import tasks_for_tests as tasks
from vfl_node.crypto.build import describe_build
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.settings.engine import EngineSettings
engine = Cluster(EngineSettings.model_validate_json(sys.argv[1]), describe_build)
list(engine.map(tasks.late, range(8), None))
busy = engine.map(tasks.sleep, [600] * 2, None)
print(engine._seat._link.process.pid, *engine._seat._link.workers, flush=True)
assert "ray" not in sys.modules
time.sleep(600)
"""


def test_no_process_survives_a_node_that_is_killed(cluster, tasks):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = cluster.settings.model_dump_json(exclude_defaults=True)
    with subprocess.Popen([sys.executable, "-c", NODE, given], env=environment, stdout=subprocess.PIPE, text=True) as node:
        processes = [int(word) for word in node.stdout.readline().split()]
        assert len(processes) == 3
        node.kill()
        node.wait()
    assert soon(lambda: not any(map(running, processes)))


# Who is refused.


def settings_of(cluster, kind, folder):
    if kind == "token":
        (folder / "token").write_text(secrets.token_hex(32))
        (folder / "token").chmod(0o600)
        return cluster.settings_with(token_file=folder / "token", start_s=600)
    if kind == "no TLS":
        return cluster.settings_with(ca=None, cert=None, key=None, allow_plain=True, start_s=600)
    make_certificates(folder)
    return cluster.settings_with(ca=folder / "ca.pem", start_s=600)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("token", "did not accept the token"),
        ("no TLS", "not without cert"),
        ("authority", "certificates .* do not fit"),
    ],
)
def test_a_wrong_token_authority_or_no_tls_is_refused_in_time(cluster, tasks, tmp_path, monkeypatch, kind, said):
    monkeypatch.setattr(links, "_CONNECT_S", 600)  # nobody has to wait until a deadline
    with closing(Cluster(settings_of(cluster, kind, tmp_path), describe_build)) as engine, refused(said):
        list(engine.map(tasks.add, [1], 1))  # Ray itself would go on trying
    assert not running(link_of(engine).process.pid)


def test_another_build_is_refused_and_both_are_named(cluster, tasks):
    with closing(Cluster(cluster.settings_with(slots=6), tasks.build_of_each_process)) as engine:
        with refused(f"another build of vfl-node: here build {os.getpid()}; there build [0-9]+"):
            list(engine.map(tasks.add, [1], 1))
        assert not link_of(engine).workers  # none was given the engine's key
    assert not running(link_of(engine).process.pid)


def test_more_workers_than_there_are_cores_do_what_they_can_and_the_next_engine_has_none_in_time(cluster, tasks):
    with closing(Cluster(cluster.settings_with(workers=5), describe_build)) as greedy:
        list(greedy.map(tasks.sleep, [0.2] * 12, None))
        assert list(greedy.map(tasks.add, range(20), 1)) == list(range(1, 21))
        with closing(Cluster(cluster.settings_with(start_s=4), describe_build)) as engine, refused("no worker started"):
            list(engine.map(tasks.add, [1], 1))


# What lies in the open, and the head.

IDS = [b"a very secret patient %05d" % number for number in range(3)]


def look_for_traces(cluster, tasks, engine):
    """Work with ids in large blocks, an exponent and an error, of more than the object store holds; what is found of them."""
    large = b"".join(IDS) * 400_000
    blocks = [(large[: STORE_BYTES // 3], POWERS, number) for number in range(8)]
    results = engine.map(tasks.same_later, blocks, POWERS)
    next(results)
    found = [look_through(cluster)]  # while blocks are there
    assert [number for _, _, number in results] == list(range(1, 8))
    list(engine.map(block_powers, [GROUP.hash_to_group(IDS, b"test")] * 4, POWERS))
    with pytest.raises(TypeError):
        list(engine.map(tasks.add, IDS, 1))
    found.append(look_through(cluster))
    for kind in ("/fd/", "/spill/", "/logs/"):
        assert any(kind in place for _, places in found for place in places), kind
    return set.union(*(patterns for patterns, _ in found))


def look_through(cluster):
    """Which ids and exponents lie in a cluster's files, logs, spilled objects or object store; and where was looked."""
    patterns = {*IDS, EXPONENT.to_bytes(32, "little")}
    places = [path for path in cluster.folder.rglob("*") if path.is_file() and cluster.folder / "more" not in path.parents]
    for process in cluster.processes("raylet"):  # the object store is a file of the first, which has no name any more
        places += [path for path in Path(f"/proc/{process}/fd").iterdir() if "/dev/shm/" in str(path.readlink())]
    found = set()
    for place in places:
        with suppress(FileNotFoundError):  # a spilled object that is not needed any more
            data = place.read_bytes()
            found |= {pattern for pattern in patterns if pattern in data}
    return found, [str(place) for place in places]


def test_nothing_lies_in_the_open_in_object_store_spilled_files_and_logs(cluster, tasks):
    with closing(Cluster(cluster.settings_with(slots=4, workers=1), describe_build)) as engine:
        assert look_for_traces(cluster, tasks, engine) == set()


@pytest.fixture(scope="module")
def unsealed():
    """A cluster whose workers seal nothing."""
    with TestCluster(plain=True) as started:
        yield started


class Plain:
    """As the library's cipher, but does nothing."""

    def __init__(self, key):
        pass

    def encrypt(self, nonce, data, about):
        return bytes(data)

    def decrypt(self, nonce, data, about):
        return bytes(data)


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(sealing, "AESGCM", Plain)


def test_without_seals_ids_and_exponents_would_be_found_there(unsealed, plain, tasks):
    with closing(Cluster(unsealed.settings_with(slots=4, workers=1), describe_build)) as engine:
        assert look_for_traces(unsealed, tasks, engine) == {*IDS, EXPONENT.to_bytes(32, "little")}


def test_a_head_that_is_killed_ends_the_work(unsealed, plain, tasks):
    with closing(Cluster(unsealed.settings, describe_build)) as engine:
        assert list(engine.map(tasks.add, [1], 1)) == [2]
        busy = engine.map(tasks.sleep, [600], None)
        for process in unsealed.processes("gcs_server"):
            os.kill(process, signal.SIGKILL)
        with refused("the driver of the cluster ended"):
            next(busy)
        assert soon(lambda: not running(link_of(engine).process.pid))
