"""Log a finished job to a tool that tracks experiments."""

from __future__ import annotations

import os
from pathlib import Path

from vfl_node.api.result import Result
from vfl_node.report import sinks

Finished = Result | str | os.PathLike[str]
"""A result, or the folder with a party's ``report.json``."""


def log_to_mlflow(finished: Finished, store: str | os.PathLike[str], *, experiment: str = sinks.EXPERIMENT) -> None:
    """Log a job as a run of MLflow: its keys, metrics with intervals, curves, what leaks, and its report.

    Args:
        finished: of a result what the active party knows; or the folder with a party's report, as a node keeps it, too.
        store: URI of a tracking server or database; or a folder, in which ``mlflow.db`` is made.
        experiment: to which the run belongs; made where there is none.

    Raises:
        UsageError: there is no report, MLflow is not installed, or it did not take the run; with ``message`` and ``hint``.
    """
    sinks.log_to_mlflow(_folder(finished), os.fspath(store), experiment)


def log_to_tensorboard(finished: Finished, folder: str | os.PathLike[str]) -> None:
    """Log a job as a run of TensorBoard below ``folder``; otherwise as :func:`log_to_mlflow`, without the report itself."""
    sinks.log_to_tensorboard(_folder(finished), os.fspath(folder))


def _folder(finished: Finished) -> Path:
    return finished.folder if isinstance(finished, Result) else Path(finished)
