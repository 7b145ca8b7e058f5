"""The joint attack: a synthetic row does not fit what its receiver knows of the same person.

A party fills in for a record that it lacks without seeing the peer's columns of it. What it sends for a real row depends
on the person, and so do the receiver's own columns wherever they tell of the sender's. For a synthetic row they are
independent, as if its embedding were another person's. So the receiver learns to tell pairs (own columns and label,
row received) as they came from the same pairs shuffled, and takes the rows whose own pair looks shuffled for synthetic.
Most pairs as they came are real ones, so it needs no row of which it knows the truth.

No way to make up rows that is independent of the peer's columns prevents it: it takes only that the columns of real
rows depend on each other. It finds nothing where they do not.

::

    P   the first four principal components of the rows received, each divided by its deviation
    m̂   what P would be by the receiver's columns and label: boosted trees, one for each component
    c   tells (columns, label, P, m̂, P − m̂, (P − m̂)², P·m̂) of pairs as they came from two shuffles of them: boosted trees
    score of a row = −c of its own pair; larger: more likely synthetic

m̂ and c are fitted in :data:`FOLDS` parts, so no row is judged by trees that have learnt from it. Negatives are paired
within the rows that a tree learns from, so a row is met by c neither way.

Who attacks: the active party with embeddings, on the records that it owns. The passive one may do the same with gradients,
of which its own columns tell less.

Source: the project's own finding. The classifier of true against shuffled pairs is the test of independence of
Lopez-Paz and Oquab 2017 (Revisiting classifier two-sample tests), read row by row.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import NotNumbers

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROWS = 6000
"""Rows that are looked at; of more a random part."""

COMPONENTS = 4
FOLDS = 3
SHUFFLES = 2
"""Random pairings of each row beside its own."""

LEAST = 200
"""Rows without which there is little to learn from: with fewer an AUC at chance deviates by more than .05."""

TREES: dict[str, Any] = {"max_iter": 50, "max_leaf_nodes": 15, "early_stopping": False}


def available() -> bool:
    """Whether the library is there whose trees it needs: scikit-learn, an extra."""
    return find_spec("sklearn") is not None


def sample(rows: NDArray[np.int64], randomness: Randomness, most: int = ROWS) -> NDArray[np.int64]:
    """At most ``most`` of ``rows``, int64[k], a random part of more."""
    return rows if len(rows) <= most else np.sort(rows[randomness.permutation(len(rows))[:most]])


def scores(columns: Floats, received: Floats, randomness: Randomness, *, categorical: Bools) -> Floats:
    """How little what was received of each row fits the receiver's own columns; larger: more likely synthetic.

    Args:
        columns: float64[n, p], the receiver's own, its label among them if it has one; NaN: missing.
        received: float64[n, d], of each row what came last.
        randomness: of this attack alone.
        categorical: bool[p], which of the columns are codes of categories, below 255.

    Returns:
        float64[n].

    Raises:
        NotNumbers: what was received is not finite, or too large to compute with; or there are fewer than 200 rows.

    Cost: 15 fits of 50 trees with 15 leaves, twelve on n·2/3 rows and three on n·2; 9 s for 4,800 rows of 12 columns (one core
        of a small, busy server). Memory: 8·n·3·(p + 20) bytes.
    """
    if len(columns) < LEAST:
        raise NotNumbers(f"{len(columns)} rows are too few for the joint attack")
    if not columns.shape[1]:
        return np.zeros(len(columns))
    components = principal(received)
    own = randomness.derive("folds").permutation(len(columns)) % FOLDS
    expected = np.zeros_like(components)
    for fold in range(FOLDS):
        learns, asked = own != fold, own == fold
        for place in range(components.shape[1]):
            tree = _regressor(categorical, randomness.derive(f"expected/{fold}/{place}"))
            tree.fit(columns[learns], components[learns, place])
            expected[asked, place] = tree.predict(columns[asked])

    def pairs(rows: NDArray[np.int64], others: NDArray[np.int64]) -> Floats:
        """Features of each of ``rows`` with what was received of ``others``."""
        met, awaited = components[others], expected[rows]
        off = met - awaited
        return np.hstack([columns[rows], met, awaited, off, off**2, met * awaited])

    found = np.zeros(len(columns))
    described = np.concatenate([categorical, np.zeros(5 * components.shape[1], dtype=bool)])
    for fold in range(FOLDS):
        learns, asked = np.flatnonzero(own != fold), np.flatnonzero(own == fold)
        drawn = randomness.derive(f"pairs/{fold}")
        shuffled = [learns[drawn.derive(str(number)).permutation(len(learns))] for number in range(SHUFFLES)]
        features = np.vstack([pairs(learns, others) for others in (learns, *shuffled)])
        as_they_came = np.arange(len(features)) < len(learns)
        tree = _classifier(described, drawn.derive("tree"))
        tree.fit(features, as_they_came)
        found[asked] = -tree.decision_function(pairs(asked, asked))
    return found


def principal(received: Floats) -> Floats:
    """The first components of rows, float64[n, d] → float64[n, ≤ 4], of deviation 1; fewer where the rest does not vary.

    Raises:
        NotNumbers: they are not finite, or too large to compute with.
    """
    if not np.isfinite(received).all():
        raise NotNumbers("rows that are not finite")
    centred = received - received.mean(axis=0)
    if not np.isfinite(np.square(centred).sum()):
        raise NotNumbers("rows that are too large to compute with")
    values, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    largest = np.argsort(values)[::-1][:COMPONENTS]
    largest = largest[values[largest] > 1e-10 * max(values.max(initial=0.0), np.finfo(float).tiny)]
    return np.asarray(centred @ directions[:, largest] / np.sqrt(values[largest]))


def _regressor(categorical: Bools, randomness: Randomness) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a second, and is an extra

    return HistGradientBoostingRegressor(categorical_features=categorical, random_state=_state(randomness), **TREES)


def _classifier(categorical: Bools, randomness: Randomness) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(categorical_features=categorical, random_state=_state(randomness), **TREES)


def _state(randomness: Randomness) -> int:
    """What the library takes for its bins: nothing secret."""
    return int.from_bytes(randomness.bytes(4), "big")
