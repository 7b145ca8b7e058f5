"""What a run keeps for predictions, and what a party brings to a job of predictions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.tables import Table
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.requests import Records, Requests
from vfl_node.execution.shown import FileShown
from vfl_node.execution.stored_serving import Serving
from vfl_node.job import Job
from vfl_node.privacy.defences.idle import idle_defences, idle_feature_audit
from vfl_node.process.files import checked, read_checked, write_checked
from vfl_node.settings.node import role_in
from vfl_node.settings.protection import Protection
from vfl_node.training.serving import Predicted, Predictor, ReportedPredictions, Served, StoredModel
from vfl_node.training.trainer import Servable, Trained, unaudited

PREDICTIONS = "predictions.csv"
"""What a job that predicts new records leaves, beside its report."""

_SERVED = TypeAdapter(Served)

_TALLY_BYTES = 1024


def keep(folder: JobFolder, trained: Trained, servable: Servable, table: Table) -> None:
    """Store what predictions need beside the alignment and the model, which are stored already.

    Args:
        folder: of the training job.
        trained: the training; in a trial it is stored which rows it did not train on.
        servable: what it leaves for predictions.
        table: the records that took part, which must be the same when it predicts.
    """
    FileShown.begin(folder.shown, servable.tested)
    apart = {name: tuple(getattr(trained, name).tolist()) for name in ("held_out", "validated")} if folder.trial.keeps else {}
    folder.serve(
        Serving(input=table.digest().hex(), encoder=trained.encoder, serving=servable.state, classes=table.classes, **apart)
    )


@dataclass(frozen=True)
class Model:
    """One party's half of a trained model, and what was stored with it.

    Attributes:
        stored: that half.
        alignment: it was trained on.
        input_digest: of this party's records that took part.
        shown: file with the rows about which others were told.
    """

    stored: StoredModel
    alignment: Alignment
    input_digest: bytes
    shown: Path

    @property
    def job(self) -> Job:
        """The job that trained it."""
        return self.stored.job


@dataclass(frozen=True)
class Predicting:
    """What a party brings to a job of predictions, beside its table.

    Attributes:
        model: its half.
        requests: its owner's; None at another party, and for new records.
        records: new ones of its owner; None at another party, and for known ones.
    """

    model: Model
    requests: Requests | None
    records: Records | None


def reported(
    predictor: Predictor, job: Job, party: str, exchanged: Served | Predicted, protection: Protection
) -> ReportedPredictions:
    """What ``party`` reports of a job of predictions in which it ``exchanged`` something.

    Args:
        predictor: of the model.
        job: that predicts.
        party: this party's name.
        exchanged: the job's result.
        protection: what its owner does about what its tensors tell.
    """
    role = role_in(job.parties, party)
    assert role is not None
    return ReportedPredictions(
        exchanged,
        predictor.learnt(job, exchanged),
        (
            *(unaudited(protection) if isinstance(exchanged, Served) else ()),
            *idle_defences(protection.defences, role, predictor.defended, "predictions"),
            *idle_feature_audit(protection.features, role, predictor.defended, "predictions"),
        ),
    )


class FileTally:
    """What a service has exchanged, in the folder of its job (:class:`vfl_node.training.serving.ServiceTally`).

    It outlives the process; a power failure may take back what was counted within its last seconds.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._path = folder.path / "served"

    def read(self) -> Served | None:
        """What was written last; None: nothing yet. Raises StateError (``E_STATE_CORRUPT``)."""
        try:
            return _SERVED.validate_json(read_checked(self._path, hint="cancel the service; the next request begins another"))
        except FileNotFoundError:
            return None

    def write(self, served: Served) -> None:
        """Store ``served``; takes 20 µs after the first time."""
        text = _SERVED.dump_json(served).ljust(_TALLY_BYTES)
        if not self._path.exists():
            write_checked(self._path, text)
        opened = os.open(self._path, os.O_WRONLY)
        try:
            os.pwrite(opened, checked(text), 0)  # always as long, so nothing of an earlier one is left
        finally:
            os.close(opened)
