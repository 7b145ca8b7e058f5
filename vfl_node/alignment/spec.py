"""The contract of an alignment protocol: all that the rest of vfl-node asks of it before, beside and after its run.

A protocol is a folder: ``spec.py`` with one :class:`AlignmentSpec`, and ``protocol.py`` with a coroutine for each role. A spec
imports no numpy, torch or grpc, so that a job can be checked and shown without them. The registry
(:mod:`vfl_node.alignment.registry`) names the spec, and the spec names the coroutines, which are loaded when they first run.

Nothing outside a protocol's folder compares its name: it asks for a property.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from vfl_node.alignment import costs
from vfl_node.alignment.several.costs import PartyCounts, counts_of_several
from vfl_node.alignment.several.stages import stages_of_several
from vfl_node.configuration.registry import load

if TYPE_CHECKING:
    from vfl_node.alignment.alignment import Alignment, OwnRecords
    from vfl_node.crypto.groups import Group
    from vfl_node.job import Align
    from vfl_node.ledger import Disclosure
    from vfl_node.roles import Role
    from vfl_node.session.session import Session
    from vfl_node.settings.node import Obfuscation
    from vfl_node.transport.channel import Channel

Side: TypeAlias = "Callable[[Session, OwnRecords, Group | None], Awaitable[Alignment]]"
"""One party's side of a protocol: from its session, its records, and a group in place of the job's.
:func:`vfl_node.alignment.lists.side.over_lists` makes one of a coroutine over lists, such as
:func:`vfl_node.alignment.psu.protocol.active`."""


class AlignmentCoordination(Protocol):
    """A coordinator's part in one alignment: a conversation with each data party, side by side on threads of their own."""

    async def serve(self, channel: Channel) -> None:
        """Do what one data party needs, in phase ``align``."""

    def learnt(self) -> Mapping[str, tuple[Disclosure, ...]]:
        """Party → what it learnt, as far as the coordinator knows, once every data party has its alignment."""

    def close(self) -> None:
        """Close all files, once no conversation of the attempt goes on."""


@dataclass(frozen=True)
class AlignmentSpec(ABC):
    """One alignment protocol.

    Attributes:
        name: in a job's ``align.protocol``; the key in the registry.
        title: in words, such as "private set union".
        shared_rows: what its shared order is, such as "the union".
        sides: role → ``module:attribute`` of the coroutine that plays it; of a coordinator, of what makes its
            :class:`AlignmentCoordination` from its session. A role without one takes no part.
        synthetic_rows_at: roles that may meet shared rows whose records they do not own.
        intersection_hidden_from: roles that do not learn how many records are shared, whatever the job's options are.
        padded_roles: roles whose sets ``align.padding`` rounds up.
        options: which of the options ``obfuscation`` and ``dummies`` of the job's ``align`` section it has.
        max_passive_parties: with how many passive parties it runs.
        why_not_more: why it does not run with more; a clause without a capital and a full stop.
        compared_with: name of the protocol that estimates show beside it.
        sides_of_several: as ``sides``, where there are several passive parties.
        allowed_by_default: whether a node runs it whose owner does not name it in ``limits.protocols``.
        bytes_a_row: what the active party sends to each passive one for a row of the shared order, beside lists of elements.
        by_similarity: whether each row is a record of the active party with several records of the passive one that are like it
            (candidates), instead of one record that parties have in common.
    """

    name: str
    title: str
    shared_rows: str
    sides: Mapping[Role, str]
    synthetic_rows_at: frozenset[Role]
    intersection_hidden_from: frozenset[Role]
    padded_roles: frozenset[Role]
    options: frozenset[str]
    max_passive_parties: int
    why_not_more: str
    compared_with: str
    sides_of_several: Mapping[Role, str] = field(default_factory=dict)
    allowed_by_default: bool = True
    bytes_a_row: int = 0
    by_similarity: bool = False

    # What it is.

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator takes part."""
        return "coordinator" in self.sides

    @property
    def roles(self) -> tuple[Role, ...]:
        """Which roles take part."""
        return tuple(self.sides)

    @property
    def every_row_is_shared(self) -> bool:
        """Whether each party owns the record of every row of the shared order.

        Then there are no synthetic rows, in training or in predictions of new records, and both parties know which
        of their records the other one has.
        """
        return not self.synthetic_rows_at and not self.by_similarity

    def shows_shared_records_to(self, role: Role) -> bool:
        """Whether ``role`` learns exactly which of its records are shared.

        The others own the record of every row of the shared order: so its own records there are the shared ones, and all its
        other records have no partner.
        """
        return self.synthetic_rows_at <= {role}

    @property
    def can_count_matched_rows(self) -> bool:
        """Whether the rows that both own are a part of the shared order that no party knows, but whose size none is denied.

        Only then ``evaluate.matched`` has something to count, and may.
        """
        return not self.every_row_is_shared and not self.intersection_hidden_from and not self.by_similarity

    @property
    def is_within_one_set(self) -> bool:
        """Whether one party owns every row and another one does not: the shared order is a part of the first one's records."""
        return 0 < len(self.synthetic_rows_at) < len(self.roles)

    def check(self, align: Align) -> None:  # noqa: B027 - most protocols have nothing to refuse
        """Refuse a job's ``align`` section that does not fit this protocol. Its options are known to be among :attr:`options`.

        Raises:
            ValueError: it does not; the text is for the owner.
        """

    def check_several(self, align: Align) -> None:  # noqa: B027 - most protocols have nothing to refuse
        """Refuse a job's ``align`` section that does not fit several passive parties.

        Raises:
            ValueError: it does not; the text is for the owner.
        """

    def side(self, role: Role, passive_parties: int = 1) -> Side:
        """The coroutine that plays ``role`` in a job with so many passive parties; the first call imports it.

        Raises:
            KeyError: the role takes no part.
            UsageError: it cannot be loaded (``E_EXTENSION``).
        """
        places = self.sides if passive_parties == 1 else self.sides_of_several
        return load(places[role], what=f"the {role} side of align.protocol {self.name}")

    def coordination(self, session: Session) -> AlignmentCoordination:
        """The coordinator's part, where :attr:`coordinated` says that there is one. Raises UsageError (``E_EXTENSION``)."""
        part: Callable[[Session], AlignmentCoordination] = load(
            self.sides["coordinator"], what=f"the coordinator's side of align.protocol {self.name}"
        )
        return part(session)

    # What it costs.

    @abstractmethod
    def lists(self, n_a: int, n_p: int, m: int) -> list[costs.ListCost]:
        """All lists that are sent, in the order of the protocol, of a job that repeats no part of an earlier one.

        Args:
            n_a: elements that the active party announces.
            n_p: elements that the passive party announces.
            m: elements of the shared order.
        """

    @abstractmethod
    def costliest_length(self, n_a: int, n_p: int) -> int:
        """The m at which :meth:`lists` cost most."""

    def counts(self, n_a: int, n_p: int, m: int) -> costs.Counts:
        """What the whole alignment costs; arguments as :meth:`lists`."""
        return costs.total(self.lists(n_a, n_p, m))

    def stages(self, n_a: int, n_p: int, m: int) -> list[costs.Counts]:
        """The same, stage by stage; what both parties do in one stage happens at the same time."""
        return costs.by_stage(self.lists(n_a, n_p, m))

    def stages_of_several(self, sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
        """What each party computes, sends and stores with several passive parties, stage by stage.

        Args:
            sizes: elements that each data party announces, in the job's order: the active party's first.
            m: elements of the shared order.
        """
        return stages_of_several(sizes, m)

    def most(self, n_a: int, n_p: int) -> costs.Counts:
        """What it costs at most, whatever is shared."""
        return self.counts(n_a, n_p, self.costliest_length(n_a, n_p))

    def most_of_several(self, sizes: Sequence[int]) -> tuple[PartyCounts, ...]:
        """What each party computes, sends and stores at most, with several passive parties.

        Args:
            sizes: elements that each data party announces, in the job's order: the active party's first.
        """
        return counts_of_several(sizes, self.longest(sizes))

    # How long the shared order can be.

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

    def estimate_notes(self, align: Align, obfuscation: Obfuscation) -> Iterator[str]:
        """Sentences below an estimate that has a column for this protocol, without a capital and a full stop."""
        return iter(())

    # What a report says.

    @abstractmethod
    def rows_title(self, of: ReportedAlignment) -> str:
        """What the rows of the shared order are, after their number: "records in the union"."""

    @abstractmethod
    def rows_text(self, of: ReportedAlignment) -> str:
        """A paragraph about the shared order below the drawing of the sets; empty: none."""

    def figures_text(self, figures: Mapping[str, Any]) -> list[str]:
        """Lines about what this protocol alone reports, of the report's section ``alignment``; none by default."""
        return []

    @abstractmethod
    def leak_text(self, of: ReportedAlignment) -> str:
        """What the alignment reveals to whom, as a paragraph above the ledger."""


@dataclass(frozen=True)
class ReportedAlignment:
    """An alignment as the report of one party has it.

    Attributes:
        party: whose report it is.
        peer: the other party.
        active: name of the active party.
        passive: name of the passive party, or of all of them.
        label_holder: role of the party with the labels.
        rows: length of the shared order.
        intersection: records that are shared; None where that is hidden from this party.
        union: records of both together; None where that is hidden.
        padded: whether announced numbers are rounded up.
        several: whether there are several passive parties.
        in_shares: of an alignment by similarity: whether the coordinator only dealt.
    """

    party: str
    peer: str
    active: str
    passive: str
    label_holder: str
    rows: int
    intersection: int | None
    union: int | None
    padded: bool
    several: bool = False
    in_shares: bool = False
