"""What a report says of an alignment: the words of a protocol, which its spec names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from vfl_node.configuration.registry import load
from vfl_node.job.alignment import AlignmentSpec


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


class AlignmentWords(ABC):
    """What one protocol says of an alignment to whoever reads its report.

    Attributes:
        title: the protocol in words, such as "private set union".
    """

    title: ClassVar[str]

    @abstractmethod
    def rows_title(self, alignment: ReportedAlignment) -> str:
        """What the rows of the shared order are, after their number: "records in the union"."""

    @abstractmethod
    def rows(self, alignment: ReportedAlignment) -> str:
        """A paragraph about the shared order below the drawing of the sets; empty: none."""

    def figures(self, figures: Mapping[str, Any]) -> list[str]:
        """Lines about what this protocol alone reports, of the report's section ``alignment``; none by default."""
        return []

    @abstractmethod
    def leaks(self, alignment: ReportedAlignment) -> str:
        """What the alignment reveals to whom, as a paragraph above the ledger."""


def words_of(spec: AlignmentSpec) -> AlignmentWords:
    """The words of a protocol. Raises UsageError: they cannot be loaded (``E_EXTENSION``)."""
    words: type[AlignmentWords] = load(spec.words, what=f"the words of align.protocol {spec.name}")
    return words()


def overlap_text(alignment: ReportedAlignment) -> str:
    """What the party that forms the shared order learns besides, as a sentence."""
    return f"{alignment.active} also learns how many records exactly some of the parties have, for each choice of parties."
