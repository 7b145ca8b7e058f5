"""What travels between data parties is as much of each number as is opened: sums carry nothing beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vfl_node.crypto.shares.operation import Opening
from vfl_node.crypto.shares.ring import Ring
from vfl_node.errors import ProtocolError
from vfl_node.session.share_wire import DealingSink, PairWire, StarWire
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.shares_pb2 import Corrections, CorrectionsUsed, MaskedShares
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

NAMES = ("clinic", "lab", "insurer")
NUMBERS = 2000
SHOWN = [
    Opening((NUMBERS,), bits=49),
    Opening((NUMBERS,), to=1, bits=49),
    Opening((NUMBERS,), by=1, bits=12),
    Opening((NUMBERS,)),
]


def drawn(parties: int) -> list[list[Ring]]:
    """Shares of each party."""
    rng = np.random.default_rng(parties)
    return [
        [rng.integers((1 << each.bits) - 1, size=NUMBERS, dtype=np.uint64, endpoint=True) for each in SHOWN]
        for _ in range(parties)
    ]


def opened(shares: list[list[Ring]]) -> tuple[list[list[Ring]], Recorder]:
    """What each party gets, and what was sent."""
    names, recorder = NAMES[: len(shares)], Recorder()
    network, runs = memory_network(*names), []
    for place, name in enumerate(names):
        peers = names[1:] if place == 0 else names[:1]
        channels = [recorder.wrap(name, network[name][peer]) for peer in peers]
        wire: Any = PairWire(place, channels[0]) if len(names) == 2 else StarWire(place, channels)
        runs.append((wire.open(SHOWN, shares[place]), channels))
    return run_together(*runs), recorder


@pytest.mark.parametrize("parties", [2, 3])
def test_everybody_gets_the_sum_modulo_the_bits_that_are_opened(parties: int) -> None:
    shares = drawn(parties)
    found, _ = opened(shares)
    for number, each in enumerate(SHOWN):
        whole: Any = sum(of[number].astype(object) for place, of in enumerate(shares) if each.by in (None, place))
        assert each.by is not None or (whole >= 1 << each.bits).any()  # there is a carry to be lost
        for place in range(parties):
            expected = whole % (1 << each.bits) if each.to in (None, place) else 0 * whole
            np.testing.assert_array_equal(found[place][number], expected.astype(np.uint64))


def test_the_active_party_sends_on_no_carry() -> None:
    """A sum of three shares of 49 bits has up to 51, and seven bytes have room for them."""
    shares = drawn(3)
    _, recorder = opened(shares)
    sent = b"".join(of.values for of in recorder.messages(MaskedShares, sender="clinic", receiver="insurer"))
    numbers = np.zeros((NUMBERS, 8), np.uint8)
    numbers[:, :7] = np.frombuffer(sent[: 7 * NUMBERS], np.uint8).reshape(-1, 7)
    whole = sum(of[0] for of in shares)
    assert (whole >> np.uint64(49)).max() == 2
    np.testing.assert_array_equal(numbers.view("<u8").ravel(), whole & np.uint64((1 << 49) - 1))


async def deal(sink: DealingSink) -> None:
    """Send all numbers to a party and hear that it has used them."""
    await sink.put(np.arange(NUMBERS, dtype=np.uint64))
    await sink.finish()


async def use(channel: Channel, claims: list[int]) -> None:
    """Take what the dealer sends and claim these counts of use."""
    while not (await channel.receive(Corrections)).last:
        pass
    for count in claims:
        await channel.send(CorrectionsUsed(count=count))


@pytest.mark.parametrize("claims", [[NUMBERS], [1, NUMBERS - 1], [0], [NUMBERS + 1], [1, NUMBERS], [2**64 - 1]])
def test_the_dealer_believes_no_use_of_numbers_it_has_not_sent(claims: list[int]) -> None:
    network = memory_network("dealer", "clinic")
    dealer, party = network["dealer"]["clinic"], network["clinic"]["dealer"]
    runs = (deal(DealingSink(dealer)), [dealer]), (use(party, claims), [party])
    error, _ = run_together(*runs)
    if sum(claims) == NUMBERS:
        assert error is None
    else:
        assert isinstance(error, ProtocolError)
        assert error.code == "E_COUNT"
