"""F-PSU for several passive parties: all parties index the union, or the intersection, of their records.

Source: FLORIST (arXiv 2106.05508), Algorithm 1, for two parties (:mod:`vfl_node.alignment.psu.protocol`); for more, ours. It
runs between the active party 0 and the passive parties 1 … k, with records I_0 … I_k. All follow the protocol, but study all
that they receive; no two of them tell each other what they received.

Party j draws three secret scalars s_j1 s_j2 s_j3 and blinds hashed identifiers x with them. s_j3 is new in each job, so that
pseudonyms of two jobs cannot be linked. The others are drawn for the sets of all, so that sets announced again are sent as the
same lists. Passive parties talk to the active party only, which relays every list. A list comes to the passive parties in
cyclic order (:mod:`vfl_node.alignment.several.route`); i → j below is one hop of it.

=====  ==========================  ======================================  ====================================
round  list (elements)             raised at each hop                      order
=====  ==========================  ======================================  ====================================
1      I_0^{s_01} (n_0)            1 → 2 → … → k: first scalar             secret, 0's; another at each hop
1      I_j^{s_j1} (n_j)            j+1 → … → j−1, then 0: first scalar     secret, j's; another at each hop
(0)    L = ∪ or ∩ of all these                                             (of I^{s_01 … s_k1})
2      L^{s_02 s_03} (m)           1 → 2 → … → k: second and third scalar  secret, 0's; another at each hop
2      U (m), from k to all                                                sorted
3      I_0^{s_02} (n_0)            1 → 2 → … → k: all three scalars        secret, 0's, not that of round 1; kept
3      I_j^{s_j2} (n_j)            j+1 → … → j−1, then 0: all three        secret, j's, not that of round 1; kept
=====  ==========================  ======================================  ====================================

In the end each party raises its own list of round 3 to its first and third scalars: these are the pseudonyms UID(x) =
x^{all scalars of all parties} of its own records, and U has those of the shared order.

Leaks: to the active party every n_j and the sizes of all 2^(k+1) − 1 parts of the overlap (records that exactly some of the
parties have), those without its own records included; to a passive party every n_j and m. No passive party ever has two lists
that are blinded by the same scalars of others, so it can compare none. The active party has: it sees which *places* in the
lists of round 1 are in a partial overlap, as these lists leave their owners. Hence every hop of round 1 shuffles, and a party's
orders in rounds 1 and 3 are independent. In the intersection each party learns which of its own records all parties have.

Cost: 3·n_j + 2·Σ_{i≠j} n_i + m group operations at party j, and two hashes for each own identifier.

In each step the active party sends all lists first and receives then, and passive parties compute when they have received all
that is due; so all compute at the same time, and bounded buffers never block two parties of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.lists.columns import Column, Source
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.lists.side import open_lists
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.several.overlap import overlap
from vfl_node.alignment.several.result import result
from vfl_node.alignment.several.route import Route, list_name, order_name
from vfl_node.crypto.groups import Scalar
from vfl_node.crypto.rows import is_strictly_ascending
from vfl_node.errors import ProtocolError
from vfl_node.progress import Advanced


@dataclass(frozen=True)
class _Met:
    """What a party knows once all have met, and its scalars."""

    route: Route
    number: int
    sizes: list[int]
    first: Scalar
    second: Scalar
    third: Scalar


async def _meet(lists: Lists, receives: Callable[[Route, int], Mapping[str, list[str]]]) -> _Met:
    parties = lists.session.job.parties
    route, number = Route(parties.passive), parties.data.index(lists.session.name)
    theirs = await lists.meet_all(receives(route, number))
    sizes = [theirs.get(name, len(lists.own)) for name in parties.data]
    return _Met(route, number, sizes, lists.draw_lasting("scalar 1"), lists.draw_lasting("scalar 2"), lists.draw("scalar 3"))


@open_lists
async def active(lists: Lists) -> Alignment:
    """The active party's side. L is the intersection if the job's protocol gives only rows that every party owns.

    Args:
        lists: the active party's side of the lists.

    Raises:
        PolicyError: a set is too small or too large for this owner, or a part of the overlap for any owner (``E_OVERLAP``).
        ProtocolError: a passive party, which the text names, sent what the protocol does not permit.
        StateError: one sent another list than in an earlier attempt, or the disk is too small.

    Leaks: its set's size and m to all passive parties; in an intersection also which of its own records all parties have.
    """
    me = await _meet(lists, lambda route, _: {name: route.from_passive(number) for number, name in route.numbered})
    times, route, spec = lists.group.product, me.route, lists.terms.spec

    # Round 1. Nobody may learn from an order which of whose rows are which.
    own = lists.blind(list_name(1, 0, 0), lists.order("round 1"), me.first).whole()
    blinded = await _relay(lists, me, 1, own, me.first)
    parts, places = overlap(lists, blinded, of_all=spec.every_row_is_shared)
    parts.check(lists.min_overlap)
    m = len(places)
    lists.session.progress.emit(Advanced(plan_of(spec).longest(me.sizes) - m))  # operations that the overlap saves

    # Round 2. Without the shuffles our part would come first, and a passive party could find its own records in it.
    places = places[lists.secret.derive(order_name(0)).permutation(m)]
    raised = lists.powers(order_name(0), lists.choose(blinded, places), times(me.second, me.third))
    order = lists.order("round 3")
    at = raised.whole()
    for number, name in route.numbered:
        await lists.send(order_name(number - 1), at, to=name)
        if number == 1:  # while the passive parties raise the shared order
            own = lists.blind(list_name(3, 0, 0), order, me.second).whole()
        lists.release(order_name(number - 1))
        at = await lists.receive(order_name(number), sender=name, count=m)
    _check_sorted(lists, at, route.last, route.passive[-1])
    for name in route.passive[:-1]:
        await lists.send(order_name(route.last), at, to=name)

    # Round 3.
    replies = await _relay(lists, me, 3, own, times(me.first, me.second, me.third))
    for number, name in route.numbered:
        await lists.send(list_name(3, number, route.last), replies[number], to=name)
    uids = lists.powers("own", replies[0], times(me.first, me.third)).whole()
    return result(lists, lists.place(at, uids, order), me.sizes, parts)


async def _relay(lists: Lists, me: _Met, round_number: int, own: Column, exponent: Scalar) -> list[Column]:
    """A round at the active party: every list comes to all passive parties, and those of others to us last."""
    route, at = me.route, [own]
    for number, name in route.numbered:
        at.append(await lists.receive(list_name(round_number, number, 0), sender=name, count=me.sizes[number], lasting=True))
    raised = list[Column]()
    for step in route.steps:
        for number, name in route.numbered:
            for owner in route.due(number, step):
                await lists.send(list_name(round_number, owner, step - 1), at[owner], to=name)
        if step == route.last:  # while the last passive party raises our list
            for owner in range(1, len(at)):
                powers = lists.powers(list_name(round_number, owner, step), at[owner], exponent).whole()
                raised.append(lists.check_distinct(list_name(round_number, owner, step - 1), powers))
                lists.release(list_name(round_number, owner, step - 1))
        for number, name in route.numbered:
            for owner in route.due(number, step):
                came = list_name(round_number, owner, step)
                lists.release(list_name(round_number, owner, step - 1))
                at[owner] = await lists.receive(came, sender=name, count=me.sizes[owner], lasting=round_number == 1)
    return [at[0], *raised]


@open_lists
async def passive(lists: Lists) -> Alignment:
    """A passive party's side; arguments and errors as :func:`active`.

    Leaks: its set's size and m to all parties, and to the active party the sizes of all parts of the overlap; in an
    intersection also which of its own records all parties have.
    """
    me = await _meet(lists, lambda route, number: {lists.peer: route.from_active(number)})
    times, route, spec = lists.group.product, me.route, lists.terms.spec
    n = len(lists.own)

    # Round 1.
    own = lists.blind(list_name(1, me.number, 0), lists.order("round 1"), me.first).whole()
    await lists.send(list_name(1, me.number, 0), own)
    await _raise(lists, me, 1, me.first)

    # Our own list of round 3, while others raise the active party's list or the shared order.
    order = lists.order("round 3")
    request = lists.blind(list_name(3, me.number, 0), order, me.second).whole()

    # Round 2. Shuffled, and sorted in the end, so that the active party cannot follow an element of L to its UID.
    longest = plan_of(spec).longest(me.sizes)
    came, goes = order_name(me.number - 1), order_name(me.number)
    least = 0 if spec.every_row_is_shared else max(me.sizes)
    at = await lists.receive(came, at_least=least, at_most=longest, distinct=False)
    at = lists.check_distinct(came, lists.powers(f"{came} powers", at, times(me.second, me.third)).whole())
    m = len(at)
    lists.session.progress.emit(Advanced(longest - m))  # operations that the overlap saves
    if me.number == route.last:
        ascending = lists.ascending(at)
        await lists.send(goes, lists.choose([at], ascending))
    else:
        await lists.send(goes, lists.choose([at], lists.secret.derive(goes).permutation(m)))
        at = await lists.receive(order_name(route.last), count=m, distinct=False)
        _check_sorted(lists, at, route.last, lists.peer)
        ascending = np.arange(m)

    # Round 3.
    await lists.send(list_name(3, me.number, 0), request)
    await _raise(lists, me, 3, times(me.first, me.second, me.third))
    reply = await lists.receive(list_name(3, me.number, route.last), count=n)
    uids = lists.powers("own", reply, times(me.first, me.third)).whole()
    return result(lists, lists.place(at, uids, order)[ascending], me.sizes, None)


async def _raise(lists: Lists, me: _Met, round_number: int, exponent: Scalar) -> None:
    """A round at a passive party: every list that comes by is raised, and shuffled in round 1."""
    for step in me.route.steps:
        due, came, raised = me.route.due(me.number, step), list[Column](), list[Column]()
        for owner in due:  # all, before we compute: the active party waits to send to others
            lasting = round_number == 1 or step == 1
            arrives = list_name(round_number, owner, step - 1)
            came.append(await lists.receive(arrives, count=me.sizes[owner], distinct=False, lasting=lasting))
        for owner, column in zip(due, came, strict=True):
            arrives = list_name(round_number, owner, step - 1)
            raised.append(lists.check_distinct(arrives, lists.powers(f"{arrives} powers", column, exponent).whole()))
        for owner, powers in zip(due, raised, strict=True):
            goes = list_name(round_number, owner, step)
            await lists.send(goes, _shuffle(lists, goes, powers) if round_number == 1 else powers)
            lists.release(list_name(round_number, owner, step - 1), f"{list_name(round_number, owner, step - 1)} powers")


def _shuffle(lists: Lists, name: str, column: Column) -> Source:
    """In an order that is the same in every job over these sets, so that the list can be held to its mark."""
    return lists.choose([column], lists.lasting.derive(name).permutation(len(column)))


def _check_sorted(lists: Lists, order: Column, last: int, sender: str) -> None:
    if not is_strictly_ascending(order.rows):
        raise ProtocolError(
            f"{lists.terms.protocol} {order_name(last)} from {sender}: the shared order is not sorted and distinct",
            code="E_UNION",
        )
