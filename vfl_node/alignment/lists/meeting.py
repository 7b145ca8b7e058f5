"""Before the first list: each party says which records take part and how many, and looks at what the other one says.

Each announces a mark of its set of records, and hears the other's. Then, before a size leaves, the owner's limits and what
earlier jobs over these records promised are looked at. A mark that is not known means that the set has changed, and that
counts. A set is blinded by scalars that are the same in every job over the same two sets on the same terms: so a known mark is
held to the list that came with it (:mod:`vfl_node.alignment.lists.lists`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vfl_node import failpoints
from vfl_node.alignment import costs
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists import promises
from vfl_node.alignment.lists.columns import Columns
from vfl_node.alignment.lists.cover import covered
from vfl_node.alignment.sizes import check_announced, too_many
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import check_enough
from vfl_node.errors import PolicyError, ProtocolError, StateError
from vfl_node.job import Align
from vfl_node.machine import free_bytes
from vfl_node.progress import PhaseBegan
from vfl_node.session.session import Session
from vfl_node.settings import Limits
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

_MARK_BYTES = 32
_MOST_BEGUN = 2**62  # of alignments; a peer may claim more than there is time for


@dataclass(frozen=True)
class Announced:
    """What a party knows once the two have met.

    Attributes:
        theirs: elements that the peer announces.
        own: this party's identifiers, and behind them those that stand for no record.
        sets: stands for the records of both that take part, the peer's by the mark that it announces.
        agreed: stands for those, the terms and the group.
        lasting: randomness that is the same in every job with the same ``agreed``.
        held_by_peer: list → how many of its elements the peer has from earlier attempts.
    """

    theirs: int
    own: Identifiers
    sets: bytes
    agreed: bytes
    lasting: Randomness
    held_by_peer: Mapping[str, int]


async def meet(session: Session, records: OwnRecords, columns: Columns, *, group: str, receives: Sequence[str]) -> Announced:
    """Exchange marks, then sizes and what each side holds from earlier attempts.

    Args:
        session: this party's.
        records: of this party.
        columns: where its lists lie.
        group: name of the group of the elements.
        receives: the lists that the peer will send.

    Raises:
        PolicyError: a set is too small (``E_TOO_FEW``) or too large (``E_TOO_MANY``) for this owner, or was
            changed too often (``E_BUDGET``), or an earlier job hid what this one would tell (``E_PROMISE``).
        ProtocolError: the peer's mark is none.
        StateError: the peer's set has another size than in an earlier attempt (``E_REPLAY``), the
            disk or the memory has no room for the lists (``E_DISK_FULL``, ``E_MEMORY``), or what this node remembered of
            the peer is gone (``E_STATE_LOST``) or older than what the peer has seen (``E_STATE_OLDER``).

    Leaks: whether our records are those of an earlier job with this peer; how many alignments there were with it.
    """
    terms, role, channel = session.job.align, session.role, session.peer
    limits, memory = session.limits, session.memory
    check_enough(len(records), limits.min_set_size, session.name)
    ours = check_announced(len(records), terms, role, limits.max_set_size)
    sets, agreed = await _exchange_marks(session, records, group)
    lasting = memory.secret.derive(f"lists {agreed.hex()}")

    held = [alignment_pb2.Held(list=name, rows=rows) for name, rows in columns.held(receives).items()]
    failpoints.reach("align-size")
    await channel.send(alignment_pb2.SetSize(count=ours, begun=session.memories[channel.peer].begin(), held=held))
    answer = await channel.receive(alignment_pb2.SetSize)
    theirs = int(answer.count)
    session.memories[channel.peer].saw(min(answer.begun, _MOST_BEGUN))
    _check_size(channel.peer, theirs, terms, limits)
    session.pins.check(f"{terms.protocol} size", theirs.to_bytes(8, "big"))
    most = terms.spec.most(*((ours, theirs) if role == "active" else (theirs, ours)))
    columns.need_room(most.spilled[role])
    _need_memory(ours + theirs)
    own = covered(records.ids, sets, terms, role, lasting, memory)
    _check_own_elements(session, own, lasting)
    session.progress.emit(PhaseBegan("align", most.powers[role], "group operations"))
    return Announced(theirs, own, sets, agreed, lasting, {item.list: item.rows for item in answer.held})


async def _exchange_marks(session: Session, records: OwnRecords, group: str) -> tuple[bytes, bytes]:
    """Say which records take part, hear which of the peer's do, and count both: the fields ``sets`` and ``agreed``."""
    terms, role, channel = session.job.align, session.role, session.peer
    memory, limits, peer = session.memory, session.limits, channel.peer
    identity = records.identity or records.ids.digest()
    promises.hold(memory, identity, terms, role, binding=False)
    ours = identity + len(records).to_bytes(8, "big")  # predictions of new records take all of a table
    mark = memory.secret.derive(f"input {ours.hex()}").bytes(_MARK_BYTES)
    await channel.send(alignment_pb2.Remembered(mark=mark, seen=session.memories[peer].seen))
    answer = await channel.receive(alignment_pb2.Remembered)
    if len(answer.mark) != _MARK_BYTES:
        raise ProtocolError(f"{peer} announces a mark of {len(answer.mark)} bytes, expected {_MARK_BYTES}")
    session.memories[peer].check_not_older(min(answer.seen, _MOST_BEGUN))
    sets = hashlib.sha256(ours + answer.mark).digest()
    fields = {name: getattr(terms, name) for name in ("protocol", "id_form", "padding", "dummies")}
    agreed = hashlib.sha256(sets + f"{fields} {group}".encode()).digest()
    memory.count_inputs(agreed, limits.inputs_per_peer)
    if promises.hides_intersection(terms, role):
        memory.count_changes(sets, limits.changes_per_peer)
    promises.hold(memory, identity, terms, role, binding=True)
    return sets, agreed


def _check_own_elements(session: Session, own: Identifiers, lasting: Randomness) -> None:
    """Stored lists are of the same identifiers and scalars, which this node's memory gives.

    Raises:
        StateError: they are not (``E_STATE_LOST``).
    """
    try:
        elements = own.digest() + lasting.derive("own elements").bytes(32)
        session.pins.check("own elements", hashlib.sha256(elements).digest())
    except StateError:
        raise StateError(
            f"what this node or {session.peer.peer} remembered of the other when the job began is gone",
            code="E_STATE_LOST",
            hint="put the state folder's partners back, or submit a new job",
            for_peer="what either node remembered of the other when the job began is gone",
        ) from None


def _check_size(peer: str, theirs: int, terms: Align, limits: Limits) -> None:
    records = theirs - 2 * terms.dummies
    if records < limits.min_set_size:
        raise _too_few(f"{peer} announces {records} identifiers", limits.min_set_size)
    if theirs > limits.max_set_size:
        raise too_many(f"{peer} announces {theirs} identifiers", limits.max_set_size)


def _need_memory(elements: int) -> None:
    needed, free = costs.ROW_BYTES * elements, free_bytes()
    if needed > free:
        raise StateError(
            f"the alignment needs about {needed / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free",
            code="E_MEMORY",
            hint="free memory, or align fewer records (align.at_most), then go on: vfl-node resume JOB",
            for_peer="it has too little memory free for sets as large",
        )


def _too_few(what: str, minimum: int) -> PolicyError:
    return PolicyError(
        f"{what}, and this node's minimum is {minimum}",
        code="E_TOO_FEW",
        hint="the sizes of small sets betray who is in them; limits.min_set_size is this owner's choice",
        for_peer="its owner does not align sets as small",
    )
