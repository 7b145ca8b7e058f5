"""F-PSU: both parties index the union of their records; neither learns which ones are shared.

Source: FLORIST (arXiv 2106.05508), Algorithm 1. Runs between the active party Pa (records
I_a) and the passive party Pp (I_p), who follow the protocol but look at all they receive.

Each party draws three secret scalars, s1 s2 s3 and t1 t2 t3, fresh for the job, and blinds
hashed identifiers x with them. Round one (steps 3 to 7) lets Pa form the union without
knowing whose element is whose; round two (8 to 10) turns it into pseudonyms
UID(x) = x^{s1 s2 s3 t1 t2 t3}; round three (11, 12) gives each party the UIDs of its own
records and of no others.

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

Leaks: n_a, n_p and m, the size of U, to both parties; hence also the size of the intersection.

Cost: 3·n_own + 2·n_theirs + m group operations at each party, and one hash for each own id.

Deviations from the paper: step 6 (I_p^{s1 t1} to Pp) is omitted, since only Pa merges and
Pp could learn from its order; step 9 is sorted instead of shuffled, which hides as much;
requests of steps 11 and 12 are permuted too. The table is in the order of sending: one
party at a time sends a long list, so that bounded buffers cannot block both, and each
computes while the other does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, Pins
from vfl_node.alignment.lists import Lists
from vfl_node.crypto.groups import Group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import find_rows, is_strictly_ascending, sorted_rows
from vfl_node.crypto.workers import Workers
from vfl_node.errors import ProtocolError
from vfl_node.progress import Progress
from vfl_node.transport.channel import Channel


async def active(
    channel: Channel,
    ids: Sequence[bytes],
    *,
    group: Group,
    randomness: Randomness,
    workers: Workers,
    pins: Pins,
    progress: Progress,
) -> Alignment:
    """Pa's side.

    Args:
        channel: the conversation with Pp.
        ids: Pa's distinct canonical identifiers; row i of the table has ``ids[i]``.
        group: where the elements live; both parties name the same one.
        randomness: Pa's own for this job; the same again on a resumed attempt.
        workers: who computes group operations.
        pins: digests of what Pp sent in earlier attempts.
        progress: told of every group operation.

    Raises:
        DataError: an identifier occurs twice.
        ProtocolError: Pp sent what the protocol does not permit.
        StateError: Pp sent another list than in an earlier attempt.

    Leaks: n_a and the union's size to Pp.
    """
    secret = randomness.derive("psu")
    s1, s2, s3 = (group.draw(secret.derive(f"scalar {i}")) for i in (1, 2, 3))
    lists = Lists("psu", channel, group=group, workers=workers, pins=pins, progress=progress)
    async with channel.phase("align"):
        n_a, n_p = len(ids), await lists.exchange_sizes(ids)
        progress.phase("align", _most_operations(n_a, n_p), "group operations")
        elements = lists.hashed(ids)

        # 3. Pp may not learn from the order which of our rows are which.
        await lists.send(lists.power(elements[secret.derive("step 3").permutation(n_a)], s1))

        # 5, 4. Pp computes step 4 while we compute the power of step 5.
        i_p_t1 = await lists.receive("step 5", count=n_p)
        i_p_s1t1 = lists.power_distinct("step 5", i_p_t1, s1)
        i_a_s1t1 = await lists.receive("step 4", count=n_a)

        # 7. L, without duplicates.
        is_new = find_rows(sorted_rows(i_a_s1t1), i_p_s1t1) < 0
        union = np.concatenate([i_a_s1t1, i_p_s1t1[is_new]])
        m = len(union)
        progress.advance(n_a + n_p - m)  # operations that the overlap saves

        # 8. Without the shuffle our part would come first, and Pp could find its own records in it.
        await lists.send_powers(union[secret.derive("step 8").permutation(m)], group.product(s2, s3))

        # 11, request.
        order = secret.derive("step 11").permutation(n_a)
        await lists.send(lists.power(elements[order], s2))

        # 9, 10.
        uids = await lists.receive("step 9", count=m)
        if not is_strictly_ascending(uids):
            raise ProtocolError(f"psu step 9 from {channel.peer}: the union is not sorted and distinct", code="E_UNION")

        # 12, and the reply of 11 before ours: one long list at a time.
        request = await lists.receive("step 12 request", count=n_p)
        reply = lists.power_distinct("step 12 request", request, group.product(s1, s2, s3))
        answered = await lists.receive("step 11 reply", count=n_a)
        await lists.send(reply)
        rows = lists.place(uids, lists.power(answered, group.product(s1, s3)), order)
    return _alignment(channel, group, rows, ours=n_a, theirs=n_p)


async def passive(
    channel: Channel,
    ids: Sequence[bytes],
    *,
    group: Group,
    randomness: Randomness,
    workers: Workers,
    pins: Pins,
    progress: Progress,
) -> Alignment:
    """Pp's side; arguments and errors as :func:`active`, with the roles exchanged.

    Leaks: n_p and the union's size to Pa.
    """
    secret = randomness.derive("psu")
    t1, t2, t3 = (group.draw(secret.derive(f"scalar {i}")) for i in (1, 2, 3))
    lists = Lists("psu", channel, group=group, workers=workers, pins=pins, progress=progress)
    async with channel.phase("align"):
        n_p, n_a = len(ids), await lists.exchange_sizes(ids)
        progress.phase("align", _most_operations(n_p, n_a), "group operations")
        elements = lists.hashed(ids)

        # 3, 5. Both parties compute their own list first.
        i_p_t1 = lists.power(elements[secret.derive("step 5").permutation(n_p)], t1)
        i_a_s1 = await lists.receive("step 3", count=n_a)
        await lists.send(i_p_t1)

        # 4. Without the shuffle Pa would know its rows by position, and which of them step 5 contains.
        i_a_s1t1 = lists.power_distinct("step 3", i_a_s1, t1)
        await lists.send(i_a_s1t1[secret.derive("step 4").permutation(n_a)])

        # 8, 9. Sorted, so that Pa cannot follow an element of L to its UID.
        uids = sorted_rows(
            await lists.receive_powers("step 8", group.product(t2, t3), at_least=max(n_a, n_p), at_most=n_a + n_p)
        )
        progress.advance(n_a + n_p - len(uids))  # operations that the overlap saves

        # 12, request: computed while Pa computes its own of step 11.
        order = secret.derive("step 12").permutation(n_p)
        our_request = lists.power(elements[order], t2)
        their_request = await lists.receive("step 11 request", count=n_a)
        await lists.send(uids)
        await lists.send(our_request)

        # 11, reply: in the order of the request.
        await lists.send(lists.power_distinct("step 11 request", their_request, group.product(t1, t2, t3)))

        # 12.
        answered = await lists.receive("step 12 reply", count=n_p)
        rows = lists.place(uids, lists.power(answered, group.product(t1, t3)), order)
    return _alignment(channel, group, rows, ours=n_p, theirs=n_a)


def _most_operations(ours: int, theirs: int) -> int:
    """Group operations of one party when nothing is shared."""
    return 3 * ours + 2 * theirs + (ours + theirs)


def _alignment(channel: Channel, group: Group, rows: NDArray[np.int64], *, ours: int, theirs: int) -> Alignment:
    """The result, once every record of ours has its own place in the union.

    Raises:
        ProtocolError: one has none, or two have the same (``E_UNION``).
    """
    union = len(rows)
    intersection = ours + theirs - union
    result = Alignment(
        protocol="psu",
        group=group.name,
        rows=rows,
        ours=ours,
        theirs=theirs,
        intersection=intersection,
        learnt=learnt(channel.peer, ours, theirs, union, intersection),
    )
    if np.count_nonzero(result.owned) != ours:
        raise ProtocolError(f"psu: the union that {channel.peer} helped to build lacks records of ours", code="E_UNION")
    return result


def learnt(peer: str, ours: int, theirs: int, union: int | None, intersection: int | None) -> tuple[str, ...]:
    """In plain words, what a party with ``ours`` records learns of ``peer`` with ``theirs``; the same at both roles."""
    if intersection == 0:
        shared = f"no record is shared: {peer} holds none of its own {ours}"
    elif intersection == ours == theirs:
        shared = f"{peer} holds every one of its own {ours} records, and no others"
    elif intersection == ours:
        shared = f"{peer} holds every one of its own {ours} records"
    elif intersection == theirs:
        shared = f"all of {peer}'s {theirs} records are among its own {ours}, not which"
    else:
        shared = f"{intersection} records are shared, not which"
    return (f"the number of {peer}'s records: {theirs}", f"the size of the union: {union}; which says that {shared}")
