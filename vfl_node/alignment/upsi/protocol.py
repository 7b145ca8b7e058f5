"""UPSI: a party with few identifiers asks about them at one with many, which has sent a list of these only once.

Source: 2HashDH, an oblivious pseudorandom function (Jarecki, Kiayias, Krawczyk 2014), for unbalanced sets (Kiss et al. 2017).
It runs between the server S and the client C; the job says which role serves. Both follow the protocol, but study all that they
receive.

I_s and I_c are their sets, of n_s and n_c identifiers, each hashed to a group element x. S has a secret scalar k for this set
and an *epoch* (:mod:`vfl_node.alignment.upsi.epochs`). C draws a scalar r for this job alone. The *point* of an identifier is
x^k; its *tag* is the beginning of the point's SHA-256.

====  =======  =================================================  ===========================
step  sent by  list (elements)                                    order
====  =======  =================================================  ===========================
1     (S)      the points I_s^k, once in an epoch
2     S        their tags, coded; only if C does not have them    ascending
3     C        I_c^r (n_c)                                        secret, C's
4     S        I_c^{rk} (n_c), once these n_c ids have counted    as step 3
5     (C)      I_c^k = (step 4)^{1/r}: those whose tags are in
               step 2 are the shared ones
6     C        their points (m), the shared order                 ascending
7     (S)      finds their tags, and computes the points of these
               records again: all 32 bytes must be equal
====  =======  =================================================  ===========================

A tag has at least 40 + ⌈log₂ q⌉ + ⌈log₂ n_s⌉ bits, where q is the number of ids that S's owner allows in an epoch. So an id
that S lacks is found in the list with probability 2^-40 in a whole epoch. Then the job stops in step 7.

A claim is a point and never a tag: C has all tags, and could claim one that it has not asked about. A tag does not give the
point, which comes out of an answer alone.

Leaks: to S n_c, and *which* of its records C holds (step 6), as far as C claims them. To C n_s, and of each id that it asks
whether S has it. Both numbers are rounded up by the job's ``padding``. Under one k many different sets are answered, unlike in
other protocols: whoever asks often enough enumerates I_s. So each id counts, before it is answered
(:mod:`vfl_node.session.questions`).

Cost: at S n_s hashes and powers once; then n_c + m powers and m hashes. At C n_c hashes and 2·n_c powers.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.lists.cover import add_cover
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.lists.side import open_lists
from vfl_node.alignment.psi.protocol import learnt
from vfl_node.alignment.upsi.cached import CachedLists
from vfl_node.alignment.upsi.epochs import current_epoch
from vfl_node.alignment.upsi.rice import MOST_REST_BYTES, RiceCode, TagList, hash_points
from vfl_node.alignment.upsi.served import ListState, ServedList, open_growing, open_set, pin_list, tag_domain
from vfl_node.alignment.upsi.spec import UPSI
from vfl_node.crypto.groups import Scalar
from vfl_node.errors import ProtocolError
from vfl_node.ledger import Disclosure
from vfl_node.process.files import read_checked, write_checked
from vfl_node.progress import Advanced
from vfl_node.session.questions import AskedIds
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

SAFE_BITS = 40
"""A wrong tag is found with probability 2^-40 in an epoch."""

_NAME_BYTES = 16


@open_lists
async def active(lists: Lists) -> Alignment:
    """The active party's side. Arguments and errors as in :func:`_ask` and :func:`_serve`, and as they leak."""
    return await _play(lists)


@open_lists
async def passive(lists: Lists) -> Alignment:
    """The passive party's side; as :func:`active`."""
    return await _play(lists)


async def _play(lists: Lists) -> Alignment:
    return await (_serve(lists) if lists.role == lists.terms.server else _ask(lists))


async def _ask(lists: Lists) -> Alignment:
    """C's side; arguments and errors as :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks: n_c, and which of S's records C holds, too.

    Raises:
        PolicyError: this owner does not allow as many ids (``E_BUDGET``).
        StateError: the list that is kept is not the one that S has (``E_CACHE``), or S's key is another one than when the job
            began (``E_EPOCH``).
    """
    n_s, session, n_c = await lists.meet(receives=("tags", "added", "answer")), lists.session, len(lists.own)
    questions = AskedIds(
        lists.channel.job_id, n_c, session.policy.limits.queries_per_peer, "asks", hashlib.sha256(lists.own.digest()).digest()
    )
    session.memory.check_questions(questions)
    offer = await lists.channel.receive(alignment_pb2.TagsOffered)
    tags, added = await _obtain(lists, offer, RiceCode(n_s, offer.rest_bytes))  # 2

    r, order = lists.draw("r"), lists.own.canonical_order[lists.secret.derive("step 3").permutation(n_c)]
    session.memory.count_questions(questions)
    await lists.send("query", lists.blind("query", order, r))  # 3
    points = await lists.receive_powers("answer", lists.group.inverse(r), at_least=n_c, at_most=n_c)  # 4
    asked, _ = tags.find(hash_points(points.rows, tag_domain(lists)))  # 5
    shared = np.zeros(n_c, dtype=bool)
    shared[asked] = order[asked] < len(lists.records)
    ascending = lists.ascending(points)
    places = ascending[shared[ascending]]
    await lists.send("claim", lists.choose([points], places))  # 6
    return _alignment(lists, order[places], n_s, int(offer.epoch), added)


async def _obtain(lists: Lists, offer: alignment_pb2.TagsOffered, code: RiceCode) -> tuple[TagList, int]:
    """The list that S offers, and how many tags came to what was kept here: it is kept, grows, or comes now.

    Raises:
        ProtocolError: it is none (``E_ELEMENT``), or not the one that was offered (``E_CACHE``).
        StateError: as :func:`_ask`.
    """
    attempt, least = lists.session.attempt, SAFE_BITS + (len(lists.own) - 1).bit_length()
    if not (least <= 8 * code.rest_bytes <= 8 * MOST_REST_BYTES and offer.epoch and len(offer.name) == _NAME_BYTES):
        raise ProtocolError(f"{lists.peer} offers a list of tags that cannot be used", code="E_ELEMENT")
    pin_list(lists, offer.SerializeToString(deterministic=True))
    cache = CachedLists(attempt.cached or attempt.folder / "cached", lists.peer, offer.epoch, offer.name)
    count = min(code.count_in(cache.size()), code.count)
    held = RiceCode(count, code.rest_bytes) if count else code
    coded = cache.read(held.size)
    kept = None if coded is None else ListState(held.count, hashlib.sha256(coded).digest())
    if kept and held == code and kept.sha256 != offer.sha256:
        raise cache.error()
    wanted = _find_wanted(attempt.folder / "wanted", kept, offer)
    await lists.channel.send(wanted)
    if coded is None:
        coded = await _receive_coded(lists, "tags", code)
    added = code.count - wanted.held if wanted.held else 0
    if added:
        other = code.code_added(added)
        tags = other.decode(await _receive_coded(lists, "added", other)).tags
        if held != code:  # else an earlier attempt has inserted them
            earlier = held.decode(coded)
            coded = earlier.insert(tags, earlier.place(tags))
    if hashlib.sha256(coded).digest() != offer.sha256:
        raise ProtocolError(f"{lists.peer} sends another list of tags than it offers", code="E_CACHE")
    found = code.decode(coded)
    if kept is None or held != code:
        cache.write(coded)
    return found, added


def _find_wanted(path: Path, kept: ListState | None, offer: alignment_pb2.TagsOffered) -> alignment_pb2.TagsWanted:
    """What this party wants of an offered list; where tags come to a list, each attempt wants what the first one did.

    Args:
        path: of a file of this job, which says to which list they come.
        kept: the list that this party has; None: it has none.
        offer: of the list.
    """
    if kept is None:
        return alignment_pb2.TagsWanted()
    if kept.sha256 != offer.sha256:
        wanted = alignment_pb2.TagsWanted(held=kept.count, sha256=kept.sha256)
        write_checked(path, wanted.SerializeToString(deterministic=True))
        return wanted
    try:
        return alignment_pb2.TagsWanted.FromString(read_checked(path, hint="submit the job again as a new one"))
    except FileNotFoundError:
        return alignment_pb2.TagsWanted(cached=True)


async def _receive_coded(lists: Lists, name: str, code: RiceCode) -> bytes:
    """A coded list as it comes in rows as wide as elements; as many as S has announced, and no more."""
    column = await lists.receive(name, count=-(-code.size // lists.group.width), elements=False)
    sent = column.rows.tobytes()
    if any(sent[code.size :]):
        raise ProtocolError(f"{lists.peer} sends another list of tags than it offers", code="E_CACHE")
    return sent[: code.size]


async def _serve(lists: Lists) -> Alignment:
    """S's side; arguments and errors as :func:`vfl_node.alignment.psu.protocol.active`.

    Leaks: n_s, and of each id that C asks whether S has it, until the key changes.

    Raises:
        PolicyError: this owner does not allow as many ids (``E_BUDGET``); then none is answered.
        ProtocolError: C claims a record that it has not asked about (``E_CLAIM``).
        StateError: what is kept of the list is damaged (``E_CACHE``), or the key is another one than when the job began
            (``E_EPOCH``).
    """
    n_c, session, limits = await lists.meet(receives=("query", "claim")), lists.session, lists.session.policy.limits
    epoch = current_epoch(session.memory, lists.secret, limits.queries_per_peer.rotate_days)
    questions = AskedIds(lists.channel.job_id, n_c, limits.queries_per_peer, "answers", since=epoch.begun)
    session.memory.check_questions(questions)
    cover = session.memory.secret.derive(f"upsi cover {lists.records.ids.digest().hex()}")
    lists.own = add_cover(lists.records.ids, b"", lists.terms, lists.role, cover, session.memory)
    rest_bits = SAFE_BITS + (limits.queries_per_peer.per_epoch - 1).bit_length()
    # Ids of the padding are drawn anew for each set, so with it no list holds an earlier one.
    opened = open_growing if limits.queries_per_peer.deltas and not lists.terms.padding else open_set
    served = opened(lists, epoch, -(-rest_bits // 8))  # 1
    k, code = epoch.key(lists.group, served.name), served.code

    await lists.channel.send(
        alignment_pb2.TagsOffered(
            epoch=epoch.number, name=served.name, rest_bytes=code.rest_bytes, sha256=served.states[-1].sha256
        )
    )
    added = await _send_wanted(lists, served, await lists.channel.receive(alignment_pb2.TagsWanted))  # 2

    query = await lists.receive("query", count=n_c)  # 3
    session.memory.count_questions(replace(questions, about=query.digest.digest()))
    await lists.send("answer", lists.powers("answer", query, k))  # 4
    claim = await lists.receive("claim", at_most=min(n_c, len(lists.own)))  # 6
    order = lists.own.canonical_order[served.places]
    rows = _check_claim(lists, claim, code.decode(served.coded), order, k)
    lists.session.progress.emit(Advanced(min(n_c, len(lists.own)) - len(claim)))
    return _alignment(lists, rows, n_c, epoch.number, added)


async def _send_wanted(lists: Lists, served: ServedList, wanted: alignment_pb2.TagsWanted) -> int:
    """Step 2: the list, or what came to it; returns how many tags came. Raises ProtocolError (``E_CACHE``)."""
    if wanted.cached:
        return 0
    if not wanted.held:
        await _send_coded(lists, "tags", served.coded)
        return 0
    code, coded = served.code_added_since(ListState(wanted.held, wanted.sha256), lists.peer)
    await _send_coded(lists, "added", coded)
    return code.count


async def _send_coded(lists: Lists, name: str, coded: bytes) -> None:
    width = lists.group.width
    filled = coded.ljust(-(-len(coded) // width) * width, b"\0")
    await lists.send(name, lists.wrap(np.frombuffer(filled, dtype=np.uint8).reshape(-1, width)))


def _check_claim(lists: Lists, claim: Column, tags: TagList, order: NDArray[np.int64], k: Scalar) -> NDArray[np.int64]:
    """Step 7: the row of each point that C claims, int64[m].

    Raises:
        ProtocolError: a point is that of no record (``E_CLAIM``), or they are in another order.
    """
    if (lists.ascending(claim) != np.arange(len(claim))).any():
        raise ProtocolError(f"upsi claim from {lists.peer}: not in ascending order", code="E_ELEMENT")
    which, places = tags.find(hash_points(claim.rows, tag_domain(lists)))
    found = order[places]
    points = lists.blind("claimed", found, k).whole().rows
    equal = (points == claim.rows[which]).all(axis=1) & (found < len(lists.records))
    if not np.array_equal(np.sort(which[equal]), np.arange(len(claim))):
        raise ProtocolError(
            f"{lists.peer} claims a record by another point than this node's: it has not asked about it, or two tags are equal "
            "by accident",
            code="E_CLAIM",
            hint="submit a new job; if that ends so, too, ask the owner of the other node what it runs. Nothing was aligned",
            for_peer="a claimed point is that of no record",
        )
    rows = np.empty(len(claim), dtype=np.int64)
    rows[which[equal]] = found[equal]
    return rows


def _alignment(lists: Lists, rows: NDArray[np.int64], theirs: int, epoch: int, added: int) -> Alignment:
    name, own, peer, padding = lists.session.name, len(lists.records), lists.peer, lists.terms.padding
    announced, serves = len(lists.own), lists.role == lists.terms.server
    we_learn = learnt(peer, own, theirs, len(rows), padding)
    they_learn = learnt(name, None if padding else theirs, announced, len(rows), padding)
    facts = (name, announced, theirs) if serves else (peer, theirs, announced)
    kept = (_kept_list(*facts, epoch), *((_added_tags(facts[0], added, epoch),) if added else ()))
    return Alignment(
        spec=UPSI,
        group=lists.group.name,
        rows=rows,
        ours=own,
        peers={
            peer: PeerFacts(
                records=theirs,
                intersection=len(rows),
                missing=0,
                padded=padding > 0,
                learnt=they_learn + (kept if serves else ()),
            )
        },
        union=None if padding else own + theirs - len(rows),
        learnt=we_learn + (() if serves else kept),
    )


def _kept_list(server: str, count: int, asked: int, epoch: int) -> Disclosure:
    """What the party that asks has beside the alignment."""
    return Disclosure(
        "tag list",
        count,
        f"a list of {count} one-way tags, with one for each record of {server}, which it keeps (key number {epoch}). It knows "
        f"of each id that it asks about under this key whether {server} has it: {asked} in this job",
    )


def _added_tags(server: str, count: int, epoch: int) -> Disclosure:
    """What the party that asks learns where a list grows."""
    return Disclosure(
        "added tags",
        count,
        f"{count} records have come to {server} since the list that it kept, and which of all ids that it has asked about "
        f"under key number {epoch} are among them",
    )
