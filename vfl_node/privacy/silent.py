"""Attacks that have nothing to say: the numbers they meet are too large to compute with, or not finite.

A peer's numbers are within what :mod:`vfl_node.transport.codec` lets in, but squares and products of many may leave the range
of a float, and an attack from outside of the project may not expect either. An audit must never end a job for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from vfl_node.metrics.classes import NotNumbers

T = TypeVar("T")

UNUSABLE = (NotNumbers, np.linalg.LinAlgError, FloatingPointError, OverflowError)
"""What is raised where numbers are of no use, beside torch's ``LinAlgError``; everything else is a defect."""


def attempt(attack: Callable[[], T]) -> T | None:
    """What ``attack`` gives; None where it meets numbers that are of no use to it."""
    try:
        with np.errstate(all="ignore"):
            return attack()
    except UNUSABLE:
        return None
    except RuntimeError as error:
        if type(error).__name__.lstrip("_") != "LinAlgError":  # of torch, which may not be loaded
            raise
        return None


def silent(epochs: Iterable[Mapping[str, float | None]], waits: Mapping[str, int]) -> tuple[str, ...]:
    """The warning that attacks said nothing where they should have; nothing if all spoke.

    Args:
        epochs: of each epoch attack → its figure; None where it said nothing.
        waits: attack → after how many epochs it says something; 1 where it is not listed.
    """
    shown = list(epochs)
    names = {
        name: sum(value is None for value in missing)
        for name in dict.fromkeys(name for figures in shown for name in figures)
        if None in (missing := [figures[name] for figures in shown[waits.get(name, 1) - 1 :] if name in figures])
    }
    if not names:
        return ()
    told = ", ".join(f"{name.replace('_', ' ')} in {count} of {len(shown)} epochs" for name, count in names.items())
    return (
        f"Attacks of the audit said nothing: {told}. There were too few rows to compare, or numbers that are too large to "
        "compute with. This does not mean that nothing can be found.",
    )
