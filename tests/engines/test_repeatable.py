"""A block is computed again when its worker was lost. So no operation draws random numbers: whoever makes the blocks does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import vfl_node
from vfl_node.alignment.lists import buckets
from vfl_node.crypto.groups import contract
from vfl_node.crypto.nearest import search
from vfl_node.crypto.paillier import ciphertexts, decryption, encryption, matrix, packing

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
DRAWS = re.compile(r"[Rr]andom|secrets|urandom|\.draw|shuffle|permutation")


def test_these_are_the_operations():
    given = set()
    for path in Path(vfl_node.__file__).parent.rglob("*.py"):
        if "engines" not in path.parts:
            given |= set(GIVEN.findall(path.read_text())) - PASSED_ON
    assert given == {name for names in OPERATIONS.values() for name in names}


def test_no_operation_draws_random_numbers():
    sources = {name: inspect.getsource(getattr(module, name)) for module, names in OPERATIONS.items() for name in names}
    assert {name for name, source in sources.items() if DRAWS.search(source)} == set()
    assert DRAWS.search(inspect.getsource(encryption.Encryptor.blind) + inspect.getsource(encryption.Encryptor._unit))
