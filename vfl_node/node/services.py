"""The services of predictions of a node: what is asked of which model, and how much more may be."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from vfl_node.errors import StateError, VflError
from vfl_node.node.budgets import model_budget
from vfl_node.node.states import STANDING
from vfl_node.node.store import Store
from vfl_node.settings.node import Settings
from vfl_node.training.prediction.stored import FileTally
from vfl_node.training.predictor import ServiceCount


def list_services(settings: Settings, store: Store) -> list[dict[str, Any]]:
    """The services that have not ended, newest first.

    Each has ``job``, ``model`` (the job that trained it), ``state``, ``asker`` (the party that asks), ``parties``, ``requests``
    (answered; 0 at a party that does not ask), ``rows`` (that were asked for, in whole batches; None: it is damaged) and
    ``predicted_rows`` (:func:`vfl_node.node.budgets.model_budget`, over all services of the model).
    """
    services = []
    for record in store.standing(*STANDING):
        if not record.is_service:
            continue
        asker = None
        with suppress(VflError):  # of a job that this version cannot read any more
            asker = record.job.asker
        model = str((record.predict or {}).get("model"))
        requests, rows = 0, None
        with suppress(StateError):
            count = FileTally(store.job_folder(record).path).read() or ServiceCount(0)
            requests, rows = count.requests, count.batches * count.rows
        services.append(
            {
                "job": record.id,
                "model": model,
                "state": record.state,
                "asker": asker,
                "parties": record.parties,
                "requests": requests,
                "rows": rows,
                "predicted_rows": model_budget(settings, store, model),
            }
        )
    return services
