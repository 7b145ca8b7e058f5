"""A party's own attacks on what it sends, while it trains.

The peer's attacks, run by the party they are aimed at: it has what the peer receives, and it
alone has the truth, which of the shared rows are synthetic at its side. So it sees how well they
can be told apart before much is sent, and may stop.

Equal and near rows are sought among *all* rows that are trained on: ``same_step_twin`` in every
step, ``near_duplicate`` in every epoch, both in sketches (:mod:`vfl_node.privacy.sketches`). Of a
sample they would find few: a row's twin is rarely in it. The other attacks judge each row by itself
or beside its batch, and take a sample: ``longitudinal`` and ``row_loss`` up to 2,048 rows,
``distance_ratio`` these beside the rows that lie around them in the epoch, ``spectral`` up to 512 rows of each of a few steps,
``collinear`` up to 64 of these beside their whole batch. How many rows are behind a figure stands beside it
(:attr:`Audit.judged`).

Twins and near duplicates are also sought over all repeats, whose stand-ins are the same; the rest begins anew in each.

What is found is a lower bound. The peer may combine attacks, knows which of the rows are its own,
and compares whole rows of all epochs. An AUC is not folded: .5 is chance, from which it deviates
by √((s + r + 1) / (12·s·r)) for s synthetic and r real rows judged. Attacks are those of
:data:`~vfl_node.privacy.attacks.ATTACKS`, after e epochs each on what e epochs have shown; but
``spectral``, without the labels used, is that of the epoch.
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
from vfl_node.privacy.attacks import ATTACKS, collinear, longitudinal, row_loss, spectral
from vfl_node.privacy.equal_weights import Judged, audit_equal_weights
from vfl_node.privacy.sketches import Sketch, distance_ratios, leaves, nearest, twins

Positions = NDArray[np.int64]

FOLLOWED = 2048
"""Rows of the sample at most."""

LOOKS = 2
"""Steps of an epoch, spread evenly, that get a closer look."""

SAMPLE = 512
"""Rows of such a step that are projected at most."""

BETWEEN = 64
"""Rows of such a step at most for which it is sought whether they lie between two others."""

ROWS_AT_ONCE = 4096
"""Rows that are kept until they are sketched together; a step's may be more."""

_CARRIED = {"epochs": torch.int32, "twins": torch.int32, "near_duplicate": torch.float64}
"""What is summed over repeats, by position."""

WEIGHT = 0.3
"""Of the newest epoch in a moving average, whose first value is that of its first epoch."""


class Audit:
    """One party's attacks on what it sends, with what it alone knows as the truth.

    Args:
        party: its name.
        secret: bool[m], which shared rows are synthetic at this party.
        trained: int64[t], the shared positions trained on in this repeat, each once an epoch.
        randomness: its own, for this repeat; it fixes the sample and the sketches.
        limit: the largest AUC, folded, that its owner allows; None: any.

    Attributes:
        judged: attack → number of rows behind its newest figure.
        held_out: what the attacks found among the rows held out; None before they were judged.

    Cost: 16·d multiplications a row, and a tree over the epoch's sketches at its end (measured in docs/benchmarks.md);
        memory: 4,096 rows and 72 bytes for each row trained on, 12 of them in a checkpoint.
    """

    def __init__(
        self,
        party: str,
        secret: NDArray[np.bool_],
        trained: Positions,
        randomness: Randomness,
        *,
        limit: float | None,
    ) -> None:
        self._party, self._limit, self._randomness = party, limit, randomness
        self._secret, self._trained = secret, trained
        self._followed, self._rank = _follow(trained, secret[trained], randomness.derive("followed"))
        self._place = np.full(len(secret), -1, dtype=np.int32)  # among the rows trained on
        self._place[trained] = np.arange(len(trained))
        self._sampled = np.full(len(secret), -1, dtype=np.int16)  # among those followed
        self._sampled[self._followed] = np.arange(len(self._followed))
        self._state: dict[str, Tensor] = {}
        """What the epochs so far have shown, see :meth:`tensors`; empty before the first is done."""
        self._earlier: dict[str, Tensor] = {}
        """What earlier repeats have shown, see :meth:`so_far`; empty in the first."""
        self.judged: dict[str, int] = {}
        self.held_out: Judged | None = None
        self._begin_epoch()

    @torch.no_grad()
    def see(self, positions: Positions, sent: Tensor, gradient: Tensor) -> None:
        """Look at one step.

        Args:
            positions: int64[B], shared positions of the batch.
            sent: float32[B, d], what the peer receives: embeddings, or gradients; not changed afterwards.
            gradient: float32[B, d], gradients of the batch's mean loss; not changed afterwards.
        """
        if len(self._followed) == 0:
            return
        if self._steps == 0:  # the largest batch; the last may be smaller
            self._every = math.ceil(len(self._trained) / len(positions) / LOOKS)
        if self._waiting and len(self._waiting[0][0]) != len(positions):
            self._sketch()
        self._waiting.append((positions, sent, gradient))
        if self._steps % self._every == 0:
            self._look(positions, sent)
        self._steps += 1
        if len(self._waiting) * len(positions) >= ROWS_AT_ONCE:
            self._sketch()

    @torch.no_grad()
    def epoch_done(self) -> dict[str, float | None]:
        """The AUC of each attack after this epoch; None where it is not defined. Empty if there is nothing to tell apart.

        Raises:
            PolicyError: the moving average of the epochs' strongest attack, folded, is above the
                limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        if not self._steps:
            return {}
        self._sketch()
        self._take_in()
        values = {name: self._auc(name) for name in ATTACKS}
        self._begin_epoch()
        newest = torch.tensor([_number(value) for value in [*values.values(), strongest(values)]], dtype=torch.float64)
        before = self._state["averages"]
        moved = torch.where(before.isnan(), newest, before + WEIGHT * (newest - before))
        self._state["averages"] = torch.where(newest.isnan(), before, moved)
        check(self._party, self._state["averages"][-1].item(), self._limit)
        return values

    def judge(self, positions: Positions, rows: Tensor) -> None:
        """Attack the held-out rows at ``positions``, int64[n], float32[n, d], which have not been sent yet.

        Raises:
            PolicyError: the strongest attack, folded, is above the limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        self.held_out = audit_equal_weights(rows, self._secret[positions], self._randomness.derive("held out"))
        found = strongest(self.held_out.attacks)
        check(self._party, found, self._limit, where="the strongest on the rows held out, before they are sent")

    @property
    def averages(self) -> dict[str, float | None]:
        """The moving average of each attack's AUC; empty if there is nothing to tell apart, or no epoch is done."""
        if not self._state:
            return {}
        found = self._state["averages"].tolist()[: len(ATTACKS)]
        return {name: None if math.isnan(value) else value for name, value in zip(ATTACKS, found, strict=True)}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold.

        By row trained on: ``twins``, int32[t], the steps in which it had an equal row, and ``near_duplicate``,
        float64[t], minus the sum of its distances to the nearest. By row followed: ``rows``, float32[k, d], as they
        were in the last epoch, and float64[k] by attack what the epochs have shown, NaN where it was not looked at.
        ``averages``: float64, NaN where an attack was never defined, the last that of the strongest. ``epochs``: int64.
        """
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def so_far(self) -> dict[str, Tensor]:
        """What this repeat and all before it have shown by shared position, for the audit of the next one; may be empty.

        Rows that stand in are the same in every repeat, so their twins add up. ``epochs``, int32[m], in how many the row was
        trained on; ``twins``, int32[m], and ``near_duplicate``, float64[m], as in :meth:`tensors`.
        """
        if not self._state:
            return dict(self._earlier)
        found = {name: torch.zeros(len(self._secret), dtype=kind) for name, kind in _CARRIED.items()}
        for name, sums in found.items():
            sums[torch.from_numpy(self._trained)] += self._state[name].to(sums.dtype)
        return {name: sums + self._earlier[name] for name, sums in found.items()} if self._earlier else found

    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        """Take in what :meth:`so_far` gave at the end of the repeat before."""
        self._earlier = dict(earlier)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the audit must be made with the same arguments."""
        self._state = {name: tensor.clone() for name, tensor in tensors.items()}
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._waiting: list[tuple[Positions, Tensor, Tensor]] = []
        self._places: list[NDArray[np.int32]] = []
        self._sketches: list[NDArray[np.float32]] = []
        self._twins: list[NDArray[np.bool_]] = []
        self._samples: list[NDArray[np.int16]] = []
        self._sent: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._spectral: list[float | None] = []
        self._projected = 0
        self._between = np.full(len(self._followed), np.nan)
        self._steps = 0
        self._every = 1
        epoch = int(self._state["epochs"]) if self._state else 0
        self._drawn = self._randomness.derive(f"sketches/{epoch}")
        self._projection: Sketch | None = None

    def _sketch(self) -> None:
        """Take in the steps that wait, which are of one size: sketches and twins of all rows, those followed as they are."""
        if not self._waiting:
            return
        if self._projection is None:
            self._projection = Sketch(self._waiting[0][1].shape[1], self._drawn.derive("directions"))
        sketches = np.stack([self._projection(sent) for _, sent, _ in self._waiting])  # (S, B, w)
        self._twins.append(twins(sketches).ravel())
        self._sketches.append(sketches.reshape(-1, sketches.shape[2]))
        for positions, sent, gradient in self._waiting:
            self._places.append(self._place[positions])
            met = np.flatnonzero(self._sampled[positions] >= 0)
            rows = torch.from_numpy(met)
            self._samples.append(self._sampled[positions[met]])
            self._sent.append(sent[rows].cpu())
            self._gradients.append(gradient[rows].cpu() * len(positions))
        self._waiting = []

    def _look(self, positions: Positions, sent: Tensor) -> None:
        """A closer look at a batch."""
        found = spectral.scores(sent[:SAMPLE]).numpy()  # a batch has its rows in random order
        value = auc(self._secret[positions[:SAMPLE]], found)
        self._spectral.append(value)
        self._projected += len(found) if value is not None else 0
        met = np.flatnonzero(self._sampled[positions] >= 0)
        places = self._sampled[positions[met]]
        chosen = np.argsort(self._rank[places], kind="stable")[:BETWEEN]
        self._between[places[chosen]] = collinear.scores(sent, torch.from_numpy(met[chosen])).numpy()

    def _take_in(self) -> None:
        """Add an epoch, in which every row was met once, to the state."""
        order = torch.from_numpy(np.argsort(np.concatenate(self._samples)))
        rows = torch.cat(self._sent)[order]  # (k, d)
        if not self._state:
            self._state = self._nothing(len(self._trained), len(rows))
        state = self._state
        places = torch.from_numpy(np.concatenate(self._places)).long()
        sketches = np.empty((len(places), self._sketches[0].shape[1]), dtype=np.float32)
        sketches[places.numpy()] = np.concatenate(self._sketches)
        groups = leaves(sketches, self._drawn.derive("tree"))
        state["near_duplicate"] -= torch.from_numpy(nearest(sketches, groups))
        state["distance_ratio"] += torch.from_numpy(
            distance_ratios(sketches, groups, self._place[self._followed].astype(np.int64))
        )
        state["twins"][places] += torch.from_numpy(np.concatenate(self._twins))
        if state["epochs"] > 0:
            state["longitudinal"] += longitudinal.change(state["rows"], rows)
        state["row_loss"] += row_loss.scores(torch.cat(self._gradients)[order])
        state["collinear"] = state["collinear"].fmax(torch.from_numpy(self._between))
        state["rows"] = rows
        state["epochs"] += 1

    @staticmethod
    def _nothing(trained: int, followed: int) -> dict[str, Tensor]:
        """The state before the first epoch."""
        zero = torch.zeros(followed, dtype=torch.float64)
        return {
            "twins": torch.zeros(trained, dtype=torch.int32),
            "near_duplicate": torch.zeros(trained, dtype=torch.float64),
            "longitudinal": zero,
            "row_loss": zero.clone(),
            "collinear": torch.full_like(zero, torch.nan),
            "distance_ratio": zero.clone(),
            "averages": torch.full((len(ATTACKS) + 1,), torch.nan, dtype=torch.float64),
            "epochs": torch.tensor(0),
        }

    def _a_epoch(self, name: str) -> NDArray[np.float64]:
        """What the rows trained on showed in an epoch on average, over all repeats, float64[t]."""
        sums, epochs = self._state[name].double(), self._state["epochs"].double()
        if self._earlier:
            trained = torch.from_numpy(self._trained)
            sums, epochs = sums + self._earlier[name][trained], epochs + self._earlier["epochs"][trained]
        return np.asarray((sums / epochs).numpy())

    def _auc(self, name: str) -> float | None:
        """The AUC of an attack; how many rows are behind it is noted."""
        if name == "spectral":
            defined = [value for value in self._spectral if value is not None]
            self.judged[name] = self._projected
            return sum(defined) / len(defined) if defined else None
        if name == "longitudinal" and self._state["epochs"] < 2:
            return None
        if name in ("near_duplicate", "same_step_twin"):
            scores, positions = self._a_epoch("twins" if name == "same_step_twin" else name), self._trained
        else:
            scores, positions = self._state[name].numpy(), self._followed
        known = ~np.isnan(scores)
        self.judged[name] = int(known.sum())
        return auc(self._secret[positions[known]], scores[known])


def strongest(values: Mapping[str, float | None]) -> float | None:
    """The AUC of the attack that tells most, folded."""
    return max((0.5 + abs(value - 0.5) for value in values.values() if value is not None), default=None)


def check(party: str, found: float | None, limit: float | None, *, where: str = "moving average of the strongest") -> None:
    """Refuse to go on where the folded AUC ``found`` is above the owner's ``limit``.

    Raises:
        PolicyError: it is (``E_LEAK``; the peer is told ``E_STOPPED``).
    """
    if limit is None or found is None or not found > limit:
        return
    raise PolicyError(
        f"{party}'s own attacks tell its synthetic rows from real ones at an AUC of {found:.2f} "
        f"({where}); limits.max_attack_auc allows {limit:g}",
        code="E_LEAK",
        hint="choose other strategies in train.missing, fewer epochs, or align with psi; or allow more",
        for_peer=f"stopped by {party}'s policy",
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
