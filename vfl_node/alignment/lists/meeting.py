"""Before the first list: each party says which records take part and how many, and looks at what the other one says.

Each announces a mark of its set of records, and hears the other's. Then, before a size leaves, the owner's limits and what
earlier jobs over these records promised are looked at. A mark that is not known means that the set has changed, and that
counts. A set is blinded by scalars that are the same in every job over the same two sets on the same terms: so a known mark is
held to the list that came with it (:mod:`vfl_node.alignment.lists.lists`).

Passive parties do not talk to each other: with several, the active party relays to each what the others announced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vfl_node.alignment import costs
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists import promises
from vfl_node.alignment.lists.columns import Columns
from vfl_node.alignment.lists.cover import add_cover
from vfl_node.alignment.lists.relay import relay
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.sizes import check_announced, too_many_error
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import check_enough
from vfl_node.errors import PolicyError, ProtocolError, StateError
from vfl_node.job import Align
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.process import failpoints
from vfl_node.progress import PhaseBegan
from vfl_node.session.counted import aligned_sets, changed_sets
from vfl_node.session.session import Session
from vfl_node.settings.node import Limits
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

_MARK_BYTES = 32


@dataclass(frozen=True)
class Announced:
    """What a party knows once all have met.

    Attributes:
        theirs: name of each other data party → elements that it announces, in the order of the job.
        own: this party's identifiers, and behind them those that stand for no record.
        draw_number: which draw this is of what hides from the peers how many records are shared, from 1; 0: nothing hides it.
        sets: stands for the records of all that take part, the others' by the marks that they announce.
        agreed: stands for those, the terms and the group.
        lasting: randomness that is the same in every job with the same ``agreed``.
        held: peer → list → how many of its elements the peer has from earlier attempts.
        min_overlap: fewest records in a part of the overlap, by the largest minimum that a party announces; 0: no minimum.
    """

    theirs: Mapping[str, int]
    own: Identifiers
    draw_number: int
    sets: bytes
    agreed: bytes
    lasting: Randomness
    held: Mapping[str, Mapping[str, int]]
    min_overlap: int


async def meet(
    session: Session, records: OwnRecords, columns: Columns, *, group: str, receives: Mapping[str, Sequence[str]]
) -> Announced:
    """Exchange marks, then sizes and what each side holds from earlier attempts.

    Args:
        session: this party's.
        records: of this party.
        columns: where its lists lie.
        group: name of the group of the elements.
        receives: peer → the lists that it will send.

    Raises:
        PolicyError: a set is too small (``E_TOO_FEW``) or too large (``E_TOO_MANY``) for this owner, or was
            changed too often (``E_BUDGET``), or an earlier job hid what this one would tell (``E_PROMISE``).
        ProtocolError: a party's mark is none.
        StateError: a party's set has another size than in an earlier attempt (``E_REPLAY``), the
            disk or the memory has no room for the lists (``E_DISK_FULL``, ``E_MEMORY``), or what this node remembered of
            a peer is gone (``E_STATE_LOST``).

    Leaks: whether our records are those of an earlier job with these parties.
    """
    terms, role = session.job.align, session.role
    limits, memory = session.policy.limits, session.memory
    check_enough(len(records), limits.min_own_rows, session.name)
    ours = check_announced(len(records), terms, role, limits.size.rows)
    sets, agreed, min_overlap, draw_number = await exchange_marks(session, records, group)
    lasting = memory.secret.derive(f"lists {agreed.hex()}")
    theirs, held = await _exchange_sizes(session, ours, columns, receives)
    for name, count in theirs.items():
        check_size(name, count, terms, limits)
        which = "size" if len(theirs) == 1 else f"size of {name}"
        session.attempt.pins.check(f"{ALIGNMENTS.lasting(terms.protocol)} {which}", count.to_bytes(8, "big"))
    spilled, powers = _count_most(session, {session.name: ours, **theirs})
    announced = ours + sum(theirs.values())
    columns.need_room(spilled, beside=costs.divided_bytes(announced, columns.width))
    workers = session.machine.threads.workers  # they compute the buckets
    _need_memory(costs.memory_bytes(ours, announced, columns.width, workers), session.machine.free_bytes)
    own = add_cover(records.ids, sets, terms, role, lasting, memory)
    _check_own_elements(session, own, lasting)
    session.progress.emit(PhaseBegan("align", powers, "group operations"))
    return Announced(theirs, own, draw_number, sets, agreed, lasting, held, min_overlap)


async def exchange_marks(session: Session, records: OwnRecords, group: str) -> tuple[bytes, bytes, int, int]:
    """Say which records take part, hear which of the others' do, and count all.

    Returns:
        The fields ``sets``, ``agreed``, ``min_overlap`` and ``draw_number``.
    """
    terms, role, memory, limits = session.job.align, session.role, session.memory, session.policy.limits
    identity = records.identity or records.ids.digest()
    promises.hold(memory, identity, terms, role, binding=False)
    ours = identity + len(records).to_bytes(8, "big")  # predictions of new records take all of a table
    mark = memory.secret.derive(f"input {ours.hex()}").bytes(_MARK_BYTES)
    least = limits.min_overlap if len(session.others) > 1 else 0
    for channel in session.data_peers.values():
        await channel.send(alignment_pb2.Remembered(mark=mark, min_overlap=least))
    said = {peer: await channel.receive(alignment_pb2.Remembered) for peer, channel in session.data_peers.items()}
    for peer, answer in said.items():
        _check_mark(peer, answer.mark)
    theirs = await relay(
        session,
        {peer: alignment_pb2.OtherMark(mark=answer.mark, min_overlap=answer.min_overlap) for peer, answer in said.items()},
        lambda marks: alignment_pb2.OtherMarks(marks=marks),
        alignment_pb2.OtherMarks,
        lambda them: them.marks,
    )
    for name, its in theirs.items():
        _check_mark(name, its.mark)
    sets = hashlib.sha256(ours + b"".join(its.mark for its in theirs.values())).digest()
    fields = {"protocol": ALIGNMENTS.lasting(terms.protocol)}
    fields |= {name: getattr(terms, name) for name in ("id_form", "padding", "dummies")}
    agreed = hashlib.sha256(sets + f"{fields} {group}".encode()).digest()
    least = max(least, *(int(its.min_overlap) for its in theirs.values()))
    # Whether a part of the overlap is smaller tells a bit more with every other minimum.
    counted = hashlib.sha256(agreed + f"minimum {least}".encode()).digest() if least else agreed
    hides = promises.hides_intersection(terms, role)
    counts = [] if terms.spec.answers_questions else [aligned_sets(counted, limits.budgets.alignments)]
    if hides or not _owner_asks(session):
        counts.append(changed_sets(records.table, sets, limits.budgets.changes, hides=hides))
    for what in counts:  # all of them, before anything is counted
        memory.check(what)
    numbers = [memory.count(what) for what in counts]
    promises.hold(memory, identity, terms, role, binding=True)
    return sets, agreed, least, numbers[-1] if hides else 0


def _owner_asks(session: Session) -> bool:
    """Whether this party's records are new ones for which its own owner asks: no peer can have it name an earlier table."""
    job = session.job
    return job.predict is not None and session.name in job.parties.members(job.predict.to)


async def _exchange_sizes(
    session: Session, ours: int, columns: Columns, receives: Mapping[str, Sequence[str]]
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Say how many elements take part, and which lists are there: the fields ``theirs`` and ``held``."""
    for peer, channel in session.data_peers.items():
        held = [alignment_pb2.Held(list=name, rows=rows) for name, rows in columns.held_counts(receives[peer]).items()]
        failpoints.reach("align-size")
        await channel.send(alignment_pb2.SetSize(count=ours, held=held))
    said = {peer: await channel.receive(alignment_pb2.SetSize) for peer, channel in session.data_peers.items()}
    theirs = await relay(
        session,
        {peer: int(answer.count) for peer, answer in said.items()},
        lambda counts: alignment_pb2.OtherSizes(counts=counts),
        alignment_pb2.OtherSizes,
        lambda them: them.counts,
    )
    return theirs, {peer: {item.list: int(item.rows) for item in answer.held} for peer, answer in said.items()}


def _count_most(session: Session, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Elements that this party stores and group operations that it computes at most, if the parties announce ``sizes``."""
    plan, parties = plan_of(session.job.align.spec), session.job.parties
    if len(sizes) == 2:
        both = plan.most(*(sizes[name] for name in parties.data))
        return both.spilled[session.role], both.powers[session.role]
    most = plan.most_of_several([sizes[name] for name in parties.data])[parties.data.index(session.name)]
    return most.spilled, most.powers


def _check_mark(name: str, mark: bytes) -> None:
    if len(mark) != _MARK_BYTES:
        raise ProtocolError(f"{name} announces a mark of {len(mark)} bytes, expected {_MARK_BYTES}")


def _check_own_elements(session: Session, own: Identifiers, lasting: Randomness) -> None:
    """Stored lists are of the same identifiers and scalars, which this node's memory gives.

    Raises:
        StateError: they are not (``E_STATE_LOST``).
    """
    try:
        elements = own.digest() + lasting.derive("own elements").bytes(32)
        session.attempt.pins.check("own elements", hashlib.sha256(elements).digest())
    except StateError:
        raise StateError(
            f"what this node or {' or '.join(session.others)} remembered of the other when the job began is gone",
            code="E_STATE_LOST",
            hint="put the state folder's partners back, or submit a new job",
            for_peer="what either node remembered of the other when the job began is gone",
        ) from None


def check_size(peer: str, theirs: int, terms: Align, limits: Limits) -> None:
    """Refuse a peer's set that is too small or too large for this owner. Raises PolicyError (``E_TOO_FEW``, ``E_TOO_MANY``)."""
    records = theirs - 2 * terms.dummies
    if records < limits.min_peer_rows:
        raise _too_few_error(f"{peer} announces {records} records", limits.min_peer_rows)
    if theirs > limits.size.rows:
        raise too_many_error(f"{peer} announces {theirs} records", limits.size.rows)


def _need_memory(needed: int, free: float) -> None:
    if needed > free:
        raise StateError(
            f"the alignment needs about {needed / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free",
            code="E_MEMORY",
            hint="free memory, or align fewer records (align.at_most), then go on: vfl-node resume JOB",
            for_peer="it has too little memory free for sets as large",
        )


def _too_few_error(what: str, minimum: int) -> PolicyError:
    return PolicyError(
        f"{what}, and this node's minimum is {minimum}",
        code="E_TOO_FEW",
        hint="the sizes of small sets betray who is in them; min_peer_rows in the policy is this owner's choice",
        for_peer="its owner does not align sets as small",
    )
