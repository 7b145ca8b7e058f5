"""What an encoder makes of rows for a bottom: one tensor for each kind of input."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ModelInput:
    """B rows as a bottom reads them; their kinds and sizes are those of an :class:`~vfl_node.models.schema.InputSchema`.

    Attributes:
        numeric: float32[B, p]; p may be 0.
        categorical: int64[B, c], codes below the column's cardinality; c may be 0.
        images: float32[B, channels, height, width]; None where the schema has no image.
        sequences: int64[B, length], codes below the vocabulary's size; None where the schema has no sequence.
        bags: int32[B, length of all lists], the columns of lists side by side: codes below a column's number of codes, and 0
            where a row has fewer items; None where the schema has no lists.
    """

    numeric: Tensor
    categorical: Tensor
    images: Tensor | None = None
    sequences: Tensor | None = None
    bags: Tensor | None = None

    @classmethod
    def from_tensors(cls, numeric: Tensor, categorical: Tensor | None = None) -> ModelInput:
        """Rows of a table; without ``categorical`` they have numeric columns only."""
        if categorical is None:
            categorical = torch.empty(len(numeric), 0, dtype=torch.int64, device=numeric.device)
        return cls(numeric, categorical)

    def __len__(self) -> int:
        return len(self.numeric)

    def to(self, device: torch.device) -> ModelInput:
        """These rows on ``device``."""
        return self._change_parts(lambda part: part.to(device))

    def take(self, rows: Tensor) -> ModelInput:
        """The rows ``rows``, int64[k] on the same device, in that order, with repetition where asked."""
        return self._change_parts(lambda part: part[rows])

    def mix(self, other: ModelInput, chosen: Callable[[torch.Size], Tensor]) -> ModelInput:
        """These rows with cells of ``other``, as many rows of the same kinds.

        Args:
            other: whose cells these are.
            chosen: shape of a part → bool of that shape on the same device, where ``other``'s cell is taken.
        """
        theirs = other._parts()
        parts = {name: torch.where(chosen(part.shape), theirs[name], part) for name, part in self._parts().items()}
        return replace(self, **parts)

    def digests(self) -> list[str]:
        """SHA-256 of each row's columns, hexadecimal: equal rows have equal ones. 2 µs a row, and a copy to the CPU."""
        parts = [part.cpu().reshape(len(self), -1).contiguous().numpy() for part in self._parts().values()]
        return [hashlib.sha256(b"".join(part[row].tobytes() for part in parts)).hexdigest() for row in range(len(self))]

    def _parts(self) -> dict[str, Tensor]:
        """The tensors that there are, by name."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in parts.items() if part is not None}

    def _change_parts(self, change: Callable[[Tensor], Tensor]) -> ModelInput:
        return replace(self, **{name: change(part) for name, part in self._parts().items()})
