"""What goes through a cluster: named operations, and sealed bytes that open under one key and one description."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from nacl.public import PublicKey, SealedBox

from vfl_node.crypto import build
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.groups.contract import Exponent, block_powers
from vfl_node.crypto.paillier.packing import join
from vfl_node.engines.ray.sealing import Sealer, name_of, operation_of
from vfl_node.engines.ray.worker import MOST_KEYS, Worker

KEY = bytes(range(32))
EXPONENT = int.from_bytes(b"an exponent of thirty-two bytes!", "little")
IDS = [b"patient-%05d" % number for number in range(100)]


@pytest.mark.parametrize("thing", [None, (1, "a", b"b"), [2**300], np.arange(12).reshape(3, 4), np.zeros((0, 32), np.uint8)])
def test_what_was_sealed_opens_as_it_was(thing):
    sealer = Sealer(KEY)
    np.testing.assert_equal(sealer.open(sealer.seal(thing, b"about"), b"about"), thing)


def test_an_array_that_was_opened_can_be_written():
    sealer = Sealer(KEY)
    opened = sealer.open(sealer.seal(np.arange(5), b""), b"")
    opened += 1
    assert opened.tolist() == [1, 2, 3, 4, 5]


def test_sealed_bytes_differ_each_time_and_show_nothing():
    thing = (IDS, Exponent(Curve25519(), EXPONENT, True))
    shown = [*IDS, EXPONENT.to_bytes(32, "little")]
    first, second = (Sealer(KEY).seal(thing, b"") for _ in range(2))
    assert first != second
    assert not any(pattern in first for pattern in shown)
    assert all(pattern in pickle.dumps(thing) for pattern in shown)  # so they would be found


class Armed:
    """Whoever unpickles it is done for."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


def test_nothing_is_unpickled_that_was_not_sealed_so():
    sealer = Sealer(KEY)
    sealed = sealer.seal(Armed(), b"block 1")
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for data, about in ((sealed, b"block 2"), (changed, b"block 1"), (sealed[:20], b"block 1"), (b"", b"block 1")):
        with pytest.raises(ValueError, match="was not sealed"):
            sealer.open(data, about)
    with pytest.raises(ValueError, match="was not sealed"):
        Sealer(bytes(32)).open(sealed, b"block 1")
    with pytest.raises(BaseException, match="it was unpickled"):
        sealer.open(sealed, b"block 1")


def test_operations_go_by_their_names_in_this_package():
    assert name_of(block_powers) == "vfl_node.crypto.groups.contract:block_powers"
    assert operation_of(name_of(block_powers)) is block_powers
    with pytest.raises(ValueError, match="not of this package"):
        name_of(subprocess.run)
    with pytest.raises(ValueError, match="not a function of a module"):
        name_of(lambda key, block: None)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "vfl_nodes.x:y",
        "vfl_node.engines.ray.worker:os.system",
        "vfl_node.engines.ray.worker:os._exit",
        "vfl_node.crypto.groups.contract:nothing",
        "vfl_node.nothing:x",
        "",
    ],
)
def test_a_name_of_anything_else_runs_nothing(name):
    with pytest.raises((ValueError, ImportError, AttributeError)):
        operation_of(name)


def admitted():
    worker = Worker()
    public, _, _ = worker.hello("vfl_node.crypto.build:describe_build")
    worker.admit(SealedBox(PublicKey(public)).encrypt(KEY))
    return worker, Sealer(KEY)


def do(worker, sealer, handle, block, number=b"00000001"):
    sealed = sealer.seal((name_of(join), block), b"block" + handle + number)
    answer = worker.do(handle, number, sealed)
    return answer and sealer.open(answer, b"result" + handle + number)


def test_a_worker_computes_under_a_key_that_it_was_given_and_forgets_it():
    worker, sealer = admitted()
    worker.provision(b"h" * 16, sealer.seal((1, 1), b"key" + b"h" * 16))
    assert do(worker, sealer, b"h" * 16, 3) == (9, None, "")
    _, error, trace = do(worker, sealer, b"h" * 16, -1)
    assert isinstance(error, ValueError)
    assert "in join" in trace
    worker.forget(b"h" * 16)
    assert do(worker, sealer, b"h" * 16, 3) is None


def test_a_worker_keeps_the_newest_keys():
    worker, sealer = admitted()
    handles = [bytes([number]) * 16 for number in range(MOST_KEYS + 1)]
    for handle in handles:
        worker.provision(handle, sealer.seal((1, 1), b"key" + handle))
    assert [do(worker, sealer, handle, 1) is None for handle in handles] == [True] + [False] * MOST_KEYS


def test_a_worker_that_no_node_has_admitted_opens_nothing():
    with pytest.raises(ValueError, match="was not admitted"):
        Worker().provision(b"h" * 16, Sealer(KEY).seal(1, b"key" + b"h" * 16))


def test_a_block_or_a_key_of_another_place_is_not_taken():
    worker, sealer = admitted()
    worker.provision(b"h" * 16, sealer.seal((1, 1), b"key" + b"h" * 16))
    with pytest.raises(ValueError, match="was not sealed"):
        worker.provision(b"i" * 16, sealer.seal((1, 1), b"key" + b"h" * 16))
    sealed = sealer.seal((name_of(join), 3), b"block" + b"h" * 16 + b"00000001")
    answer = worker.do(b"h" * 16, b"00000002", sealed)
    _, error, _ = sealer.open(answer, b"result" + b"h" * 16 + b"00000002")
    assert isinstance(error, ValueError)


def test_a_build_is_told_by_its_files_python_and_kernel(monkeypatch, tmp_path):
    described = build.describe_build()
    assert re.fullmatch(r"[0-9a-f]{32}, Python 3\.\d+, kernel \w+", described)
    (tmp_path / "crypto").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(build, "__file__", str(tmp_path / "crypto" / "build.py"))
    other = build.describe_build.__wrapped__()
    (tmp_path / "a.py").write_text("x = 2\n")
    assert len({described, other, build.describe_build.__wrapped__()}) == 3


def test_a_worker_of_another_build_says_so():
    assert Worker().hello("vfl_node.crypto.build:describe_build")[1] == build.describe_build()
    assert "cannot be told (AttributeError)" in Worker().hello("vfl_node.crypto.build:of_another_release")[1]


def test_the_process_of_a_node_knows_no_ray():
    program = "import sys, vfl_node.execution.run, vfl_node.node.serving; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
