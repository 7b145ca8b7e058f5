"""What a party keeps of a training to predict with, and who may ask for predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError
from torch import Tensor

from vfl_node.data.features import Encoder
from vfl_node.errors import PolicyError, StateError
from vfl_node.job import Predict, Serve
from vfl_node.settings import Kind
from vfl_node.training.split.config import Train


@dataclass(frozen=True)
class ServedModel:
    """One party's part of a trained model.

    Attributes:
        train: the training job's section.
        serve: likewise.
        weights: parameter → tensor, as :attr:`~vfl_node.training.trainer.Trained.weights`.
        encoder: JSON of the encoder that belongs to them.
        serving: JSON, as :attr:`~vfl_node.training.trainer.Servable.state`; holds a secret.
    """

    train: Train
    serve: Serve
    weights: Mapping[str, Tensor] = field(repr=False)
    encoder: str = field(repr=False)
    serving: str = field(repr=False)

    @property
    def draws(self) -> bytes:
        """32 bytes, secret: what stands in for rows that the party does not own comes from it."""
        return bytes.fromhex(self._serving.draws)

    @property
    def batches(self) -> bytes:
        """32 bytes that both parties know: how the shared rows are cut into batches comes from it."""
        return bytes.fromhex(self._serving.batches)

    @property
    def scoring(self) -> tuple[str, float]:
        """At the active party: JSON of the calibration, and the rate of positive labels. Raises StateError without them."""
        found = self._serving
        if found.calibration is None or found.positive_rate is None:
            raise _damaged()
        return found.calibration, found.positive_rate

    @cached_property
    def _serving(self) -> _StoredModel:
        try:
            return _StoredModel.model_validate_json(self.serving)
        except ValidationError:
            raise _damaged() from None


_Seed = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _StoredModel(BaseModel, extra="forbid", frozen=True):
    """What ``serving`` holds."""

    draws: _Seed
    batches: _Seed
    calibration: str | None = None
    positive_rate: float | None = None


def _damaged() -> StateError:
    text = "what was kept of the training for predictions is damaged or of another version"
    return StateError(text, code="E_STATE_CORRUPT", hint="restore it from a backup, or train again")


def check_allowed(predict: Predict, serve: Serve | None) -> None:
    """Refuse predictions that the training did not provide for.

    Args:
        predict: the job's section.
        serve: the training job's; None where it had none.

    Raises:
        StateError: nothing was kept (``E_NO_MODEL``).
        PolicyError: the training names another party to ask (``E_PREDICT``).
    """
    if serve is None:
        raise StateError(
            f"nothing of job {predict.model} was kept to predict with",
            code="E_NO_MODEL",
            hint="predictions need a training whose job says serve: {to: …}",
            for_peer="it has kept nothing of that training to predict with",
        )
    if serve.to not in (predict.to, "both"):
        reason = f"the training job's serve.to is {serve.to}: the {predict.to} party gets no predictions"
        raise PolicyError(
            reason, code="E_PREDICT", hint="train with serve.to: both, or ask at the other party", for_peer=reason
        )


def column_kinds(encoder: str) -> dict[str, Kind]:
    """Column → kind, of the columns that a model reads: a short file read by itself may look otherwise.

    Args:
        encoder: JSON, as :attr:`ServedModel.encoder`.

    Raises:
        StateError: it is not an encoder (``E_STATE_CORRUPT``).
    """
    return {column.name: column.kind for column in Encoder.from_json(encoder).columns}
