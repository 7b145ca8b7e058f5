"""What people and programs write into a cell that has no value. It depends on what else the column may hold.

=====================  ========================================================================
in a column of         a cell is missing if it is among
=====================  ========================================================================
categories, lists      :data:`MISSING`: a category may be called ``none`` or ``.``
labels                 :data:`MISSING_LABELS`: a class may be called ``missing`` or ``-``
numbers, dates         :data:`MISSING` and :data:`ABSENT`
=====================  ========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product


def _spell_in_any_case(words: Iterable[str]) -> frozenset[str]:
    return frozenset("".join(letters) for word in words for letters in product(*((c.lower(), c.upper()) for c in word)))


MISSING = _spell_in_any_case(("nan", "-nan", "null", "nat", "n/a", "#n/a", "<na>")) | {"", "NA", "None", "?", r"\N"}
"""In a column of any kind, as they are spelled: of databases, Hive (``\\N``), Excel (``#N/A``), R, and pandas (``<NA>``)."""

MISSING_LABELS = frozenset({*map(str.lower, MISSING), "none", "(null)", "."})
"""Among labels, in small letters: those of any column in any case, and more that are no class's name, as SAS's ``.``."""

ABSENT = (
    frozenset({"none", "missing", "unknown", "na", "n.a.", "nil", "(null)", "[null]", "<null>"})
    | {".", "..", "-", "--", "---", "–", "—"}
    | {"0000-00-00", "0000-00-00 00:00:00"}
    | {"#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!"}
)
"""More than :data:`MISSING`, in small letters, where all other cells are numbers or dates."""


def is_missing_label(cell: str) -> bool:
    """Whether a label, without white space at its ends, stands for a missing one."""
    return cell.lower() in MISSING_LABELS


def missing_labels(cells: Iterable[str]) -> set[str]:
    """Those of ``cells`` that stand for a missing label."""
    return set(filter(is_missing_label, cells))
