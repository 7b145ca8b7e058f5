"""What a training says that it will send and compute, before it runs: bytes, and how many rows go through which network.

A trainer measures what a row takes in each of them on the machine of an estimate. Light: no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole, Role

HEAD_BYTES = 4 << 10
"""More than a message has beside the values of its tensor."""

ROWS_AT_ONCE = 8192
"""Rows that go through a network together where nothing is learnt."""


@dataclass(frozen=True)
class Beside:
    """What stands beside the rows.

    Attributes:
        candidates: records of the passive party that an alignment by similarity puts beside one row, at most.
        among: how many records these are chosen from; None: not known.
        common: how many rows all parties own; None: not every data party learns it, or it is not known yet.
        columns: of each data party in the job's order, as encoded; 0 where it is not known; empty: no party's is.
    """

    candidates: int = 1
    among: int | None = None
    common: int | None = None
    columns: tuple[int, ...] = ()


ONE_BESIDE = Beside()
"""Where nothing is known."""


@dataclass(frozen=True)
class TableShape:
    """A party's table, as far as it is known.

    Attributes:
        rows: records.
        numeric: numeric columns as they are encoded: the values, and whether there is one.
        cardinalities: codes of each categorical column.
        image: channels, height and width of an image whose pixels are among the numeric columns; None: there is none.
        lists: codes and most items of each column of lists.
    """

    rows: int = 0
    numeric: int = 0
    cardinalities: tuple[int, ...] = ()
    image: tuple[int, int, int] | None = None
    lists: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TrainingCost:
    """What training over some number of shared rows takes, all repeats together unless it says otherwise.

    Bytes are those of tensors and ciphertexts; the frames around them, some hundred bytes a message, are left out.

    Attributes:
        rows: trained on in a :attr:`~vfl_node.job.training.Traits.unit`: an epoch, or an iteration.
        batches: likewise.
        steps: messages sent whose answers are awaited, one after the other.
        active_bytes: sent by the active party.
        passive_bytes: sent by all passive parties together.
        coordinator_bytes: sent by the coordinator to all data parties together, while these send theirs.
        coordinator_memory: bytes that the coordinator takes for it.
        counted_with: what was taken for granted, since nothing says it, in words for people; empty: nothing.
        said: what else an owner should know of it before it runs; sentences without a capital and a full stop.
    """

    rows: int
    batches: int
    steps: int
    active_bytes: int
    passive_bytes: int
    coordinator_bytes: int = 0
    coordinator_memory: int = 0
    counted_with: str = ""
    said: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes that data parties send, both ways."""
        return self.active_bytes + self.passive_bytes


@dataclass(frozen=True)
class Network:
    """What rows go through.

    Attributes:
        bottom: whether the party's own bottom comes first.
        dense: width of what the first dense layer reads, then that of each dense layer; empty: there are none. What a bottom
            does not give of the first width comes from elsewhere.
    """

    bottom: bool
    dense: tuple[int, ...] = ()


@dataclass(frozen=True)
class Passes:
    """Rows through a network.

    Attributes:
        at: the party that computes.
        network: what they go through.
        rows: how many, each time that one goes through counted.
        batch: how many at a time.
        learns: whether weights are updated by each batch; else there is no gradient.
    """

    at: DataRole
    network: Network
    rows: float
    batch: int
    learns: bool = True


@dataclass(frozen=True)
class Operations:
    """Work that is of no network.

    Attributes:
        at: the party that computes; of several passive ones each.
        kind: what is done, as the trainer's pace names it.
        count: how often.
        shared: whether all cores take part.
    """

    at: Role
    kind: str
    count: float
    shared: bool = False


@dataclass(frozen=True)
class Computing:
    """What parties compute in training, all repeats together, rows outside of the alignment left out.

    Attributes:
        work: of each party; of several passive ones what each of them does.
        pace: as :attr:`OutsideCost.pace`.
    """

    work: tuple[Passes | Operations, ...]
    pace: str


@dataclass(frozen=True)
class OutsideCost:
    """What learning from rows outside of the alignment takes.

    Attributes:
        rows: of the active party, outside.
        when: in which epochs they are learnt from: words for after a number of rows.
        work: of all repeats.
        pace: ``module:attribute`` of what measures a :class:`Pace`, called with the job, :class:`TableShape` by role as far
            as tables are known, and the models of the node's settings.
    """

    rows: int
    when: str
    work: tuple[Passes, ...]
    pace: str


Pace = Callable[[Passes | Operations], float]
"""Seconds that they take on one core of this machine."""


C = TypeVar("C")


class TrainingPlan(Generic[C]):
    """What one training will send and compute; an estimate asks, and a node before it agrees to a job.

    Args:
        train: the job's section.
        passive_parties: how many there are.
        beside: what else its size depends on, as far as it is known.
        models: of a node's settings: name → ``module:Class`` of an architecture.
    """

    def __init__(
        self,
        train: C,
        passive_parties: int = 1,
        beside: Beside = ONE_BESIDE,
        models: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.train, self.passive_parties, self.beside, self.models = train, passive_parties, beside, models

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """The fewest steps that training takes if at least ``rows`` rows are shared."""
        return 0

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """What training over ``rows`` shared rows of an alignment ``protocol`` takes; None where it is not known beforehand.

        Return None, too, for an alignment over which this trainer does not run.

        Args:
            evaluate: the job's section.
            rows: length of the shared order.
            protocol: name of the alignment. It is not always the job's: an estimate compares several.
        """
        return None

    def computing(self, evaluate: Evaluate, rows: int, protocol: str, records: Mapping[DataRole, int]) -> Computing | None:
        """What parties compute over ``rows`` shared rows; None where the trainer does not count it.

        Args:
            evaluate: the job's section.
            rows: length of the shared order.
            protocol: name of the alignment.
            records: announced by the active party, and by the only passive one.
        """
        return None

    def cost_outside(self, evaluate: Evaluate, rows: int, records: Mapping[DataRole, int]) -> OutsideCost | None:
        """What learning from rows outside of ``rows`` shared ones takes, of so many ``records``; None: none is learnt from."""
        return None

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """Weights of the networks of the party in ``role``; of the layers alone where its ``table`` is not known."""
        return 0

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """Memory of what the party in ``role`` with this ``table`` computes for one batch."""
        return 0

    def sent_sizes(self) -> tuple[int, int, int]:
        """Rows of a batch, and numbers of the embedding and of the projection of each that a passive party sends; 0: none."""
        return 0, 0, 0

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Epochs, or iterations, of which figures are kept in memory until the report is written."""
        return 0

    def message_bytes(self, evaluate: Evaluate) -> int:
        """Size of the largest message, head (:data:`HEAD_BYTES`) included. A larger one is refused by the peer's node.

        0 stands for messages of less than 2 MiB. The number of shared rows is not known yet; a message must be bounded by the
        job (``batch_size``), or travel in chunks (:meth:`vfl_node.transport.channel.Channel.send_rows`).
        """
        return 0

    def served_message_bytes(self, rows: int) -> int:
        """Size of the largest message of a prediction service with batches of ``rows`` rows, head included."""
        return 0
