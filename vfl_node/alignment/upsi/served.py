"""The list of tags at the party that answers: what it keeps of it, and how it grows.

A set has a key of its own, and its list is kept for later jobs over the same set. Where the owner allows *deltas*, a list keeps
its key when ids have come to its set and none has gone: only the new ones are hashed and powered, and only their tags are sent.
Any other change, more new ids than a fifth, or a list that is gone, begins a list by a new name, and so under a new key. Such
a name is drawn by the job that begins the list, so that no restored file leads to a key again.

A list that grows is one file, which is written before anything of it is offered, and only in place of the one that was read.
So each state of it holds the one before, whatever jobs run at once, and wherever one is killed. With deltas the party that asks
learns which tags came when; without them two lists of an epoch have nothing in common.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.upsi.cached import CachedLists
from vfl_node.alignment.upsi.epochs import KeyPeriod
from vfl_node.alignment.upsi.rice import RiceCode, Tags, hash_points, sort_tags
from vfl_node.crypto.groups import Scalar
from vfl_node.data.marks import Words, find_marks, mark_ids
from vfl_node.errors import ProtocolError, StateError
from vfl_node.progress import Advanced

MOST_STATES = 1000
"""So often a list grows before another one begins."""

_ORDER, _GROWN = ".order", ".grown"
_DIGEST_BYTES, _MARK_BYTES = 32, 16
_HEAD = struct.Struct("<16s32sH")
_STATE = np.dtype([("count", "<u8"), ("sha256", np.uint8, _DIGEST_BYTES)])
_PLACE, _LINK = np.dtype("<u4"), np.dtype("<u2")


@dataclass(frozen=True)
class ListState:
    """What a list was when a job offered it.

    Attributes:
        count: how many tags it had.
        sha256: of their coded list.
    """

    count: int
    sha256: bytes


@dataclass(frozen=True, eq=False)
class ServedList:
    """A list of n tags, as it is offered.

    Attributes:
        name: from which its key follows, 16 bytes.
        code: of it.
        coded: the list.
        places: of the id of each tag in the canonical order of the set, int64[n].
        states: the list from the first time that it was offered until now.
        links: with which of these each tag came, uint16[n].
    """

    name: bytes
    code: RiceCode
    coded: bytes
    places: NDArray[np.int64]
    states: tuple[ListState, ...]
    links: NDArray[np.uint16]

    def code_added_since(self, held: ListState, peer: str) -> tuple[RiceCode, bytes]:
        """The tags that came after a state which ``peer`` holds, and how they are coded.

        Raises:
            ProtocolError: the list never was so (``E_CACHE``).
        """
        if held not in self.states[:-1]:
            raise ProtocolError(
                f"{peer} holds a list of tags that this node has not sent",
                code="E_CACHE",
                hint=f"the owner of {peer} removes what its node keeps of it in state/cached; the next job sends it again",
                for_peer="the kept list of tags is none that it has sent; remove it from state/cached",
            )
        tags = self.code.decode(self.coded).take(np.flatnonzero(self.links > self.states.index(held)))
        code = self.code.code_added(len(tags))
        return code, code.encode(tags)


def open_set(lists: Lists, epoch: KeyPeriod, rest_bytes: int) -> ServedList:
    """The list of this set alone, as it is kept, or computed now.

    Args:
        lists: of this party, which has met the other one.
        epoch: the key period.
        rest_bytes: of a tag.

    Raises:
        StateError: what is kept is damaged (``E_CACHE``), or the job began with another list (``E_EPOCH``).
    """
    code = RiceCode(len(lists.own), rest_bytes)
    name = epoch.name(f"{lists.own.digest().hex()} {lists.group.name} {rest_bytes}")
    cache = _cache(lists, epoch, name)
    pin_list(lists, name)  # before anything is computed under this key: what this job has stored is of no other
    coded, beside = cache.read(code.size), cache.read(_DIGEST_BYTES + code.count * _PLACE.itemsize, _ORDER)
    if coded is None or beside is None:
        tags = _compute_tags(lists, "points", lists.own.canonical_order, epoch.key(lists.group, name))
        order = sort_tags(tags)
        coded = code.encode(tags[order])
        beside = hashlib.sha256(coded).digest() + order.astype(_PLACE).tobytes()
        cache.write(beside, _ORDER)
        cache.write(coded)
    else:
        lists.session.progress.emit(Advanced(code.count))
    digest, places = beside[:_DIGEST_BYTES], np.frombuffer(beside, dtype=_PLACE, offset=_DIGEST_BYTES)
    if hashlib.sha256(coded).digest() != digest:
        raise cache.error()
    return ServedList(
        name, code, coded, places.astype(np.int64), (ListState(code.count, digest),), np.zeros(code.count, dtype=_LINK)
    )


def open_growing(lists: Lists, epoch: KeyPeriod, rest_bytes: int) -> ServedList:
    """The list of an earlier set of which every id is still there, with those that came; or a new list. As :func:`open_set`.

    Raises:
        StateError: as :func:`open_set`; also ``E_EPOCH`` where another job has changed the list meanwhile.
    """
    records, terms, digest = lists.records, lists.terms, lists.own.digest()
    cache = _cache(lists, epoch, epoch.name(f"grown {records.table} {terms.id_form} {lists.group.name} {rest_bytes}"))
    stamp, canonical = cache.stamp(_GROWN), lists.own.canonical_order
    file = cache.read(cache.size(_GROWN), _GROWN)
    kept = _Grown.from_bytes(file, rest_bytes) if file else None
    if kept and kept.set == digest:
        pin_list(lists, kept.served.name + digest)
        lists.session.progress.emit(Advanced(len(lists.own)))
        return kept.served
    marks = mark_ids(lists.own, lists.session.memory.secret.derive("upsi marks").bytes(32))[canonical]
    places = find_marks(kept.marks, marks) if kept else None
    earlier = kept.served if kept and places is not None and _may_grow(kept.served, places, len(marks)) else None
    before = kept.served.name if kept else b""
    drawn = lists.secret.derive(f"upsi list {digest.hex()} after {before.hex()}").bytes(16)
    name = earlier.name if earlier else drawn
    pin_list(lists, name + digest)
    if earlier and places is not None:
        pin_list(lists, earlier.states[-1].sha256, "upsi grown from")  # what this job has stored is of the ids that came since
        served = _grow(lists, earlier, places, epoch.key(lists.group, name))
    else:
        served = _begin(lists, name, rest_bytes, epoch.key(lists.group, name))
    grown = _Grown(digest, served, marks[served.places])

    def check_unchanged() -> None:
        if cache.stamp(_GROWN) != stamp:
            raise _changed()

    cache.write(grown.to_bytes(), _GROWN, check_unchanged)
    return served


def pin_list(lists: Lists, about: bytes, what: str = "upsi list") -> None:
    """Hold to the list ``about`` which the job began. Raises StateError: it is another one (``E_EPOCH``)."""
    try:
        lists.session.attempt.pins.check(what, hashlib.sha256(about).digest())
    except StateError as error:
        if error.code != "E_REPLAY":
            raise
        raise _changed() from None


def tag_domain(lists: Lists) -> bytes:
    """What a tag is a digest of beside its point."""
    return f"vfl-node-v1-upsi-tag-{lists.group.name}".encode()


@dataclass(frozen=True, eq=False)
class _Grown:
    """What is kept of a list that grows.

    Attributes:
        set: digest of the set.
        served: the list.
        marks: of the id of each tag, uint64[n, 2].
    """

    set: bytes
    served: ServedList
    marks: Words

    def to_bytes(self) -> bytes:
        """As :meth:`from_bytes` reads it."""
        states = np.array([(state.count, np.frombuffer(state.sha256, np.uint8)) for state in self.served.states], dtype=_STATE)
        head = _HEAD.pack(self.served.name, self.set, len(states))
        columns = self.served.places.astype(_PLACE), self.served.links.astype(_LINK), self.marks.astype("<u8")
        return b"".join([head, states.tobytes(), *(column.tobytes() for column in columns), self.served.coded])

    @classmethod
    def from_bytes(cls, file: bytes, rest_bytes: int) -> _Grown:
        """What :meth:`to_bytes` wrote."""
        name, digest, count = _HEAD.unpack_from(file)
        place = _HEAD.size
        states = np.frombuffer(file, _STATE, count, place)
        n, place = int(states["count"][-1]), place + states.nbytes
        places, place = np.frombuffer(file, _PLACE, n, place).astype(np.int64), place + n * _PLACE.itemsize
        links, place = np.frombuffer(file, _LINK, n, place), place + n * _LINK.itemsize
        marks, place = np.frombuffer(file, "<u8", 2 * n, place).reshape(-1, 2), place + n * _MARK_BYTES
        earlier = tuple(ListState(int(count), sha256.tobytes()) for count, sha256 in states)
        return cls(digest, ServedList(name, RiceCode(n, rest_bytes), file[place:], places, earlier, links), marks)


def _may_grow(served: ServedList, places: NDArray[np.int64], count: int) -> bool:
    """Whether a list goes on with ``count`` ids: all of its own are there, and its tags are long enough for as many."""
    added = count - len(places)
    return bool(
        (places >= 0).all()
        and 0 < added <= len(places) // 5
        and RiceCode(count, served.code.rest_bytes).upper_bits == served.code.upper_bits
        and len(served.states) < MOST_STATES
    )


def _begin(lists: Lists, name: bytes, rest_bytes: int, k: Scalar) -> ServedList:
    tags, code = _compute_tags(lists, "points", lists.own.canonical_order, k), RiceCode(len(lists.own), rest_bytes)
    order = sort_tags(tags)
    coded = code.encode(tags[order])
    state = ListState(code.count, hashlib.sha256(coded).digest())
    return ServedList(name, code, coded, order, (state,), np.zeros(code.count, dtype=_LINK))


def _grow(lists: Lists, served: ServedList, places: NDArray[np.int64], k: Scalar) -> ServedList:
    """The list with the ids that are at none of ``places``, where those of its tags are now."""
    canonical, there = lists.own.canonical_order, np.zeros(len(lists.own), dtype=bool)
    there[places] = True
    new = np.flatnonzero(~there)
    lists.session.progress.emit(Advanced(len(places)))
    tags = _compute_tags(lists, "added points", canonical[new], k)
    order = sort_tags(tags)
    tags, new = tags[order], new[order]
    earlier = served.code.decode(served.coded)
    before = earlier.place(tags)
    coded = earlier.insert(tags, before)
    state = ListState(len(canonical), hashlib.sha256(coded).digest())
    return ServedList(
        served.name,
        RiceCode(len(canonical), served.code.rest_bytes),
        coded,
        np.insert(places, before, new),
        (*served.states, state),
        np.insert(served.links, before, len(served.states)),
    )


def _compute_tags(lists: Lists, name: str, ids: NDArray[np.int64], k: Scalar) -> Tags:
    """Step 1, of the ids at these places of the set."""
    tags, done = np.empty((len(ids), 2), dtype=np.uint64), 0
    for chunk in lists.blind(name, ids, k).chunks():
        tags[done : done + len(chunk)] = hash_points(chunk, tag_domain(lists))
        done += len(chunk)
    return tags


def _cache(lists: Lists, epoch: KeyPeriod, name: bytes) -> CachedLists:
    attempt = lists.session.attempt
    return CachedLists((attempt.cached or attempt.folder / "cached") / "served", lists.peer, epoch.number, name)


def _changed() -> StateError:
    return StateError(
        "the key or the list with which this job began to ask has changed since its first attempt",
        code="E_EPOCH",
        hint="submit a new job",
        for_peer="the key or the list with which the job began is another one now",
    )
