"""Whether the parties' ids meet at all: a small intersection, and what this party's own ids suggest about the cause.

Ids that never meet are the commonest mistake of a first job: other capitals, leading zeros, numbers read as 123.0, another
column. A job must not train on nothing then. It stops only where both parties know how many records are shared. A party that
alone knows it (the active one of an asymmetric intersection), or a bound (each one under dummies), is warned in its own log
and report, and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.spelling import spelling_hints
from vfl_node.errors import PolicyError
from vfl_node.job import Align
from vfl_node.report.words import join_names

LEAST_SHARE = 0.01
"""A smaller share of the smaller set is doubted."""

FEW_RECORDS, OF_FEW = 50, 0.1
"""Fewer shared records are doubted, too, unless they are this share of the smaller set: small tables share few."""


@dataclass(frozen=True)
class OverlapDoubt:
    """So few records are shared that the ids may not meet.

    Attributes:
        shared: how many all parties have.
        exact: False where this party only knows that no more are shared.
        expected: the job's ``align.expect.at_least``.
        peers: names of the other parties.
        known_to_all: whether each other party knows ``shared``, too.
        hints: what this party's ids suggest, in whole sentences.
    """

    shared: int
    exact: bool
    expected: int
    peers: tuple[str, ...]
    known_to_all: bool
    hints: tuple[str, ...]

    @property
    def text(self) -> str:
        """A paragraph for this party's owner."""
        return f"{self._finding}, so few that the ids may not meet. {' '.join(self.hints)}"

    def check(self) -> None:
        """Refuse to train on fewer records than the job expects, where all parties know how many are shared.

        All refuse, each by what it knows itself.

        Raises:
            PolicyError: fewer (``E_TOO_FEW_SHARED``).

        Leaks: nothing between them. A coordinator, which does not know the number, sees that they go no further.
        """
        if self.known_to_all and self.shared < self.expected:
            raise PolicyError(
                f"{self._finding}, fewer than the {self.expected:,} that the job expects (align.expect.at_least): it stops "
                "before training",
                code="E_TOO_FEW_SHARED",
                hint=" ".join(self.hints),
                for_peer="its owner does not go on",
                peer_code="E_STOPPED",
            )

    @property
    def _finding(self) -> str:
        those = join_names(self.peers)
        if not self.shared:
            return f"no record is shared with {those}"
        most, records = "" if self.exact else "at most ", "1 record is" if self.shared == 1 else f"{self.shared:,} records are"
        return f"{most}{records} shared with {those}"


def doubt_overlap(terms: Align, alignment: Alignment, ids: Identifiers) -> OverlapDoubt | None:
    """The doubt about an alignment; None where enough records are shared, or may be as far as this party knows.

    Args:
        terms: the job's ``align`` section.
        alignment: as this party sees it.
        ids: those of its records that took part.

    Cost: that of :func:`~vfl_node.data.spelling.spelling_hints` in case of doubt. Where the peer may not know what this party
    knows it is spent in any case, because the peer waits meanwhile and would see it.
    """
    facts = list(alignment.peers.values())
    sizes = [alignment.ours, *(peer.records for peer in facts if peer.records is not None)]
    exact = alignment.common is not None
    bounds = [peer.most_shared for peer in facts if peer.most_shared is not None]
    shared = alignment.common if exact else min(bounds, default=None)
    if shared is None:
        return None
    known_to_all = exact and not alignment.hides_intersection and (len(facts) == 1 or alignment.every_row_is_shared)
    doubtful = is_doubtful(shared, min(sizes), terms.expect.at_least)
    if known_to_all and not doubtful:
        return None
    hints = list(spelling_hints(ids, terms.id_form))  # the same work, doubt or not, which the peer may not see
    if not doubtful:
        return None
    if terms.at_most is not None and terms.at_most <= max(sizes):
        hints.append(f"align.at_most: {terms.at_most:,} leaves only a random part of a larger table, so fewer are shared.")
    if not known_to_all and len(facts) == 1:  # with several parties no job hides it as a promise
        hints.append(
            "Where a job hides how many records are shared, a set is held to one align.id_form (E_PROMISE): for another one, "
            "correct the ids in the table."
        )
    asked, where = ("the other party's owner", "both") if len(facts) == 1 else ("the other parties' owners", "all")
    hints.append(f"Ask {asked} whether data.id names the same kind of id at {where} (docs/guides/give-tables.md).")
    return OverlapDoubt(shared, exact, terms.expect.at_least, tuple(alignment.peers), known_to_all, tuple(hints))


def is_doubtful(shared: int, smaller: int, expected: int) -> bool:
    """Whether ``shared`` records are fewer than ``expected``, or few of a set of ``smaller``."""
    return shared < max(expected, LEAST_SHARE * smaller, min(FEW_RECORDS, OF_FEW * smaller))
