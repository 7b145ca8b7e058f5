"""What a party keeps of a training in shares, to predict with: its shares of the model, and how its columns are read.

At the end of a training each party tells the others a *commitment* to its shares, H(salt ‖ shares), and when predictions begin
it tells it again, made of what is stored by then: so a party whose shares have changed is found before anything is computed
with them. The salt stays with its party, so a commitment tells nothing of the shares.

Shares are constants: a backup of them may be put back at any time. If one party has lost its own, the model is lost for all.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, StringConstraints, ValidationError
from torch import Tensor

from vfl_node.configuration.versions import Steps, damage_error, parse
from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.values import Shared
from vfl_node.data.tables import Table
from vfl_node.errors import ProtocolError, StateError
from vfl_node.session.session import Session
from vfl_node.training.predictor import StoredModel
from vfl_node.training.schedule import Schedule
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import Servable
from vfl_node.transport.generated.vfl.v1.shares_pb2 import ShareCommitments

WHAT, HINT = "what a training stored of its model", "restore it from a backup, or train again"
VERSION = 1
STEPS: Steps = {}

_BYTES = 32

Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class StoredShares(BaseModel, extra="forbid", frozen=True):
    """What is stored beside the shares.

    Attributes:
        batches: 32 bytes that all data parties know, hexadecimal: the seed by which the shared rows are cut into batches.
        place: of this party among those with data.
        widths: columns of each party, the active one's intercept included; of trees candidates.
        salt: of this party's commitment, hexadecimal; secret.
        commitments: of all data parties, in the order of the job, hexadecimal.
        target: mean and deviation of the numbers that a regression has learnt, at the active party; None elsewhere.
    """

    batches: Hex
    place: int
    widths: tuple[int, ...]
    salt: Hex
    commitments: tuple[Hex, ...]
    target: tuple[float, float] | None = None

    def to_json(self) -> str:
        """As JSON, with the version of its form."""
        return json.dumps({"version": VERSION, **self.model_dump()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoredShares:
        """What :meth:`to_json` wrote. Raises StateError (``E_STATE_CORRUPT``, ``E_STATE_VERSION``)."""
        try:
            return cls.model_validate(parse(text, VERSION, STEPS, what=WHAT, hint=HINT))
        except ValidationError:
            raise damage_error(WHAT, HINT) from None


class AnswerForm(ABC):
    """What everybody knows of a model in shares that answers, the dealer too.

    Attributes:
        widths: as of :class:`StoredShares`.
        outputs: K.
        numbers: whether it predicts numbers.
        follows_columns: whether a score moves by more than the asker knows when it brings other columns to a record.
    """

    widths: tuple[int, ...]
    outputs: int
    numbers: bool
    follows_columns: bool

    @property
    @abstractmethod
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shapes of the shares, in their order."""

    @abstractmethod
    async def score(self, machine: ShareMachine, shares: Sequence[Ring], rows: int, own: Any, kit: Kit = DEALT) -> Shared:
        """The scores of a batch, [rows, K] modulo 2⁶⁴.

        Args:
            machine: of whoever runs it.
            shares: of the model, in the order of :attr:`shapes`; zeros at the dealer.
            rows: of the batch.
            own: this party's columns of them, as :meth:`KeptModel.columns`; None at the dealer. Without one the columns of all
                parties, as the kit has them.
            kit: whose randomness it is.
        """

    @abstractmethod
    def memory(self, rows: int) -> int:
        """Bytes of memory of whoever has a part in a batch of so many rows."""


class KeptModel(ABC):
    """One party's shares of a model, read back.

    Attributes:
        form: of the model.
        shares: in the order of the form's shapes.
        stored: what is stored beside them.
    """

    form: AnswerForm
    shares: tuple[Ring, ...]
    stored: StoredShares

    @abstractmethod
    def columns(self, table: Table) -> NDArray[Any]:
        """The rows of a table as they were trained on, [n, d]."""

    @property
    def commitment(self) -> bytes:
        """The commitment to the shares as they are now."""
        return commitment_to(bytes.fromhex(self.stored.salt), self.shares)

    def check_commitment(self) -> None:
        """Refuse shares to which this party has not committed itself. Raises StateError (``E_STATE_CORRUPT``)."""
        if self.commitment.hex() != self.stored.commitments[self.stored.place]:
            raise change_error("this party")

    async def compare(self, session: Session) -> None:
        """Hear of all parties' shares that they are those of the training.

        Raises:
            StateError: some party's are not, which is named (``E_STATE_CORRUPT``).
            ProtocolError: no commitments (``E_COUNT``).

        Leaks: nothing: all of them are known.
        """
        told = await swap_commitments(session, self.commitment)
        for name, now, then in zip(session.job.parties.data, told, self.stored.commitments, strict=True):
            if now.hex() != then:
                raise change_error(name)


def read_stored(model: StoredModel, *, width: int, intercept: int, regression: bool) -> StoredShares:
    """What a party has stored beside its shares.

    Args:
        model: what it has stored.
        width: of its own columns.
        intercept: how many more the active party has.
        regression: whether numbers were learnt.

    Raises:
        StateError: it is not what a training of this job stores (``E_STATE_CORRUPT``); another version stored it
            (``E_STATE_VERSION``).
    """
    stored = StoredShares.from_json(model.state)
    count, place = len(model.job.parties.data), stored.place
    fits = (
        len(stored.widths) == len(stored.commitments) == count
        and 0 <= place < count
        and stored.widths[place] == width + (intercept if place == 0 else 0)
        and (place > 0 or (stored.target is None) == (not regression))
    )
    if not fits:
        raise damage_error(WHAT, HINT)
    return stored


def read_shares(model: StoredModel, shapes: Sequence[tuple[int, ...]]) -> tuple[Ring, ...]:
    """A party's shares, in the order of their shapes. Raises StateError: others are stored (``E_STATE_CORRUPT``)."""
    named = {name: tensor for name, tensor in model.weights.items() if name.startswith("share ")}
    expected = {f"share {index}": shape for index, shape in enumerate(shapes)}
    if {name: tuple(tensor.shape) for name, tensor in named.items()} != expected:
        raise damage_error(WHAT, HINT)
    if not all(tensor.dtype == torch.int64 for tensor in named.values()):
        raise damage_error(WHAT, HINT)
    return tuple(named[name].numpy().view(np.uint64) for name in expected)


def to_tensors(shares: Sequence[Ring]) -> dict[str, Tensor]:
    """Shares as they are stored, int64."""
    return {f"share {index}": torch.from_numpy(share.view(np.int64).copy()) for index, share in enumerate(shares)}


async def make_servable(
    session: Session, schedule: Schedule, widths: Sequence[int], scale: TargetScale | None, shares: Sequence[Ring]
) -> Servable:
    """What a party stores at the end of a training, after it has heard the commitments of all.

    Raises:
        ProtocolError: no commitments (``E_COUNT``).
    """
    salt, place = session.randomness.derive("salt of shares").bytes(_BYTES), session.job.parties.data.index(session.name)
    commitments = await swap_commitments(session, commitment_to(salt, shares))
    stored = StoredShares(
        batches=schedule.derive("predictions").hex(),
        place=place,
        widths=tuple(widths),
        salt=salt.hex(),
        commitments=tuple(commitment.hex() for commitment in commitments),
        target=(scale.mean, scale.deviation) if scale else None,
    )
    return Servable(stored.to_json(), tested=np.empty(0, dtype=np.int64))  # training has shown nobody anything of a row


async def swap_commitments(session: Session, own: bytes) -> list[bytes]:
    """The commitments of all data parties, in the order of the job. Raises ProtocolError (``E_COUNT``)."""
    channels, parties = list(session.data_peers.values()), session.job.parties.data
    if session.role == "active":
        commitments = [own]
        for channel in channels:
            commitments += _check_commitments(channel.peer, await channel.receive(ShareCommitments), 1)
        for channel in channels:
            await channel.send(ShareCommitments(commitments=commitments))
        return commitments
    (active,) = channels
    await active.send(ShareCommitments(commitments=[own]))
    commitments = _check_commitments(active.peer, await active.receive(ShareCommitments), len(parties))
    if commitments[parties.index(session.name)] != own:
        raise ProtocolError(f"{active.peer} passes on another commitment than this party's", code="E_COUNT")
    return commitments


def _check_commitments(peer: str, said: ShareCommitments, count: int) -> list[bytes]:
    commitments = list(said.commitments)
    if len(commitments) != count or any(len(commitment) != _BYTES for commitment in commitments):
        raise ProtocolError(f"{peer} sent {len(commitments)} commitments to shares of a model", code="E_COUNT")
    return commitments


def commitment_to(salt: bytes, shares: Sequence[Ring]) -> bytes:
    """SHA-256 of a salt and shares."""
    hashed = hashlib.sha256(b"vfl-node shares 1" + salt)
    for share in shares:
        hashed.update(np.array(share.shape, "<u8").tobytes())
        hashed.update(np.ascontiguousarray(share, "<u8").data)
    return hashed.digest()


def change_error(party: str) -> StateError:
    """What is raised where the shares of a party are not those of the training."""
    return StateError(
        f"the shares of the model that {party} has stored are not those with which its training ended",
        code="E_STATE_CORRUPT",
        hint=f"{party} restores state/jobs of the training from a backup; without one, train again",
        for_peer=f"the shares of the model that {'it' if party == 'this party' else party} has stored have changed",
    )
