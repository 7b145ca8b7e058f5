"""What a party keeps of a training in shares, to predict with: its shares of all weights, and how its columns are read.

At the end of a training each party tells the others a *commitment* to its shares, H(salt ‖ shares), and when predictions begin
it tells it again, made of what is stored by then: so a party whose shares have changed is found before anything is computed
with them. The salt stays with its party, so a commitment tells nothing of the shares.

Shares are constants: a backup of them may be put back at any time. If one party has lost its own, the model is lost for all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, StringConstraints, ValidationError
from torch import Tensor

from vfl_node.configuration.versions import Steps, damage_error, parse
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, Ring
from vfl_node.crypto.shares.values import Shared
from vfl_node.data.tables import Table
from vfl_node.errors import ProtocolError, StateError
from vfl_node.session.session import Session
from vfl_node.training.hidden.computation import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.inputs import Inputs
from vfl_node.training.hidden.network import Form, SharedModel
from vfl_node.training.hidden.rows import RowEncoder, columns_of
from vfl_node.training.predictor import StoredModel
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
        widths: columns of each party, the active one's intercept included.
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


@dataclass(frozen=True, eq=False)
class KeptShares:
    """One party's shares of a model, read back.

    Attributes:
        form: of the model.
        shares: uint64, in the order of the form's shapes.
        rows: how this party's columns are read.
        stored: what is stored beside them.
    """

    form: Form
    shares: tuple[Ring, ...] = field(repr=False)
    rows: RowEncoder
    stored: StoredShares = field(repr=False)

    @classmethod
    def from_model(cls, model: StoredModel) -> KeptShares:
        """What a party has stored.

        Raises:
            StateError: it is not what a training of this job stores, or the shares are no longer those that this party has
                committed itself to (``E_STATE_CORRUPT``); another version stored it (``E_STATE_VERSION``).
        """
        train, stored = Hidden.section_of(model.job), StoredShares.from_json(model.state)
        rows = RowEncoder.from_json(model.encoder)
        count, place = len(model.job.parties.data), stored.place
        fits = (
            len(stored.widths) == len(stored.commitments) == count
            and 0 <= place < count
            and stored.widths[place] == rows.width + (place == 0)
            and (place > 0 or (stored.target is None) == (train.task != "regression"))
        )
        if not fits:
            raise damage_error(WHAT, HINT)
        form = Form(stored.widths, train.layers, train.outputs, train.form_loss)
        named = {name: tensor for name, tensor in model.weights.items() if name.startswith("share ")}
        shapes = {f"share {index}": shape for index, shape in enumerate(form.shapes)}
        if {name: tuple(tensor.shape) for name, tensor in named.items()} != shapes:
            raise damage_error(WHAT, HINT)
        if not all(tensor.dtype == torch.int64 for tensor in named.values()):
            raise damage_error(WHAT, HINT)
        kept = cls(form, tuple(named[name].numpy().view(np.uint64) for name in shapes), rows, stored)
        if kept.commitment.hex() != stored.commitments[place]:
            raise change_error("this party")
        return kept

    @property
    def commitment(self) -> bytes:
        """The commitment to the shares as they are now."""
        return commitment_to(bytes.fromhex(self.stored.salt), self.shares)

    @property
    def model(self) -> SharedModel:
        """The model in shares."""
        return shared_model(self.form, self.shares)

    def columns(self, table: Table) -> Ring:
        """The rows of a table as they were trained on, uint64[n, d]. Raises as :func:`~.rows.columns_of`."""
        return columns_of(self.rows, table, active=self.stored.place == 0)

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


def shared_model(form: Form, shares: Sequence[Ring]) -> SharedModel:
    """A model that is not trained any more, of one party's shares."""
    weights = tuple(Shared(share, WEIGHT_FRACTION) for share in shares)
    return SharedModel(form, weights, weights, weights)


def to_tensors(shares: Sequence[Ring]) -> dict[str, Tensor]:
    """Shares as they are stored, int64."""
    return {f"share {index}": torch.from_numpy(share.view(np.int64).copy()) for index, share in enumerate(shares)}


async def make_servable(session: Session, plan: HiddenPlan, inputs: Inputs, shares: Sequence[Ring]) -> Servable:
    """What a party stores at the end of a training, after it has heard the commitments of all.

    Raises:
        ProtocolError: no commitments (``E_COUNT``).
    """
    salt, place = session.randomness.derive("salt of shares").bytes(_BYTES), session.job.parties.data.index(session.name)
    commitments = await swap_commitments(session, commitment_to(salt, shares))
    stored = StoredShares(
        batches=plan.schedule.derive("predictions").hex(),
        place=place,
        widths=plan.form.widths,
        salt=salt.hex(),
        commitments=tuple(commitment.hex() for commitment in commitments),
        target=(inputs.scale.mean, inputs.scale.deviation) if inputs.scale else None,
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
