"""A networked runtime for vertical federated learning.

Read the tree from the bottom up: ``crypto``, ``models`` and ``data`` know only
numbers, tensors and tables; ``transport`` carries typed messages between two
parties; ``alignment`` and ``training`` are the papers' protocols, written as
coroutines over a ``Channel``; ``node`` is the long-lived service; ``cli``,
``web`` and ``api`` are what a person touches.

In Python, a trial of all parties on this machine (see docs/guides/use-it-from-python.md)::

    from vfl_node import Job, run

    result = run(job, active=clinic, passive=lab)

Nothing heavy is loaded before :func:`run` is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vfl_node.version import VERSION

if TYPE_CHECKING:
    from vfl_node.api import Comparison, Result, compare, log_to_mlflow, log_to_tensorboard, run
    from vfl_node.export.loaded import load
    from vfl_node.job import Job

__version__ = VERSION

__all__ = ["Comparison", "Job", "Result", "__version__", "compare", "load", "log_to_mlflow", "log_to_tensorboard", "run"]

_API = ("Comparison", "Result", "compare", "log_to_mlflow", "log_to_tensorboard", "run")
_LAZY = {"Job": "vfl_node.job", "load": "vfl_node.export.loaded", **dict.fromkeys(_API, "vfl_node.api")}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
