"""PSI by Diffie–Hellman: both parties learn which of their records are shared.

Source: Meadows 1986; Huberman, Franklin and Hogg 1999. Runs between the active party A and
the passive party P, who follow the protocol but look at all they receive. Each draws one
secret scalar, a and b, fresh for the job; x ↦ x^{ab} is the same whoever goes first.

====  =======  =====================================  ===========
step  sent by  list (elements)                        order
====  =======  =====================================  ===========
1     active   I_a^{a} (n_a)                          secret, A's
2     passive  I_p^{b} (n_p)                          secret, P's
3     passive  I_a^{ab} (n_a)                         as step 1
4     active   I_p^{ab} (n_p)                         as step 2
5     (both)   I_a^{ab} ∩ I_p^{ab}, the shared order  sorted
====  =======  =====================================  ===========

Leaks: n_a, n_p, and to each party *which* of its own records the other one holds.

Cost: n_a + n_p group operations at each party, and one hash for each own identifier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, Pins
from vfl_node.alignment.lists import Lists
from vfl_node.crypto.groups import Group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows, find_rows, sorted_rows
from vfl_node.crypto.workers import Workers
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
    """A's side; arguments and errors as :func:`vfl_node.alignment.psu.active`.

    Leaks: n_a, and to P which of its own records A holds.
    """
    secret = randomness.derive("psi")
    a = group.draw(secret.derive("scalar"))
    lists = Lists("psi", channel, group=group, workers=workers, pins=pins, progress=progress)
    async with channel.phase("align"):
        n_a, n_p = len(ids), await lists.exchange_sizes(ids)
        progress.phase("align", n_a + n_p, "group operations")
        order = secret.derive("step 1").permutation(n_a)
        await lists.send(lists.power(lists.hashed(ids)[order], a))  # 1
        i_p_b = await lists.receive("step 2", count=n_p)
        i_p_ab = lists.power_distinct("step 2", i_p_b, a)  # while P computes step 3
        i_a_ab = await lists.receive("step 3", count=n_a)
        await lists.send(i_p_ab)  # 4
    common = _common(i_a_ab, i_p_ab)
    return _alignment(channel, group, lists.place(common, i_a_ab, order), ours=n_a, theirs=n_p)


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
    """P's side; arguments and errors as :func:`vfl_node.alignment.psu.active`.

    Leaks: n_p, and to A which of its own records P holds.
    """
    secret = randomness.derive("psi")
    b = group.draw(secret.derive("scalar"))
    lists = Lists("psi", channel, group=group, workers=workers, pins=pins, progress=progress)
    async with channel.phase("align"):
        n_p, n_a = len(ids), await lists.exchange_sizes(ids)
        progress.phase("align", n_a + n_p, "group operations")
        order = secret.derive("step 2").permutation(n_p)
        i_p_b = lists.power(lists.hashed(ids)[order], b)  # while A computes step 1
        i_a_a = await lists.receive("step 1", count=n_a)
        await lists.send(i_p_b)  # 2
        i_a_ab = lists.power_distinct("step 1", i_a_a, b)
        await lists.send(i_a_ab)  # 3
        i_p_ab = await lists.receive("step 4", count=n_p)
    common = _common(i_a_ab, i_p_ab)
    return _alignment(channel, group, lists.place(common, i_p_ab, order), ours=n_p, theirs=n_a)


def _common(i_a_ab: Rows, i_p_ab: Rows) -> Rows:
    """Step 5: the elements that both lists hold, sorted."""
    ordered = sorted_rows(i_a_ab)
    return ordered[find_rows(sorted_rows(i_p_ab), ordered) >= 0]


def _alignment(channel: Channel, group: Group, rows: NDArray[np.int64], *, ours: int, theirs: int) -> Alignment:
    return Alignment(
        protocol="psi",
        group=group.name,
        rows=rows,
        ours=ours,
        theirs=theirs,
        intersection=len(rows),
        learnt=learnt(channel.peer, ours, theirs, ours + theirs - len(rows), len(rows)),
    )


def learnt(peer: str, ours: int, theirs: int, union: int | None, intersection: int | None) -> tuple[str, ...]:
    """In plain words, what a party with ``ours`` records learns of ``peer`` with ``theirs``; the same at both roles."""
    return (f"the number of {peer}'s records: {theirs}", f"which {intersection} of its own {ours} records {peer} holds too")
