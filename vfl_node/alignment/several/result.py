"""What an alignment with several passive parties ends in at one party, and what each party has learnt by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.several.learnt import Learnt
from vfl_node.alignment.several.overlap import OverlapSizes
from vfl_node.errors import ProtocolError


def result(lists: Lists, rows: NDArray[np.int64], sizes: Sequence[int], parts: OverlapSizes | None) -> Alignment:
    """The result, once each of our identifiers that belongs there has its own place in the shared order.

    Args:
        lists: of this party.
        rows: int64[m], our identifier at each shared position, or -1.
        sizes: elements that each party announces, in the job's order.
        parts: of the overlap, at the active party.

    Raises:
        ProtocolError: an identifier has no place, or two have the same (``E_UNION``).
    """
    session, terms, m = lists.session, lists.terms, len(rows)
    within = terms.spec.every_row_is_shared
    if np.count_nonzero(rows >= 0) != (m if within else len(lists.own)):
        raise ProtocolError(
            f"{terms.protocol}: the shared order that the parties built together lacks records of ours, or has others",
            code="E_UNION",
        )
    number, names, padded = session.job.parties.data.index(session.name), session.job.parties.data, terms.padding > 0
    learnt = Learnt(names, sizes, number, len(lists.records), m, within, padded, lists.min_overlap, parts)
    union = parts.union if parts else None if within else m
    missing = [0 if within else None if padded else m - size for size in sizes]
    return Alignment(
        spec=terms.spec,
        group=lists.group.name,
        rows=lists.drop_cover(rows),
        ours=len(lists.records),
        peers={
            name: PeerFacts(
                records=sizes[peer],
                intersection=parts.held_by(number, peer) if parts else None,
                missing=missing[peer],
                padded=padded,
                learnt=learnt.disclosures(peer),
            )
            for peer, name in enumerate(names)
            if peer != number
        },
        union=None if padded else union,
        common=m if within else parts.held_by(*range(len(names))) if parts else None,
        learnt=learnt.disclosures(number),
    )
