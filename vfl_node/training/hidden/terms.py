"""What everybody agrees on before a training in shares: shapes, batches, and the digest of all that values are made of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

from vfl_node.crypto.shares.sines import TABLES_DIGEST, tables_digest
from vfl_node.errors import ProtocolError, StateError
from vfl_node.job import Job
from vfl_node.session.session import Session
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.bound import worlds
from vfl_node.training.hidden.computation import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import Descent, descent_of, describe_noise
from vfl_node.training.hidden.metric_noise import MetricNoise
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext

DIGEST_BYTES = 32
MOST_COLUMNS = 1 << 20
VERSION = 5
"""The version of the computation: another one computes other values in the same places, so masks must be others."""


def check_tables() -> None:
    """Refuse to compute on a machine whose sines are others. Raises StateError (``E_DEVICE``)."""
    if tables_digest() != TABLES_DIGEST:
        raise StateError(
            "this machine computes other sines than all others",
            code="E_DEVICE",
            hint="install the versions of gmpy2 that pyproject.toml allows",
            for_peer="its numbers are not computed as everywhere else",
        )


def batch_of(train: Hidden, rows: int, trained: int, shared: int | None) -> tuple[int, float]:
    """Rows of a step, and how many of them all parties own, about.

    Args:
        train: the job's section.
        rows: length of the shared order.
        trained: how many of these are trained on.
        shared: how many records all parties have; None if that is hidden.
    """
    share = train.shared_fraction or 1.0
    if shared is not None:
        share = 1.0 if shared == rows else float(f"{max(shared / rows, 1e-6):.1e}")  # to two digits, as the dealer sees it
    batch = trained if train.epsilon is not None else min(trained, math.ceil(train.batch / share))
    return batch, max(1.0, batch * share)


def context_of(job: Job, said: ShareContext, schedule: str, coins: bytes = b"") -> bytes:
    """SHA-256 of everything that values of this training are made of. All parties and the dealer must have the same.

    Args:
        job: the whole job.
        said: all but its context.
        schedule: fingerprint of the schedule of batches.
        coins: digest of those that choose what is checked: with others, what was shown would be used.
    """
    descent = _descent(job, said.divisor)
    public = {
        "version": VERSION,
        "descent": [float(number).hex() for number in (descent.steps, descent.momentum, descent.rate, descent.deviation or 0)],
        "job": job.digest(),
        "widths": list(said.widths),
        "schedule": schedule,
        "divisor": float(said.divisor).hex(),
        "coins": coins.hex(),
        "tables": TABLES_DIGEST,
    }
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode() + b"".join(said.digests)).digest()


def plan_of(said: DealingTerms, job: Job) -> HiddenPlan:
    """The training that terms and job describe."""
    train = Hidden.section_of(job)
    schedule = Schedule(said.schedule, said.rows, train.seed)
    training, testing = schedule.split(0, job.evaluate.test_fraction)
    return HiddenPlan(
        form=Form(tuple(said.widths), train.layers, train.outputs, train.form_loss),
        rows=said.rows,
        schedule=schedule,
        training=training,
        testing=testing if train.metrics_by == "histogram" else testing[:0],
        descent=_descent(job, said.divisor),
        batch_rows=said.batch_rows,
        divisor=said.divisor,
        weight_decay=train.weight_decay,
        bins=train.bins,
        threshold=job.evaluate.threshold,
        told=job.evaluate.share_with_passive,
        reveals=train.reveal == "owners",
        metric_noise=MetricNoise.from_job(job),
        audits=train.dealer_audit > 0,
    )


def doubts(job: Job, plan: HiddenPlan) -> tuple[str, ...]:
    """Whether noise takes more than the training gives, in a whole sentence for each party's owner; by public numbers."""
    train = Hidden.section_of(job)
    _, *said = describe_noise(train, len(job.parties.data), plan.records, worlds(train.task, job.align.spec)) or ("",)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in said)


def _descent(job: Job, divisor: float) -> Descent:
    train = Hidden.section_of(job)
    return descent_of(train, len(job.parties.data), divisor, worlds(train.task, job.align.spec))


def check_terms(said: DealingTerms, peer: str, session: Session) -> DealingTerms:
    """Check the terms of a data party, at the coordinator; returns them.

    Raises:
        ProtocolError: shapes that this job cannot have (``E_COUNT``).
        StateError: there is no memory for these (``E_MEMORY``).
    """
    train, parties = Hidden.section_of(session.job), session.job.parties
    fits = (
        0 < said.rows <= session.policy.limits.size.rows * len(parties.data)
        and _fit(said.widths, len(parties.data))
        and len(said.context) == DIGEST_BYTES
        and len(said.schedule) == DIGEST_BYTES
        and 0 < said.batch_rows <= said.rows
        and 0 < said.divisor <= said.rows
        and said.epoch <= _descent(session.job, said.divisor).steps
    )
    if not fits:
        raise ProtocolError(
            f"{peer} wants randomness for shapes that this job cannot have: {said.rows} rows, batches of {said.batch_rows}, "
            f"{' and '.join(map(str, said.widths[:9])) or 'no'} columns, from epoch {said.epoch} on",
            code="E_COUNT",
            hint=f"ask the owner of {peer} whether it runs another version, and submit the job again",
        )
    check_room(session, said.rows, said.widths, memory.coordinator_bytes(train, said.rows, said.widths, said.batch_rows))
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


def check_context(
    said: ShareContext,
    session: Session,
    own: tuple[int, bytes],
    batch: tuple[int, float],
    schedule: str,
    coins: bytes,
) -> None:
    """What the active party says that all values are made of: this party's ``own`` width and digest must be among it.

    Raises:
        ProtocolError: another batch, width or digest than this party's, or a context that is not made of them (``E_COUNT``).
        StateError: another context than in an earlier attempt, in which masks would be used for other values (``E_REPLAY``).
    """
    parties = session.job.parties.data
    place = parties.index(session.name)
    widths, digests = list(said.widths), list(said.digests)
    fits = _fit(widths, len(parties)) and len(digests) == len(parties) and (widths[place], digests[place]) == own
    if not fits or (said.batch_rows, said.divisor) != batch or said.context != context_of(session.job, said, schedule, coins):
        raise ProtocolError(
            f"{parties[0]} says what this job cannot have of its training: columns, their digests, or batches",
            code="E_COUNT",
            hint=f"ask the owner of {parties[0]} whether it runs another version, and submit the job again",
        )
    session.attempt.pins.check(f"share context {VERSION} of {parties[0]}", said.context)


def check_room(session: Session, rows: int, widths: Sequence[int], needed: int) -> None:
    """Refuse a training for which this machine has no memory, before any is taken.

    Args:
        session: whose owner may have set a limit.
        rows: length of the shared order.
        widths: columns of each party.
        needed: bytes, as :mod:`vfl_node.training.hidden.memory` counts them.

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


def _fit(widths: Sequence[int], parties: int) -> bool:
    """Whether so many parties can have these numbers of columns."""
    return len(widths) == parties and all(0 < width <= MOST_COLUMNS for width in widths)
