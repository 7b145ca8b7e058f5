"""A networked runtime for vertical federated learning.

Read the tree from the bottom up: ``crypto``, ``models`` and ``data`` know only
numbers, tensors and tables; ``transport`` carries typed messages between two
parties; ``alignment`` and ``training`` are the papers' protocols, written as
coroutines over a ``Channel``; ``node`` is the long-lived service; ``cli``,
``web`` and ``api`` are what a person touches.

In Python, a trial of all parties on this machine (see docs/api.md)::

    from vfl_node import Job, run

    result = run(job, active=clinic, passive=lab)

Nothing heavy is loaded before :func:`run` is called.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vfl_node.api import Result, run
    from vfl_node.job import Job

__version__ = "0.1.0"

__all__ = ["Job", "Result", "__version__", "run"]

_LAZY = {"Job": "vfl_node.job", "Result": "vfl_node.api"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


class _CallablePackage(ModuleType):
    """``vfl_node.run`` is a package of modules, and what a user calls: importing one of them must not hide the other."""

    @property
    def __wrapped__(self) -> Any:
        """What it calls, for ``inspect.signature`` and ``help``."""
        return importlib.import_module("vfl_node.api").run

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """As :func:`vfl_node.api.run`."""
        return self.__wrapped__(*arguments, **options)


importlib.import_module(f"{__name__}.run").__class__ = _CallablePackage  # which has a docstring alone
