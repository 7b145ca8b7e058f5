"""A party's own attacks on what it sends, while it trains.

The peer's attacks, run by the party they are aimed at: it has what the peer receives, and it
alone has the truth, which of the shared rows are synthetic at its side. So it sees how well they
can be told apart before much is sent, and may stop.

What is found is a lower bound. The peer may combine attacks, knows which of the rows are its
own, and compares every row with every other one; the audit follows some of them.

Attacks: those of :data:`~vfl_node.privacy.attacks.ATTACKS`, after e epochs each on what e epochs
have shown; but ``spectral``, without the labels used, is that of the epoch, and like
``same_step_twin`` takes a closer look at a few steps only. An AUC is not folded: .5 is chance. At
chance it deviates by √((s + r + 1) / (12·s·r)) for s synthetic and r real rows: by .013 where the most
are followed, and by .026 for ``near_duplicate`` then, which compares a quarter of them.
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
from vfl_node.privacy.attacks import ATTACKS, longitudinal, near_duplicate, row_loss, same_step_twin, spectral

Places = NDArray[np.int16]
"""Numbers of followed positions."""

FOLLOWED = 2048
"""Positions followed in a repeat at most."""

PAIRS = 1 << 20
"""Pairs of followed rows compared at the end of an epoch at most."""

LOOKS = 4
"""Steps of an epoch, spread evenly, that get a closer look."""

SAMPLE = 512
"""Rows of such a step that are projected at most."""

STEP_PAIRS = 1 << 18
"""Pairs of rows of such a step that are compared at most."""

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

    Cost: a copy of the followed rows in each epoch; 3·10⁸ multiplications at width 128 and a few sorts at its end
        (measured in docs/benchmarks.md).
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
        """What the epochs so far have shown, see :meth:`tensors`; empty before the first is done."""
        self._begin_epoch()

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
        places = self._place[positions]
        met = np.flatnonzero(places >= 0)
        place, rows = places[met], torch.from_numpy(met)
        self._places.append(place)
        self._sent.append(sent[rows].cpu())
        self._gradients.append(gradient[rows].cpu() * len(sent))
        if self._steps == 0:  # the largest batch; the last may be smaller
            self._every = math.ceil(self._rows / len(positions) / LOOKS)
        if self._steps % self._every == 0:
            self._look(positions, place, met, sent)
        self._steps += 1

    def epoch_done(self) -> dict[str, float | None]:
        """The AUC of each attack after this epoch; None where it is not defined. Empty if there is nothing to tell apart.

        Raises:
            PolicyError: the moving average of the epochs' strongest attack, folded, is above the
                limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        if not self._places:
            return {}
        self._take_in()
        values = {name: self._auc(name) for name in ATTACKS}
        self._begin_epoch()
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
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._places: list[Places] = []
        self._sent: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._spectral: list[float | None] = []
        self._least = np.full(len(self._followed), np.nan)  # relative distance to the nearest row of the same step
        self._steps = 0
        self._every = 1

    def _look(self, positions: NDArray[np.int64], place: Places, met: NDArray[np.int64], sent: Tensor) -> None:
        """A closer look at a batch, of which the rows ``met`` stand at ``place`` among those followed."""
        found = spectral.scores(sent[:SAMPLE]).numpy()  # a batch has its rows in random order
        self._spectral.append(auc(self._secret[positions[:SAMPLE]], found))
        chosen = np.argsort(self._rank[place], kind="stable")[: STEP_PAIRS // len(sent)]
        if len(sent) > 1:
            distances = same_step_twin.distances(sent, torch.from_numpy(met[chosen])).numpy()
            self._least[place[chosen]] = distances

    def _take_in(self) -> None:
        """Add an epoch, in which every followed row was met once, to the state."""
        order = torch.from_numpy(np.argsort(np.concatenate(self._places)))
        rows = torch.cat(self._sent)[order]  # (k, d)
        if not self._state:
            self._state = self._nothing(len(rows))
        state = self._state
        if state["epochs"] > 0:
            state["longitudinal"] += longitudinal.change(state["rows"], rows)
        compared = torch.from_numpy(np.flatnonzero(self._rank < PAIRS // len(rows)))
        state["near_duplicate"][compared] = state["near_duplicate"][compared].nan_to_num() - near_duplicate.nearest(
            rows, compared
        )
        state["row_loss"] += row_loss.scores(torch.cat(self._gradients)[order])
        state["same_step_twin"] = state["same_step_twin"].fmax(-torch.from_numpy(self._least))
        state["rows"] = rows
        state["epochs"] += 1

    @staticmethod
    def _nothing(size: int) -> dict[str, Tensor]:
        """The state before the first epoch; NaN at a position that was not compared with others yet."""
        zero = torch.zeros(size, dtype=torch.float64)
        unknown = torch.full_like(zero, torch.nan)
        return {
            "longitudinal": zero,
            "row_loss": zero.clone(),
            "near_duplicate": unknown,
            "same_step_twin": unknown.clone(),
            "averages": torch.full((len(ATTACKS) + 1,), torch.nan, dtype=torch.float64),
            "epochs": torch.tensor(0),
        }

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
