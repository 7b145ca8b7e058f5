"""What one party's half computes, by the code that predicts between nodes, and the same as nodes of a graph.

Of a row that every party has. Rows that a party lacks, and noise that a passive party's defences add to what it sends, are of
predictions between nodes alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import Table
from vfl_node.halves.columns import RawColumns
from vfl_node.halves.graph import Graph, Kind
from vfl_node.halves.probes import make_probes
from vfl_node.job import IdForm, Job
from vfl_node.roles import NUMBER_TASKS, Task
from vfl_node.settings.aggregate import COUNT_OF
from vfl_node.settings.declared import Declared, kind_of

Floats = NDArray[np.float64]
Gives = Literal["embedding", "partial_scores", "probability", "prediction"]


@dataclass(frozen=True)
class About:
    """What a file says of its half.

    Attributes:
        party: whose half it is.
        role: of that party.
        job: id of the job that trained it.
        manifest_digest: of that job.
        others: the other parties whose halves it needs to predict, in their order; empty where it predicts nothing.
        gives: what its first output is.
        width: numbers a row of what it gives to the half that predicts; of that half itself, of what it gets.
        reads: column → what is declared of it.
        rows: column of the rows that became records in the training → how it was read; empty where each row was one.
        id_form: how the job compares identifiers; several of composite ones.
        task: what the labels are.
        classes: their names at the party with the labels; empty where they have none.
        threshold: of two classes, the probability from which on the second is predicted.
    """

    party: str
    role: str
    job: str
    manifest_digest: str
    others: tuple[str, ...]
    gives: Gives
    width: int
    reads: Mapping[str, Declared] = field(repr=False)
    id_form: IdForm | tuple[IdForm, ...]
    task: Task
    classes: tuple[str, ...] = field(repr=False)
    threshold: float
    rows: Mapping[str, Declared] = field(default_factory=dict, repr=False)

    @property
    def counted(self) -> dict[str, str]:
        """Column that counts rows with one value, which its name has → the column of the rows that the value is of."""
        heads = {COUNT_OF.format(name, ""): name for name, read in self.rows.items() if kind_of(read) == "categorical"}
        return {name: rows for name in self.reads for head, rows in heads.items() if name.startswith(head)}

    @property
    def predicts(self) -> bool:
        """Whether it is the half of the party with the labels."""
        return self.gives in ("probability", "prediction")


@dataclass(frozen=True)
class Emitted:
    """A half in a graph.

    Attributes:
        result: what the half gives.
        received: the inputs for what the others give, in their order.
        encoded: name → value and type, of what its encoder makes of a table.
        axes: of what it gives: 1 for [n], 2 for [n, k].
    """

    result: str
    received: tuple[str, ...]
    encoded: Mapping[str, tuple[str, Kind]]
    axes: int = 2


class OwnHalf(ABC):
    """One party's half of a trained model.

    Attributes:
        about: what a file says of it.
        part_kind: type of what it gives to the half that predicts.
        unit: in which differences of what it gives are counted: of predicted numbers that of the target, else 1.
    """

    part_kind: ClassVar[Kind]

    def __init__(self, about: About, unit: float = 1.0) -> None:
        self.about, self.unit = about, unit

    @abstractmethod
    def part(self, table: Table) -> NDArray[Any]:
        """What it gives to the half that predicts: float[n, width] of the rows of ``table``."""

    @abstractmethod
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        """What the model says of the rows of ``table``, float64[n] or [n, K], with ``parts`` of the others, in their order."""

    @abstractmethod
    def encoded(self, table: Table) -> dict[str, NDArray[Any]]:
        """What its encoder makes of the rows of ``table``, by the names of :attr:`Emitted.encoded`: [n, k] each."""

    @abstractmethod
    def emit(self, graph: Graph, raw: RawColumns) -> Emitted:
        """The same as nodes. Raises UsageError of what cannot be written (``E_EXPORT``)."""

    @property
    @abstractmethod
    def encodings(self) -> tuple[object, ...]:
        """How its encoder reads each column."""

    def probes(self) -> Table:
        """Rows made of what the encoder knows, which try every branch of it. Raises UsageError of lists (``E_EXPORT``)."""
        return make_probes(self.encodings)

    def graph(self) -> Graph:
        """An empty graph with names for its columns."""
        return Graph.from_columns(self.about.reads)

    def raw(self, graph: Graph) -> RawColumns:
        """Its columns as inputs of ``graph``."""
        kinds = {name: kind_of(declared) for name, declared in self.about.reads.items()}
        return RawColumns(graph, {name: kind for name, kind in kinds.items() if kind})

    def read_parts(self, graph: Graph) -> tuple[str, ...]:
        """An input for what each of the other parties gives."""
        width = self.about.width
        return tuple(graph.read(graph.name(f"from_{name}"), self.part_kind, width) for name in self.about.others)


def result_of(job: Job, *, predicts: bool) -> Gives:
    """What a half of ``job`` gives; one of an additive model gives partial scores instead of an embedding."""
    if not predicts:
        return "embedding"
    return "prediction" if job.task in NUMBER_TASKS else "probability"
