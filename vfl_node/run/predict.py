"""A data party's run of a job of predictions."""

from __future__ import annotations

import numpy as np

from vfl_node import failpoints
from vfl_node.alignment.alignment import Alignment
from vfl_node.files import private_folder, write_whole
from vfl_node.machine import now
from vfl_node.run.align import aligned
from vfl_node.run.keep import keep, traffic_of
from vfl_node.run.run import ALIGNED, KEPT, Run
from vfl_node.run.serving import PREDICTIONS, FileTally, Predicting
from vfl_node.run.shown import FileShown
from vfl_node.session.agree import agree
from vfl_node.training.split.serving import Embedder, Predicted, Scorer, Served, ServedModel, predict_once, serve


async def play(run: Run, predicting: Predicting) -> None:
    """The run to its end; raises and result as :func:`vfl_node.run.train.play`.

    Leaks: as :func:`vfl_node.training.split.serving.learnt` says.
    """
    session, folder, predict = run.session, run.folder, run.session.job.predict
    assert predict is not None
    started, model, result = now(), predicting.model, None
    shown = FileShown(model.shown, session.limits.rows_per_model)
    points = [ALIGNED] if folder.load_alignment(session.peer.peer) else []
    point = await agree(
        session, [*points, KEPT] if folder.whole else points, input_digest=run.data.whole.digest(), inputs=folder
    )
    if point != KEPT:
        predictions: Served | Predicted
        if predict.rows == "known":
            side = _side(run, model.half, model.alignment)
            predictions = await serve(
                session.peer,
                predict,
                side,
                predicting.requests,
                session.progress,
                shown=shown,
                tally=FileTally(folder),
                protection=session.protection,
            )
        else:
            result = await aligned(run, resume=point is not None)
            side = _side(run, model.half, result.alignment)
            own = await predict_once(session.peer, predict, side, session.progress, shown=shown)
            if own and predicting.records:
                private_folder(folder.artefacts)
                write_whole(folder.artefacts / PREDICTIONS, predicting.records.predicted(own))
            nothing = np.empty(0, dtype=np.int64)
            predictions = own or Predicted(nothing, nothing.astype(np.float64), shared=len(result.alignment))
        keep(run, started, traffic_of(session, result), aligned=result, predictions=predictions)
    failpoints.reach("finish")
    async with session.peer.phase("finish"):
        pass


def _side(run: Run, model: ServedModel, alignment: Alignment) -> Embedder | Scorer:
    """This party's half of a trained model, over the training's alignment or a new one."""
    session, table = run.session, run.data.table
    if session.role == "active":
        return Scorer(model, alignment, table, session.device)
    return Embedder(model, alignment, table, session.device, session.protection.defences)
