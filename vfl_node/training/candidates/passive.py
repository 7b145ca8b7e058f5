"""The passive party's half: a bottom, which embeds each distinct candidate of a batch once.

::

    places j of the batch [B, K]  →  U distinct records, in the order in which they stand first; −1: the mean record
    c = bottom(columns of these), linear cut     ── c [U, d], places [B, K] ─►
    back-propagates g                            ◄── g [U, d] ──               g_u = Σ of ∂L/∂c over the places of u

The mean record has the mean of each encoded number over all of this party's records, and no category. Columns are scaled over
this party's own records, each once; FedSim's code scales them over linked pairs, so that a record counts as often as it is
somebody's candidate.

Leaks: c tells the active party about this party's columns, and the places which candidates of a batch are one record; see
disclosures.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.data.features import Encoder, Features
from vfl_node.models.storage import take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.halves import Crossed
from vfl_node.training.candidates.network import LinearCut
from vfl_node.training.evaluation import Figures
from vfl_node.training.messages import check_step, decode_tensor
from vfl_node.training.network.half import Defended, ForwardPass, Positions, RepeatStart, attach, learner
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.recorder import StepRecorder
from vfl_node.training.network.table_use import NetworkTableUse
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned.pretraining import Pretraining
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


class LinkedPassive:
    """A bottom, which learns by the active party's gradients. Args as :data:`vfl_node.training.network.loop.HalfOf`."""

    pretraining: Pretraining | None = None

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart) -> None:
        self._channel, train = session.peer, Linked.section_of(session.job)
        NetworkTableUse(train).check("passive", data.table)
        self._candidates = data.alignment.rows  # (m, K)
        encoder = Encoder.fit(data.table, np.arange(len(data.table)), train.scaling, train.least_rows)
        features = encoder.transform(data.table)
        features = features.append(mean_record(features))
        self.encoder = encoder.to_json()
        self._inputs = PositionedInput.from_features(features, np.arange(len(features)), session.machine.device)
        self._bottom = LinearCut(self._inputs.schema, train.bottom, train)
        self.learner = learner(nn.ModuleDict({"bottom": self._bottom}), session, start.randomness, start.number)
        self._crossed = Crossed()
        self._recorder: StepRecorder | None = None
        if kept := session.recording.transcript:
            self._recorder = StepRecorder("transcript", kept.embeddings, start.number, self._candidates, start.saved or {})
        self.attachments: Sequence[Attachment] = attach(self._recorder)
        if (saved := start.saved) is not None:
            self.learner.restore(saved)
            self._crossed = Crossed.from_tensors(take_part("crossed", saved))

    def expect(self, positions: Positions) -> None:
        """As :meth:`Half.expect`: nothing is looked up."""

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        self.learner.begin(number)
        embeddings, index = await self._send(number, positions)  # (U, d), (B, K)
        message = await self._channel.receive(training_pb2.Gradient)
        check_step(self._channel, message.step, number)
        gradient = decode_tensor(self._channel, message.tensor, tuple(embeddings.shape)).to(embeddings.device)
        self._crossed.gradients += len(gradient)
        embeddings.backward(gradient)  # type: ignore[no-untyped-call]
        self.learner.step()
        if self._recorder:
            self._recorder.see_candidates(positions, index, embeddings, gradient)

    def figures(self) -> Figures:
        """As :meth:`Half.figures`: nothing."""
        return Figures()

    def defence_figures(self) -> Defended:
        """As :meth:`Half.defence_figures`: nothing."""
        return Defended()

    async def validate(self, rows: ForwardPass) -> Figures:
        """As :meth:`Half.validate`: nothing is known here."""
        await self._forward(rows)
        return Figures()

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> None:
        """As :meth:`Half.evaluate`."""
        await self._forward(rows)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        return {**self.learner.tensors(), **self._crossed.tensors()}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`."""
        return self.learner.weights()

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """As :meth:`Half.go_back`."""
        self.learner.go_back(weights)

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: what has crossed."""
        return self._crossed.to_json()

    async def _forward(self, rows: ForwardPass) -> None:
        self.learner.rest()
        for offset, positions in enumerate(rows.batches):
            await self._send(rows.number + offset, positions)

    async def _send(self, number: int, positions: Positions) -> tuple[Tensor, NDArray[np.int32]]:
        """Send embeddings of the batch's distinct candidates; these, float32[U, d] with their graph, and where each stands."""
        distinct, index = deduplicate(self._candidates[positions], mean=len(self._inputs) - 1)
        failpoints.reach("forward")
        embeddings: Tensor = check_finite(self._bottom(self._inputs.take(distinct)))
        message = training_pb2.LinkedEmbeddings(step=number)
        codec.encode(embeddings, message.embeddings)
        codec.encode(torch.from_numpy(index), message.index)
        self._crossed.count(len(distinct), index.size)
        await self._channel.send(message)
        return embeddings, index


def deduplicate(candidates: NDArray[np.int64], *, mean: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct records of a batch, and where they stand.

    The order of the records is that in which they stand first, row by row: by their number in the table it would tell that.

    Args:
        candidates: int64[B, K], rows of the table, or :data:`~vfl_node.alignment.alignment.NOT_MINE`.
        mean: what stands for a missing candidate.

    Returns:
        int64[U], and int32[B, K] of numbers below U.
    """
    named = np.where(candidates == NOT_MINE, mean, candidates).ravel()
    distinct, first, inverse = np.unique(named, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return distinct[order], place[inverse].reshape(candidates.shape)


def mean_record(features: Features) -> Features:
    """One record that has the mean of each encoded number, and no category."""
    one = features.take(np.zeros(1, dtype=np.int64))
    one.numeric[:] = features.numeric.astype(np.float64).mean(axis=0)
    one.categorical[:] = 0
    return one
