"""Records what a passive party sends and gets in training, in a trial that asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.outgoing import Sent
from vfl_node.session.transcript import Transcript


class Recorder:
    """Writes each step of a repeat to a transcript, after the defences of both parties.

    Args:
        transcript: where it writes; None: nowhere, and nothing is done.
        rows: int64[m], this party's record at each shared position; negative where it has none.
        saved: what :meth:`tensors` gave, to go on from there; nothing at the beginning of the repeat.
    """

    def __init__(self, transcript: Transcript | None, rows: NDArray[np.int64], saved: Mapping[str, Tensor]) -> None:
        self._transcript, self._rows = transcript, rows
        self._steps, self._written = map(int, saved["extent"]) if saved else (0, 0)
        if transcript:
            transcript.cut(self._written)

    def see(self, sent: Sent) -> None:
        """Write one step of training."""
        if self._transcript:
            embeddings, gradients = (tensor.detach().cpu().numpy() for tensor in (sent.rows, sent.gradients))
            self._transcript.add(self._steps, self._rows[sent.positions], embeddings, gradients)
            self._steps, self._written = self._steps + 1, self._written + len(sent.positions)

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        """Nothing: rows that are not trained on are not recorded."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold: how many steps and rows are written, which are durable from now on."""
        if self._transcript is None:
            return {}
        self._transcript.keep()
        return {"extent": torch.tensor([self._steps, self._written])}
