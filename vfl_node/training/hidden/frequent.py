"""Which columns of a party's table take part: by raw values alone, and in each job with a partner the same ones.

The other parties see how many columns enter. So that number must not follow the values of one record, and no job may ask for it
in other words: it depends on the table and on its owner's ``least_rows``, and on no key of a job but ``train.columns``. Of
weights of evidence as many enter as were counted (:func:`all_numbers`).

What a table has when a training with a partner first reads a column is written down, and stays: what becomes rare later, or is
gone, is a column of zeros, and what becomes frequent later has none.

Rare is a column in which too few records differ from the others, or one record has more than a fifth of the sum of squares.
Numbers are standardised for that, by ranks or logarithms if a few values would make all others look alike. The most frequent
level of a category has no column.

Source: ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vfl_node.data import transforms
from vfl_node.data.dates import Part, parts_of
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import StateError
from vfl_node.session.memory import Memory

MOST_OF_ONE = 0.2
"""The most that one record may have of a column's sum of squares. One that has more moves the weight almost alone."""

BY_EVIDENCE = "{table}, by weights of evidence"
"""What a table is called whose columns are replaced by these; no name of settings has a space."""

CUT = 3.0
"""Standardised numbers are cut off there."""

Reason = Literal["constant", "rare", "outstanding"]


class Feature(NamedTuple):
    """One column that enters.

    Attributes:
        name: of the table's column.
        part: of its dates.
        kind: the number itself, a mark of missing cells, a level, or an interval of numbers.
        level: which; a cell of the table, or the number of the interval.
    """

    name: str
    part: Part | None
    kind: Literal["number", "missing", "level", "bin"]
    level: str = ""

    @property
    def shown(self) -> str:
        """Its name without levels, for reports."""
        name = self.name if self.part in (None, "days") else f"{self.name}.{self.part}"
        return name + {"number": "", "missing": " missing", "level": ": a level", "bin": ": an interval"}[self.kind]


@dataclass
class FoundFeatures:
    """What a table has.

    Attributes:
        columns: table's column → features that take part.
        usual: the most frequent levels, among those.
        bins: (column, part) → its intervals.
        left_out: features that do not take part → why, where it is not that all records are alike.
    """

    columns: dict[str, list[Feature]] = field(default_factory=dict)
    usual: set[Feature] = field(default_factory=set)
    bins: dict[tuple[str, Part | None], QuantileLevels] = field(default_factory=dict)
    left_out: dict[Feature, Reason] = field(default_factory=dict)

    @property
    def present(self) -> set[Feature]:
        """All that take part."""
        return {feature for features in self.columns.values() for feature in features}

    @property
    def entering(self) -> dict[str, tuple[Feature, ...]]:
        """Table's column → those that enter where nothing was written down."""
        return {name: tuple(each for each in features if each not in self.usual) for name, features in self.columns.items()}


def find(table: Table, least: int) -> FoundFeatures:
    """What ``table`` has, over all its records.

    Args:
        table: with at least one record.
        least: how many records must differ; 0: any.

    Cost: a sort of each column of numbers.
    """
    found, n = FoundFeatures(), len(table)
    for name, column in table.columns.items():
        kept = found.columns.setdefault(name, [])
        for part, read in parts_of(column):
            if isinstance(read, CategoricalColumn):
                counts = np.bincount(read.codes + 1, minlength=len(read.levels) + 1)
                if part:
                    counts[0] = 0  # the days mark what is missing
                each = [Feature(name, part, "missing"), *(Feature(name, part, "level", level) for level in read.levels)]
                reasons = {each[code]: _mark_reason(int(counts[code]), n, least) for code in np.flatnonzero(counts)}
                found.usual.add(each[int(counts.argmax())])
            elif isinstance(read, NumericColumn):
                ordered = np.sort(read.values)  # what is missing comes last
                missing = int(np.count_nonzero(np.isnan(read.values)))
                present, number = ordered[: n - missing], Feature(name, part, "number")
                reasons = {number: _number_reason(present, n, least)}
                reasons[Feature(name, part, "missing")] = _mark_reason(missing, n, least)
                if reasons[number] is None:
                    bins = QuantileLevels.fit(name, part, present, lambda marked: _mark_reason(marked, n, least) is None)
                    found.bins[name, part] = bins
                    reasons |= {Feature(name, part, "bin", str(code)): None for code in range(bins.cardinality)}
            else:  # lists, which no linear model reads
                continue
            kept += [feature for feature, reason in reasons.items() if reason is None]
            found.left_out |= {feature: reason for feature, reason in reasons.items() if reason and reason != "constant"}
    return found


def _mark_reason(marked: int, n: int, least: int) -> Reason | None:
    """Why a column of n marks, of which so many are 1, does not take part; None: it does."""
    differ = min(marked, n - marked)
    if differ == 0:
        return "constant"
    if differ < least:
        return "rare"
    # centred, the few have (n - differ)² / n² each of a sum of differ·(n - differ) / n
    return "outstanding" if least and n - differ > MOST_OF_ONE * differ * n else None


def _number_reason(present: NDArray[np.float64], n: int, least: int) -> Reason | None:
    """As :func:`_mark_reason`, of ascending numbers float64[p]; n - p others are missing."""
    if transforms.moments(present)[1] == 0:
        return "constant"
    most = int(np.diff(np.flatnonzero(present[1:] != present[:-1]), prepend=-1, append=len(present) - 1).max())
    if n - max(most, n - len(present)) < least:
        return "rare"
    if not least or not _stands_out(present, "standard"):
        return None
    return "outstanding" if not transforms.is_squeezed(present) or _stands_out(present, "auto") else None


def _stands_out(present: NDArray[np.float64], scaling: Literal["standard", "auto"]) -> bool:
    squares = np.clip(transforms.fit(present, scaling).apply(present), -CUT, CUT) ** 2
    return bool(squares.max() > MOST_OF_ONE * squares.sum())


def write_down(memories: Sequence[Memory], table: str, entering: Mapping[str, tuple[Feature, ...]]) -> tuple[Feature, ...]:
    """Write down what enters in every job with these partners, and return it.

    Args:
        memories: of each partner.
        table: its name in the owner's settings.
        entering: what is written down of columns that no earlier job has read.

    Raises:
        StateError: partners have seen different columns of this table (``E_INPUT_CHANGED``).
    """
    name, known = f"columns-{hashlib.sha256(table.encode()).hexdigest()[:40]}", dict(entering)
    for memory in memories:
        known |= _keep_features(memory, name, {})
    first, *others = (_keep_features(memory, name, known) for memory in memories)
    if any(other != first for other in others):
        raise StateError(
            f"the columns of table {table!r} were others when hidden training with each of this job's partners first read "
            "them: together they would see how it has changed",
            code="E_INPUT_CHANGED",
            hint="train with each of them alone; or give the table another name in this node's settings, under which "
            "everything that is remembered of it begins anew",
            for_peer="its input changed",
        )
    return tuple(feature for features in first.values() for feature in features)


def _keep_features(memory: Memory, name: str, new: Mapping[str, Sequence[Feature]]) -> dict[str, tuple[Feature, ...]]:
    """Table's column → what is written down in one memory, with those of ``new`` that were not."""
    known: dict[str, tuple[Feature, ...]] = {}
    for number in count():
        place = f"{name}-{number}"
        data = memory.recall(place)
        if data is None:
            unknown = {column: tuple(features) for column, features in new.items() if column not in known}
            if not unknown:
                return known
            data = memory.keep(place, json.dumps(unknown).encode())
        known |= {column: tuple(Feature(*fields) for fields in features) for column, features in json.loads(data).items()}
    raise AssertionError


def all_numbers(table: Table) -> dict[str, tuple[Feature, ...]]:
    """What enters of a table of weights of evidence: each column, whatever its weights are.

    How many were counted is known from the job that counted them. One whose weights are all alike or rare is a column of zeros:
    weights follow labels, and so this number must not follow them.
    """
    return {name: (Feature(name, None, "number"),) for name in table.columns}


def late_features(found: FoundFeatures, features: Sequence[Feature]) -> Iterator[Feature]:
    """Those that the table has, and that do not enter because it had not when they were written down.

    One level of each category follows from the others: the usual one, or the one that was usual then.
    """
    entering = set(features)
    follows = {(feature.name, feature.part) for feature in found.usual & entering}
    for feature in (one for each in found.entering.values() for one in each if one not in entering and one.kind != "bin"):
        if (feature.name, feature.part) in follows:
            follows.remove((feature.name, feature.part))
        else:
            yield feature
