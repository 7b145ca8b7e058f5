"""What a party keeps of hidden training, to predict with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_known
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, Ring
from vfl_node.crypto.shares.values import Shared
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import Form, SharedModel, scores
from vfl_node.training.hidden.rows import RowEncoder, columns_of
from vfl_node.training.predictor import StoredModel
from vfl_node.training.shares.kept import AnswerForm, KeptModel, StoredShares, read_shares, read_stored


class HiddenForm(AnswerForm):
    """A network or regression in shares that answers.

    Args:
        job: that trained it.
        widths: columns of each party, the active one's intercept included.
    """

    def __init__(self, job: Job, widths: Sequence[int]) -> None:
        self._train = Hidden.section_of(job)
        self.network = Form(tuple(widths), self._train.layers, self._train.outputs, self._train.form_loss)
        self.widths, self.outputs, self.numbers = self.network.widths, self.network.outputs, self.network.numbers
        self.follows_columns = bool(self.network.hidden)

    @property
    @override
    def shapes(self) -> Sequence[tuple[int, ...]]:
        return self.network.shapes

    @override
    async def score(self, machine: ShareMachine, shares: Sequence[Ring], rows: int, own: Any, kit: Kit = DEALT) -> Shared:
        columns = own
        if self._train.coordinated:
            columns = await machine.run(
                *(
                    mask_known(owner, (rows, width), FRACTION, own if machine.place == owner else None)
                    for owner, width in enumerate(self.widths)
                )
            )
        return (await scores(machine, shared_model(self.network, shares), columns, kit))[:rows]

    @override
    def memory(self, rows: int) -> int:
        return memory.answer_bytes(self._train, rows, self.widths)


@dataclass(frozen=True, eq=False)
class KeptShares(KeptModel):
    """One party's shares of a model, read back."""

    form: HiddenForm
    shares: tuple[Ring, ...] = field(repr=False)
    encoder: RowEncoder
    stored: StoredShares = field(repr=False)

    @classmethod
    def from_model(cls, model: StoredModel) -> KeptShares:
        """What a party has stored.

        Raises:
            StateError: it is not what a training of this job stores, or the shares are no longer those that this party has
                committed itself to (``E_STATE_CORRUPT``); another version stored it (``E_STATE_VERSION``).
        """
        encoder, regression = RowEncoder.from_json(model.encoder), Hidden.section_of(model.job).task == "regression"
        stored = read_stored(model, width=encoder.width, intercept=1, regression=regression)
        form = HiddenForm(model.job, stored.widths)
        kept = cls(form, read_shares(model, form.shapes), encoder, stored)
        kept.check_commitment()
        return kept

    @override
    def columns(self, table: Table) -> Ring:
        """Columns uint64[n, d]. Raises as :func:`~.rows.columns_of`."""
        return columns_of(self.encoder, table, active=self.stored.place == 0)


def shared_model(form: Form, shares: Sequence[Ring]) -> SharedModel:
    """A model that is not trained any more, of one party's shares."""
    weights = tuple(Shared(share, WEIGHT_FRACTION) for share in shares)
    return SharedModel(form, weights, weights, weights)
