"""How many true pairs the filters find: no training, but encoding, search and noise alone.

=============  ===============  ==================================================  =============
data           records          text of a record                                    true pairs
=============  ===============  ==================================================  =============
febrl          5,000 × 5,000    names, address, suburb, birth, number (synthetic)   5,000
dblp_acm       2,294 × 2,616    title and authors (ACM, DBLP)                       2,224
amazon_google  1,354 × 3,039    title and maker                                     1,103
=============  ===============  ==================================================  =============

Beside the filters stands the same search over the plain texts: by how many groups of two letters differ, which is what the
distance of filters estimates; and by the Jaccard similarity of these groups, which is another measure, and the ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from experiments.fedsim.data import Case, ids_of, records
from experiments.fedsim.linkage import align_section, link
from experiments.fedsim.trials import Plan
from experiments.inference.experiment import Expectation, Found, Work, cell, mean, table
from vfl_node.alignment.linkage.words import TAU_MEANS
from vfl_node.crypto.filters.groups import groups_of, normalise
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.job import Align

TITLE = "Pairs of records: completeness and precision"

SEEDS = 3
SIGMAS = (0.0, 0.1, 0.4, 1.0)
WITHIN = (1, 5, 20)
"""Numbers of nearest among which pairs completeness counts."""

PLAIN = {"differing": "plain texts, groups that differ", "jaccard": "plain texts, Jaccard"}
"""Measure of plain texts → its words."""

NEARLY, LOST = 0.05, 0.01
"""How much completeness filters may lose to what they estimate, and how much precision noise must cost."""

LENGTHS = {"febrl": 64, "dblp_acm": 128, "amazon_google": 48, "small": 24}
"""Letters of a usual text."""

Pairs = tuple[list[str], list[str], dict[int, int]]
"""Texts of both parties, and row of the one → row of the other."""


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    names = ("small",) if plan.small else ("febrl", "dblp_acm", "amazon_google")
    return [matching(data, seed) for seed in plan.few(SEEDS) for data in names]


def matching(data: str, seed: int) -> Work:
    """One linkage; pivots and noise are of the seed."""
    return Work(matched, {"data": data, "seed": seed, "letters": LENGTHS[data]})


def matched(shared: Path, *, data: str, seed: int, letters: int) -> Any:
    """The work of :func:`matching`.

    Returns:
        ``complete``: K → share of true pairs whose record is among the K nearest by filters; ``differing`` and ``jaccard``, by
        these measures of the plain texts; ``first``: σ → share whose record has the largest noisy similarity; ``tau`` of each
        σ; ``bits`` of a filter; how many ``pairs``.
    """
    ours, theirs, true = texts(shared, data)
    case = Case(
        Table(ids_of(len(ours)), {}, keys={"text": tuple(ours)}),
        Table(ids_of(len(theirs)), {}, keys={"text": tuple(theirs)}),
        {"text": {"kind": "text", "length": letters}},
        {"delta": 0.1},
        "classification",
        (),
    )
    rows, places = np.array(list(true)), np.array(list(true.values()))
    first, tau, complete = {}, {}, {}
    for sigma in SIGMAS:
        align = Align.model_validate(align_section(case, candidates=max(WITHIN), sigma=sigma))
        found = link(case, align, seed)
        candidates, similarities = (values[rows] for values in _read_both(found))
        best = np.where(candidates < 0, -np.inf, similarities).argmax(axis=1)
        first[f"{sigma:g}"] = _share(candidates[np.arange(len(rows)), best] == places)
        tau[f"{sigma:g}"] = round(found.facts["tau"] or 0.0, 6)
        if sigma == 0:  # similarities without noise are distances: by these it is known who is among the nearest
            order = np.argsort(np.where(candidates < 0, np.inf, -similarities), axis=1, kind="stable")
            nearest = np.take_along_axis(candidates, order, axis=1)
            complete = {str(k): _share((nearest[:, :k] == places[:, None]).any(axis=1)) for k in WITHIN}
    far = differing([ours[row] for row in rows], theirs), -jaccard([ours[row] for row in rows], theirs)
    plain = {name: _complete(distances, places) for name, distances in zip(PLAIN, far, strict=True)}
    return {"complete": complete, **plain, "first": first, "tau": tau, "bits": found.facts["bits"], "pairs": len(true)}


def _complete(far: NDArray[np.float32], places: NDArray[np.int64]) -> dict[str, float]:
    """K → share of rows whose place is among the K of the smallest distance."""
    ranked = np.argsort(far, axis=1, kind="stable")[:, : max(WITHIN)]
    return {str(k): _share((ranked[:, :k] == places[:, None]).any(axis=1)) for k in WITHIN}


def _read_both(found: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    own, other = found.views.values()
    return other.rows, own.similarities


def _share(right: NDArray[np.bool_]) -> float:
    return round(float(right.mean()), 5)


def jaccard(ours: Sequence[str], theirs: Sequence[str]) -> NDArray[np.float32]:
    """Similarity by the groups of two letters of each pair of texts, float32[n, m]."""
    common, sizes = _common(ours, theirs)
    return common / (sizes - common)


def differing(ours: Sequence[str], theirs: Sequence[str]) -> NDArray[np.float32]:
    """How many groups of two letters only one text of each pair has, float32[n, m]."""
    common, sizes = _common(ours, theirs)
    return sizes - 2 * common


def _common(ours: Sequence[str], theirs: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Groups that both texts of each pair have, and those of the one plus those of the other, float32[n, m]."""
    groups = [[groups_of(normalise(text), 2) for text in texts] for texts in (ours, theirs)]
    number: dict[str, int] = {}
    for text in (*groups[0], *groups[1]):
        for group in sorted(text):
            number.setdefault(group, len(number))
    flags = []
    for texts in groups:
        columns = [number[group] for text in texts for group in sorted(text)]
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        flags.append(csr_matrix((np.ones(len(columns), np.float32), columns, starts), shape=(len(texts), len(number))))
    common = (flags[0] @ flags[1].T).toarray()
    sizes = [np.asarray(flag.sum(axis=1)).ravel() for flag in flags]
    return common, sizes[0][:, None] + sizes[1]


def texts(shared: Path, data: str) -> Pairs:
    """The records of ``data``."""
    if data == "small":
        return _small()
    if data == "febrl":
        return _febrl(shared / "febrl")
    folder, (ours, theirs), columns, separator = {
        "dblp_acm": (shared / "dblp_acm", ("acm", "dblp"), ("title", "authors"), "%"),
        "amazon_google": (shared / "amazon_google", ("amazon", "gp"), ("title", "manufacturer"), "#"),
    }[data]
    files = [records(folder / f"{name}.csv.gz", separator) for name in (ours, theirs)]
    place = [{row["id"]: at for at, row in enumerate(rows)} for rows in files]
    one, two = ("D2", "D1") if ours == "acm" else ("D1", "D2")
    true: dict[int, int] = {}
    for pair in records(folder / "gt.csv.gz", separator):
        true.setdefault(place[0][pair[one]], place[1][pair[two]])
    both = [[" ".join(str(row[name] or "") for name in columns) for row in rows] for rows in files]
    return both[0], both[1], true


def _febrl(folder: Path) -> Pairs:
    both, numbers = [], []
    for name in ("dataset4a", "dataset4b"):
        rows = records(folder / f"{name}.csv.gz")
        fields = [column for column in rows[0] if column not in ("rec_id", "state")]
        both.append([" ".join(row[field] for field in fields if row[field]) for row in rows])
        numbers.append([row["rec_id"].split("-")[1] for row in rows])
    place = {number: at for at, number in enumerate(numbers[1])}
    return both[0], both[1], {at: place[number] for at, number in enumerate(numbers[0])}


def _small() -> Pairs:
    """300 made-up names, with two letters of each changed at the other party."""
    draws = Randomness(bytes(32)).derive("fedsim names")
    letters = (26 * draws.uniform((300, 16))).astype(np.int64)
    changed = letters.copy()
    for row, place in enumerate((15 * draws.uniform((300,))).astype(np.int64).tolist()):
        changed[row, place : place + 2] = (changed[row, place : place + 2] + 1) % 26
    both = [["".join(chr(97 + letter) for letter in row) for row in codes.tolist()] for codes in (letters, changed)]
    return both[0], both[1], {row: row for row in range(300)}


def page(plan: Plan, found: Found) -> list[str]:
    """A table of completeness, and one of precision by noise."""
    names = list(dict.fromkeys(work.arguments["data"] for work in works(plan)))
    complete, first = [], []
    for data in names:
        every = [found[matching(data, seed).name] for seed in plan.few(SEEDS)]
        pairs, bits = every[0]["pairs"], every[0]["bits"]
        for method, label in (("complete", "filters"), *PLAIN.items()):
            shares = [[one[method][str(k)] for one in every] for k in WITHIN]
            values = [cell(of_k) if method == "complete" else f"{of_k[0]:.3f}" for of_k in shares]
            complete.append([f"`{data}`, {pairs:,} pairs, {bits:,} bits" if method == "complete" else "", label, *values])
        cells = [
            f"{cell([one['first'][f'{s:g}'] for one in every])} (τ {100 * mean([one['tau'][f'{s:g}'] for one in every]):.3g} %)"
            for s in SIGMAS
        ]
        first.append([f"`{data}`", *cells, *(f"{every[0][method]['1']:.3f}" for method in PLAIN)])
    return [
        "Share of true pairs whose record is among the K nearest, mean ± deviation over pivots of several seeds:",
        "",
        *table(["", "by", *(f"K = {k}" for k in WITHIN)], complete),
        "",
        "Filters estimate how many groups of letters differ, not exactly, as bits of different groups can coincide. The",
        "Jaccard similarity of groups, which also counts how many are there, is another measure, and the ceiling.",
        "",
        "Precision@1, of records with a pair: how often it has the largest noisy similarity of 20 candidates:",
        "",
        *table(["", *(f"σ = {sigma:g}" for sigma in SIGMAS), *PLAIN.values()], first),
        "",
        f"{TAU_MEANS}.",
    ]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """Filters are nearly as good as what they estimate, and noise costs precision."""
    expected = []
    for data in dict.fromkeys(work.arguments["data"] for work in works(plan)):
        every = [found[matching(data, seed).name] for seed in plan.few(SEEDS)]
        gap = mean([one["complete"]["20"] - one["differing"]["20"] for one in every])
        expected.append(Expectation(f"`{data}`: pairs among 20 nearest, filters − groups that differ", gap, -NEARLY))
        loss = mean([one["first"]["0"] - one["first"]["1"] for one in every])
        expected.append(Expectation(f"`{data}`: precision@1, σ = 0 − σ = 1", loss, LOST))
    return expected
