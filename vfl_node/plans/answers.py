"""What ``vfl-node plan`` asks, and the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vfl_node.errors import UsageError

Aim = Literal["binary", "multiclass", "regression", "count"]
"""What is learnt: two classes, several classes, or numbers; or nothing, and the shared records are only counted."""

MayLearn = Literal["none", "active", "both"]
"""Which of the parties with data may learn which of their records are shared."""

AIMS: tuple[Aim, ...] = ("binary", "multiclass", "regression", "count")

LEARNERS: tuple[MayLearn, ...] = ("none", "active", "both")
"""The least first."""

MOST_PASSIVE = 8

ACTIVE, PASSIVE, THIRD = "active-party", "passive-party", "third-party"
"""What a recommended job calls the parties."""


@dataclass(frozen=True)
class Answers:
    """What the owners know of their tables, and what they allow.

    Attributes:
        active: records of the party with the labels.
        passive: records of each other party.
        aim: what is learnt.
        may_learn_shared: who may learn which records are shared. A third party never may.
        third_party: whether there is a party without data that all trust.
        same_id: whether the tables have an identifier in common.
        hide_labels: whether nobody else may read the label of a row.
        shared_guess: about which part of the smallest table is shared by all, 0 to 1.
        classes: how many there are, if there are several.
    """

    active: int
    passive: tuple[int, ...]
    aim: Aim
    may_learn_shared: MayLearn
    third_party: bool
    same_id: bool = True
    hide_labels: bool = True
    shared_guess: float = 0.2
    classes: int = 3

    @property
    def passive_names(self) -> tuple[str, ...]:
        """What the other parties are called."""
        return (PASSIVE,) if len(self.passive) == 1 else tuple(f"{PASSIVE}-{n}" for n in range(1, len(self.passive) + 1))

    @property
    def records(self) -> dict[str, int]:
        """Name of a party with data → its records."""
        return {ACTIVE: self.active, **dict(zip(self.passive_names, self.passive, strict=True))}

    @property
    def shared(self) -> int:
        """About how many records all parties have."""
        return round(self.shared_guess * min(self.records.values()))

    @property
    def learners(self) -> frozenset[str]:
        """Names of those that may learn which records are shared."""
        allowed: Mapping[MayLearn, frozenset[str]] = {"none": frozenset(), "active": frozenset({ACTIVE})}
        return allowed.get(self.may_learn_shared, frozenset(self.records))


@dataclass(frozen=True)
class Question:
    """One thing that is asked.

    Attributes:
        flag: the option that answers it.
        field: the attribute of :class:`Answers`.
        text: what a person is asked.
        read: makes the value from what was written. Raises ValueError with what is expected.
        default: what is taken for granted where nobody says; empty: somebody must.
    """

    flag: str
    field: str
    text: str
    read: Callable[[str], Any]
    default: str = ""

    def parse(self, written: str) -> Any:
        """The value. Raises UsageError with what is expected."""
        try:
            return self.read(written.strip().lower())
        except ValueError as error:
            raise UsageError(f"{self.flag} {written}: {error}", hint=self.text) from None


def _read_count(text: str) -> int:
    plain = text.replace(",", "").replace("_", "")
    if not plain.isdecimal() or int(plain) < 1:
        raise ValueError("a number of records is expected, 1 or more")
    return int(plain)


def _read_counts(text: str) -> tuple[int, ...]:
    counts = tuple(_read_count(part) for part in text.split())
    if not 1 <= len(counts) <= MOST_PASSIVE:
        raise ValueError(f"the records of 1 to {MOST_PASSIVE} parties are expected")
    return counts


def _read_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ValueError("a part is expected, 0 to 1")
    return share


def _read_classes(text: str) -> int:
    if not text.isdecimal() or not 3 <= int(text) <= 64:
        raise ValueError("a number of classes is expected, 3 to 64")
    return int(text)


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)} is expected")
        return text

    return read


def _read_yes(text: str) -> bool:
    return _one_of(("yes", "no"))({"y": "yes", "n": "no"}.get(text, text)) == "yes"


QUESTIONS = (
    Question("--active", "active", "How many records has the party with the labels?", _read_count),
    Question(
        "--passive", "passive", "How many records has the other party? (several parties: a number for each)", _read_counts
    ),
    Question("--same-id", "same_id", "Do the tables have an identifier in common? (yes, no)", _read_yes, "yes"),
    Question(
        "--shared-guess", "shared_guess", "About which part of the smallest table is shared? (0 to 1)", _read_share, "0.2"
    ),
    Question(
        "--task", "aim", f"What do you want to learn? ({', '.join(AIMS)}; count: only how many are shared)", _one_of(AIMS)
    ),
    Question("--classes", "classes", "How many classes are there? (3 to 64)", _read_classes, "3"),
    Question(
        "--may-learn-shared",
        "may_learn_shared",
        "Who of the parties with data may learn which records are shared? (none, active: the one with the labels, both)",
        _one_of(LEARNERS),
    ),
    Question(
        "--hide-labels",
        "hide_labels",
        "Must the label of a row stay hidden from the other parties? (yes, no)",
        _read_yes,
        "yes",
    ),
    Question("--third-party", "third_party", "Is there a third party, without data, that all trust? (yes, no)", _read_yes),
)
"""In the order in which they are asked; an owner's own numbers first."""


def collect(given: Mapping[str, str], ask: Callable[[Question], str] | None) -> tuple[Answers, tuple[str, ...]]:
    """The answers, and the options whose value is taken for granted.

    Args:
        given: option → what was written.
        ask: asks a person; None: nobody is there to answer.

    Raises:
        UsageError: an answer is none, or nobody gives one that is needed.
    """
    values, assumed = (
        {question.flag: question.parse(given[question.flag]) for question in QUESTIONS if question.flag in given},
        [],
    )
    if ask is None and (missing := [question for question in QUESTIONS if not (question.default or question.flag in given)]):
        flags = ", ".join(question.flag for question in missing)
        raise UsageError(f"these answers are missing: {flags}", hint="give them, or run it on a terminal, where it asks")
    for question in QUESTIONS:
        if question.flag in values or not _matters(question, values):
            continue
        if ask is None:
            values[question.flag] = question.parse(question.default)
            assumed.append(f"{question.flag} {question.default}")
        else:
            values[question.flag] = question.parse(ask(question))
    named = {question.field: values[question.flag] for question in QUESTIONS if question.flag in values}
    return Answers(**named), tuple(assumed)


def _matters(question: Question, values: Mapping[str, Any]) -> bool:
    """Whether an answer could change anything, after those that are known."""
    aim = values.get("--task")
    return {"--classes": aim == "multiclass", "--hide-labels": aim != "count"}.get(question.flag, True)
