"""F-PSU: both parties index the union of their records; neither learns which ones are shared.

Source: FLORIST (arXiv 2106.05508), Algorithm 1. It runs between the active party Pa (records I_a) and the passive party Pp
(records I_p). Both follow the protocol, but study all that they receive.

Each party draws three secret scalars, s1 s2 s3 at Pa and t1 t2 t3 at Pp, and blinds hashed identifiers x with them. s3 and t3
are new in each job, so that pseudonyms of two jobs cannot be linked. The others are drawn for the two sets, so that a set
announced again is sent as the same list. In round one (steps 3 to 7) Pa forms the union without knowing whose element is
whose. Round two (8 to 10) turns it into pseudonyms UID(x) = x^{s1 s2 s3 t1 t2 t3}. In round three (11, 12) each party gets the
UIDs of its own records and of no others.

====  =======  ============================================  ==============
step  sent by  list (elements)                               order
====  =======  ============================================  ==============
3     active   I_a^{s1} (n_a)                                secret, Pa's
5     passive  I_p^{t1} (n_p)                                secret, Pp's
4     passive  I_a^{s1 t1} (n_a)                             secret, Pp's
8     active   L^{s2 s3} (m), L = I_a^{s1 t1} ∪ I_p^{s1 t1}  secret, Pa's
11    active   I_a^{s2} (n_a), the request                   secret, Pa's
9     passive  U = L^{s2 s3 t2 t3} (m)                       sorted
12    passive  I_p^{t2} (n_p), the request                   secret, Pp's
11    passive  I_a^{s2 t1 t2 t3} (n_a), the reply            as the request
12    active   I_p^{t2 s1 s2 s3} (n_p), the reply            as the request
====  =======  ============================================  ==============

Leaks: n_a, n_p and m, the size of U, to both parties; hence also |I|, the size of the
intersection. The job's ``padding`` hides n_a and n_p, its ``dummies`` |I|
(:mod:`vfl_node.alignment.lists.cover`); all of the above then counts those in.

Cost: 3·n_own + 2·n_theirs + m group operations at each party, and two hashes for each own id.

Deviations from the paper: (1) Step 6 (I_p^{s1 t1} to Pp) is left out: only Pa merges, and Pp could learn from its order.
(2) Step 9 is sorted instead of shuffled, which hides as much. (3) The requests of steps 11 and 12 are permuted too.

The table is in the order of sending. Both parties send at the same time: step 3 beside 5, the request of 11 beside 9 and the
request of 12, and the replies beside each other. Meanwhile each computes the powers of what arrives. Nothing derived from a
list leaves before that list has arrived whole, is the one of its mark and has no element twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.lists.cover import shared_dummies
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.lists.side import open_lists
from vfl_node.alignment.psu.spec import PSU
from vfl_node.crypto.rows import is_strictly_ascending
from vfl_node.errors import ProtocolError
from vfl_node.ledger import Disclosure
from vfl_node.progress import Advanced


@open_lists
async def active(lists: Lists) -> Alignment:
    """Pa's side.

    Args:
        lists: Pa's side of the lists.

    Raises:
        PolicyError: a set is too small or too large for Pa's owner.
        ProtocolError: Pp sent what the protocol does not permit.
        StateError: Pp sent another list than in an earlier attempt, or the disk is too small.

    Leaks: n_a and the union's size to Pp.
    """
    n_p = await lists.meet(receives=("step 5", "step 4", "step 9", "step 12 request", "step 11 reply"))
    s1, s2, s3 = lists.draw_lasting("scalar 1"), lists.draw_lasting("scalar 2"), lists.draw("scalar 3")
    times = lists.group.product
    n_a = len(lists.own)

    # 3, 5. Pp may not learn from the order of step 3 which of our rows are which.
    i_p_s1t1 = await lists.channel.duplex(
        lists.send("step 3", lists.blind("step 3", lists.order("step 3"), s1)),
        lists.receive_powers("step 5", s1, at_least=n_p, at_most=n_p, lasting=True),
    )

    # 4.
    i_a_s1t1 = await lists.receive("step 4", count=n_a, distinct=False)

    # 7. L: I_a^{s1 t1}, and behind it what is new in I_p^{s1 t1}.
    is_new = lists.find(lists.check_distinct("step 4", i_a_s1t1), i_p_s1t1) < 0
    places = np.concatenate([np.arange(n_a), n_a + np.flatnonzero(is_new)])
    m = len(places)
    places = places[lists.secret.derive("step 8").permutation(m)]
    lists.session.progress.emit(Advanced(n_a + n_p - m))  # operations that the overlap saves

    # 8. Without the shuffle our part would come first, and Pp could find its own records in it.
    union = lists.choose([i_a_s1t1, i_p_s1t1], places)
    await lists.send("step 8", lists.powers("step 8", union, times(s2, s3)))
    del places, union  # 8 bytes an element

    # 9, 10, and the requests of 11 and 12.
    async def receive() -> tuple[Column, Column]:
        uids = await lists.receive("step 9", count=m, distinct=False)
        if not is_strictly_ascending(uids.rows):
            raise ProtocolError(f"psu step 9 from {lists.peer}: the union is not sorted and distinct", code="E_UNION")
        scalar = times(s1, s2, s3)
        return uids, await lists.receive_powers("step 12 request", scalar, at_least=n_p, at_most=n_p, lasting=True)

    order = lists.order("step 11")
    request = lists.blind("step 11 request", order, s2)
    uids, reply = await lists.channel.duplex(lists.send("step 11 request", request), receive())

    # 11, 12, the replies.
    own = await lists.channel.duplex(
        lists.send("step 12 reply", reply), lists.receive_powers("step 11 reply", times(s1, s3), at_least=n_a, at_most=n_a)
    )
    return _alignment(lists, lists.place(uids, own, order), theirs=n_p)


@open_lists
async def passive(lists: Lists) -> Alignment:
    """Pp's side; arguments and errors as :func:`active`, with the roles exchanged.

    Leaks: n_p and the union's size to Pa.
    """
    n_a = await lists.meet(receives=("step 3", "step 8", "step 11 request", "step 12 reply"))
    t1, t2, t3 = lists.draw_lasting("scalar 1"), lists.draw_lasting("scalar 2"), lists.draw("scalar 3")
    times = lists.group.product
    n_p = len(lists.own)

    # 3, 5.
    i_a_s1t1 = await lists.channel.duplex(
        lists.send("step 5", lists.blind("step 5", lists.order("step 5"), t1)),
        lists.receive_powers("step 3", t1, at_least=n_a, at_most=n_a, lasting=True),
    )

    # 4. Without the shuffle Pa would know its rows by position, and which of them step 5 contains.
    await lists.send("step 4", lists.choose([i_a_s1t1], lists.secret.derive("step 4").permutation(n_a)))

    # 8. Step 9 is sorted, so that Pa cannot follow an element of L to its UID.
    unsorted = await lists.receive_powers("step 8", times(t2, t3), at_least=max(n_a, n_p), at_most=n_a + n_p)
    ascending = lists.ascending(unsorted)
    lists.session.progress.emit(Advanced(n_a + n_p - len(unsorted)))  # operations that the overlap saves

    # 9, and the requests of 11 and 12.
    async def send() -> None:
        await lists.send("step 9", lists.choose([unsorted], ascending))
        await lists.send("step 12 request", lists.blind("step 12 request", order, t2))

    order, scalar = lists.order("step 12"), times(t1, t2, t3)
    request = lists.receive_powers("step 11 request", scalar, at_least=n_a, at_most=n_a, lasting=True)
    reply = await lists.channel.duplex(send(), request)

    # 11, 12, the replies.
    own = await lists.channel.duplex(
        lists.send("step 11 reply", reply), lists.receive_powers("step 12 reply", times(t1, t3), at_least=n_p, at_most=n_p)
    )
    return _alignment(lists, lists.place(unsorted, own, order)[ascending], theirs=n_a)


def _alignment(lists: Lists, rows: NDArray[np.int64], *, theirs: int) -> Alignment:
    """The result, once every identifier of ours has its own place in the union.

    Raises:
        ProtocolError: one has none, or two have the same (``E_UNION``).
    """
    if np.count_nonzero(rows >= 0) != len(lists.own):
        raise ProtocolError(f"psu: the union that {lists.peer} helped to build lacks records of ours", code="E_UNION")
    terms, session, ours = lists.terms, lists.session, len(lists.own)
    common = ours + theirs - len(rows)  # |I|, and dummies that both hold
    known = common - shared_dummies(lists.sets, terms, session.memory)
    ours, theirs = ours - 2 * terms.dummies, theirs - 2 * terms.dummies
    intersection = None if terms.dummies else common
    only_records = terms.padding == terms.dummies == 0  # then U has no row that neither party owns
    return Alignment(
        spec=PSU,
        group=lists.group.name,
        rows=lists.drop_cover(rows),
        ours=len(lists.records),
        peers={
            lists.peer: PeerFacts(
                records=theirs,
                intersection=intersection,
                missing=len(rows) - theirs if only_records else None,
                padded=terms.padding > 0,
                learnt=_learnt(lists, session.name, None if terms.padding else theirs, ours, len(rows), intersection),
                most_shared=known if terms.dummies else None,
            )
        },
        union=len(rows) if only_records else None,
        learnt=_learnt(lists, lists.peer, len(lists.records), theirs, len(rows), known),
    )


def _learnt(lists: Lists, other: str, ours: int | None, theirs: int, union: int, common: int | None) -> tuple[Disclosure, ...]:
    """What a party with ``ours`` records learns of the party ``other`` that announced ``theirs``.

    ``common`` is the size of the intersection; with dummies the most it can be. It and ``ours`` are
    None where only the reader itself knows them.
    """
    padding, dummies = lists.terms.padding, lists.terms.dummies
    most = "at most " if padding else ""
    size = Disclosure("set size", theirs, f"the number of {other}'s records: {most}{theirs}")
    if not dummies:
        shared = Disclosure("intersection size", common, _shared(other, ours, theirs, common))
        return (size, Disclosure("union size", union, f"the size of the union: {most}{union}"), shared)
    window = f"within {dummies + 1} sizes"
    if common is not None and ours is not None:
        window = f"not fewer than {max(0, common - dummies)} and not more than {min(common, ours, theirs)}"
    text = f"roughly how many records are shared, by draw {lists.draw_number} of dummies: {window}"
    if lists.draw_number > 1:
        left = 2 / (lists.draw_number + 1)
        text += f"; so many draws over almost the same sets leave about {100 * left:.3g} % of these sizes"
    return (size, Disclosure("intersection size", None, text))


def _shared(other: str, ours: int | None, theirs: int, common: int | None) -> str:
    own = "its own" if ours is None else f"its own {ours}"
    if common == 0:
        return f"no record is shared: {other} holds none of {own}"
    if common == ours == theirs:
        return f"{other} holds every one of {own} records, and no others"
    if common == ours:
        return f"{other} holds every one of {own} records"
    if common == theirs:
        return f"all of {other}'s {theirs} records are among {own}, not which"
    return f"{common} records are shared, not which"
