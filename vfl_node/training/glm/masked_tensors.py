"""The tensors that are masked and decrypted in every iteration: which the job has, and their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.crypto.fixed_point import GUARD_BITS, MASK_BITS, slot_bits
from vfl_node.crypto.paillier import packing
from vfl_node.errors import ProtocolError
from vfl_node.training.glm import masks
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.scales import Scales

GRADIENT, LOSS = "gradient", "loss"


@dataclass(frozen=True)
class MaskedTensor:
    """One masked tensor of every iteration.

    Attributes:
        name: ``gradient`` or ``loss``.
        units: what one ciphertext held before packing: a value, or several side by side.
        slots: most values in a unit.
        slot_bits: bits of the slot of one value, mask included.
    """

    name: str
    units: int
    slots: int
    slot_bits: int

    @property
    def unit_bits(self) -> int:
        """Bits of a unit."""
        return self.slots * self.slot_bits

    @property
    def bound(self) -> int:
        """Bits of a value before it is masked, sign left out."""
        return self.slot_bits - MASK_BITS - GUARD_BITS

    @property
    def returned_bits(self) -> int:
        """Bits of each value that are sent back to its owner."""
        return masks.returned_bits(self.bound)

    @property
    def returned_bytes(self) -> int:
        """Bytes in which these bits are sent."""
        return -(-self.returned_bits // 8)

    def columns(self, outputs: int) -> int:
        """Columns of the side whose gradient for ``outputs`` models this is."""
        return self.units // -(-outputs // self.slots)

    def layout(self, outputs: int) -> list[int]:
        """How many values each unit has: those of the columns for the first models, then for the next ones."""
        if self.name == LOSS:
            return [1] * self.units
        return [min(self.slots, outputs - low) for low in range(0, outputs, self.slots) for _ in range(self.columns(outputs))]

    def values(self, outputs: int) -> int:
        """Number of values in all units together."""
        return sum(self.layout(outputs))

    def unpack(self, plaintexts: Sequence[int], per: int, outputs: int, kind: masks.MaskKind) -> list[int] | None:
        """The masked values in ``plaintexts``, of which all but the last hold ``per`` units.

        None if one of them lies outside the range of masked values.
        """
        try:
            units = packing.unpack(plaintexts, self.unit_bits, self.units, per)
        except ProtocolError:  # beyond its units
            return None
        within = masks.masked_range(kind, self.bound)
        values: list[int] = []
        for unit, size in zip(units, self.layout(outputs), strict=True):
            if unit.bit_length() > size * self.slot_bits:
                return None
            values += packing.split(unit, self.slot_bits, size)
        return values if all(value in within for value in values) else None


def tensors_of(train: GeneralisedLinear, role: str) -> tuple[str, ...]:
    """Which tensors the job lets the data party in ``role`` have decrypted, in their order within an iteration."""
    if train.flow != "coordinator":
        return (GRADIENT,) if role == "passive" else ()
    return (GRADIENT, LOSS) if role == train.labels and train.tolerance > 0 else (GRADIENT,)


def shapes(tensors: Sequence[str], columns: int, scales: Scales) -> tuple[MaskedTensor, ...]:
    """What ``tensors`` of a side with ``columns`` columns look like when they are decrypted."""
    groups = scales.groups
    gradient = MaskedTensor(GRADIENT, columns * len(groups), groups[0], scales.slot)
    known = {GRADIENT: gradient, LOSS: MaskedTensor(LOSS, 1, 1, slot_bits(scales.loss))}
    return tuple(known[name] for name in tensors)
