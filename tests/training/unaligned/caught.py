"""What is made of rows outside of the alignment, and by what: caught while a training runs, for tests of where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.node.canaries import LEAST_BYTES
from vfl_node.training.network import alone
from vfl_node.training.split.estimated_rows import EstimatedRows
from vfl_node.training.split.filled_rows import FilledRows
from vfl_node.training.unaligned.diffusion import Generator
from vfl_node.training.unaligned.jpl import JointPrivilegedFiller
from vfl_node.training.unaligned.pretraining import Pretraining

QUICK: Mapping[str, Mapping[str, Any]] = {
    "heuristic": {},
    "jpl": {"updates": 20},
    "diffusion": {"steps": 20, "sampler_steps": 5, "updates": 30},
    "fedcvt": {"candidates": 16},
    "ssl": {"pretrain_epochs": 2},
    "mpd": {"pretrain_epochs": 2},
    "fedhssl": {"pretrain_epochs": 2},
}
"""Method → keys with which it is quick."""

FILLING = ("heuristic", "jpl", "diffusion")
SILENT = (*FILLING, "fedcvt", "ssl")
"""Methods that send nothing more than ``none``."""


class Caught(dict[str, list[Tensor]]):
    """What was made → its tensors: ``generator``, ``filled`` (embeddings), ``pretrained``, ``estimator``, ``alone``."""

    def note(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self.setdefault(name, []).extend(of.detach().cpu().clone() for _, of in sorted(tensors.items()))


def catch(monkeypatch: pytest.MonkeyPatch) -> Caught:
    """Catch it from now on."""
    caught = Caught()

    def beside(owner: Any, name: str, noted: Any, *, before: bool = False) -> None:
        whole = getattr(owner, name)

        def observed(*arguments: Any, **named: Any) -> Any:
            if before:
                noted(*arguments)
            result = whole(*arguments, **named)
            if not before:
                noted(*arguments)
            return result

        monkeypatch.setattr(owner, name, observed)

    beside(Generator, "__init__", lambda made, *_: caught.note("generator", made._network.state_dict()))
    beside(JointPrivilegedFiller, "_predict", lambda _, network, *rest: caught.note("generator", network.state_dict()))
    beside(EstimatedRows, "report", lambda of: caught.note("estimator", of._estimator.state_dict()))
    beside(alone, "train_local", lambda model, *_: caught.note("alone", model.state_dict()))

    def filled(rows: FilledRows) -> None:
        if rows._embeddings is not None and "filled" not in caught:
            caught.note("filled", {"": rows._embeddings})

    def pretrained(half: Pretraining) -> None:
        if half._training is not None:
            caught.note("pretrained", half._training.tensors())

    beside(FilledRows, "epoch_ends", filled)
    beside(Pretraining, "end", pretrained, before=True)
    return caught


class Scan:
    """Looks for eight bytes in a row of any of some arrays: two float32, one float64, four float16.

    Args:
        arrays: name → what is looked for, rows first. At most one of the values is 0, of two none: zeros are everywhere.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._wanted: dict[int, str] = {}
        for name, array in arrays.items():
            for pattern in _patterns(np.asarray(array)):
                self._wanted[int(pattern)] = name
        self._heads = np.array(sorted(self._wanted), dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._heads)

    def found(self, data: bytes) -> set[str]:
        """Names of the arrays of which something is in ``data``."""
        if len(data) < LEAST_BYTES:
            return set()
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), LEAST_BYTES)
        heads = np.ascontiguousarray(windows).view("<u8").ravel()
        return {self._wanted[int(head)] for head in heads[np.isin(heads, self._heads)]}


def _patterns(array: np.ndarray[Any, Any]) -> Iterator[np.uint64]:
    """Eight bytes each, as they stand in memory where a row is stored."""
    rows = array.reshape(len(array), -1)
    together = LEAST_BYTES // rows.dtype.itemsize
    for row in rows:
        for start in range(len(row) - together + 1):
            part = np.ascontiguousarray(row[start : start + together])
            if np.count_nonzero(part) >= max(1, min(together, 2), together - 1):
                yield part.view("<u8")[0]


def rows_of(tensors: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """Those with at least two values a row, as arrays."""
    return [of.numpy() for of in tensors if of.dim() == 2 and of.shape[1] > 1 and of.dtype in (torch.float32, torch.float16)]
