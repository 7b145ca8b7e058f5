"""What two parties make correlations with: keys of both, made once, and each one's columns as ciphertexts at the other.

::

    keys      public keys of both, and the base transfers in both directions         two messages each way
    columns   each party's columns, block by block, under its own key                25 bytes a number

Source: ours, from known parts; what is sent and why it tells nothing stands in :mod:`vfl_node.crypto.lattice` and
:mod:`vfl_node.crypto.transfer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.lattice import parameters, sizes
from vfl_node.crypto.lattice.keys import PublicRingKey, SecretKey
from vfl_node.crypto.lattice.products import EncryptedBlock, encrypt_block
from vfl_node.crypto.lattice.ring import LINEAR, MONOMIALS, SLOTS
from vfl_node.crypto.lattice.sizes import Tiles
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.ring import BYTES, Ring
from vfl_node.crypto.transfer.base import BaseReceiver, BaseSender
from vfl_node.crypto.transfer.extension import RandomReceiver, RandomSender
from vfl_node.crypto.transfer.sizes import ANNOUNCEMENT_BYTES, ANSWER_BYTES
from vfl_node.errors import ProtocolError
from vfl_node.process import failpoints

SEED_WORDS = 4
"""Words of a seed that is drawn."""


@dataclass(frozen=True, eq=False)
class PairTools:
    """What one party makes correlations with.

    Attributes:
        receiver, sender: of random transfers, in both directions.
        key, their_key: this party's key for its columns, and the other's public one.
        slots, counts: keys of the active party for inner products and histograms: its own there, public ones at the other.
        blocks: owner → the columns of the other party, block by block; empty at that owner.
    """

    receiver: RandomReceiver
    sender: RandomSender
    key: SecretKey
    their_key: PublicRingKey
    slots: SecretKey | PublicRingKey
    counts: SecretKey | PublicRingKey
    blocks: dict[int, list[EncryptedBlock]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """A matrix that one party knows, and the other has as ciphertexts of blocks of rows.

    Attributes:
        owner: place of the party that knows it.
        part: uint64[n, d], or transposed, at its owner; None elsewhere.
        fraction: fractional bits.
        tiles: how all of it is cut.
        blocks: which blocks these are, in their order.
        is_transposed: whether it is.
    """

    owner: int
    part: Ring | None
    fraction: int
    tiles: Tiles
    blocks: tuple[int, ...]
    is_transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        rows, columns = len(self.blocks) * self.tiles.tile_rows, self.tiles.columns
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def transposed(self) -> BlockMatrix:
        """Transposed."""
        part = None if self.part is None else self.part.T
        return replace(self, part=part, is_transposed=not self.is_transposed)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> BlockMatrix:
        """Whole blocks of rows. Raises ValueError: others are meant."""
        rows, size = np.arange(self.shape[0])[index], self.tiles.tile_rows
        numbers = rows[::size] // size
        if not np.array_equal(rows, (numbers[:, None] * size + np.arange(size)).ravel()):
            raise ValueError("rows that are no whole blocks")
        part = None if self.part is None else self.part[index]
        return replace(self, part=part, blocks=tuple(self.blocks[number] for number in numbers))


def nothing(shape: Shape) -> Ring:
    """Zeros that take no memory, and are not written to."""
    return np.broadcast_to(np.uint64(0), shape)


def hand_over(sender: int, size: int, make: Callable[[Randomness], bytes]) -> Operation[bytes]:
    """Bytes that one party sends to the other: empty at the sender.

    Args:
        sender: its place.
        size: how many bytes, public.
        make: called at the sender once, with random numbers of this place alone.
    """
    shape = (-(-size // BYTES),)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        if place != sender:
            return (nothing(shape),)
        data = make(Randomness(material["seed"].astype("<u8").tobytes()))
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes where {size} were said")
        return (np.frombuffer(data.ljust(shape[0] * BYTES, b"\0"), "<u8").astype(np.uint64, copy=False),)

    def result(place: int, opened: Sequence[Ring], material: Material) -> bytes:
        return b"" if place in (DEALER, sender) else opened[0].astype("<u8", copy=False).tobytes()[:size]

    return Operation(
        result,
        drawn=(Drawn("seed", (SEED_WORDS,), owner=sender),),
        shown=(Opening(shape, to=1 - sender, by=sender),),
        shares=shares,
    )


def draw_seed() -> Operation[bytes]:
    """A seed of this place that a party alone knows, 32 bytes; empty where nobody computes."""

    def result(place: int, opened: object, material: Material) -> bytes:
        return b"" if place == DEALER else material[f"seed {place}"].astype("<u8").tobytes()

    return Operation(result, drawn=tuple(Drawn(f"seed {place}", (SEED_WORDS,), owner=place) for place in (0, 1)))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Where bytes of the other party are read. Raises ProtocolError: they are no such thing (``E_COUNT``)."""
    try:
        yield
    except ValueError as error:
        raise ProtocolError(
            f"the other data party sent {what} that cannot be read: {error}",
            code="E_COUNT",
            hint="ask its owner whether it runs another version, and submit the job again",
        ) from None


async def swap_keys(machine: ShareMachine, secret: Randomness | None) -> PairTools | None:
    """Keys of both parties. Two rounds.

    Args:
        machine: of a party, or of who counts.
        secret: of this party, the same in every attempt; None where there is none.

    Raises:
        ProtocolError: what the other party sent is no key (``E_COUNT``).
    """
    place, secret = machine.place, secret or Randomness(bytes(32))
    key = SecretKey(LINEAR, secret.derive("columns")) if place != DEALER else None
    own = {name: SecretKey(ring, secret.derive(name)) for name, ring in _ACTIVE.items()} if place == 0 else {}
    base_sender, base_receiver = BaseSender(secret), BaseReceiver(secret)

    def send(sender: int, size: int, data: Callable[[], bytes]) -> Operation[bytes]:
        return hand_over(sender, size, lambda randomness: data())

    def public(secret_key: SecretKey | None) -> bytes:
        assert secret_key is not None
        return secret_key.public.to_bytes()

    size = sizes.public_key_bytes(parameters.LINEAR)
    came = await machine.run(
        *(send(sender, size, lambda: public(key)) for sender in (0, 1)),
        *(send(sender, ANNOUNCEMENT_BYTES, lambda: base_sender.announcement) for sender in (0, 1)),
        *(send(0, sizes.public_key_bytes(ring.parameters), partial(public, own.get(name))) for name, ring in _ACTIVE.items()),
    )
    if place == DEALER:
        await machine.run(*(send(sender, ANSWER_BYTES, bytes) for sender in (0, 1)))
        return None
    other, of_active = 1 - place, came[4:]
    with reading("keys"):
        answer, chosen = base_receiver.answer(came[2 + other])
        theirs = PublicRingKey.from_bytes(LINEAR, came[other])
        theirs_of = zip(_ACTIVE.items(), of_active, strict=True)
        keys: Mapping[str, SecretKey | PublicRingKey] = own
        if not own:
            keys = {name: PublicRingKey.from_bytes(ring, data) for (name, ring), data in theirs_of}
    answers = await machine.run(*(send(sender, ANSWER_BYTES, lambda: answer) for sender in (0, 1)))
    with reading("base transfers"):
        pairs = base_sender.pairs(answers[other])
    assert key is not None
    return PairTools(RandomReceiver(pairs), RandomSender(chosen), key, theirs, keys["slots"], keys["counts"])


def describe_columns(
    place: int, own: Ring | None, rows: int, widths: Sequence[int], tile_rows: int, fraction: int
) -> list[BlockMatrix]:
    """The columns of both parties, of which a party knows its own.

    Args:
        place: of the party; :data:`~vfl_node.crypto.shares.operation.DEALER` where nobody computes.
        own: uint64[rows, d] of this party; None where nobody computes.
        rows: a multiple of ``tile_rows``.
        widths: columns of both parties.
        tile_rows: rows of a block.
        fraction: fractional bits.
    """
    blocks = tuple(range(rows // tile_rows))
    return [
        BlockMatrix(owner, own if owner == place else None, fraction, Tiles(rows, width, tile_rows), blocks)
        for owner, width in enumerate(widths)
    ]


async def swap_columns(
    machine: ShareMachine, tools: PairTools | None, columns: Sequence[BlockMatrix], after: Callable[[], None] = lambda: None
) -> None:
    """Each party's columns, for the other one as ciphertexts. A round for each few blocks of rows.

    Args:
        machine: of a party, or of who counts.
        tools: of the party, which get the other's columns; None where nobody computes.
        columns: of both parties, as :func:`describe_columns` gives them.
        after: called after each block.

    Raises:
        ProtocolError: what the other party sent are no ciphertexts (``E_COUNT``).
    """
    place, tiles, count = machine.place, [matrix.tiles for matrix in columns], len(columns[0].blocks)
    received: list[EncryptedBlock] = []
    size = sizes.block_bytes(tiles[1 - place]) if tools else 0
    store = np.empty((count, size), np.uint8)  # in one piece, which goes back to the system as one

    def encrypt(block: int, randomness: Randomness) -> bytes:
        assert tools is not None
        own, rows = columns[place].part, tiles[place].tile_rows
        assert own is not None
        return encrypt_block(tools.key, tiles[place], own[block * rows : (block + 1) * rows], randomness)

    together = blocks_together(tiles)
    for first in range(0, count, together):
        some = range(first, min(first + together, count))
        came = await machine.run(
            *(
                hand_over(owner, sizes.block_bytes(each), partial(encrypt, block))
                for block in some
                for owner, each in enumerate(tiles)
            )
        )
        for number, block in enumerate(some):
            if tools is not None:
                store[block] = np.frombuffer(came[2 * number + 1 - place], np.uint8)
                with reading("columns"):
                    received.append(EncryptedBlock.from_bytes(LINEAR, store[block].data, tiles[1 - place]))
                failpoints.reach("columns")
            after()
    if tools is not None:
        tools.blocks[1 - place] = received


def blocks_together(tiles: Sequence[Tiles]) -> int:
    """How many blocks of both parties' columns go over the wire in a round."""
    return max(1, _ROUND_BYTES // max(sizes.block_bytes(each) for each in tiles))


_ROUND_BYTES = 4 << 20
_ACTIVE = {"slots": SLOTS, "counts": MONOMIALS}
