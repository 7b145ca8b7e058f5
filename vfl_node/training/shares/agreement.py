"""What everybody agrees on before a training in shares: shapes, batches, and the digest of all that values are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfl_node.crypto.shares.sines import TABLES_DIGEST, tables_digest
from vfl_node.errors import PolicyError, ProtocolError, StateError
from vfl_node.session.session import Session
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.program import Program
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext, ShareInputs
from vfl_node.version import VERSION

DIGEST_BYTES = 32
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True)
class Brought:
    """What this party says of what it brings.

    Attributes:
        width: its columns.
        digest: of all that its values are made of.
        batch_rows: shared rows of a step.
        divisor: how many of these all parties own, about.
        schedule: fingerprint of the schedule of batches.
        coins: digest of those that choose what is checked: with others, what was shown would be used; empty without.
    """

    width: int
    digest: bytes
    batch_rows: int
    divisor: float
    schedule: str
    coins: bytes = b""


def check_tables() -> None:
    """Refuse to compute on a machine whose sines are others. Raises StateError (``E_DEVICE``)."""
    if tables_digest() != TABLES_DIGEST:
        raise StateError(
            "this machine computes other sines than all others",
            code="E_DEVICE",
            hint="install the versions of gmpy2 that pyproject.toml allows",
            for_peer="its numbers are not computed as everywhere else",
        )


def check_least_rows(session: Session, key: str, asked: int, where: str) -> None:
    """Refuse a job of fewer records than this owner allows (``least_rows``).

    Args:
        session: of a data party.
        key: of the job, such as ``train.least_rows``.
        asked: what it says.
        where: these records are; words.

    Raises:
        PolicyError: they are fewer (``E_POLICY``).
    """
    least = session.policy.limits.least_rows
    if asked < least:
        raise PolicyError(
            f"{key} is {asked}, and this node wants {least} records {where} (least_rows)",
            code="E_POLICY",
            hint=f"the job can say {key}: {least}",
            for_peer=f"it wants {key}: {least} or more",
        )


async def agree(session: Session, program: Program[Any], own: Brought) -> ShareContext:
    """Everybody's widths, and the digest of all that values are made of.

    Raises:
        ProtocolError: a party says what the job cannot have (``E_COUNT``).
        StateError: it says other things than in an earlier attempt (``E_REPLAY``): masks would be used for other values.
    """
    if session.role == "passive":
        (active,) = session.data_peers.values()
        await active.send(ShareInputs(width=own.width, digest=own.digest))
        said = await active.receive(ShareContext)
        _check_context(said, session, program, own)
        return said
    widths, digests = [own.width], [own.digest]
    for channel in session.data_peers.values():
        theirs = await channel.receive(ShareInputs)
        if len(theirs.digest) != DIGEST_BYTES or not 0 < theirs.width <= MOST_COLUMNS:
            raise ProtocolError(
                f"{channel.peer} says what this job cannot have of its columns: {theirs.width}",
                code="E_COUNT",
                hint=f"ask the owner of {channel.peer} whether it runs another version, and submit the job again",
            )
        session.attempt.pins.check(f"share inputs of {channel.peer}", theirs.SerializeToString(deterministic=True))
        widths.append(theirs.width)
        digests.append(theirs.digest)
    said = ShareContext(widths=widths, digests=digests, divisor=own.divisor, batch_rows=own.batch_rows)
    said.context = context_of(program, said, own.schedule, own.coins)
    for channel in session.data_peers.values():
        await channel.send(said)
    return said


def context_of(program: Program[Any], said: ShareContext, schedule: str, coins: bytes = b"") -> bytes:
    """SHA-256 of everything that values of this training are made of. All parties and the dealer must have the same.

    Args:
        program: of the job.
        said: all but its context.
        schedule, coins: as in :class:`Brought`.
    """
    public = {
        "widths": list(said.widths),
        "schedule": schedule,
        "divisor": float(said.divisor).hex(),
        "coins": coins.hex(),
        **_describe(program, said),
    }
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode() + b"".join(said.digests)).digest()


def program_of(program: Program[Any], said: ShareContext | DealingTerms) -> bytes:
    """SHA-256 of what a computation is, whatever the data are: the dealer, who gets no digests of these, compares it."""
    return hashlib.sha256(json.dumps(_describe(program, said), sort_keys=True).encode()).digest()


def _describe(program: Program[Any], said: ShareContext | DealingTerms) -> dict[str, Any]:
    """Version, job and constants, as JSON."""
    return {"version": program.version, "job": program.job.digest(), "tables": TABLES_DIGEST, **program.public(said)}


def make_terms(
    session: Session, program: Program[Any], context: ShareContext, rows: int, seed: bytes, done: int
) -> DealingTerms:
    """What a data party tells the dealer: ``rows`` of the shared order, the tossed ``seed``, and how many steps are done."""
    return DealingTerms(
        rows=rows,
        widths=context.widths,
        context=context.context,
        schedule=seed,
        batch_rows=context.batch_rows,
        divisor=context.divisor,
        epoch=done,
        program=program_of(program, context),
        split=session.attempt.split or b"",
    )


def check_terms(said: DealingTerms, peer: str, session: Session, program: Program[Any]) -> DealingTerms:
    """Check the terms of a data party, at the coordinator; returns them.

    Raises:
        ProtocolError: shapes that this job cannot have, or other constants than this party's (``E_COUNT``).
        StateError: there is no memory for these (``E_MEMORY``).
    """
    parties = session.job.parties
    fits = (
        0 < said.rows <= session.policy.limits.size.rows * len(parties.data)
        and _fit(said.widths, len(parties.data))
        and len(said.context) == DIGEST_BYTES
        and len(said.schedule) == DIGEST_BYTES
        and len(said.split) in (0, DIGEST_BYTES)
        and 0 < said.batch_rows <= said.rows
        and 0 < said.divisor <= said.rows
        and program.fits(said)
    )
    if not fits:
        raise ProtocolError(
            f"{peer} wants randomness for shapes that this job cannot have: {said.rows} rows, batches of {said.batch_rows}, "
            f"{' and '.join(map(str, said.widths[:9])) or 'no'} columns, from epoch {said.epoch} on",
            code="E_COUNT",
            hint=f"ask the owner of {peer} whether it runs another version, and submit the job again",
        )
    if said.program != program_of(program, said):
        title = SharesConfig.section_of(session.job).title
        raise ProtocolError(
            f"{peer} trains {title} with other constants than this coordinator, which has version "
            f"{program.version} of it (vfl-node {VERSION})",
            code="E_COUNT",
            hint=f"compare versions with the owner of {peer}, install the same one at all parties, and submit the job again",
            for_peer="it has other constants for this training: compare versions of vfl-node",
        )
    check_room(session, said.rows, said.widths, program.dealer_bytes(said.rows, said.widths, said.batch_rows))
    return said


def check_same(said: Mapping[str, DealingTerms]) -> None:
    """What the data parties say must be the same. Raises ProtocolError: it is not (``E_COUNT``)."""
    (first, one), *others = said.items()
    for name, other in others:
        differing = [key.name for key in DealingTerms.DESCRIPTOR.fields if getattr(one, key.name) != getattr(other, key.name)]
        if differing:
            raise ProtocolError(
                f"{first} and {name} say different things of their training: {' and '.join(differing)}",
                code="E_COUNT",
                hint="submit the job again; if that does not help, compare their versions",
            )


def check_room(session: Session, rows: int, widths: Sequence[int], needed: int) -> None:
    """Refuse a training for which this machine has no memory, before any is taken.

    Args:
        session: whose owner may have set a limit.
        rows: length of the shared order.
        widths: columns of each party.
        needed: bytes.

    Raises:
        StateError: it has not (``E_MEMORY``).
    """
    free = session.machine.free_bytes
    if needed > free:
        raise StateError(
            f"training in shares over {rows} shared rows of {sum(widths)} columns needs {needed >> 20} MiB of memory; "
            f"{int(free) >> 20} MiB are free",
            code="E_MEMORY",
            hint="free memory, raise resources.memory_mib, say a smaller train.batch_size or fewer units and bins, or train "
            "on fewer columns or records (align.at_most)",
            for_peer="it has too little memory free for this job",
        )


def _check_context(said: ShareContext, session: Session, program: Program[Any], own: Brought) -> None:
    """What the active party says that all values are made of: this party's ``own`` width and digest must be among it."""
    parties = session.job.parties.data
    place = parties.index(session.name)
    widths, digests = list(said.widths), list(said.digests)
    fits = _fit(widths, len(parties)) and len(digests) == len(parties)
    fits = fits and (widths[place], digests[place]) == (own.width, own.digest)
    sizes = (said.batch_rows, said.divisor) == (own.batch_rows, own.divisor)
    if not fits or not sizes or said.context != context_of(program, said, own.schedule, own.coins):
        raise ProtocolError(
            f"{parties[0]} says what this job cannot have of its training: columns, their digests, or batches",
            code="E_COUNT",
            hint=f"ask the owner of {parties[0]} whether it runs another version, and submit the job again",
        )
    session.attempt.pins.check(f"share context {program.version} of {parties[0]}", said.context)


def _fit(widths: Sequence[int], parties: int) -> bool:
    """Whether so many parties can have these numbers of columns."""
    return len(widths) == parties and all(0 < width <= MOST_COLUMNS for width in widths)
