"""``heuristic``: the mean embedding of the aligned rows of the same group."""

from __future__ import annotations

import numpy as np
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.job.unaligned import Unaligned
from vfl_node.training.unaligned.contract import AlignedRows, Filler, Filling, JointModel, OwnPart


def mean_of_group(method: Unaligned) -> Filler:
    """The method at work; it has no keys."""
    return _fill


def _fill(aligned: AlignedRows, outside: OwnPart, joint: JointModel, randomness: Randomness) -> Filling:
    """As :class:`~vfl_node.training.unaligned.contract.Filler`; draws nothing.

    A row whose group has no aligned row, or that has no group, gets the mean of all aligned rows. The figure ``no_group`` is
    the share of such rows.

    Raises:
        ValueError: the table has no groups; the job's check comes before.
    """
    known, asked = aligned.part.groups, outside.groups
    if known is None or asked is None:
        raise ValueError("the rows have no groups")
    grouped = known >= 0
    codes, place = np.unique(known[grouped], return_inverse=True)  # c groups
    received = aligned.received
    means = torch.zeros(len(codes) + 1, received.shape[1], dtype=torch.float64)
    means.index_add_(0, torch.from_numpy(place), received.cpu().double()[torch.from_numpy(grouped)])
    means[:-1] /= torch.from_numpy(np.bincount(place, minlength=len(codes)))[:, None]
    means[-1] = received.cpu().double().mean(dim=0)
    at = np.minimum(np.searchsorted(codes, asked), max(0, len(codes) - 1))
    found = codes[at] == asked if len(codes) else np.zeros(len(asked), np.bool_)
    chosen = torch.from_numpy(np.where(found, at, len(codes)))
    return Filling(means.float()[chosen].to(received.device), {"no_group": float(1 - found.mean())})
