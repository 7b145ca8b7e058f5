"""A data party's run of a job of predictions."""

from __future__ import annotations

import numpy as np

from vfl_node.execution.align import aligned
from vfl_node.execution.finish import finish
from vfl_node.execution.keep import keep, traffic_of
from vfl_node.execution.run import ALIGNED, KEPT, Run, agreed
from vfl_node.execution.serving import PREDICTIONS, FileTally, Predicting, reported
from vfl_node.execution.shown import FileShown
from vfl_node.process.files import private_folder, write_whole
from vfl_node.process.machine import now
from vfl_node.training.serving import Predicted, Served, predictor_of


async def play(run: Run, predicting: Predicting) -> None:
    """The run to its end; raises and result as :func:`vfl_node.execution.train.play`.

    Leaks: as :meth:`vfl_node.training.serving.Predictor.learnt` says.
    """
    session, folder, predict = run.session, run.folder, run.session.job.predict
    assert predict is not None
    started, model, result = now(), predicting.model, None
    predictor, shown = predictor_of(model.job.train), FileShown(model.shown, session.policy.limits.rows_per_model)
    points = [ALIGNED] if folder.load_alignment(session.others) else []
    point = await agreed(run, [*points, KEPT] if folder.whole else points)
    if point != KEPT:
        exchanged: Served | Predicted
        if predict.rows == "known":
            exchanged = await predictor.serve(
                session,
                model.stored,
                model.alignment,
                run.data.table,
                predicting.requests,
                shown=shown,
                tally=FileTally(folder),
            )
        else:
            if point is None:
                shown.check_room()
            result = await aligned(run, resume=point is not None)
            own = await predictor.predict_once(session, model.stored, result.alignment, run.data.table, shown=shown)
            if own and predicting.records:
                private_folder(folder.artefacts)
                write_whole(folder.artefacts / PREDICTIONS, predicting.records.of_shared(own))
            nothing = np.empty(0, dtype=np.int64)
            exchanged = own or Predicted(nothing, nothing.astype(np.float64), shared=len(result.alignment))
        predictions = reported(predictor, session.job, session.name, exchanged, session.policy.protection)
        keep(run, started, traffic_of(session, result), aligned=result, predictions=predictions)
    await finish(run)
