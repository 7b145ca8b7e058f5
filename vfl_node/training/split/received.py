"""What both parties received of some rows, for the joint attack at the end of a trial (:mod:`vfl_node.execution.joint`).

Only ``vfl-node run`` asks for it, whose user has all tables. The file is a numpy array, a record a row: its shared position, in
how many steps it was seen, the last embedding, and the sum of the gradients of its own loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.attacks import joint
from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.outgoing import Sent

SAMPLE = Randomness(hashlib.sha256(b"vfl-node rows of the joint attack").digest())
"""Chooses the rows; it need not be secret, as nothing of it leaves this machine."""


class Received(Attachment):
    """Keeps the last embedding and all gradients of at most :data:`~vfl_node.privacy.attacks.joint.ROWS` rows of a repeat.

    Args:
        path: of the file.
        training: int64[t], shared positions trained on.
        saved: what :meth:`tensors` gave, to go on from there; nothing at the beginning of the repeat.
    """

    name = "received"

    def __init__(self, path: Path, training: Positions, saved: Mapping[str, Tensor]) -> None:
        self._path, self._positions = path, joint.sample(training, SAMPLE)
        self._records: NDArray[Any] | None = None
        if saved:
            self._open(saved["embedding"].shape[1])
            assert self._records is not None
            for name, tensor in saved.items():
                self._records[name] = tensor.numpy()

    def see(self, sent: Sent) -> None:
        """Take in one step of training."""
        if self._records is None:
            self._open(sent.rows.shape[1])
        assert self._records is not None
        kept = np.flatnonzero(np.isin(sent.positions, self._positions))
        places = np.searchsorted(self._positions, sent.positions[kept])
        rows, gradients = (tensor.detach().cpu().numpy()[kept] for tensor in (sent.rows, sent.gradients))
        self._records["steps"][places] += 1
        self._records["embedding"][places] = rows
        self._records["gradient"][places] += gradients * np.float32(len(sent.positions))

    def judge(self, positions: Positions, rows: Tensor) -> None:
        """Nothing: the attack is on rows trained on."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold; empty before the first step."""
        if self._records is None:
            return {}
        return {name: torch.from_numpy(self._records[name].copy()) for name in ("steps", "embedding", "gradient")}

    def _open(self, width: int) -> None:
        record = np.dtype(
            [("position", "<i8"), ("steps", "<i8"), ("embedding", "<f4", (width,)), ("gradient", "<f4", (width,))]
        )
        self._records = np.lib.format.open_memmap(self._path, mode="w+", dtype=record, shape=(len(self._positions),))
        self._records["position"] = self._positions
