"""Identifiers are hashed and blinded in whole blocks: every engine and kernel gives the bytes of one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from vfl_node.alignment.lists.picked import Picked
from vfl_node.crypto.groups import Curve25519, Group, SafePrimeGroup
from vfl_node.crypto.kernels import find_kernel, names
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.texts import LaidOut, laid_out
from vfl_node.data.identifiers import Identifiers, canonical
from vfl_node.engines.contract import Engine, Inline
from vfl_node.engines.processes import Processes
from vfl_node.engines.threads import Threads
from vfl_node.errors import ProtocolError

IDS = [
    b"",
    b"\0",
    b"a\0b",
    b"x" * 65_536,
    *(canonical(text, "nocase") for text in ("Ä", "A\u0308", "ﬁ", "１２", "\U0001d7d8", " ascii ", "Straße")),
    *(b"text:%d" % number for number in range(1300)),
]
ORDER = np.random.default_rng(1).permutation(len(IDS))
DOMAIN = b"tests"


@pytest.fixture(
    scope="module", params=[Inline, lambda: Threads(2), lambda: Processes(2)], ids=["inline", "threads", "processes"]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    started = request.param()
    yield started
    started.close()


@pytest.fixture(params=["curve25519", "toy"])
def group(request: pytest.FixtureRequest) -> Group:
    return Curve25519() if request.param == "curve25519" else SafePrimeGroup("toy", 2**80 - 5837)


def test_blocks_give_the_bytes_of_single_identifiers(engine: Engine, group: Group) -> None:
    scalar = group.draw(Randomness(bytes(32)))
    places = ORDER if group.name == "curve25519" else ORDER[:50]
    singly = np.concatenate([group.hash_to_group([IDS[place]], DOMAIN) for place in places])
    blocks = list(group.blinded(Picked(Identifiers.from_items(IDS), places), DOMAIN, scalar, engine))
    assert len(blocks) == -(-len(places) // group.block_rows)
    np.testing.assert_array_equal(np.concatenate(blocks), group.power(singly, scalar, Inline()))


@pytest.mark.parametrize("name", names())
def test_every_kernel_blinds_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group, few = Curve25519(), ORDER[:100]
    scalar = group.draw(Randomness(bytes(32)))
    made = {}
    for kernel in (name, "libsodium"):
        monkeypatch.setattr("vfl_node.crypto.groups.curve25519.kernel", lambda kernel=kernel: find_kernel(kernel))
        blocks = group.blinded(Picked(Identifiers.from_items(IDS), few), DOMAIN, scalar, Inline())
        made[kernel] = np.concatenate(list(blocks)).tobytes()
    assert made[name] == made["libsodium"]


def test_a_bad_element_among_good_ones_is_refused_by_workers(engine: Engine) -> None:
    group = Curve25519()
    rows = group.hash_to_group([b"%d" % number for number in range(1100)], DOMAIN)
    assert group.checked(rows, engine) is rows
    for at in (0, 600, 1099):
        spoilt = rows.copy()
        spoilt[at] = 255
        with pytest.raises(ProtocolError, match="is not canonical"):
            group.checked(spoilt, engine)


def test_identifiers_are_picked_in_any_order_and_division() -> None:
    ids = Identifiers.from_items(IDS)
    picked = Picked(ids, ORDER)
    assert len(picked) == len(ORDER)
    text, offsets = picked.part(5, 9).lay_out()
    assert Identifiers(text, offsets.copy())[:] == [IDS[place] for place in ORDER[5:9]]
    assert picked.part(0, 0).lay_out()[0] == b""
    for place in (-1, len(IDS)):
        with pytest.raises(IndexError):
            ids.gather(np.array([0, place]))


def test_only_the_picked_go_to_another_process() -> None:
    make, laid = Picked(Identifiers.from_items(IDS), ORDER[:3]).__reduce__()
    assert make is LaidOut
    assert make(*laid).lay_out()[0] == b"".join(IDS[place] for place in ORDER[:3])
    assert LaidOut(*laid_out(IDS)).part(4, 6).lay_out()[1].tolist() == laid_out(IDS)[1][4:7].tolist()
