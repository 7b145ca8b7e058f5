"""Predictions of new records: all rows of a new intersection, once.

Leaks: see :func:`~vfl_node.training.prediction.disclosures.learnt`.
"""

from __future__ import annotations

import numpy as np

from vfl_node.errors import UsageError
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.session import Session
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.exchange import AT_ONCE, Exchange, Exchanges, PredictionBatch
from vfl_node.training.prediction.shown import DisclosureGuard, check_judged
from vfl_node.training.prediction.sides import Probabilities, ServiceSide
from vfl_node.training.predictor import Predicted, ShownRows, check_allowed
from vfl_node.training.schedule import cut


async def predict_new(
    session: Session, side: ServiceSide, *, shown: ShownRows, exchange: Exchanges = Exchange
) -> Predicted | None:
    """Predict all rows of a new intersection, in its order. Returns the predictions at the asker, None at another party.

    All parties must own every row. Synthetic rows would be drawn anew in each alignment, while the model and the real rows
    stay the same. So a peer that compared two jobs over the same ids, or one job with known rows, could tell which rows are
    real.

    Args: as :func:`~vfl_node.training.prediction.known_records.predict_known`.

    Raises:
        UsageError: a party does not own some of the rows, or might not (``E_PREDICT``).
        VflError: as :func:`~vfl_node.training.prediction.known_records.predict_known`.

    Cost: 4·d bytes a shared row and passive party, and 8 more to a passive asker (8·K with K > 2 classes).
    """
    check_allowed(session.job, side.terms.serve)
    progress = session.progress
    check_judged(session, named=False)
    view, guard = side.alignment, DisclosureGuard(side, shown, Protection())
    exchanging = exchange(session, side, guard)
    if view.has_synthetic_rows:
        reason = "new records are predicted where all parties have every one: align them by psi"
        raise UsageError(reason, code="E_PREDICT", for_peer=reason)
    batches = [
        PredictionBatch(positions, number, new=True)
        for number, positions in enumerate(cut(np.arange(len(view)), side.terms.serve.batch_size))
    ]
    probabilities: list[Probabilities] = []
    progress.emit(PhaseBegan("predict", len(batches), "batches"))
    async with session.phase("predict"):
        try:
            for first in range(0, len(batches), AT_ONCE):
                part = batches[first : first + AT_ONCE]
                failpoints.reach("predict")
                probabilities += await exchanging.run(part)
                progress.emit(Advanced(len(part)))
        finally:
            guard.finish()
    if exchanging.asking.asker:
        return None
    own = np.flatnonzero(view.owned)
    own = own[np.argsort(view.rows[own])]
    return Predicted(view.rows[own], exchanging.join(probabilities)[own], len(view))
