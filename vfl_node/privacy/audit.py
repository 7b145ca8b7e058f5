"""A party's own attacks on what it sends, while it trains.

The peer's attacks, run by the party they are aimed at: it has what the peer receives, and it
alone has the truth, which of the shared rows are synthetic at its side. So it sees how well they
can be told apart before much is sent, and may stop.

What is found is a lower bound. The peer may combine attacks, knows which of the rows are its
own, and compares every row with every other one; the audit follows some of them.

Attacks: those of :data:`~vfl_node.privacy.attacks.ATTACKS`, after e epochs each on what e epochs
have shown, but for two: ``spectral`` is that of the epoch, without the labels used, and
``near_duplicate`` compares rows of one step, in units of the batch's typical row. An AUC is
not folded: .5 is chance. At chance it deviates by about .013 where the most rows are followed, and by
√((s + r + 1) / (12·s·r)) where only s synthetic and r real ones are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.metrics import auc
from vfl_node.privacy.attacks import ATTACKS, longitudinal, near_duplicate, row_loss, spectral
from vfl_node.privacy.attacks.longitudinal import SMALLEST

FOLLOWED = 2048
"""Positions followed in a repeat at most."""

PAIRS = 1 << 22
"""Pairs of rows compared in an epoch at most; they cost as much as 512 rows of a batch of 8,192."""

SPECTRAL_BATCHES, SAMPLE = 8, 512
"""The batches of an epoch, spread evenly, and the first rows of each, that the spectral attack gets at most."""

WEIGHT = 0.3
"""Of the newest epoch in a moving average, whose first value is that of its first epoch."""


class Audit:
    """One party's attacks on what it sends, with what it alone knows as the truth.

    Args:
        party: its name.
        secret: bool[m], which shared rows are synthetic at this party.
        trained: int64[t], the shared positions trained on in this repeat, each once an epoch.
        randomness: its own, for this repeat; it fixes which positions are followed.
        limit: the largest AUC, folded, that its owner allows; None: any.

    Cost: 2²²·d multiplications and eight eigenvectors of d × d matrices an epoch, and the norms of B rows
        a step. Measured at B = 8,192, d = 128 on one slow core, where a step of two parties takes 40 ms: 35 ms
        an epoch and 1 ms a step.
    """

    def __init__(
        self,
        party: str,
        secret: NDArray[np.bool_],
        trained: NDArray[np.int64],
        randomness: Randomness,
        *,
        limit: float | None,
    ) -> None:
        self._party, self._limit = party, limit
        self._secret, self._rows = secret, len(trained)
        self._followed, self._rank = _follow(trained, secret[trained], randomness.derive("followed"))
        self._place = np.full(len(secret), -1, dtype=np.int16)
        self._place[self._followed] = np.arange(len(self._followed))
        self._state: dict[str, Tensor] = {}
        """What the epochs so far have shown, see :meth:`tensors`; empty before the first batch."""
        self._spectral: list[float | None] = []
        self._steps = 0
        """Of this epoch."""
        self._every = 1
        """Of how many batches one is projected."""

    @torch.no_grad()
    def see(self, positions: NDArray[np.int64], sent: Tensor, gradient: Tensor) -> None:
        """Look at one step.

        Args:
            positions: int64[B], shared positions of the batch.
            sent: float32[B, d], what the peer receives: embeddings, or gradients.
            gradient: float32[B, d], gradients of the batch's mean loss.
        """
        if len(self._followed) == 0:
            return
        if self._steps == 0:  # the largest batch; the last may be smaller
            self._every = math.ceil(self._rows / len(positions) / SPECTRAL_BATCHES)
        if self._steps % self._every == 0:
            found = spectral.scores(sent[:SAMPLE]).numpy()  # a batch has its rows in random order
            self._spectral.append(auc(self._secret[positions[:SAMPLE]], found))
        self._steps += 1
        place = self._place[positions]
        met = np.flatnonzero(place >= 0)
        self._follow_up(torch.from_numpy(place[met]).long(), torch.from_numpy(met), sent, gradient)

    def epoch_done(self) -> dict[str, float | None]:
        """The AUC of each attack after this epoch; None where it is not defined. Empty if there is nothing to tell apart.

        Raises:
            PolicyError: the moving average of the epochs' strongest attack, folded, is above the
                limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        if not self._state:
            return {}
        self._state["epochs"] += 1
        values = {name: self._auc(name) for name in ATTACKS}
        self._spectral, self._steps = [], 0
        strongest = max((0.5 + abs(value - 0.5) for value in values.values() if value is not None), default=None)
        newest = torch.tensor([_number(value) for value in [*values.values(), strongest]], dtype=torch.float64)
        before = self._state["averages"]
        moved = torch.where(before.isnan(), newest, before + WEIGHT * (newest - before))
        self._state["averages"] = torch.where(newest.isnan(), before, moved)
        self._check()
        return values

    @property
    def averages(self) -> dict[str, float | None]:
        """The moving average of each attack's AUC; empty if there is nothing to tell apart, or no epoch is done."""
        if not self._state:
            return {}
        found = self._state["averages"].tolist()[: len(ATTACKS)]
        return {name: None if math.isnan(value) else value for name, value in zip(ATTACKS, found, strict=True)}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold.

        ``rows``: float32[k, d], each followed position's row in the last epoch. float64[k] by attack: what the
        epochs have shown of each position. ``averages``: float64, NaN where an attack was never defined, the
        last that of the strongest. ``epochs``: int64.
        """
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the audit must be made with the same arguments."""
        self._state = {name: tensor.clone() for name, tensor in tensors.items()}
        self._spectral, self._steps = [], 0

    def _begin(self, sent: Tensor) -> dict[str, Tensor]:
        """The state before the first batch; NaN at a followed position that is not compared with others."""
        size = len(self._followed)
        compared = torch.from_numpy(self._rank < PAIRS // len(sent))
        return {
            "rows": torch.zeros(size, sent.shape[1]),
            "longitudinal": torch.zeros(size, dtype=torch.float64),
            "row_loss": torch.zeros(size, dtype=torch.float64),
            "near_duplicate": torch.zeros(size, dtype=torch.float64).masked_fill(~compared, torch.nan),
            "same_step_twin": torch.full((size,), -torch.inf, dtype=torch.float64).masked_fill(~compared, torch.nan),
            "averages": torch.full((len(ATTACKS) + 1,), torch.nan, dtype=torch.float64),
            "epochs": torch.tensor(0),
        }

    def _follow_up(self, place: Tensor, met: Tensor, sent: Tensor, gradient: Tensor) -> None:
        """Take in the rows ``met`` of a batch, which stand at ``place`` among those followed."""
        if not self._state:
            self._state = self._begin(sent)
        state, rows = self._state, sent[met].cpu()
        if state["epochs"] > 0:
            state["longitudinal"][place] += longitudinal.change(state["rows"][place], rows)
        state["rows"][place] = rows
        state["row_loss"][place] += row_loss.scores(gradient[met]) * len(sent)

        compared = ~state["same_step_twin"][place].isnan()
        place, met, rows = place[compared], met[compared], rows[compared]
        if len(sent) > 1:
            distance = near_duplicate.nearest(sent, met)  # (q,)
            typical = sent[:SAMPLE].double().norm().item() / math.sqrt(min(SAMPLE, len(sent)))
            state["near_duplicate"][place] -= distance / max(typical, SMALLEST)
            relative = distance / rows.double().norm(dim=1).clamp_min(SMALLEST)
            state["same_step_twin"][place] = state["same_step_twin"][place].maximum(-relative)

    def _auc(self, name: str) -> float | None:
        if name == "spectral":
            defined = [value for value in self._spectral if value is not None]
            return sum(defined) / len(defined) if defined else None
        if name == "longitudinal" and self._state["epochs"] < 2:
            return None
        scores = self._state[name].numpy()
        known = ~np.isnan(scores)
        return auc(self._secret[self._followed[known]], scores[known])

    def _check(self) -> None:
        strongest = self._state["averages"][-1].item()
        if self._limit is not None and strongest > self._limit:
            raise PolicyError(
                f"{self._party}'s own attacks tell its synthetic rows from real ones at an AUC of {strongest:.2f} "
                f"(moving average of the strongest); limits.max_attack_auc allows {self._limit:g}",
                code="E_LEAK",
                hint="choose other strategies in train.missing, fewer epochs, or align with psi; or allow more",
                for_peer=f"stopped by {self._party}'s policy",
                peer_code="E_STOPPED",
            )


def _follow(
    trained: NDArray[np.int64], synthetic: NDArray[np.bool_], randomness: Randomness
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which positions are followed, ascending, half of them synthetic if there are enough, and the rank of each.

    Those of the lowest ranks are half synthetic, too. None are followed if all are of one kind.
    """
    kinds = [trained[synthetic == kind] for kind in (True, False)]
    least = min(map(len, kinds))
    if least == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    share = max(FOLLOWED // 2, FOLLOWED - least)
    drawn = [positions[randomness.permutation(len(positions))[:share]] for positions in kinds]
    positions = np.concatenate(drawn)
    rank = np.concatenate([2 * np.arange(len(of)) + kind for kind, of in enumerate(drawn)])
    order = np.argsort(positions)
    return positions[order], rank[order]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
