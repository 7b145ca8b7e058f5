"""A party's own attacks on what it sends, while it trains.

The peer's attacks, run by the party they are aimed at: it has what the peer receives, and it
alone has the truth, which of the shared rows are synthetic at its side. So it sees how well they
can be told apart before much is sent, and may stop.

The attacks are those of :data:`~vfl_node.privacy.attacks.ATTACKS` that find membership, with bounded work
(:mod:`vfl_node.privacy.sample`): ``same_step_twin`` in every step and ``near_duplicate`` in every epoch compare *all* rows
that are trained on; the others judge each row by itself or beside its batch, and take a sample: ``longitudinal`` and
``row_loss`` up to 2,048 rows, ``distance_ratio`` these beside the rows that lie around them in the epoch, ``spectral`` up to
512 rows of each of a few steps, ``collinear`` up to 64 of these beside their whole batch. How many rows are behind a figure
stands beside it (:attr:`Audit.judged`).

Twins and near duplicates are also sought over all repeats, whose synthetic rows are the same; the other attacks begin anew in
each.

What is found is a lower bound. The peer may combine attacks, knows which of the rows are its own,
and compares whole rows of all epochs. An AUC is not folded: .5 is chance, from which it deviates
by √((s + r + 1) / (12·s·r)) for s synthetic and r real rows judged. After e epochs each attack is on what e epochs have
shown; but ``spectral``, without the labels used, is that of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.attack_limit import check_limit, strongest
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.privacy.attacks.attack import Attack, Positions
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.equal_weights import Judged, audit_equal_weights
from vfl_node.privacy.outgoing import Sent
from vfl_node.privacy.sample import Bounds, Sample
from vfl_node.privacy.silent import attempt

WEIGHT = 0.3
"""Weight of the newest epoch in a moving average, whose first value is that of its first epoch."""

AT_ONCE = 4096
"""Rows of steps that wait until the attacks see them; a step's may be more."""

SHOWN = frozenset({"rows", "gradients"})
"""The needs of an attack that the audit can meet."""


class Audit(Attachment):
    """One party's attacks on what it sends, with what it alone knows as the truth.

    Args:
        party: its name.
        secret: bool[m], which shared rows are synthetic at this party.
        trained: int64[t], the shared positions trained on in this repeat, ascending, each once an epoch.
        randomness: its own, for this repeat; it fixes the sample and the sketches.
        limit: the largest AUC, folded, that its owner allows; None: any.
        attacks: those that run, by name; None: all there are. With none nothing is reported, and nothing stopped.
        bounds: of the work.

    Attributes:
        judged: attack → number of rows behind its newest figure.
        held_out: what the attacks showed among the rows held out; None before they were judged.

    Cost: 16·d multiplications a row, and a tree over the epoch's sketches at its end (measured in
        docs/reference/benchmarks/index.md);
        memory: 4,096 rows and 84 bytes for each row trained on, 24 of them in a checkpoint.
    """

    name, carries = "audit", "audited"

    def __init__(
        self,
        party: str,
        secret: NDArray[np.bool_],
        trained: Positions,
        randomness: Randomness,
        *,
        limit: float | None,
        attacks: Mapping[str, type[Attack]] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._party, self._secret, self._limit, self._randomness = party, secret, limit, randomness
        self._sample = Sample(secret, trained, randomness, bounds)
        self._chosen = {name: ATTACKS[name] for name in ATTACKS} if attacks is None else dict(attacks)
        self._kinds = {
            name: kind
            for name, kind in self._chosen.items()
            if kind.finds == "membership" and kind.needs <= SHOWN and len(self._sample.followed)
        }
        self._averages: dict[str, float] = {}
        """Attack → moving average of its AUC, NaN where it was never defined."""
        self._strongest = math.nan
        """The moving average of the epochs' strongest attack, folded."""
        self._earlier: dict[str, Tensor] = {}
        """What earlier repeats have shown, see :meth:`carry_over`; empty in the first."""
        self.judged: dict[str, int] = {}
        self.held_out: Judged | None = None
        self._begin(0)

    @torch.no_grad()
    def see(self, sent: Sent) -> None:
        """Look at one step of training."""
        if not self._kinds:
            return
        self._waiting.append(Batch(self._epoch, sent.positions, sent.rows, sent.gradients, mean_of=len(sent.positions)))
        self._rows_waiting += len(sent.positions)
        if self._rows_waiting >= AT_ONCE:
            self._take_in()

    @torch.no_grad()
    def epoch_done(self) -> dict[str, float | None]:
        """The AUC of each attack after this epoch; None where it is not defined. Empty if there is nothing to tell apart.

        Raises:
            PolicyError: the moving average of the epochs' strongest attack, folded, is above the
                limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        self._take_in()
        if not self._sample.steps:
            return {}
        values = {name: attempt(attack.score) for name, attack in self._attacks.items()}
        judged = {name: attempt(partial(getattr, attack, "judged")) for name, attack in self._attacks.items()}
        self.judged |= {name: rows for name, rows in judged.items() if rows is not None}
        self._averages = {name: _update_average(self._averages.get(name, math.nan), value) for name, value in values.items()}
        self._strongest = _update_average(self._strongest, strongest(values))
        self._begin_epoch(self._epoch + 1)
        check_limit(self._party, self._strongest, self._limit)
        return values

    @override
    def epoch_ends(self) -> Mapping[str, Any]:
        return {"attacks": self.epoch_done(), "judged": dict(self.judged)}

    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """As :meth:`Attachment.findings`; rows held out are those of the first repeat."""
        first = {} if before is not None else {"held_out": self.held_out and asdict(self.held_out)}
        return {"audit": self.averages, **first}

    def judge(self, positions: Positions, rows: Tensor) -> None:
        """Attack the held-out rows at ``positions``, int64[n], float32[n, d], which have not been sent yet.

        Raises:
            PolicyError: the strongest attack, folded, is above the limit (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        if not self._chosen:
            return
        own = self._randomness.derive("held out")
        self.held_out = audit_equal_weights(rows, self._secret[positions], own, self._chosen)
        folded = strongest(self.held_out.attacks)
        check_limit(self._party, folded, self._limit, where="the strongest on the rows held out, before they are sent")

    @property
    def averages(self) -> dict[str, float | None]:
        """The moving average of each attack's AUC; empty if there is nothing to tell apart, or no epoch is done."""
        return {name: None if math.isnan(value) else value for name, value in self._averages.items()}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold; empty before the first one.

        ``ATTACK.KEY``, what each attack has seen in this repeat; ``averages.ATTACK`` and ``strongest``, float64, NaN where
        never defined; ``epochs``, int64.
        """
        if not self._epoch:
            return {}
        tensors = {"epochs": torch.tensor(self._epoch)}
        for name, value in {**add_prefix("averages", self._averages), "strongest": self._strongest}.items():
            tensors[name] = torch.tensor(value, dtype=torch.float64)
        for name, attack in self._attacks.items():
            tensors |= add_prefix(name, attack.state())
        return tensors

    def carry_over(self) -> dict[str, Tensor]:
        """What this repeat and all before it have shown by shared position, for the audit of the next one; may be empty.

        Synthetic rows are the same in every repeat, so their twins add up: ``ATTACK.sums``, float64[m], and
        ``ATTACK.counts``, int32[m], of attacks whose evidence lasts for the job.
        """
        if not self._epoch:
            return dict(self._earlier)
        tensors: dict[str, Tensor] = {}
        for name, attack in self._attacks.items():
            if attack.lasts == "job":
                tensors |= add_prefix(name, attack.carry_over())
        return tensors

    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        """Take in what :meth:`carry_over` gave at the end of the repeat before."""
        self._earlier = dict(earlier)
        for name, attack in self._attacks.items():
            if seen := take_part(name, earlier):
                attack.follow_on(seen)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the audit must be made with the same arguments."""
        self._averages = {name: value.item() for name, value in take_part("averages", tensors).items()}
        self._strongest = tensors["strongest"].item() if tensors else math.nan
        self._begin(int(tensors["epochs"]) if tensors else 0)
        for name, attack in self._attacks.items():
            if state := take_part(name, tensors):
                attack.restore(state)

    def _begin(self, epoch: int) -> None:
        """Begin with attacks that have seen nothing of this repeat."""
        self._attacks = {name: kind(self._secret, self._sample) for name, kind in self._kinds.items()}
        self.follow_on(self._earlier)
        self._begin_epoch(epoch)

    def _begin_epoch(self, number: int) -> None:
        for name, kind in self._kinds.items():
            if kind.lasts == "epoch":
                self._attacks[name] = kind(self._secret, self._sample)
        self._epoch = number
        self._waiting: list[Batch] = []
        self._rows_waiting = 0
        self._sample.begin(number)

    def _take_in(self) -> None:
        """Let the attacks see the steps that wait: together, which costs less than one by one."""
        for batch in self._waiting:
            self._sample.meet(batch)
            for attack in self._attacks.values():
                attempt(partial(attack.see, batch))  # a step that it cannot use is passed over
        self._waiting, self._rows_waiting = [], 0


def _update_average(average: float, newest: float | None) -> float:
    """The moving average after one more value; NaN stands for none."""
    if newest is None:
        return average
    return newest if math.isnan(average) else average + WEIGHT * (newest - average)
