"""PSI by Diffie–Hellman: both parties learn which of their records are shared.

Source: Meadows 1986; Huberman, Franklin and Hogg 1999. It runs between the active party A and the passive party P. Both follow
the protocol, but study all that they receive.

I_a and I_p are the sets of A and P, of n_a and n_p identifiers, each hashed to a group element x. I^{s} is the list of x^s for
all x of a set I. A draws a secret scalar a, and P draws b. Because (x^a)^b = (x^b)^a, a shared record gets the same element at
both. The scalars stay the same as long as both sets do, so a party that sends the same set again sends the same list.

====  =======  =====================================  ===========
step  sent by  list (elements)                        order
====  =======  =====================================  ===========
1     active   I_a^{a} (n_a)                          secret, A's
2     passive  I_p^{b} (n_p)                          secret, P's
3     passive  I_a^{ab} (n_a)                         as step 1
4     active   I_p^{ab} (n_p)                         as step 2
5     (both)   I_a^{ab} ∩ I_p^{ab}, the shared order  sorted
====  =======  =====================================  ===========

Both parties send their own lists at the same time (steps 1, 2). Meanwhile each computes the powers of what arrives. These leave
(steps 3, 4) only when the other's list has arrived whole, is the one of its mark and has no element twice.

Leaks: n_a and n_p, which the job's ``padding`` rounds up; and to each party *which* of its records the other party also holds.

Cost: n_a + n_p group operations at each party, and one hash for each own identifier.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.lists.side import open_lists
from vfl_node.alignment.psi.spec import PSI
from vfl_node.ledger import Disclosure


@open_lists
async def active(lists: Lists) -> Alignment:
    """A's side. Arguments and errors as in :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks to P: n_a, and which of P's records A also holds.
    """
    n_p = await lists.meet(receives=("step 2", "step 3"))
    a = lists.draw_lasting("scalar")
    order = lists.order("step 1")
    i_p_ab = await lists.channel.duplex(
        lists.send("step 1", lists.blind("step 1", order, a)),
        lists.receive_powers("step 2", a, at_least=n_p, at_most=n_p, lasting=True),
    )
    i_a_ab = await lists.channel.duplex(lists.send("step 4", i_p_ab), lists.receive("step 3", count=len(lists.own)))
    return _alignment(lists, i_a_ab, i_p_ab, order)


@open_lists
async def passive(lists: Lists) -> Alignment:
    """P's side. Arguments and errors as in :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks to A: n_p, and which of A's records P also holds.
    """
    n_a = await lists.meet(receives=("step 1", "step 4"))
    b = lists.draw_lasting("scalar")
    order = lists.order("step 2")
    i_a_ab = await lists.channel.duplex(
        lists.send("step 2", lists.blind("step 2", order, b)),
        lists.receive_powers("step 1", b, at_least=n_a, at_most=n_a, lasting=True),
    )
    i_p_ab = await lists.channel.duplex(lists.send("step 3", i_a_ab), lists.receive("step 4", count=len(lists.own)))
    return _alignment(lists, i_p_ab, i_a_ab, order)


def _alignment(lists: Lists, ours: Column, theirs: Column, order: NDArray[np.int64]) -> Alignment:
    """Step 5: those of our records whose elements are in both lists, in ascending order of these elements."""
    ascending = lists.ascending(ours)
    shared = lists.find(theirs, ours)[ascending] >= 0
    rows = lists.drop_cover(order[ascending[shared]])
    name, own, peer, padding = lists.session.name, len(lists.records), lists.peer, lists.terms.padding
    announced = len(ours) if padding else own
    return Alignment(
        spec=PSI,
        group=lists.group.name,
        rows=rows,
        ours=own,
        peers={
            peer: PeerFacts(
                records=len(theirs),
                intersection=len(rows),
                missing=0,
                padded=padding > 0,
                learnt=learnt(name, None if padding else len(theirs), announced, len(rows), padding),
            )
        },
        union=None if padding else own + len(theirs) - len(rows),
        learnt=learnt(peer, own, len(theirs), len(rows), padding),
    )


def learnt(other: str, ours: int | None, theirs: int, common: int, padding: int) -> tuple[Disclosure, ...]:
    """What a party with ``ours`` records learns about the party ``other``, which announced ``theirs`` records."""
    most = "at most " if padding else ""
    own = "its own records" if ours is None else f"its own {ours} records"
    return (
        Disclosure("set size", theirs, f"the number of {other}'s records: {most}{theirs}"),
        Disclosure("intersection", common, f"which {common} of {own} are also held by {other}"),
    )
