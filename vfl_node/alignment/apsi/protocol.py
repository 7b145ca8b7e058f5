"""A-APSI: both parties index an obfuscated set of the strong party's records; only the weak one knows which are shared.

Source: Asymmetrical Vertical Federated Learning (arXiv 2004.07427), Algorithm 1, corrected. It runs between the weak party w
(active: records I_w, the labels) and the strong party s (passive: records I_s). Both follow the protocol, but study all that
they receive. Ĩ holds the intersection I and m − |I| other records of s: I ⊆ Ĩ ⊆ I_s.

The secret scalars, k_s at s and k_w, k_w2 at w, are drawn for the two sets. So a set announced again is sent as the same
lists, and what was chosen once is chosen again. E_k(x) = x^k.

====  =======  ==========================================  ==============
step  sent by  list (elements)                             order
====  =======  ==========================================  ==============
3     strong   E_s(I_s) (n_s)                              secret, s's
4     weak     E_w(I_w) (n_w)                              secret, w's
6     strong   E_s(E_w(I_w)) (n_w)                         secret, s's
7     (weak)   E_w(E_s(I_s)) ∩ E_s(E_w(I_w)) is I; w picks
               Ĩ: those, and as many others as it wants
8     weak     E_w2(E_s(Ĩ)) (m)                            secret, w's
10    strong   E_w2(Ĩ) (m)                                 as step 8
12    weak     Ĩ (m), the shared order                     sorted
====  =======  ==========================================  ==============

Leaks: to s n_w (less exactly with the job's ``padding``) and Ĩ; not I and not |I|, unless m had
to be raised, which says that |I| exceeds the size asked for. To w n_s, I, and the hashes of the
m − |I| other records of Ĩ, which a dictionary of identifiers opens.

Cost: one hash for each own identifier; group operations n_s + n_w + 2·m at s, n_s + n_w + 3·m at w.

Deviations from the paper: (1) Step 8 uses a *second* key of w's. As published, s has E_w(I_w) from step 4 and sees E_w(Ĩ) in
step 9; their intersection is I. (2) Every list is shuffled; step 12 is sorted, which hides as much. (3) m never depends on a
public security number ξ, because m, n_s and ξ together give |I|. (4) Ĩ is drawn once for a peer and both inputs, because the
intersection of two draws is closer to I; other inputs are another draw, which counts. Later jobs use it again, from step 12 on,
in the same group. (5) Whatever |I| is, 0 included, w goes on, because an abort would reveal it.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.alignment.apsi.sizes import least_size, most_left, obfuscated_size
from vfl_node.alignment.apsi.spec import APSI
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.lists.side import open_lists
from vfl_node.alignment.sizes import public_bucket
from vfl_node.crypto.rows import Rows
from vfl_node.errors import ProtocolError, StateError, UsageError
from vfl_node.job import Align
from vfl_node.ledger import Disclosure
from vfl_node.progress import Advanced
from vfl_node.settings.node import Obfuscation
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

_STAMP_BYTES = 32 + 16
_HEAD_BYTES = _STAMP_BYTES + 32


@open_lists
async def active(lists: Lists) -> Alignment:
    """The weak party's side; arguments and errors as :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks: n_w and Ĩ to s, and which draw Ĩ is: s was there in each.

    Raises:
        UsageError: the job leaves the size of Ĩ to this owner, whose settings do not say it, or Ĩ was
            drawn in another group or of a smaller size (``E_CONFIG``).
        StateError: what is remembered of Ĩ is damaged (``E_STATE_CORRUPT``), or the choice of an
            earlier attempt was another one (``E_REPLAY``).
    """
    _check_wish(lists.terms, lists.session.policy.obfuscation)
    n_s = await lists.meet(receives=("step 3", "step 6", "step 10"))
    k_w, k_w2 = lists.draw_lasting("k_w"), lists.draw_lasting("k_w2")
    name = _name(lists)
    stored, stamp = lists.session.memory.recall(name), _stamp(lists)
    if stored is not None:
        _elements(lists, stored)  # refuses another group before the peer hears of it
    again = stored is not None and not stored.startswith(stamp)
    await lists.channel.send(alignment_pb2.Obfuscation(again=again, draw=lists.draw_number))

    order = lists.order("step 4")
    i_w = lists.blind("step 4", order, k_w).whole()  # while s computes step 3
    drawn_size = 0  # nothing is drawn
    skipped = 3 * n_s  # group operations of the longest run that this one does without
    if stored is None or not again:
        # 3, 4, 6. s's reply is shuffled: which of our own are shared shows in step 12 only.
        i_s = await lists.receive("step 3", count=n_s, distinct=False, lasting=True)
        await lists.send("step 4", i_w)
        i_s_ws = lists.check_distinct("step 3", lists.powers("step 3 powers", i_s, k_w).whole())  # while s computes step 6
        i_w_sw = await lists.receive("step 6", count=len(lists.own), distinct=False)

        # 7. The genuine ones, and uniform others.
        genuine = lists.find(lists.check_distinct("step 6", i_w_sw), i_s_ws) >= 0
        m, same_size = _remembered_size(lists, name, int(np.count_nonzero(genuine)), n_s)
        drawn_size = 0 if same_size else m
        others = np.flatnonzero(~genuine)
        others = others[lists.lasting.derive("step 7").permutation(len(others))][: m - np.count_nonzero(genuine)]
        places = np.concatenate([np.flatnonzero(genuine), others])[lists.lasting.derive("step 8").permutation(m)]
        lists.session.attempt.pins.check("apsi choice of step 7", hashlib.sha256(places.tobytes()).digest())

        skipped = 2 * (n_s - m)

        # 8. Under another key than step 4's: s could match the two lists.
        await lists.channel.send(alignment_pb2.Obfuscation(same_size=same_size))
        await lists.send("step 8", lists.powers("step 8", lists.choose([i_s], places), k_w2))

        # 10, 11.
        opened = await lists.receive_powers("step 10", lists.group.inverse(k_w2), at_least=m, at_most=m)
        drawn = lists.choose([opened], lists.ascending(opened))
        # Another job with this peer may have drawn in the meantime: the first one counts for both.
        elements = b"".join(chunk.tobytes() for chunk in drawn.chunks())
        stored = lists.session.memory.keep(name, stamp + hashlib.sha256(elements).digest() + elements)

    # 12. Ĩ in the clear, in an order that says nothing.
    shared = _elements(lists, stored)
    await lists.send("step 12", lists.wrap(shared))
    lists.session.progress.emit(Advanced(skipped + n_s - len(shared)))
    blinded = lists.powers("own", lists.wrap(shared), k_w).whole()
    places = lists.find(i_w, blinded)
    rows = np.append(order, NOT_MINE)[places]  # a place of −1 is the last one
    return _active_alignment(lists, lists.drop_cover(rows), n_s, drawn_size)


@open_lists
async def passive(lists: Lists) -> Alignment:
    """The strong party's side; arguments and errors as :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks: n_s to w, which of its own records s holds, and the hashes of the rest of Ĩ.
    """
    n_w = await lists.meet(receives=("step 4", "step 8", "step 12"))
    k_s = lists.draw_lasting("k_s")
    n_s = len(lists.own)
    begun = await lists.channel.receive(alignment_pb2.Obfuscation)
    again, number = begun.again, max(1, begun.draw)

    order = lists.order("step 3")
    i_s = lists.blind("step 3", order, k_s)
    drawn_size, skipped = 0, n_w + n_s
    if not again:
        await lists.send("step 3", i_s)  # 3
        i_w = await lists.receive("step 4", count=n_w, distinct=False, lasting=True)  # 4
        i_w_sw = lists.check_distinct("step 4", lists.powers("step 4 powers", i_w, k_s).whole())
        await lists.send("step 6", lists.choose([i_w_sw], lists.lasting.derive("step 6").permutation(n_w)))  # 6
        least = least_size(lists.terms, n_s)
        same_size = (await lists.channel.receive(alignment_pb2.Obfuscation)).same_size
        stripped = await lists.receive_powers("step 8", lists.group.inverse(k_s), at_least=least, at_most=n_s, lasting=True)
        await lists.send("step 10", stripped)
        drawn_size = 0 if same_size else len(stripped)
        skipped = n_s - len(stripped)

    # 12. Each is one of our own, and no other. It may be another job's set, of whatever size.
    named = await lists.receive_powers("step 12", k_s, at_least=0, at_most=n_s)
    lists.session.progress.emit(Advanced(skipped + n_s - len(named)))
    places = lists.find(i_s.whole(), named)
    if (places < 0).any():
        raise ProtocolError(f"apsi step 12 from {lists.peer}: an element is none of ours", code="E_UNION")
    return _passive_alignment(lists, order[places], n_w, drawn_size, number)


def _check_wish(terms: Align, wish: Obfuscation) -> None:
    if terms.obfuscation == "private" and wish.security_number is None:
        raise UsageError(
            "the job leaves the size of the obfuscated set to this node, whose settings do not say it",
            code="E_CONFIG",
            hint="set obfuscation.security_number: from 0, the intersection, to 1, all records of the other party",
            for_peer="its settings do not say how large the obfuscated set should be",
        )


def _name(lists: Lists) -> str:
    """Under which the obfuscated set of this peer and both inputs is remembered."""
    return f"obfuscated-{lists.sets.hex()[:40]}"


def _remembered_size(lists: Lists, name: str, shared: int, n_s: int) -> tuple[int, bool]:
    """m, the same in every job of this peer and both inputs, even where none came as far as Ĩ; whether another job drew it.

    s sees m in step 8, and a size asked for that was raised, or was not, bounds |I|.

    Raises:
        ProtocolError: more is shared than then, so the peer's set is another one.
        UsageError: this job asks for more than the first one drew (``E_CONFIG``).
    """
    m = obfuscated_size(shared, n_s, lists.terms, lists.session.policy.obfuscation)
    job = _stamp(lists)[:32]
    record = lists.session.memory.keep(f"{name}-size", job + m.to_bytes(8, "big"))
    first = int.from_bytes(record[32:], "big")
    if first < shared:  # nothing but genuine ones would be left to choose
        raise ProtocolError(f"{lists.peer} announces other identifiers as those of an earlier job")
    if first < least_size(lists.terms, n_s):
        raise UsageError(
            f"an earlier job over the same identifiers began with an obfuscated set of {first}; this one asks for more",
            code="E_CONFIG",
            hint=f"set align.obfuscation: {{size: {first}}}, or less",
            for_peer=f"an earlier job over the same identifiers had an obfuscated set of {first}",
        )
    return first, not record.startswith(job)


def _stamp(lists: Lists) -> bytes:
    """Before the elements of a set that is remembered: which job drew it, and in which group.

    That job, resumed, goes on with its own lists; others begin with the set.
    """
    return hashlib.sha256(lists.channel.job_id.encode()).digest() + lists.group.name.encode().ljust(16)


def _elements(lists: Lists, remembered: bytes) -> Rows:
    """A set that is remembered, uint8[m, width].

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``).
        UsageError: it was drawn in another group (``E_CONFIG``).
    """
    stamp, digest, rows = remembered[:_STAMP_BYTES], remembered[_STAMP_BYTES:_HEAD_BYTES], memoryview(remembered)[_HEAD_BYTES:]
    if hashlib.sha256(rows).digest() != digest:
        raise StateError(
            f"the obfuscated set that this node remembers for {lists.peer} is damaged",
            code="E_STATE_CORRUPT",
            hint="restore the state folder's partners from a backup",
            for_peer="it cannot read what it stored",
        )
    group = stamp[32:].decode().rstrip()
    if group != lists.group.name:
        raise UsageError(
            f"the obfuscated set for {lists.peer} and these identifiers was drawn in the group {group}",
            code="E_CONFIG",
            hint=f"set align.group: {group}; from a second set {lists.peer} could tell more of what is shared",
            for_peer=f"an earlier job over the same identifiers used the group {group}",
        )
    return np.frombuffer(rows, dtype=np.uint8).reshape(-1, lists.group.width)


def _active_alignment(lists: Lists, rows: NDArray[np.int64], n_s: int, drawn: int) -> Alignment:
    name, own, peer = lists.session.name, len(lists.records), lists.peer
    shared = int(np.count_nonzero(rows != NOT_MINE))
    return Alignment(
        spec=APSI,
        group=lists.group.name,
        rows=rows,
        ours=own,
        peers={
            peer: PeerFacts(
                records=n_s,
                intersection=shared,
                missing=0,
                learnt=_passive_learns(lists.terms, name, len(lists.own), n_s, len(rows), drawn, lists.draw_number),
            )
        },
        union=own + n_s - shared,
        learnt=(
            Disclosure("set size", n_s, f"the number of {peer}'s records: {n_s}"),
            Disclosure("intersection", shared, f"which {shared} of its own {own} records are also held by {peer}"),
            Disclosure(
                "foreign hashed ids",
                len(rows) - shared,
                f"the hashes of {len(rows) - shared} other identifiers of {peer}'s, which a dictionary of identifiers opens",
            ),
        ),
    )


def _passive_alignment(lists: Lists, rows: NDArray[np.int64], n_w: int, drawn: int, number: int) -> Alignment:
    name, own, peer = lists.session.name, len(lists.records), lists.peer
    peer_learnt = (
        Disclosure("set size", own, f"the number of {name}'s records: {own}"),
        Disclosure("intersection", None, f"which of its own records are also held by {name}"),
        Disclosure(
            "foreign hashed ids",
            None,
            f"the hashes of the rest of the {len(rows)} identifiers of {name}'s in the obfuscated set, "
            "which a dictionary of identifiers opens",
        ),
    )
    return Alignment(
        spec=APSI,
        group=lists.group.name,
        rows=rows,
        ours=own,
        peers={peer: PeerFacts(records=n_w, padded=lists.terms.padding > 0, learnt=peer_learnt)},
        learnt=_passive_learns(lists.terms, peer, n_w, own, len(rows), drawn, number),
    )


def _passive_learns(terms: Align, weak: str, n_w: int, n_s: int, m: int, drawn: int, number: int) -> tuple[Disclosure, ...]:
    """What the strong party learns of an obfuscated set of m, draw ``number``, in a job that drew one of ``drawn`` or none."""
    obfuscated = f"which {m} of its own {n_s} records hold all that {weak} has too, not which of them (draw {number})"
    if number > 1:
        left = most_left(m, n_s, number)
        obfuscated += (
            f"; if the sets of all {number} draws were almost the same, these have in common the shared records, and "
            f"at most about {100 * left:.3g} % of the others that hide them in one draw"
        )
    learnt = (
        Disclosure("set size", n_w, f"the number of {weak}'s records: {'at most ' if terms.padding else ''}{n_w}"),
        Disclosure("obfuscated set", m, obfuscated),
    )
    asked = least_size(terms, n_s)
    if terms.obfuscation == "private" or drawn <= asked:
        return learnt
    least = 1 + max(asked, public_bucket(drawn) // 2)  # drawn is |I|'s bucket, or n_s below it
    text = f"not fewer than {least} and not more than {drawn} records are shared: the size asked for was raised"
    return (*learnt, Disclosure("intersection size", None, text))
