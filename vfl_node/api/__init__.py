"""Python's face of a trial: a job and a table for each party in, metrics, epochs, predictions and reports out.

::

    from vfl_node import run

    job = {"train": {"bottom": [32, 16], "active_bottom": [16], "top": [16], "epochs": 20}}
    result = run(job, active=clinic, passive=lab)   # data frames with an id column; the active one has labels
    result.metrics["auc"], result.local_metrics["auc"]
    result.report                                    # shown in a notebook
    result.report.save("report.html")

One owner holds all tables here, as with ``vfl-node run``: nothing of this is for tables of several organisations, which
nodes are for. See docs/guides/use-it-from-python.md.
"""

from __future__ import annotations

from vfl_node.api.comparison import Comparison, compare
from vfl_node.api.frames import Frame
from vfl_node.api.result import Picture, ReportPage, Result
from vfl_node.api.running import run
from vfl_node.api.tracking import log_to_mlflow, log_to_tensorboard

__all__ = ["Comparison", "Frame", "Picture", "ReportPage", "Result", "compare", "log_to_mlflow", "log_to_tensorboard", "run"]
