"""What an alignment will cost, before it runs: the plan of a protocol, which its spec names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from vfl_node.alignment.costs import Counts, ListCost, stage_counts, total
from vfl_node.alignment.several.costs import PartyCounts, counts_of_several
from vfl_node.alignment.several.stages import stages_of_several
from vfl_node.configuration.registry import load
from vfl_node.job.alignment import Align, AlignmentSpec
from vfl_node.roles import Role
from vfl_node.settings.node import Obfuscation


class AlignmentPlan(ABC):
    """What one protocol computes, sends and stores, and how long its shared order can be.

    Attributes:
        compared_with: name of the protocol that estimates show beside it.
        bytes_a_row: what the active party sends to each passive one for a row of the shared order, beside lists of elements.
    """

    compared_with: ClassVar[str]
    bytes_a_row: ClassVar[int] = 0

    @abstractmethod
    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """All lists that are sent, in the order of the protocol, of a job that repeats no part of an earlier one.

        Args:
            n_a: elements that the active party announces.
            n_p: elements that the passive party announces.
            m: elements of the shared order.
        """

    @abstractmethod
    def costliest_length(self, n_a: int, n_p: int) -> int:
        """The m at which :meth:`lists` cost most."""

    def is_duplex(self, parties: int) -> bool:
        """Whether each of so many data parties sends its lists of a stage while it receives those of the other one."""
        return False

    def bytes_beside(self, n_a: int, n_p: int) -> Mapping[Role, int]:
        """Role → bytes that this party sends once beside lists of elements, where it sends some; arguments as :meth:`lists`."""
        return {}

    def counts(self, n_a: int, n_p: int, m: int) -> Counts:
        """What the whole alignment costs; arguments as :meth:`lists`."""
        return total(self.lists(n_a, n_p, m))

    def stages(self, n_a: int, n_p: int, m: int) -> list[Counts]:
        """The same, stage by stage; what both parties do in one stage happens at the same time."""
        return stage_counts(self.lists(n_a, n_p, m))

    def stages_of_several(self, sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
        """What each party computes, sends and stores with several passive parties, stage by stage.

        Args:
            sizes: elements that each data party announces, in the job's order: the active party's first.
            m: elements of the shared order.
        """
        return stages_of_several(sizes, m)

    def most(self, n_a: int, n_p: int) -> Counts:
        """What it costs at most, whatever is shared."""
        return self.counts(n_a, n_p, self.costliest_length(n_a, n_p))

    def most_of_several(self, sizes: Sequence[int]) -> tuple[PartyCounts, ...]:
        """What each party computes, sends and stores at most, with several passive parties.

        Args:
            sizes: elements that each data party announces, in the job's order: the active party's first.
        """
        return counts_of_several(sizes, self.longest(sizes))

    def longest(self, sizes: Sequence[int]) -> int:
        """The most elements of the shared order, if the parties announce ``sizes``."""
        return sum(sizes)

    @abstractmethod
    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """The extremes of the length of the shared order.

        Args:
            align: the job's section.
            sizes: elements that each data party announces, in the job's order: the active party's first.
            shared: records that all have.
            obfuscation: the active owner's wishes.
        """

    @abstractmethod
    def lengths_of_one(self, own: int, both: int | None) -> tuple[int, int | None] | None:
        """The fewest and the most rows of the shared order, as one party can know them before it hears of the other.

        Args:
            own: elements that this party announces.
            both: the most that all announce together; None: not known.

        Returns:
            (fewest, most), with None for a most that is not known; None where nothing is known.
        """

    def notes(self, align: Align, obfuscation: Obfuscation) -> Iterator[str]:
        """Sentences below an estimate that has a column for this protocol, without a capital and a full stop."""
        return iter(())


def plan_of(spec: AlignmentSpec) -> AlignmentPlan:
    """The plan of a protocol. Raises UsageError: it cannot be loaded (``E_EXTENSION``)."""
    plan: type[AlignmentPlan] = load(spec.plan, what=f"the plan of align.protocol {spec.name}")
    return plan()
