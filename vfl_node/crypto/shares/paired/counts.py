"""A histogram of secret scores of two parties, by ciphertexts of powers of x.

Each party has a share of a row's score. The bin of the score is the sum of both shares' bins modulo the number of bins, or one
less, by a coin with the right mean. The active party sends for each row a ciphertext of a·x^(its bin), the other one multiplies
by p·x^(its own), where a and p are the bits of who owns the row; all rows are summed up, and the exponents of x add up ::

    Σ_i a_i·p_i·x^(u_i + v_i)           as shares; a bin and its fold one period above are added

With labels the active party's coefficient is 1 + y·2³²: a count has all rows in its lower half, and those of label 1 in its
upper half (:func:`separate`).

Scores are within ±16 (:mod:`.clamps`), so each has a bin.

Source: ours.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vfl_node.crypto.lattice.keys import PublicRingKey, SecretKey
from vfl_node.crypto.lattice.monomials import MonomialTally, encrypt_monomials, open_tally
from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.sizes import monomial_ciphertexts, monomials_bytes, tally_bytes
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER
from vfl_node.crypto.shares.paired.clamps import UNIT
from vfl_node.crypto.shares.paired.operations import choose
from vfl_node.crypto.shares.paired.tools import PairTools, hand_over, nothing, reading
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.rounds import Computation, run_beside
from vfl_node.crypto.shares.tallies import Level
from vfl_node.crypto.shares.values import Shared

FINE_BITS = 5
MOST = 2.0 ** (FINE_BITS - 1) - UNIT
"""Scores are within ±MOST, where a coin puts none of them into the bin at the other end."""

_HALF_BITS = np.uint64(32)

ROWS_AT_ONCE = 512
"""Rows of which ciphertexts are sent at a time: 5 MB with 256 bins, for each output."""


def fine(bins: int) -> Level:
    """The bins that are kept."""
    return Level(FINE_BITS, bins)


async def count(
    machine: ShareMachine,
    tools: PairTools | None,
    scores: Shared,
    labels: Ring | None,
    own: Ring | None,
    bins: int,
) -> list[Shared]:
    """As :meth:`vfl_node.crypto.shares.kits.Kit.count`, of :data:`ROWS_AT_ONCE` rows at most. Two rounds.

    Args:
        machine: of whoever runs it.
        tools: of a party; None where nobody computes.
        scores: [n, K], within ±16.
        labels: as there.
        own: uint64[n], 1 where this party owns the row; None where nobody computes.
        bins: of the range.
    """

    def job(output: int) -> Computation:
        said = None if labels is None else labels[:, output]
        return partial(_count, tools=tools, scores=scores[:, output], labels=said, own=own, level=fine(bins))

    return [Shared(part, 0) for part in await run_beside(machine, *map(job, range(scores.shape[1])))]


async def _count(
    machine: ShareMachine,
    tools: PairTools | None,
    scores: Shared,
    labels: Ring | None,
    own: Ring | None,
    level: Level,
) -> Ring:
    """A party's share of the histogram, uint64[bins, 1], in the order of the level's bins."""
    (rows,), bins = scores.shape, level.bins
    stride = 2 * bins
    exponents = _bins(scores, level)
    count, each = monomial_ciphertexts(rows, stride), monomials_bytes()
    made: dict[str, Ring] = {}

    def encrypt(randomness: Randomness) -> bytes:
        assert tools is not None
        assert own is not None
        assert isinstance(tools.counts, SecretKey)
        marks = own if labels is None else own * (labels << _HALF_BITS | np.uint64(1))
        return b"".join(encrypt_monomials(tools.counts, exponents.view(np.int64), marks, stride, randomness))

    def answer(randomness: Randomness) -> bytes:
        assert tools is not None
        assert own is not None
        assert isinstance(tools.counts, PublicRingKey)
        total, per = MonomialTally(tools.counts, stride), N // stride
        with reading("ciphertexts of scores"):
            for at in range(count):
                part, place = slice(at * per, (at + 1) * per), slice(at * each, (at + 1) * each)
                total.add(sent[place], exponents[part].view(np.int64), own[part])
        message, made["share"] = total.answer(randomness)
        return message

    (sent,) = await machine.run(hand_over(0, count * each, encrypt))
    (back,) = await machine.run(hand_over(1, tally_bytes(stride), answer))
    if machine.place == DEALER:
        return nothing((bins, 1))
    if machine.place == 0:
        assert tools is not None
        assert isinstance(tools.counts, SecretKey)
        with reading("answers"):
            made["share"] = open_tally(tools.counts, back, stride)
    folded = made["share"].reshape(2, bins).sum(axis=0, dtype=np.uint64)
    return np.roll(folded, bins // 2)[:, None]  # numbers from half of the range below 0 on


async def separate(machine: ShareMachine, packed: Shared) -> Shared:
    """Counts of rows with label 0 and 1, [..., 2], of numbers n + p·2³² with n, p < 2³¹ in shares, [..., 1]. Two rounds.

    Both halves of a share are below 2³², and a sum below 2³¹ has wrapped around exactly if one of them is 2³¹ or more ::

        n = Σ low − wrap·2³²        p = Σ (high + wrap) − wrap′·2³²
    """
    shape, half = packed.shape, np.uint64(1 << 32)

    async def lift(residues: Ring) -> tuple[Ring, Ring]:
        """Shares of a number below 2³¹ and of whether its residues wrap around."""
        top = residues >> np.uint64(31)
        (both,) = await machine.run(choose(0, top, top, shape))
        wrap = top - both
        return residues - wrap * half, wrap

    low = packed.part & (half - np.uint64(1))
    every, carry = await lift(low)
    upper, _ = await lift(((packed.part >> _HALF_BITS) + carry) & (half - np.uint64(1)))
    if machine.place == DEALER:
        return Shared(nothing((*shape[:-1], 2)), 0)
    return Shared(np.concatenate([every - upper, upper], axis=-1), 0)


def _bins(scores: Shared, level: Level) -> Ring:
    """The bin of a share, uint64[n]."""
    bits = scores.fraction + level.range_bits
    cut = np.uint64(bits - level.bins.bit_length() + 1)
    return (scores.part & np.uint64((1 << bits) - 1)) >> cut
