"""What the page of a report says of one trainer: words and numbers, which the page sets as it sets every other trainer's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vfl_node.job.training import TrainerConfig


class Code(str):
    """Text as it stands in a job or in settings."""

    __slots__ = ()


Part = str | int | None
"""Text, or a number of things: None where it is hidden from this party."""

Line = tuple[Part, ...]
"""Parts side by side, with no other space between them than their own."""


@dataclass(frozen=True)
class Figure:
    """A large number, and below it what it counts."""

    number: int | None
    counted: str


@dataclass(frozen=True)
class Term:
    """One line of a list of details: its title, and values set apart by commas."""

    title: str
    values: tuple[Line, ...]


@dataclass(frozen=True)
class Panel:
    """A part of the page under a title of its own."""

    title: str
    text: str
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class MetricColumn:
    """The metrics on some other rows, as a column beside those of the federated model.

    Attributes:
        title: of the column.
        values: metric → value; None where it is not defined.
        note: a paragraph below the table.
    """

    title: str
    values: Mapping[str, float | None]
    note: str


@dataclass(frozen=True)
class MetricsByParty:
    """A table of differences of metrics, with a row for each party.

    Attributes:
        title: of the table.
        values: party → metric → (mean, standard deviation); None where it is not defined.
        note: a paragraph below the table.
    """

    title: str
    values: Mapping[str, Mapping[str, tuple[float, float] | None]]
    note: str


@dataclass(frozen=True)
class FigureTable:
    """A table of figures.

    Attributes:
        title: of the table.
        heads: of its columns.
        rows: a text for each column.
        note: a paragraph below it.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class Bars:
    """A drawing of numbers that lie on both sides of 0.

    Attributes:
        title: of the drawing.
        values: a label, a number, and words beside it.
    """

    title: str
    values: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Attacked:
    """What this party sends in training and attacks in its audit.

    Attributes:
        tensors: what they are called, such as "embeddings".
        sent: what is sent of which rows: "an embedding of every row".
        once: what was judged once, beside the epochs; a clause without a full stop.
        attacks: attack → AUC on that; empty where nothing was.
        judged: attack → rows behind it.
    """

    tensors: str
    sent: str
    once: str = ""
    attacks: Mapping[str, float | None] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingWords:
    """All that the page says of a trainer beyond what it says of each.

    Attributes:
        figures: how much was done; they lead where this party knows no metrics.
        remarks: sentences below the result.
        columns: of the table of metrics.
        terms: below the curves.
        panel: beside the curves.
        attacked: None where this trainer sends nothing that could tell synthetic rows.
        by_party: below the metrics; None where there is no such table.
        tables: below these.
        bars: below the tables.
        leaks: what training told beside the alignment, above the ledger; a sentence without its full stop.
    """

    figures: tuple[Figure, ...] = ()
    remarks: tuple[str, ...] = ()
    columns: tuple[MetricColumn, ...] = ()
    terms: tuple[Term, ...] = ()
    panel: Panel | None = None
    attacked: Attacked | None = None
    by_party: MetricsByParty | None = None
    tables: tuple[FigureTable, ...] = ()
    bars: tuple[Bars, ...] = ()
    leaks: str = "Training leaks more"


@dataclass(frozen=True)
class ReportedTraining:
    """A training as the words about it need it.

    Attributes:
        train: the job's section.
        party: whose report it is.
        role: its role.
        peer: the other data party; of several, their names joined by "and".
        active: name of the active party.
        passive: name of the passive party, or of all of them.
        coordinator: name of the coordinator; None where the job has none.
        epochs: of the first repeat, or iterations, of which there are figures.
        steps: batches of all repeats.
        repeats: independent splits.
    """

    train: TrainerConfig
    party: str
    role: str
    peer: str
    active: str
    passive: str
    coordinator: str | None
    epochs: int
    steps: int
    repeats: int


def several(count: int, noun: str) -> str:
    """``noun`` for so many things."""
    return noun if count == 1 else f"{noun}s"
