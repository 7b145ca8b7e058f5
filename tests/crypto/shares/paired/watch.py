"""What each of two parties receives and draws without a dealer, operation by operation; and protections taken away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from vfl_node.crypto.lattice.parameters import SLOT_PRIME, N
from vfl_node.crypto.lattice.ring import LINEAR, MONOMIALS, SLOTS
from vfl_node.crypto.lattice.ring import Ring as Polynomials
from vfl_node.crypto.lattice.sizes import SEED_BYTES, public_key_bytes
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.operation import Material, Operation
from vfl_node.crypto.shares.paired import correlations, counts, curves, operations, tools
from vfl_node.crypto.shares.paired.correlations import InnerProducts, Linear, Transfers
from vfl_node.crypto.shares.paired.kit import PairKit
from vfl_node.crypto.shares.paired.machine import PairParty
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.transfer import products
from vfl_node.crypto.transfer.blocks import RobustHash
from vfl_node.crypto.transfer.sizes import ANNOUNCEMENT_BYTES, ANSWER_BYTES

HANDED = {
    "swap_columns.<locals>.encrypt": "columns",
    "Transfers.make.<locals>.extend": "transfers",
    "Linear.make.<locals>.answer": "products",
    "InnerProducts.make.<locals>.encrypt": "terms",
    "InnerProducts.make.<locals>.answer": "inner products",
    "_count.<locals>.encrypt": "monomials",
    "_count.<locals>.answer": "tallies",
}
"""Who makes bytes that are handed over → what they are."""


@dataclass(frozen=True, eq=False)
class Seen:
    """An operation as one party has it.

    Attributes:
        place: the party's.
        section, number: the operation's place.
        kind: what it opens.
        opened: what came of the other party, in the order of the operation.
        material: what this party has for it.
        about: what the operation was made of at this party.
        bits: of the numbers in each of what came.
    """

    place: int
    section: str
    number: int
    kind: str
    opened: Sequence[Ring]
    material: Material
    about: Mapping[str, Any] = field(default_factory=dict)
    bits: Sequence[int] = ()


class Watch:
    """Notes all of it, in order.

    Attributes:
        seen: of both parties.
        handed: bytes of ciphertexts and answers that came: (receiver, kind, bytes).
        gated: (place, section) → numbers of the operations that gate, and the party's share of what is gated.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.handed: list[tuple[int, str, bytes]] = []
        self.gated: dict[tuple[int, str], tuple[int, Ring]] = {}
        self._tags: dict[int, tuple[Any, str, dict[str, Any]]] = {}

    def of(self, place: int, kind: str) -> list[Seen]:
        """What one party has of one kind."""
        return [each for each in self.seen if (each.place, each.kind) == (place, kind)]

    def came(self, place: int, kind: str) -> list[bytes]:
        """Bytes handed over to one party."""
        return [data for to, of, data in self.handed if (to, of) == (place, kind)]

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """While it looks on."""
        rounds, hand_over, gate = PairParty._round, tools.hand_over, PairKit.gate
        known_product, add_sines = operations.known_product, curves._add_sines

        async def noted(party: PairParty, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
            each = [(number, replace(of, result=partial(self._note, party, number, of))) for number, of in numbered]
            return await rounds(party, each)

        def handing(sender: int, size: int, make: Any) -> Operation[bytes]:
            name = (make.func if isinstance(make, partial) else make).__qualname__
            kind = HANDED.get(name) or ("points" if size in (ANNOUNCEMENT_BYTES, ANSWER_BYTES) else "keys")
            return self._tag(hand_over(sender, size, make), kind, size=size)

        async def gating(kit: PairKit, machine: Any, value: Any, owned: Any) -> Any:
            if isinstance(machine, PairParty):
                self.gated[machine.place, machine.section] = machine.number, value.part
            return await gate(kit, machine, value, owned)

        def multiplying(matrix: Any, value: Any) -> Any:
            return self._tag(known_product(matrix, value), "vectors", matrix=matrix, value=value.part)

        def adding(value: Any, *rest: Any) -> Any:
            return self._tag(add_sines(value, *rest), "sines", value=value.part, fraction=value.fraction)

        with (
            mock.patch.object(PairParty, "_round", noted),
            mock.patch.object(tools, "hand_over", handing),
            mock.patch.object(correlations, "hand_over", handing),
            mock.patch.object(counts, "hand_over", handing),
            mock.patch.object(PairKit, "gate", gating),
            mock.patch.object(operations, "known_product", multiplying),
            mock.patch.object(curves, "_add_sines", adding),
        ):
            yield self

    def _tag(self, operation: Any, kind: str, **about: Any) -> Any:
        self._tags[id(operation)] = operation, kind, about
        return operation

    def _note(
        self, party: PairParty, number: int, of: Operation[Any], place: int, opened: Sequence[Ring], material: Material
    ) -> Any:
        _, kind, about = self._tags.get(id(of), (of, "", {}))
        if not kind:
            kind = "choices" if isinstance(of.paired, Transfers) else "openings" if of.shown else "draws"
        assert (kind == "vectors") == isinstance(of.paired, Linear)
        assert (kind == "sines") == isinstance(of.paired, InnerProducts)
        mine = [each.by != place and each.to != 1 - place for each in of.shown]
        came = [values for values, here in zip(opened, mine, strict=True) if here]
        bits = [each.bits for each, here in zip(of.shown, mine, strict=True) if here]
        result = of.result(place, opened, material)
        if "size" in about:
            if result:
                self.handed.append((place, kind, result))
        else:
            self.seen.append(Seen(place, party.section, number, kind, came, material, about, bits))
        return result


def residues(kind: str, data: bytes) -> Iterator[tuple[int, Ring]]:
    """Prime and residues of ciphertexts' first parts."""
    ring = {"columns": LINEAR, "terms": SLOTS, "monomials": MONOMIALS}.get(kind)
    if ring is None:
        ring = LINEAR if len(data) == public_key_bytes(LINEAR.parameters) else SLOTS
    each = ring.parameters.polynomial_bytes
    pieces = [data]
    if kind == "monomials":
        pieces = [data[at : at + SEED_BYTES + each] for at in range(0, len(data), SEED_BYTES + each)]
    for piece in pieces:
        for at in range(SEED_BYTES, len(piece), each):
            out = ring.empty()
            assert ring.unpack(piece[at : at + each], out) == 0
            yield from zip(ring.parameters.primes, out, strict=True)


def uniform_bytes(kind: str, data: bytes) -> Ring:
    """What is to be uniform on 0 … 255 of bytes that were handed over."""
    if kind in ("keys", "columns", "terms", "monomials"):
        return np.concatenate([values * np.uint64(256) // np.uint64(prime) for prime, values in residues(kind, data)])
    found = np.frombuffer(data, np.uint8)
    if kind == "points":  # no number of a point's field, nor a negative one, has each first and last byte
        found = found.reshape(-1, 32)[:, 1:-1].ravel()
    return found.astype(np.uint64)


def uniform_numbers(of: Seen) -> dict[str, Ring]:
    """What is to be uniform on 0 … 255, or as bits on 0 and 1, of what was opened."""
    if of.kind == "sines":
        high = [values.ravel().astype(object) * 256 // SLOT_PRIME for values in of.opened]
        return {"sines": np.concatenate(high).astype(np.uint64)}
    found: dict[str, Ring] = {}
    for values, bits in zip(of.opened, of.bits, strict=True):
        flat = np.ascontiguousarray(values, "<u8").ravel()
        if bits == 1:
            found["bits"] = flat
        else:
            found["numbers" if of.kind == "choices" else of.kind] = flat.view(np.uint8).astype(np.uint64)
    return found


# Protections.


@contextmanager
def no_random_bits() -> Iterator[None]:
    """α = 0 in all random transfers: what is opened is the bit itself."""
    draw = products.draw_bits

    def bare(receiver: Any, randomness: Any, place: str, count: int) -> Any:
        with mock.patch.object(np, "unpackbits", return_value=np.zeros(count, np.uint8)):
            return draw(receiver, randomness, place, count)

    with mock.patch.object(correlations, "draw_bits", bare):
        yield


@contextmanager
def no_random_numbers() -> Iterator[None]:
    """All keys of transfers are 0, and so are β and both shares of αβ: what is opened is the number itself."""
    with mock.patch.object(RobustHash, "digest", lambda self, points: np.zeros(len(points), np.uint64)):
        yield


class _Bare(Randomness):
    """Whose masks are 0."""

    def derive(self, label: str) -> Any:
        return _Zeros() if label == "mask" else super().derive(label)


class _Zeros:
    def uint64(self, count: int) -> Ring:
        return np.zeros(count, np.uint64)


@contextmanager
def no_random_vectors() -> Iterator[None]:
    """b = 0 in products with columns: what is opened is the party's own share."""
    with mock.patch.object(tools, "Randomness", _Bare):
        yield


@contextmanager
def no_random_factors() -> Iterator[None]:
    """Random factors of inner products are 0: what is opened are the sines."""
    draw = InnerProducts._draw
    with mock.patch.object(InnerProducts, "_draw", lambda *given: 0 * draw(*given)):
        yield


@contextmanager
def no_secret_key() -> Iterator[None]:
    """s = 0: a ciphertext is its plaintext and a small error."""
    with mock.patch.object(Polynomials, "ternary", lambda ring, randomness: ring.zeros()):
        yield


@contextmanager
def no_fresh_encryption() -> Iterator[None]:
    """An answer has neither flooding noise nor an own encryption of 0: its second part is a·b, shortened."""
    answer_with = Polynomials.answer_with

    def bare(ring: Polynomials, sums: Any, key: Any, mask: Any, step: int, drawn: Any) -> bytes:
        nothing = np.full(N, 1 << 63, np.uint64), np.zeros(N, np.uint64), 0 * drawn[2]  # words of which u and e are 0
        return answer_with(ring, sums, key, mask, step, nothing)

    with mock.patch.object(Polynomials, "answer_with", bare):
        yield


@contextmanager
def sums_noted(found: list[tuple[Ring, Any, Ring, int, bytes]]) -> Iterator[None]:
    """The evaluator's sums before they are hidden, with key, mask, step, and what is sent of them."""
    answer_with = Polynomials.answer_with

    def noting(ring: Polynomials, sums: Any, key: Any, mask: Any, step: int, drawn: Any) -> bytes:
        before = sums.copy()
        sent = answer_with(ring, sums, key, mask, step, drawn)
        found.append((before, ring, mask, step, sent))
        return sent

    with mock.patch.object(Polynomials, "answer_with", noting):
        yield
