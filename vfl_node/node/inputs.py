"""What a node's party brings to a job: its table, which is noted by its name, and what it predicts with."""

from __future__ import annotations

from vfl_node.data.named import table_name
from vfl_node.data.tables import Table
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import announce, read_input
from vfl_node.job import Job
from vfl_node.node.predictions import prepare
from vfl_node.node.schedule_states import keep_marks
from vfl_node.node.store import Store
from vfl_node.prediction.play import Coordinating, Predicting
from vfl_node.prediction.requests import Requests
from vfl_node.progress import Progress
from vfl_node.session.memory import mark_secret
from vfl_node.settings.node import Settings


def read_inputs(
    settings: Settings, store: Store, job: Job, folder: JobFolder, requests: Requests | None, progress: Progress
) -> tuple[Table | None, Predicting | Coordinating | None]:
    """This party's table, and what it predicts with where the job makes predictions.

    Args:
        settings: of this party.
        store: of its jobs.
        job: the job.
        folder: of the job.
        requests: of this node's owner for predictions; None if the job takes none.
        progress: hears what training will cost.

    Raises:
        VflError: as :func:`~vfl_node.node.predictions.prepare`, :func:`~vfl_node.execution.inputs.read_input` and
            :meth:`~vfl_node.node.lineages.Lineages.note`.
        OSError: what is noted cannot be written.
    """
    if job.predict:
        return prepare(settings, store, job, folder, requests)
    if settings.role == "coordinator":
        return None, None
    table = read_input(settings, job)
    store.check_there()  # or the memory of the partner would begin anew, in a new folder
    secret = mark_secret(store.partner(job.parties.others(settings.name)[0]))
    store.lineages.note(table_name(settings, job), table, secret)
    keep_marks(settings, store, folder.path.name, table, secret)
    announce(progress, job, {settings.name: table})
    return table, None
