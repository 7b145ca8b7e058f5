"""Whether a passive party's embeddings of rows trained on are like those of rows held out: a trigger put into some is not.

A passive party that departs from the protocol can read labels from the gradients, and give some of the negative rows trained on
an embedding of its own choice, a trigger. The top learns that it means a negative label. Held-out rows are left as they should
be, so no metric tells. But lots decide which rows are held out, so embeddings of both kinds must be alike. The active party has
both. It compares the distance of each trained row to the nearest held-out one with what is usual among held-out rows.

::

    z_h, z_t     held-out and trained embeddings, each coordinate divided by its deviation among those held out
    reach        max(98 % quantile of the distance of a z_h to the nearest other z_h, SLACK·√d)
    unlike       share of z_t farther than reach from all z_h; about 2 % where both are alike

Weights move between the last steps of training, and held-out rows meet the last ones. Hence the slack: without it, all rows of
a table with few different ones would be unlike, as their held-out twins lie at distance 0 from each other.

It finds a party that does not know of it. One that puts the trigger into held-out rows, too, by a rule that needs no label, is
not found (docs/explanations/privacy/integrity.md, "Integrity").

Cost: t·n·d multiplications for each passive party, where t ≤ 256 and n ≤ 4,096, and as many among held-out rows alone, n²·d;
memory of (t + n)·d numbers. Nothing is sent. How long it takes depends on public numbers alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.privacy.attachment import Attachment, TrainingStep

MOST = 4096
"""Held-out rows that are compared, at most."""

NEWEST = 256
"""Rows trained on that are compared, at most: the newest ones, which met weights near the last ones. With all rows of an epoch,
of 15 steps, honest parties were above :data:`ALARM`."""

LEAST = 200
"""Held-out rows, at least: of fewer the share scatters too much."""

USUAL = 0.02
"""Share of held-out rows that lie beyond the reach."""

SLACK = 0.25
"""Deviations in each coordinate by which weights may move an embedding between the last steps."""

ALARM = 0.08
"""Share of unlike rows above which the owner is warned. A trigger in fewer rows trained on is not found."""

BLOCK = 512
"""Rows whose distances to all others are in memory at a time."""


class Compared(Attachment):
    """Keeps the newest embeddings of each passive party, and compares them with those held out.

    Args:
        peers: names of the passive parties, in the order of the job.
        training: rows of an epoch; no more are kept, so that each is of the last one.
    """

    name = "likeness"

    def __init__(self, peers: Sequence[str], training: int) -> None:
        self._peers, self._most = peers, min(NEWEST, training)
        self._kept: deque[Tensor] = deque()

    def step_done(self, step: TrainingStep) -> None:
        """As :meth:`Attachment.step_done`: keep its embeddings."""
        self._kept.append(torch.stack([embedding.detach().cpu() for embedding in step.embeddings]))
        while sum(rows.shape[1] for rows in self._kept) - self._kept[0].shape[1] >= self._most:
            self._kept.popleft()

    def share_unlike(self, held_out: Sequence[Tensor]) -> dict[str, float] | None:
        """Peer → share of its trained rows that are unlike its ``held_out`` ones, float32[n, d]; None of too few."""
        if not self._kept or len(held_out[0]) < LEAST:
            return None
        of_each = zip(self._peers, self._newest(), held_out, strict=True)
        return {peer: share_unlike(trained, rows[:MOST].cpu()) for peer, trained, rows in of_each}

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {"newest": self._newest()} if self._kept else {}

    @override
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._kept = deque(tensors.values())

    def _newest(self) -> Tensor:
        """Embeddings float32[k, t, d] of k peers."""
        return torch.cat(list(self._kept), dim=1)[:, -self._most :]


def share_unlike(trained: Tensor, held_out: Tensor) -> float:
    """Share of ``trained`` rows, float32[t, d], far from all rows ``held_out``, float32[n, d]; see the module."""
    held, learnt = held_out.double(), trained.double()
    deviations = held.std(dim=0)
    typical = float(deviations.square().mean().sqrt())
    if not typical:  # the party says the same of every row
        return 0.0
    spread = deviations.clamp(min=typical / 10)  # a trigger may be where held-out rows hardly differ
    held, learnt = held / spread, learnt / spread
    among = _nearest(held, held, 2)  # the nearest is itself
    reach = max(float(among.quantile(1 - USUAL)), SLACK * held.shape[1] ** 0.5)
    return float((_nearest(learnt, held, 1) > reach).double().mean())


def _nearest(rows: Tensor, others: Tensor, rank: int) -> Tensor:
    """Distance of each of ``rows``, float64[t, d], to the ``rank``-th nearest of the ``others``."""
    blocks = (rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK))
    return torch.cat([torch.cdist(block, others).kthvalue(rank, dim=1).values for block in blocks])


def warn(unlike: Mapping[str, float] | None) -> tuple[str, ...]:
    """A warning of each passive party of whose rows more are :func:`share_unlike` than honest work explains."""
    return tuple(
        f"{share:.0%} of {peer}'s embeddings of rows trained on are unlike all those of rows held out (about {USUAL:.0%} are "
        f"usual). Lots decide which rows are held out, so {peer} treated them differently: by a fault, or to put a trigger "
        "into the model, of which metrics show nothing. Ask it, and let the model decide nothing before you know why."
        for peer, share in (unlike or {}).items()
        if share > ALARM
    )
