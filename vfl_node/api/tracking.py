"""Log a finished job to a tool that tracks experiments."""

from __future__ import annotations

import os
from pathlib import Path

from vfl_node.api.result import Result
from vfl_node.report import sinks
from vfl_node.report.tracked import read_run

Finished = Result | str | os.PathLike[str]
"""A result, or the folder with a party's ``report.json``."""


def log_to_mlflow(
    finished: Finished, store: str | os.PathLike[str], *, experiment: str = sinks.EXPERIMENT, models: bool = False
) -> None:
    """Log a job as a run of MLflow: its keys, metrics with intervals, curves, what leaks, its report and the model's card.

    Args:
        finished: of a result what the active party knows; or the folder with a party's report, as a node keeps it, too.
        store: URI of a tracking server or database; or a folder, in which ``mlflow.db`` is made.
        experiment: to which the run belongs; made where there is none.
        models: whether the halves of the model are logged, too: of a result those of all parties, of a folder its own. They
            hold what each party's model knows of its table.

    Raises:
        UsageError: there is no report, MLflow is not installed, or it did not take the run; with ``models`` also as
            :meth:`~vfl_node.api.result.Result.export`. With ``message`` and ``hint``.
    """
    from vfl_node.export.tracked import write_beside  # loads torch

    folder = _folder(finished)
    run = read_run(folder)
    sinks.check_sink("mlflow")
    parties, declared = {run.tags["party"]: folder}, dict[str, str]()
    if isinstance(finished, Result):
        parties, declared = {party: half.parent for party, half in finished.model.items()}, finished.networks
    with write_beside(folder, parties if models else {}, declared) as beside:
        sinks.log_to_mlflow(folder, os.fspath(store), experiment, beside)


def log_to_tensorboard(finished: Finished, folder: str | os.PathLike[str]) -> None:
    """Log a job as a run of TensorBoard below ``folder``; otherwise as :func:`log_to_mlflow`, without the report itself."""
    sinks.log_to_tensorboard(_folder(finished), os.fspath(folder))


def _folder(finished: Finished) -> Path:
    return finished.folder if isinstance(finished, Result) else Path(finished)
