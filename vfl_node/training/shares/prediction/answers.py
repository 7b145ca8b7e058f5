"""A batch of predictions in shares, as every data party and the dealer compute it.

::

    X_j      each party's columns of the rows under masks of the batch
    z        scores, from the columns and the shares of the model (kept.py of the trainer)
    s        z + an offset of every party but the asker, secret, within ±½ step           offsets
    s >> F   cut to steps of 1/16, or of 1/32 deviation where the model is for numbers    truncated
    9 bits   its lowest ones opened to the party that asks, and to nobody else            revealed

Four rounds without hidden layers. A cut rounds up or down by coins with the right mean (``truncate``), so an
answer of P parties is right on average, and off by less than 1 + (P − 1)/2 steps. 9 bits are scores within ±16, or numbers
within ±8 deviations; what is beyond comes out at the other end.

**What all answers to a row tell together.** The asker sees s + r of a cut, r a fresh mask, so it knows the coin: an answer
tells it an interval of one step that holds s, and the next answer, under other masks, another one. Without offsets 256 answers
to one record would tell 16 bits of z. But an offset is a function of the row and of a key that its party alone has
(:func:`offsets`), so each answer is about the same s, and made of s and of fresh masks: all of them tell s modulo 512 steps at
most. Of z that is 9 bits: an offset is uniform over one step of a circle of 512, so z is anywhere within a step. Each party's
own offset does this for its columns, also if all others pool what they know.

A record to which the asker brings other columns keeps its offset: s moves by the change times the asker's weights, which tells
nothing of other columns. With hidden layers it does, so such a record is counted anew and has another offset. The table of
known records does not change (``E_INPUT_CHANGED``); an asker whose software lets it change reads more there, by hidden layers,
and by the rounding of their numbers, below 10⁻⁴.

**What the opened share tells.** A party sends no more than the 9 low bits of its share of the cut score, so these alone can
tell something. Of two parties, the asker has its own share and gets the sum: the other share's 9 bits are the difference, and
tell nothing else. Of several, shares go to the active party, which adds them. A share of a cut score is minus the party's share
of ``high``, plus what everybody knows at the first party, plus a multiple of 2⁶⁴⁻ᶠ, whose 9 low bits are 0. Of ``high`` every
party but one draws its share from a seed that the dealer alone knows besides, and that one has what is missing to a value that
no party knows. So the shares of the others are uniform to each party, but for their sum with its own; and that is the answer,
of which the asker alone learns.

Source: ours; such an offset is called dither (Schuchman 1964), which here is the same each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import reveal
from vfl_node.crypto.shares.ring import BITS, BYTES, Ring
from vfl_node.crypto.shares.sines import TABLES_DIGEST
from vfl_node.crypto.shares.values import Shared
from vfl_node.errors import StateError
from vfl_node.job import Job
from vfl_node.session.session import Session
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.predictor import Names
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.kept import AnswerForm
from vfl_node.training.targets import TargetScale
from vfl_node.transport.generated.vfl.v1.shares_pb2 import AnswerTerms

Floats = NDArray[np.float64]

VERSION = 2
"""The version of the computation: another one computes other values in the same places, so masks must be others."""

ANSWER_BITS = 9
"""What the asker learns of a score at most, in all answers together."""

SECTION = "answer"


def step_bits(form: AnswerForm) -> int:
    """Fractional bits of what is opened."""
    return 5 if form.numbers else 4


def offsets(key: bytes, names: Names, own: Sequence[bytes], outputs: int) -> Ring:
    """What a party that does not ask adds to its scores, uint64[B, K]: uniform words, of which the top bits are used.

    Args:
        key: 32 bytes, of this party alone; the same in all jobs over the model.
        names: int64[B], of which each has one offset.
        own: this party's columns of each row. A shared position does not name them.
        outputs: K.
    """
    rows = zip(names.astype("<i8"), own, strict=True)
    words = b"".join(hashlib.shake_256(key + name.tobytes() + row).digest(BYTES * outputs) for name, row in rows)
    return np.frombuffer(words, "<u8").astype(np.uint64).reshape(len(names), outputs)


async def answer(
    machine: ShareMachine,
    form: AnswerForm,
    shares: Sequence[Ring],
    rows: int,
    own: Any,
    offset: Ring | None,
    to: int,
    kit: Kit = DEALT,
) -> Ring:
    """The scores of a batch, uint64[rows, K] below 2⁹, at the party at place ``to``; zeros elsewhere.

    Args:
        machine: of whoever runs it.
        form: of the model.
        shares: of it; zeros at the dealer.
        rows: of the batch.
        own: this party's columns, [rows, d]; None at the dealer. Without one the columns of all, as the kit has them.
        offset: as :func:`offsets`; None at the dealer and at the party that asks.
        to: place of the party that asks; of no meaning at the dealer.
        kit: whose randomness it is.
    """
    machine.begin(SECTION)
    z = await form.score(machine, shares, rows, own, kit)
    bits = z.fraction - step_bits(form)
    if offset is not None:
        z += Shared((offset >> np.uint64(BITS - bits)) - np.uint64(1 << (bits - 1)), z.fraction)
    (cut,) = await machine.run(kit.truncate(z, bits))
    (low,) = await machine.run(reveal(cut, to, ANSWER_BITS))
    return np.asarray(low, dtype=np.uint64)


def read(low: Ring, form: AnswerForm) -> Floats:
    """The scores float64[n, K] of which these are the low bits, uint64[n, K]."""
    half = 1 << (ANSWER_BITS - 1)
    signed = (low.astype(np.int64) + half) % (2 * half) - half
    return np.ldexp(signed.astype(np.float64), -step_bits(form))


def round_scores(z: Floats, form: AnswerForm) -> Floats:
    """Scores as :func:`read` would have them, rounded to the nearest step."""
    return read(np.rint(np.ldexp(z, step_bits(form))).astype(np.int64).view(np.uint64), form)


def interpret(z: Floats, train: SharesConfig, target: tuple[float, float] | None) -> Floats:
    """What scores float64[n, K] say: probabilities float64[n] or [n, K]; numbers float64[n].

    Args:
        z: scores.
        train: the section of the job that trained the model.
        target: mean and deviation of the numbers that it has learnt; None where they are not known: then in such deviations.
    """
    if train.task == "classification":
        return output_of(z).probabilities
    return TargetScale(*target).undo(z[:, 0]) if target else z[:, 0]


def context_of(
    job: Job, trained: Job, number: int, rows: int, widths: Sequence[int], commitments: Sequence[str], digests: Sequence[bytes]
) -> bytes:
    """SHA-256 of everything that the values of a batch are made of. With other values masks are others.

    So whatever counters a party may have lost, as after a backup was restored: no mask is used for two values. With the same
    values the same bytes are sent.

    Args:
        job: that predicts.
        trained: that trained the model.
        number: of the batch.
        rows: of it.
        widths: columns of each party.
        commitments: of all parties to their shares, hexadecimal.
        digests: of each party's columns in the batch and of which rows these are, salted: all that offsets are made of, for the
            commitments cover the key.
    """
    assert job.predict is not None
    public = {
        "answers": VERSION,
        "model": job.predict.model,
        "training": trained.digest(),
        "kind": job.predict.rows,
        "asker": job.asker,
        "batch": [number, rows],
        "widths": list(widths),
        "commitments": list(commitments),
        "tables": TABLES_DIGEST,
    }
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode() + b"".join(digests)).digest()


def masks_of(terms: AnswerTerms) -> str:
    """The context of all masks of a batch.

    It covers the shapes that the dealer is told: in others masks are others. So a party that tells it other shapes than the
    rest do learns nothing of theirs.
    """
    return hashlib.sha256(b"vfl-node answers" + terms.SerializeToString(deterministic=True)).hexdigest()


def check_memory(session: Session, form: AnswerForm, rows: int) -> None:
    """Refuse a batch for which this machine has no memory, before any is taken. Raises StateError (``E_MEMORY``)."""
    needed, free, widths = form.memory(rows), session.machine.free_bytes, form.widths
    if needed > free:
        raise StateError(
            f"predictions of {rows} rows of {sum(widths)} columns in shares need {needed >> 20} MiB of memory; "
            f"{int(free) >> 20} MiB are free",
            code="E_MEMORY",
            hint="free memory, raise resources.memory_mib, or train with a smaller serve.batch_size",
            for_peer="it has too little memory free for this job",
        )
