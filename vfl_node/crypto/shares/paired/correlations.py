"""Random values that two parties make together, ahead of need and without knowing what they will be used for.

=======================  ==========================================  ===================================================
correlation                  what each party has                         what is sent, about
=======================  ==========================================  ===================================================
:class:`Transfers`       a random bit α, the other a number β,       16 bytes each, by who has the bits
                         and shares of αβ
:class:`Linear`          the party without the matrix X a random b,  82 kB a block of rows, by it; of an Xᵀ for as many
                         and both shares of X·b                      columns as are in a ciphertext
:class:`InnerProducts`   random u and v of each row, and shares of   19 bytes a term by the active party, 30 bytes a row by
                         ⟨u, v⟩ modulo a prime                       the other; of 4,096 rows at least
:class:`OwnNoise`        numbers that it alone knows                 nothing
=======================  ==========================================  ===================================================

Each is a computation of its own (:mod:`vfl_node.crypto.shares.rounds`), whose messages are openings of words: who counts, and
who compares what was opened, need to know nothing of it. All that is drawn depends on the section and the place in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, cycle, islice, pairwise
from math import prod

import numpy as np

from vfl_node.crypto.discrete_gaussian import DiscreteGaussian
from vfl_node.crypto.lattice import sizes
from vfl_node.crypto.lattice.keys import PublicRingKey, SecretKey
from vfl_node.crypto.lattice.parameters import LINEAR
from vfl_node.crypto.lattice.products import multiply, multiply_transposed, open_forward, open_transposed
from vfl_node.crypto.lattice.ring import SLOTS
from vfl_node.crypto.lattice.sizes import Tiles
from vfl_node.crypto.lattice.slots import answer_terms, encrypt_terms, open_terms
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import Material
from vfl_node.crypto.shares.paired.tools import PairTools, draw_seed, hand_over, reading
from vfl_node.crypto.shares.ring import BITS, BYTES, Ring
from vfl_node.crypto.transfer.products import draw_bits, draw_numbers
from vfl_node.crypto.transfer.sizes import message_bytes


@dataclass(frozen=True)
class Transfers:
    """Products of random bits of one party and random numbers of the other.

    Attributes:
        receiver: place of the party that has the bits.
        count: how many.
    """

    receiver: int
    count: int

    @property
    def kept_bytes(self) -> int:
        """What a party keeps of it."""
        return 2 * BYTES * self.count

    async def make(self, machine: ShareMachine, tools: PairTools | None, place: str) -> Material:
        """``bits`` or ``numbers``, and ``share``, uint64[count]; ``place`` names where they are used."""
        made: dict[str, Ring] = {}

        def extend(randomness: Randomness) -> bytes:
            assert tools is not None
            message, random = draw_bits(tools.receiver, randomness, place, self.count)
            made.update(bits=random.bits, share=random.share)
            return message

        (message,) = await machine.run(hand_over(self.receiver, message_bytes(self.count), extend))
        if tools is not None and machine.place != self.receiver:
            with reading("transfers"):
                random = draw_numbers(tools.sender, place, self.count, message)
            made.update(numbers=random.numbers, share=random.share)
        return made


@dataclass(frozen=True)
class Linear:
    """A product of a matrix of one party with a random one of the other.

    Attributes:
        owner: of the matrix X.
        tiles: how X is cut.
        blocks: of its rows that are meant.
        outputs: columns of the random matrix.
        transposed: whether Xᵀ is meant.
    """

    owner: int
    tiles: Tiles
    blocks: tuple[int, ...]
    outputs: int
    transposed: bool

    @property
    def kept_bytes(self) -> int:
        """What a party keeps of it, at most."""
        return BYTES * (self._rows + self.tiles.columns) * self.outputs

    async def make(self, machine: ShareMachine, tools: PairTools | None, place: str) -> Material:
        """``mask`` at the party without the matrix, and ``product`` at both."""
        made: dict[str, Ring] = {}

        def answer(randomness: Randomness) -> bytes:
            assert tools is not None
            blocks = [tools.blocks[self.owner][number] for number in self.blocks]
            shape = (self._rows if self.transposed else self.tiles.columns), self.outputs
            made["mask"] = randomness.derive("mask").uint64(prod(shape)).reshape(shape)
            multiplied = multiply_transposed if self.transposed else multiply
            answers, made["product"] = multiplied(tools.their_key, blocks, made["mask"], randomness.derive("answer"))
            return b"".join(answers)

        (message,) = await machine.run(hand_over(1 - self.owner, sum(self._sizes), answer))
        if tools is not None and machine.place == self.owner:
            starts = list(accumulate(self._sizes, initial=0))
            answers = [message[start:stop] for start, stop in pairwise(starts)]
            with reading("answers"):
                if self.transposed:
                    made["product"] = open_transposed(tools.key, self.tiles, answers, self.outputs)
                else:
                    made["product"] = open_forward(tools.key, self.tiles, answers, self._rows, self.outputs)
        return made

    @property
    def _rows(self) -> int:
        return len(self.blocks) * self.tiles.tile_rows

    @property
    def _sizes(self) -> list[int]:
        """Bytes of each answer: of a block, or of the columns of a tile."""
        if self.transposed:
            useful = [self.tiles.tile_width(tile) for tile in range(self.tiles.across)]
        else:
            useful = [self.tiles.tile_rows] * len(self.blocks)
        return [self.outputs * LINEAR.answer_bytes(each) for each in useful]


@dataclass(frozen=True)
class InnerProducts:
    """Inner products of a random vector of each party for each row, modulo a prime below 2⁴⁰.

    Attributes:
        terms: length of a vector, an even number.
        rows: how many.
    """

    terms: int
    rows: int

    @property
    def kept_bytes(self) -> int:
        """What a party keeps of it."""
        return BYTES * (self.terms + 1) * self.rows

    async def make(self, machine: ShareMachine, tools: PairTools | None, place: str) -> Material:
        """``factors``, uint64[terms, rows], and ``share``, uint64[rows]."""
        made: dict[str, Ring] = {}

        def encrypt(randomness: Randomness) -> bytes:
            assert tools is not None
            assert isinstance(tools.slots, SecretKey)
            made["factors"] = self._draw(randomness)
            return encrypt_terms(tools.slots, made["factors"], randomness.derive("encryption"))

        def answer(randomness: Randomness) -> bytes:
            assert tools is not None
            assert isinstance(tools.slots, PublicRingKey)
            made["factors"] = self._draw(randomness)
            with reading("terms"):
                message, made["share"] = answer_terms(tools.slots, terms, made["factors"], randomness.derive("answer"))
            return message

        (terms,) = await machine.run(hand_over(0, sizes.terms_bytes(self.terms, self.rows), encrypt))
        (back,) = await machine.run(hand_over(1, sizes.terms_answer_bytes(self.rows), answer))
        if tools is not None and machine.place == 0:
            assert isinstance(tools.slots, SecretKey)
            with reading("answers"):
                made["share"] = open_terms(tools.slots, back, self.rows)
        return made

    def _draw(self, randomness: Randomness) -> Ring:
        return SLOTS.masks(randomness.derive("factors"), self.terms * self.rows).reshape(self.terms, self.rows)


@dataclass(frozen=True)
class OwnNoise:
    """Discrete Gaussian numbers that each party draws for itself: ahead of need, since how long it takes depends on them.

    Attributes:
        count: how many.
        variances: of the numbers in turns.
    """

    count: int
    variances: tuple[int, ...]

    @property
    def kept_bytes(self) -> int:
        """What a party keeps of it."""
        return BYTES * self.count

    async def make(self, machine: ShareMachine, tools: PairTools | None, place: str) -> Material:
        """``noise``, uint64[count]."""
        (seed,) = await machine.run(draw_seed())
        if tools is None:
            return {}
        randomness = Randomness(seed)
        each = cycle([DiscreteGaussian(randomness, variance) for variance in self.variances])
        drawn = [number.draw() % (1 << BITS) for number in islice(each, self.count)]
        return {"noise": np.array(drawn, np.uint64)}


Made = Transfers | Linear | InnerProducts | OwnNoise
"""Any of them."""
