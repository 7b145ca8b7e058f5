"""The active party's own attacks on its labels, with what each passive party gets, while it trains.

The passive party's attacks (:mod:`vfl_node.privacy.labels.attacks`), run by the party at which they aim: it has what the peer
receives, the embeddings that the peer sent, and the truth. Rows are judged whose labels are its own real ones, up to 2,048 of
each class, drawn once a repeat. Up to 16 positives are taken as known to the peer; they are not judged.

With several passive parties each is one attacker, and all together one more, who has all their rows side by side. The figure of
an attack is that of the worst attacker.

What is found is a lower bound: a peer may know more labels, combine attacks, and join its own columns. An AUC is folded; of s
positives and r negatives it is above .5 by chance, by about .8·√((s + r + 1) / (12·s·r)) for one attack, and by more for the
strongest of twelve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.metrics import auc
from vfl_node.models.storage import prefixed, under
from vfl_node.privacy.attacks.attack import Positions, Subset
from vfl_node.privacy.labels.attacks import LABEL_ATTACKS, Shown
from vfl_node.privacy.peers import TOGETHER
from vfl_node.privacy.silent import attempted

MOST = 2048
"""Rows of a class that are judged, at most."""

LEAST = 10
"""Rows of a class that must be left to judge; with fewer an AUC says little."""

KNOWN = 16
"""Positives whose label the peer is assumed to know, at most; and no more than a fourth of them."""

WINDOW = 128
"""Judged rows of which a leading direction is computed, at least: those of one step, or of several."""

Leaks = Mapping[str, float | None]
"""Attack on labels → its AUC, folded; None where it is not defined, or where the numbers are of no use to it."""


class LabelAudit:
    """Attacks nothing: of a party without labels of two classes, or whose owner does not want it."""

    def see(self, positions: Positions, embeddings: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Look at one step of training: of each peer the embedding that it sent and the gradient that it gets.

        Args:
            positions: int64[B], shared positions.
            embeddings: float32[B, d] of each peer.
            gradients: float32[B, d], as they were sent; of the batch's mean loss.
        """

    def epoch_done(self) -> Leaks:
        """What the attacks find after this epoch; empty where nothing is judged.

        Raises:
            PolicyError: labels can be read better than the owner allows (``E_LEAK``; the peer gets ``E_STOPPED``).
        """
        return {}

    def result(self) -> Leaks:
        """The largest figure of each attack in the epochs so far; empty where nothing is judged."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the audit must be made with the same arguments."""


class LabelMeter(LabelAudit):
    """How well labels can be read from what each peer has.

    Args:
        positive: bool[m], the label at each shared position.
        judged: int64[t], shared positions trained on with a real label.
        peers: names of the passive parties.
        randomness: of this alone, in this repeat: it draws the rows.
        party: the active party's name.
        limit: the largest AUC that its owner allows; None: any.

    Cost: at most 4,096 rows whatever their number, about a tenth of a second an epoch at a width of 32, and
        d² multiplications a row. Memory: these rows' gradients, embeddings and means.

    Leaks: nothing: what is done does not depend on labels but by the number of rows that are judged.
    """

    def __init__(
        self,
        positive: NDArray[np.bool_],
        judged: Positions,
        peers: Sequence[str],
        randomness: Randomness,
        *,
        party: str,
        limit: float | None = None,
    ) -> None:
        self._party, self._limit = party, limit
        followed, known = _draw(positive, judged, randomness)
        self._followed = Subset(followed, len(positive))
        self._known = torch.from_numpy(self._followed.places(known).astype(np.int64))
        self._judged = ~np.isin(followed, known)
        self._positive = positive[followed][self._judged]
        self._peers = list(peers)
        self._means: dict[str, Tensor] = {}
        """Attacker → means of gradients over the epochs so far, float32[k, d]."""
        self._epoch = 0
        self._worst: dict[str, float | None] = {}
        self._begin()

    @property
    def enough(self) -> bool:
        """Whether there are enough rows of both classes to judge."""
        positives = int(np.count_nonzero(self._positive))
        return min(positives, len(self._positive) - positives) >= LEAST

    @torch.no_grad()
    def see(self, positions: Positions, embeddings: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """As :meth:`LabelAudit.see`."""
        if not self.enough:
            return
        places = self._followed.places(positions)
        among = np.flatnonzero(places >= 0)
        rows = torch.from_numpy(among)
        self._places.append(torch.from_numpy(places[among].astype(np.int64)))
        for peer, embedding, gradient in zip(self._peers, embeddings, gradients, strict=True):
            # of a row's own loss: the last batch of an epoch is smaller, and its gradients are larger
            self._gradients[peer].append(gradient[rows].cpu() * len(positions))
            self._embeddings[peer].append(embedding.detach()[rows].cpu())

    @torch.no_grad()
    def epoch_done(self) -> Leaks:
        """As :meth:`LabelAudit.epoch_done`."""
        if not self.enough or not self._places:
            return {}
        places = torch.cat(self._places)
        gradients, embeddings = (
            {peer: _in_order(places, torch.cat(parts)) for peer, parts in of.items()}
            for of in (self._gradients, self._embeddings)
        )
        if len(self._peers) > 1:
            for of in (gradients, embeddings):
                of[TOGETHER] = torch.cat(list(of.values()), dim=1)
        windows, self._epoch = _windows(self._places), self._epoch + 1
        found: dict[str, float | None] = {}
        for attacker, own in gradients.items():
            mean = self._means.get(attacker)
            self._means[attacker] = own.clone() if mean is None else mean + (own - mean) / self._epoch
            shown = Shown(own, windows, self._means[attacker], embeddings[attacker], self._known)
            for name, attack in LABEL_ATTACKS.items():
                found[name] = larger(found.get(name), attempted(partial(self._judge, attack, shown)))
        self._worst = {name: larger(self._worst.get(name), value) for name, value in found.items()}
        self._begin()
        self._check(found)
        return found

    def result(self) -> Leaks:
        """As :meth:`LabelAudit.result`."""
        return dict(self._worst)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`LabelAudit.tensors`; empty before the first epoch is done."""
        if not self._epoch:
            return {}
        worst = {
            name: torch.tensor(np.nan if value is None else value, dtype=torch.float64) for name, value in self._worst.items()
        }
        return {"epoch": torch.tensor(self._epoch), **prefixed("means", self._means), **prefixed("worst", worst)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :meth:`LabelAudit.restore`."""
        if not tensors:
            return
        self._epoch = int(tensors["epoch"])
        self._means = {attacker: mean.cpu() for attacker, mean in under("means", tensors).items()}
        self._worst = {name: None if value.isnan() else value.item() for name, value in under("worst", tensors).items()}

    def _begin(self) -> None:
        """Begin an epoch."""
        self._places: list[Tensor] = []
        self._gradients: dict[str, list[Tensor]] = {peer: [] for peer in self._peers}
        self._embeddings: dict[str, list[Tensor]] = {peer: [] for peer in self._peers}

    def _judge(self, attack: Callable[[Shown], Tensor], shown: Shown) -> float | None:
        """AUC of the judged ones of all followed rows, folded."""
        value = auc(self._positive, attack(shown).double().numpy()[self._judged])
        return None if value is None else max(value, 1 - value)

    def _check(self, found: Leaks) -> None:
        """Refuse to go on where an attack does better than the owner allows."""
        name = max(found, key=lambda name: found[name] or 0.0)
        value = found[name]
        if self._limit is None or value is None or value <= self._limit:
            return
        raise PolicyError(
            f"{self._party}'s own attacks read its labels from what a passive party has at an AUC of {value:.2f} "
            f"({name.replace('_', ' ')}, epoch {self._epoch}); limits.max_label_auc allows {self._limit:g}",
            code="E_LEAK",
            hint="add a defence of gradients to this node's settings (docs/privacy.md says which), train fewer epochs, or "
            "allow more",
            for_peer=f"stopped by {self._party}'s policy",
            peer_code="E_STOPPED",
        )


def larger(first: float | None, second: float | None) -> float | None:
    """The larger one of two figures; None where neither is defined."""
    return max((value for value in (first, second) if value is not None), default=None)


def _draw(positive: NDArray[np.bool_], judged: Positions, randomness: Randomness) -> tuple[Positions, Positions]:
    """The positions that are followed, ascending, and those among them that the peer knows to be positive."""
    drawn = []
    for kind in (False, True):
        rows = judged[positive[judged] == kind]
        drawn.append(rows[randomness.derive(f"rows/{int(kind)}").permutation(len(rows))[:MOST]])
    known = drawn[1][: min(KNOWN, len(drawn[1]) // 4)]
    return np.sort(np.concatenate(drawn)), known


def _in_order(places: Tensor, rows: Tensor) -> Tensor:
    """``rows`` of an epoch at their ``places`` among those that are followed."""
    ordered = torch.zeros(len(rows), rows.shape[1])
    ordered[places] = rows.float()
    return ordered


def _windows(steps: Sequence[Tensor]) -> list[Tensor]:
    """Places of the rows of consecutive steps, at least :data:`WINDOW` of them together; the last may join those before."""
    windows: list[list[Tensor]] = [[]]
    for step in steps:
        if sum(map(len, windows[-1])) >= WINDOW:
            windows.append([])
        windows[-1].append(step)
    if len(windows) > 1 and sum(map(len, windows[-1])) < WINDOW:
        windows[-2:] = [windows[-2] + windows[-1]]
    return [torch.cat(steps) for steps in windows]
