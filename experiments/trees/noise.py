"""What ε costs boosted trees in accuracy: drawn splits and noise in leaves, in the clear, beside hidden training at the same ε.

    python -m experiments.trees.noise --data SHARED_DATA_FOLDER --out docs/experiments    about half an hour of one core

Tables are those of :mod:`experiments.hidden.bounded`; everybody has every record. Candidates, splits and σ are the
product's (:mod:`vfl_node.training.trees.noised`), sums are ordinary numbers, and noise is normal. *Columns in turn*: each tree
is one column in eight groups. *Hidden* is the product, with ``columns: bins`` and its own defaults. *HistGradientBoosting*:
scikit-learn's with its defaults, on the same bins. It writes ``trees-noise.json`` and ``trees-noise.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from experiments.hidden import bounded
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.noised import OF_HESSIANS, deviation, draw_splits
from vfl_node.training.trees.plan import CURVE_FLOOR, MOST_LEAF, TreesPlan

NAMES = ("default_credit", "adult")
SIZES = (2_000, 10_000, None)
EPSILONS = (0.5, 1.0, 2.0, 4.0, None)
GROUPS = 8
MOST_TESTED = 20_000
ABOUT = Path(__file__).with_name("noise.txt")

Floats = NDArray[np.float64]
Leaves = Sequence[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Records:
    """All records of both parties.

    Attributes:
        columns: of each party, its candidates.
        bins: of each party uint16[n, C].
        labels: float64[n].
    """

    columns: tuple[BinnedColumns, ...]
    bins: tuple[NDArray[np.uint16], ...]
    labels: Floats

    @classmethod
    def from_tables(cls, tables: bounded.Tables) -> Records:
        """With the candidates that the product has by default."""
        train = Trees.model_validate({"algorithm": "trees"})
        ids = Identifiers.from_items(b"%d" % row for row in range(len(tables.label)))
        made = [
            Table(ids, {name: column_of(cells) for name, cells in part.items()}) for part in (tables.active, tables.passive)
        ]
        columns = tuple(BinnedColumns.fit(table, train.bins, train.least_rows) for table in made)
        bins = tuple(each.bins(table) for each, table in zip(columns, made, strict=True))
        return cls(columns, bins, tables.label.astype(np.float64))

    def leaves(self, plan: TreesPlan, seed: int) -> Leaves:
        """The leaf of each record, for each tree."""
        matrices = [each.matrices for each in self.columns]
        left = [
            np.concatenate([matrix[each[:, at]] for at, matrix in enumerate(parts)], axis=1)
            for each, parts in zip(self.bins, matrices, strict=True)
        ]
        cells, found = np.concatenate(left, axis=1), []
        for number in range(plan.trees):
            public, *secrets = ((seed << 8 | at).to_bytes(32, "big") for at in range(1 + len(matrices)))
            flags = sum(
                draw_splits(public, secrets[place], number, plan, place, [matrix.shape[1] for matrix in parts])
                for place, parts in enumerate(matrices)
            )
            nodes = np.zeros(len(cells), np.int64)
            for level in range(plan.depth):
                picks = np.argmax(flags[(1 << level) - 1 :][: 1 << level], axis=1)
                nodes = 2 * nodes + ~cells[np.arange(len(nodes)), picks[nodes]]
            found.append(nodes)
        return found

    def draw_groups(self, trees: int, seed: int) -> Leaves:
        """The group of each record in one column, for each tree: by rank."""
        rng, found = np.random.default_rng(seed), []
        order: list[int] = []
        every = [each[:, at] for each in self.bins for at in range(each.shape[1])]
        for _ in range(trees):
            order = order or rng.permutation(len(every)).tolist()
            bins = every[order.pop()]
            edges = np.sort(rng.integers(0, bins.max() + 1, GROUPS - 1))
            found.append(np.searchsorted(edges, bins, side="right"))
        return found


def column_of(cells: Sequence[Any]) -> Column:
    """Numbers, or categories."""
    if isinstance(cells[0], float):
        return NumericColumn(np.array(cells))
    levels, codes = np.unique(cells, return_inverse=True)
    return CategoricalColumn(codes.astype(np.int64), tuple(levels.tolist()))


def boost(leaves: Leaves, labels: Floats, train: NDArray[np.int64], plan: TreesPlan, seed: int) -> Floats:
    """Scores of all records."""
    rng, noise, scores = np.random.default_rng(seed), plan.deviation or 0.0, np.zeros(len(labels))
    for each in leaves:
        likely, inside, count = sigmoid(scores[train]), each[train], 1 << plan.depth
        g = np.bincount(inside, likely - labels[train], count) + noise * rng.normal(size=count)
        h = np.bincount(inside, likely * (1 - likely) + CURVE_FLOOR, count) + OF_HESSIANS * noise * rng.normal(size=count)
        values = np.where(h > 0, -plan.rate * g / (np.maximum(h, 0) + plan.l2), 0.0)
        scores += values.clip(-MOST_LEAF, MOST_LEAF)[each]
    return scores


def plan_of(records: Records, epsilon: float | None) -> TreesPlan:
    """The plan of the product, with what a job with an ε has by default."""
    train = Trees.model_validate({"algorithm": "trees", "epsilon": epsilon or 1.0})
    noise = None if epsilon is None else deviation(epsilon, train.trees, worlds=1)
    widths = tuple(sum(matrix.shape[1] for matrix in each.matrices) for each in records.columns)
    rest = len(records.labels), widths, train.trees, train.depth, train.learning_rate, max(train.l2, noise or 0.0)
    return TreesPlan(*rest, min_gain=0.0, least_rows=1, deviation=noise)


def compare(records: Records, size: int | None, seed: int) -> dict[str, float]:
    """AUC of each way on records that were not trained on."""
    order = np.random.default_rng(seed).permutation(len(records.labels))
    train, test = np.split(order, [size or 3 * len(order) // 4])
    test = test[:MOST_TESTED]

    def area(scores: Floats) -> float:
        return float(roc_auc_score(records.labels[test], scores))

    plan, found = plan_of(records, None), {}
    ways = {"drawn": records.leaves(plan, seed), "in turn": records.draw_groups(plan.trees, seed)}
    for way, leaves in ways.items():
        for epsilon in EPSILONS:
            found[f"{way}, {epsilon}"] = area(boost(leaves, records.labels, train, plan_of(records, epsilon), seed)[test])
    bins = np.concatenate(records.bins, axis=1)
    model = HistGradientBoostingClassifier(random_state=0).fit(bins[train], records.labels[train])
    return found | {"scikit-learn": area(model.decision_function(bins[test]))}


def hidden(tables: bounded.Tables, seed: int) -> dict[str, float]:
    """AUC of the product's hidden training with ``columns: bins``, over 10,000 records."""
    rest: Mapping[str, Any] = {"protocol": "psi", "columns": "bins"}
    return {f"hidden, {epsilon}": bounded.trained(tables, 10_000, seed, **rest, epsilon=epsilon)[0] for epsilon in (1.0, 2.0)}


def page(found: Mapping[str, Any]) -> str:
    """The page, of stored outcomes."""
    rows = []
    for name in NAMES:
        for size in SIZES:
            each = found[f"{name}, {size}"]
            for way, said in (("drawn", "drawn splits"), ("in turn", "columns in turn"), ("hidden", "hidden, `columns: bins`")):
                cells = [
                    _mean([areas[f"{way}, {epsilon}"] for areas in each if f"{way}, {epsilon}" in areas])
                    for epsilon in EPSILONS
                ]
                if any(cells):
                    records = f"{size:,}" if size else "three quarters"
                    rows.append(f"| {name} | {records} | {said} | {' | '.join(cells)} |")
            rows.append(f"| | | HistGradientBoosting | | | | | {_mean([areas['scikit-learn'] for areas in each])} |")
    return ABOUT.read_text(encoding="utf-8").format(seeds=found["seeds"], rows="\n".join(rows))


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}" if values else ""


def main(chosen: argparse.Namespace) -> None:
    """Run all, and write values and page."""
    found: dict[str, Any] = {"seeds": chosen.seeds}
    for name in NAMES:
        tables = bounded.DATA[name](chosen.data)
        records = Records.from_tables(tables)
        for size in SIZES:
            found[f"{name}, {size}"] = [compare(records, size, seed) for seed in range(chosen.seeds)]
        for seed, each in enumerate(found[f"{name}, {SIZES[1]}"]):
            each.update(hidden(tables, seed))
            print(name, seed, each, flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "trees-noise.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (chosen.out / "trees-noise.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    main(parser.parse_args())
