"""A party's run of a job of predictions: what it brings to it, and the run to its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfl_node.execution import coordinator
from vfl_node.execution.align import align_or_load
from vfl_node.execution.drifted import drift_cautions
from vfl_node.execution.finish import finish
from vfl_node.execution.keep import keep, traffic_of
from vfl_node.execution.run import ALIGNED, KEPT, Run, agree_point
from vfl_node.job import Job
from vfl_node.prediction.counted import CountedTally, count_rows
from vfl_node.prediction.jobs import predict_of
from vfl_node.prediction.models import Model
from vfl_node.prediction.records import Records
from vfl_node.prediction.requests import Requests
from vfl_node.privacy.defences.idle import idle_defences, idle_feature_audit
from vfl_node.process.files import private_folder, write_whole
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import role_in
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.stored import FileShown, FileTally
from vfl_node.training.predictor import Predicted, Predictor, ReportedPredictions, ServiceCount, predictor_of
from vfl_node.training.trainer import unaudited
from vfl_node.transport.channel import Channel

PREDICTIONS = "predictions.csv"
"""What a job that predicts new records leaves, beside its report."""


@dataclass(frozen=True)
class Predicting:
    """What a data party brings to a job of predictions, beside its table.

    Attributes:
        model: its half.
        requests: of this node's owner, if it is the one who asks for known records; else None.
        records: new ones of this node's owner, if it is the one who asks for new records; else None.
    """

    model: Model
    requests: Requests | None
    records: Records | None

    def conversations(self, run: Run) -> list[Coroutine[Any, Any, None]]:
        """The one coroutine of its run."""
        return [play(run, self)]


@dataclass(frozen=True)
class Coordinating:
    """What a coordinator brings to a job of predictions.

    Attributes:
        trained: the job that trained the model.
    """

    trained: Job

    def conversations(self, run: Run) -> list[Coroutine[Any, Any, None]]:
        """One coroutine for each data party, in the order of the session's peers."""
        return coordinator.conversations(run, CoordinatedPredictions(run, self.trained))


async def play(run: Run, predicting: Predicting) -> None:
    """A data party's run to its end; raises and result as :func:`vfl_node.execution.train.play`.

    Leaks: as :meth:`vfl_node.training.predictor.Predictor.learnt` says.
    """
    session, folder, model = run.session, run.folder, predicting.model
    started, result = utc_now(), None
    predictor, shown = predictor_of(model.job.train), FileShown(model.shown, session.policy.limits.budgets.predicted_rows)
    points = [ALIGNED] if folder.load_alignment(session.others) else []
    point = await agree_point(run, [*points, KEPT] if folder.whole else points)
    if point != KEPT:
        exchanged: ServiceCount | Predicted
        if predict_of(session.job).rows == "known":
            exchanged = await predictor.predict_known(
                session,
                model.stored,
                model.alignment,
                run.data.table,
                predicting.requests,
                shown=shown,
                tally=CountedTally(FileTally(folder.path), session.job, session.name),
            )
        else:
            if point is None:
                shown.check_room()
            result = await align_or_load(run, resume=point is not None)
            own = await predictor.predict_new(session, model.stored, result.alignment, run.data.table, shown=shown)
            if own and predicting.records:
                private_folder(folder.artefacts)
                write_whole(folder.artefacts / PREDICTIONS, predicting.records.shared_csv(own))
            nothing = np.empty(0, dtype=np.int64)
            count_rows(session.job, session.name, len(result.alignment))
            exchanged = own or Predicted(nothing, nothing.astype(np.float64), shared=len(result.alignment))
        predictions = report_predictions(predictor, session.job, session.name, exchanged, session.policy.protection)
        if result:  # known records are those of the training
            records = run.data.table.take(result.alignment.rows[result.alignment.owned])
            moved = drift_cautions(model.columns, predict_of(session.job).model, records)
            predictions = dataclasses.replace(predictions, warnings=(*moved, *predictions.warnings))
        keep(run, started, traffic_of(session, result), aligned=result, predictions=predictions)
    await finish(run)


class CoordinatedPredictions:
    """A coordinator's part (:class:`vfl_node.execution.coordinator.PredictionsPart`), by the model of the job ``trained``."""

    def __init__(self, run: Run, trained: Job) -> None:
        self._session, self._predictor = run.session, predictor_of(trained.train)
        self._answering = self._predictor.coordination(run.session, trained, FileTally(run.folder.path))

    async def serve(self, channel: Channel) -> None:
        """As :meth:`vfl_node.training.predictor.Answering.serve`."""
        await self._answering.serve(channel)

    def report(self) -> ReportedPredictions:
        """What is reported, once every data party is served."""
        session, exchanged = self._session, self._answering.exchanged()
        return report_predictions(self._predictor, session.job, session.name, exchanged, session.policy.protection)


def report_predictions(
    predictor: Predictor, job: Job, party: str, exchanged: ServiceCount | Predicted, protection: Protection
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
            *(unaudited(protection) if isinstance(exchanged, ServiceCount) else ()),
            *idle_defences(protection.defences, role, predictor.defended, "predictions"),
            *idle_feature_audit(protection.features, role, predictor.defended, "predictions"),
        ),
    )
