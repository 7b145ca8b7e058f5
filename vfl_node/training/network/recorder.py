"""Records what a passive party sends and gets in training, in a trial that asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.models.storage import take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.outgoing import Sent
from vfl_node.session.transcript import Rows, Steps


class StepRecorder(Attachment):
    """Writes each step to a transcript, after the defences of both parties.

    Args:
        name: of it.
        steps: where it writes. A repeat goes on where the one before ended.
        repeat: number of the repeat.
        rows: int64[m], this party's record at each shared position, or int64[m, K] of candidates; negative where it has none.
        saved: tensors of a checkpoint, to go on from there; none at the beginning of the repeat.
    """

    def __init__(self, name: str, steps: Steps, repeat: int, rows: NDArray[np.int64], saved: Mapping[str, Tensor]) -> None:
        self.name, self._steps, self._repeat, self._rows = name, steps, repeat, rows
        if kept := take_part(name, saved):
            steps.cut(*map(int, kept["extent"]))
        elif repeat == 0:
            steps.cut(0, 0)

    def see(self, sent: Sent) -> None:
        """Write one step, whose rows were sent one by one."""
        self._add(sent.positions, self._rows[sent.positions], np.arange(len(sent.positions)), sent.rows, sent.gradients)

    def see_candidates(self, positions: NDArray[np.int64], index: NDArray[np.int32], sent: Tensor, got: Tensor) -> None:
        """Write one step, in which a row has K candidates and each distinct one is sent once: a line for each place.

        Args:
            positions: int64[B], shared positions.
            index: int32[B, K], which of what was sent stands at each place.
            sent: float32[U, d].
            got: float32[U, d].
        """
        places = torch.from_numpy(index.ravel()).long()
        of_places = (tensor[places.to(tensor.device)] for tensor in (sent, got))
        at = np.repeat(positions, index.shape[1])
        self._add(at, self._rows[positions].ravel(), places.numpy(), *of_places)

    def _add(self, positions: Rows, rows: Rows, numbers: Rows, sent: Tensor, got: Tensor) -> None:
        values = (tensor.detach().cpu().numpy() for tensor in (sent, got))
        self._steps.add(self._repeat, positions, rows, numbers, *values)

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        """Nothing: rows that are not trained on are not recorded."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold: how many steps and lines are written, which are durable from now on."""
        self._steps.keep()
        return {"extent": torch.tensor(self._steps.extent)}
