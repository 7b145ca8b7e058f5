"""A block is computed again when its worker was lost. So no operation draws random numbers: whoever makes the blocks does."""

from __future__ import annotations

import pickle
import random
import re
import secrets
import time
import uuid
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import vfl_node
from vfl_node.alignment.lists import buckets
from vfl_node.alignment.lists.columns import Given
from vfl_node.alignment.lists.picked import Picked
from vfl_node.crypto.groups import Curve25519, Scalar, contract
from vfl_node.crypto.nearest import search
from vfl_node.crypto.paillier import ciphertexts, decryption, encryption, matrix, packing
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.contract import Inline

IDS = [b"patient-%d" % number for number in range(10)]

OPERATIONS = {
    buckets: ("divide", "order_bucket", "is_distinct", "find_in_bucket"),
    ciphertexts: ("_add", "_add_plain", "_scale"),
    contract: ("block_powers", "blind_block", "check_block"),
    decryption: ("_decrypt",),
    encryption: ("_powers_of_base", "_powers_of_n"),
    matrix: ("_block",),
    packing: ("_pack",),
    search: ("_search_block",),
}
"""Module → its operations of engines."""

GIVEN = re.compile(r"(?:engine\.map|_map_rows|_map_few|_compute_each)\(\s*(?:self\._engine, |engine, )?(\w+)")
PASSED_ON = {"operation", "self", "engine"}


def test_these_are_the_operations():
    given = set()
    for path in Path(vfl_node.__file__).parent.rglob("*.py"):
        if "engines" not in path.parts:
            given |= set(GIVEN.findall(path.read_text())) - PASSED_ON
    assert given == {name for names in OPERATIONS.values() for name in names}


class Twice(Inline):
    """Computes each block two times, as two workers would: from copies of its own, and without random numbers of the system."""

    def __init__(self):
        self.seen = set()

    def map(self, operation, blocks, key, *, background=False):
        return (self.compute(operation, pickle.dumps((key, block))) for block in blocks)

    def compute(self, operation, given):
        results = []
        for _ in range(2):
            key, block = pickle.loads(given)
            with mock.patch("os.urandom", refuse), mock.patch("random._urandom", refuse):
                results.append(pickle.dumps(operation(key, block)))
        assert results[0] == results[1]
        self.seen.add(operation)
        return pickle.loads(results[0])


def refuse(size):
    raise AssertionError("an operation draws random numbers")


def toss():
    return random.random()


def draw(how, block):
    return how()


@pytest.mark.parametrize("how", [secrets.token_bytes, np.random.default_rng, uuid.uuid4, toss, time.perf_counter_ns])
def test_what_draws_is_found(how):
    with pytest.raises(AssertionError):
        list(Twice().map(draw, [1], how))


@pytest.fixture
def twice():
    return Twice()


def use_groups(engine):
    group, scalar = Curve25519(), Scalar(8 * 12345)
    rows = np.concatenate(
        list(group.blinded(Picked(Identifiers.from_items(IDS), np.arange(len(IDS))), b"test", scalar, engine))
    )
    group.checked(rows, engine)
    list(group.powers(rows, scalar, engine, check=True))
    return rows


def use_buckets(engine, rows, folder):
    with buckets.Buckets(Given(rows, 4), rows.shape[1], 1, engine, folder) as divided:
        assert divided.are_distinct()
        assert sorted(divided.ascending()) == list(range(len(rows)))
        assert divided.find(divided).tolist() == list(range(len(rows)))
    list(search.nearest(rows, rows, 2, engine))


def use_ciphertexts(engine):
    private = generate(1024, Randomness(bytes(32)))
    public = private.public
    encryptor = encryption.Encryptor(public, Randomness(bytes(32)), engine)
    numbers = encryptor.encrypt(range(4), "numbers")
    blinded = encryptor.blind(numbers, "blind")
    moved = ciphertexts.add_plain(public, ciphertexts.add(public, numbers, blinded, engine), [1] * 4, engine)
    scaled = ciphertexts.scale(public, moved, [1, 2, 3, 4], 8, engine)
    whole = matrix.multiply(public, np.arange(8).reshape(4, 2), scaled, engine)
    packed = packing.pack(public, whole, 32, engine)
    assert packing.unpack(decryption.decrypt(private, packed, engine), 32, 2, packing.slots(public, 32)) == [240, 290]


def test_every_operation_gives_the_same_bytes_again(twice, tmp_path):
    use_buckets(twice, use_groups(twice), tmp_path)
    use_ciphertexts(twice)
    assert twice.seen == {getattr(module, name) for module, names in OPERATIONS.items() for name in names}
