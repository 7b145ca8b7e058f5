"""An attacker that has everything an active party has: what it heard, its own columns, the labels, and some rows of the victim.

=============  ============================================================================================================
line           from what a column of the victim is guessed
=============  ============================================================================================================
constant       nothing: the best constant answer
imputation     the attacker's own columns and the labels: no embedding. The better of logistic (ridge) regression and a random
               forest
static-epoch   what one epoch sent
static-pass    what predictions of all rows would send, by the trained weights
adaptive       what an epoch sent, by one decoder that learns from each batch as it comes
replay         the same, by a decoder that learns from known rows of earlier batches, too
stacked        what several epochs sent of a row, side by side
joined         the attacker's own columns and labels beside what the last epoch sent: the better of one decoder for both, and
               of the sum of the logits of static-epoch and imputation
=============  ============================================================================================================

The leakage of embeddings is attack − imputation. All lines know the same rows. A row that is attacked has other columns than
each known one, or it would not be a guess. Where there is something to choose (the epoch of an attack, the method of
imputation) it is chosen on one half of the attacked rows, and figures are those of the other half.

Source: arXiv 2104.14383, sections 4.1 and 5.1; imputation is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from experiments.inference.data import ACTIVE, Split
from experiments.inference.training import Heard
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, Table, values_of
from vfl_node.privacy.features.attacks import Adaptive, rebuild, stack_epochs
from vfl_node.privacy.features.measures import Score, measure
from vfl_node.privacy.features.targets import Targets, targets_of

Floats = NDArray[Any]
Figures = dict[str, float]
"""``success`` (accuracy, AUC or R²), and the other metrics of the kind of column, means over the attacked columns."""

STATIC, PASS, ADAPTIVE, REPLAY, STACKED, JOINED = "static-epoch", "static-pass", "adaptive", "replay", "stacked", "joined"
ATTACKS = (STATIC, PASS, ADAPTIVE, REPLAY, STACKED, JOINED)

LOOKS = 4
"""After how many epochs the attacks by epochs are run, unless a trial names them."""
MOST = 2048
"""Rows that are attacked at most, as in the product's own audit."""
REPLAYED = 128
"""Known rows of other batches that an adaptive decoder learns from in each step, where it does."""
COMPONENTS = 8
"""Components of the attacker's own columns, beside an embedding."""
TREES = 100
SURE = 1e-3
"""No answer of imputation is surer than that, in probability."""


@dataclass(frozen=True, eq=False)
class Poison:
    """The rows that the attacker knows of one victim, and those that it attacks.

    Attributes:
        targets: the attacked columns.
        known: int64[k], places among the rows trained on; :attr:`known_at` their shared positions.
        others: int64[n], places of the attacked rows; :attr:`others_at` their positions.
        halves: bool[n], which of them choose; the rest is reported.
    """

    targets: Targets
    training: NDArray[np.int64]
    known: NDArray[np.int64]
    others: NDArray[np.int64]
    halves: NDArray[np.bool_]

    @classmethod
    def draw(cls, heard: Heard, party: str, share: float, randomness: Randomness) -> Poison:
        """A ``share`` of the rows trained on, drawn at random, as known rows of ``party``."""
        split, size = heard.split, len(heard.training)
        order = randomness.derive("known").permutation(size)
        known, rest = np.split(order, [max(8, round(share * size))])
        features = split.features(party)[heard.training]
        features[np.isnan(features)] = np.inf  # a missing value is equal to a missing value
        own = {row.tobytes() for row in features[known]}
        others = np.sort([place for place in rest[:MOST].tolist() if features[place].tobytes() not in own])
        halves = randomness.derive("halves").permutation(len(others)) % 2 == 0
        targets = targets_of(split.tables[party], np.arange(len(split)), split.attacked_of(party))
        return cls(targets, heard.training, np.sort(known), others, halves)

    @property
    def known_at(self) -> Tensor:
        """int64[k]."""
        return torch.from_numpy(self.training[self.known])

    @property
    def others_at(self) -> Tensor:
        """int64[n]."""
        return torch.from_numpy(self.training[self.others])

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What :func:`rebuild` takes first, of rows of all training rows, [t, …]."""
        return rows[torch.from_numpy(self.known)], self.known_at, rows[torch.from_numpy(self.others)]

    def judge(self, outputs: Tensor) -> tuple[Figures, Figures]:
        """Figures of the half that chooses, and of the half that is reported; ``outputs`` float32[n, width]."""
        halves = [torch.from_numpy(rows) for rows in (self.halves, ~self.halves)]
        one, other = (summary(measure(self.targets, outputs[half], self.others_at[half])) for half in halves)
        return one, other


def summary(scores: Mapping[str, Score], *, constant: bool = False) -> Figures:
    """Means over columns of what is defined."""
    each = [
        {"success": score.constant, **score.constants} if constant else {"success": score.success, **score.figures}
        for score in scores.values()
    ]
    return {name: _mean([one.get(name) for one in each]) for name in dict.fromkeys(name for one in each for name in one)}


def _mean(values: Sequence[float | None]) -> float:
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else float("nan")


def own_columns(split: Split) -> Tensor:
    """What the attacker has of each row without any embedding, float32[n, c]: numbers, and flags of categories and labels."""
    table = split.tables[ACTIVE]
    assert table.labels is not None
    parts = [np.eye(split.classes)[table.labels.astype(np.int64)], *(_encode(table, name) for name in table.columns)]
    return torch.from_numpy(np.column_stack(parts).astype(np.float32))


def _encode(table: Table, name: str) -> NDArray[np.float64]:
    column = table.columns[name]
    values = values_of(column)
    if isinstance(column, CategoricalColumn):
        levels, codes = np.unique(values, return_inverse=True)
        return np.eye(len(levels))[codes]
    known = np.where(np.isnan(values), np.nanmean(values), values)
    return ((known - known.mean()) / (known.std() or 1.0))[:, None]


def imputations(poison: Poison, own: Tensor) -> dict[str, Tensor]:
    """Method → guesses from the attacker's own columns, float32[n, width], as a decoder gives them."""
    known, _, others = poison.parts(own)
    return {name: _fit(poison, known.numpy(), others.numpy(), method) for name, method in METHODS.items()}


def _regression(numbers: bool, truth: NDArray[np.float64], known: Floats, others: Floats) -> Floats:
    if numbers:
        return np.asarray(Ridge(10.0).fit(known, truth).predict(others)).reshape(len(others), -1)
    shares = np.tile(truth.mean(axis=0), (len(others), 1))
    for place, ones in enumerate(truth.T):
        if 0 < ones.sum() < len(ones):
            shares[:, place] = LogisticRegression(C=0.1, max_iter=200).fit(known, ones).predict_proba(others)[:, 1]
    return shares


def _forest(numbers: bool, truth: NDArray[np.float64], known: Floats, others: Floats) -> Floats:
    features = 1 / 3 if numbers else "sqrt"
    forest = RandomForestRegressor(TREES, min_samples_leaf=3, max_features=features, random_state=0)
    fitted = forest.fit(known, truth[:, 0] if truth.shape[1] == 1 else truth)
    return np.asarray(fitted.predict(others)).reshape(len(others), -1)


METHODS: Mapping[str, Callable[[bool, NDArray[np.float64], Floats, Floats], Floats]] = {
    "regression": _regression,
    "forest": _forest,
}
"""Name → of columns [k, c] of known rows and what is known of all rows: the mean, or the share of ones, [n, c]."""


def _fit(poison: Poison, known: Floats, others: Floats, method: Callable[..., Floats]) -> Tensor:
    """What a method gives, as a decoder would: of categories and flags logits. Missing values count as 0."""
    parts, columns = [], poison.targets.columns
    for target in (target for target in columns if target.kind == "categories"):
        truth = np.eye(target.width)[target.truth[poison.known_at].numpy()]
        parts.append(np.log(np.clip(method(False, truth, known, others), SURE, 1)))
    for kind in ("flag", "number"):
        if same := [target.truth[poison.known_at].double().numpy() for target in columns if target.kind == kind]:
            said = method(kind == "number", np.column_stack(same), known, others)
            shares = np.clip(said, SURE, 1 - SURE)
            parts.append(said if kind == "number" else np.log(shares / (1 - shares)))
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def attack(
    heard: Heard,
    party: str,
    share: float,
    randomness: Randomness,
    *,
    epochs: Sequence[int] = (),
    attacks: Sequence[str] = ATTACKS,
) -> dict[str, Any]:
    """All lines of the table above for one victim, JSON.

    Args:
        heard: the training.
        party: the victim.
        share: of the rows trained on that the attacker knows.
        randomness: of this attacker alone.
        epochs: after which the attacks by epochs are run, counted from 1; none: after :data:`LOOKS` of them, evenly spread.
        attacks: which of :data:`ATTACKS`.

    Returns:
        line → figures; of attacks also ``epoch``, the worst one (0: after training), and where there are several ``by epoch``.
        ``worst``: the attack that the choosing half likes best, its name in ``attack``.

    Cost: about a second a static attack with 300 known rows.
    """
    poison = Poison.draw(heard, party, share, randomness)
    looks = sorted(epochs) or spread(len(heard.losses))
    sent = {epoch: heard.epoch(party, epoch - 1) for epoch in looks}
    own = own_columns(heard.split)[torch.from_numpy(heard.training)]

    def fresh(rows: Tensor, name: str) -> Tensor:
        return rebuild(*poison.parts(rows), poison.targets, randomness.derive(name))

    imputed = imputations(poison, own)
    method, imputation = _best({name: poison.judge(outputs) for name, outputs in imputed.items()})
    found: dict[str, dict[Any, tuple[Figures, Figures]]] = {}
    if STATIC in attacks:
        found[STATIC] = {epoch: poison.judge(fresh(rows, f"{STATIC}/{epoch}")) for epoch, rows in sent.items()}
    if PASS in attacks:
        found[PASS] = {0: poison.judge(fresh(heard.final(party), PASS))}
    for name, replay in ((ADAPTIVE, 0), (REPLAY, REPLAYED)):
        if name in attacks:
            found[name] = _adaptive(heard, party, poison, sent, randomness.derive(name), replay)
    if STACKED in attacks:
        every = stack_epochs([heard.epoch(party, epoch) for epoch in range(len(heard.losses))])
        found[STACKED] = {0: poison.judge(fresh(every, STACKED))}
    if JOINED in attacks:
        last = sent[looks[-1]]
        both = fresh(torch.cat([last, _components(own)], dim=1), JOINED)
        ways = [both]
        if all(target.kind != "number" for target in poison.targets.columns):
            ways.append(fresh(last, f"{STATIC}/{looks[-1]}") + imputed[method])  # independent evidence adds up in logits
        found[JOINED] = {0: _best(dict(enumerate(map(poison.judge, ways))))[1]}
    outcome: dict[str, Any] = {
        "known": len(poison.known),
        "attacked": len(poison.others),
        "constant": summary(_scores(poison, torch.zeros(len(poison.others), poison.targets.width)), constant=True),
        "imputation": {"method": method, **imputation[1]},
    }
    worst: dict[Any, tuple[Figures, Figures]] = {}
    for name, by_epoch in found.items():
        epoch, worst[name] = _best(by_epoch)
        outcome[name] = {"epoch": epoch, **worst[name][1]}
        if len(by_epoch) > 1:
            outcome[name]["by epoch"] = {str(number): figures[1] for number, figures in by_epoch.items()}
    name, figures = _best(worst)
    return {**outcome, "worst": {"attack": name, **figures[1]}}


def spread(epochs: int) -> list[int]:
    """At most :data:`LOOKS` epochs from the first to the last one."""
    return sorted({round(1 + (epochs - 1) * look / (LOOKS - 1)) for look in range(LOOKS)})


def _adaptive(
    heard: Heard, party: str, poison: Poison, sent: Mapping[int, Tensor], randomness: Randomness, replay: int
) -> dict[int, tuple[Figures, Figures]]:
    known = np.zeros(len(heard.split), dtype=np.bool_)
    known[poison.known_at.numpy()] = True
    steps = heard.received[party]
    decoder = Adaptive(steps[0].rows.shape[1], poison.targets, randomness, replay=replay)
    others, found = torch.from_numpy(poison.others), {}
    for number, batch in enumerate(steps):
        own = torch.from_numpy(known[batch.positions])
        decoder.see(batch.rows, batch.rows[own], torch.from_numpy(batch.positions)[own])
        ends = number + 1 == len(steps) or steps[number + 1].epoch > batch.epoch
        if ends and batch.epoch + 1 in sent:
            found[batch.epoch + 1] = poison.judge(decoder.rebuild(sent[batch.epoch + 1][others]))
    return found


def _components(rows: Tensor) -> Tensor:
    """The first principal components of rows, float32[n, COMPONENTS]: few, since few rows are known to learn from."""
    centred = rows - rows.mean(dim=0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)  # ascending
    return centred @ vectors[:, -COMPONENTS:]


def _scores(poison: Poison, outputs: Tensor) -> Mapping[str, Score]:
    return measure(poison.targets, outputs, poison.others_at)


def _best(found: Mapping[Any, tuple[Figures, Figures]]) -> tuple[Any, tuple[Figures, Figures]]:
    """What has the largest success on the half that chooses."""
    return max(found.items(), key=lambda entry: entry[1][0]["success"])
