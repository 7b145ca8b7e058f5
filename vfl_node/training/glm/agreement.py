"""Before the first iteration: numbers of columns are exchanged, and a job whose gradients would reveal too much is refused.

A party's gradient is a linear image of values that it must not know: the residuals, which show
labels and dummies, or the other parties' scores. It reveals them

- if an iteration has no more rows than columns, and even with somewhat more rows, because the values are integers of few
  bits: the equations can be solved for all of them;
- if fewer rows than columns are genuine: the gradients of several iterations span exactly those rows;
- if there are few rows for each column: statistically;
- if the label holder's own columns distinguish only a few kinds of records: the residuals then take only a few values, and
  |I| was computed from one gradient.

See docs/explanations/privacy/index.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from vfl_node.crypto.paillier.keys import PublicKey
from vfl_node.errors import PolicyError, ProtocolError
from vfl_node.session.session import Session
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.side import Positions, Side
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.generated.vfl.v1 import training_pb2

RECOMMENDED_BITS = 3072

LEAST = 2
"""An iteration needs so many rows, and so many genuine rows, for each column of the party that sees the gradient.

By reducing lattices, gradients were solved for up to 1.5 rows a column.
"""

AMPLE = 20
"""There is a warning if an iteration has fewer shared rows for each column.

With as many, the published attack on dummies is at chance. A stronger attack is not, if the active party has no columns
(docs/explanations/privacy/index.md).
"""

KINDS = 20
"""The active party's own columns hide |I| only if they distinguish at least so many kinds of records."""


async def exchange_widths(session: Session, side: Side, public: PublicKey) -> dict[str, int]:
    """Party → how many columns its side has, for the parties whose gradients this one must check.

    Raises:
        ProtocolError: another party was given another key (``E_KEY``).

    Leaks: to the active party the number of each passive party's columns; to a passive party with the labels the number of
    the active party's columns.
    """
    widths = {session.name: side.width}
    both = GeneralisedLinear.section_of(session.job).labels == "passive"
    for name, channel in session.data_peers.items():
        if both or session.role == "passive":
            await channel.send(training_pb2.Features(columns=side.width, key=public.fingerprint()))
        if both or session.role == "active":
            theirs = await channel.receive(training_pb2.Features)
            if theirs.key != public.fingerprint():
                raise ProtocolError(
                    f"{name} encrypts under another key than this party was given",
                    code="E_KEY",
                    hint="the coordinator must give all data parties the same key",
                )
            widths[name] = theirs.columns
    return widths


def check(
    session: Session,
    data: TrainingData,
    side: Side,
    widths: dict[str, int],
    size: int,
    training: Positions,
    positions: Callable[[int], Positions],
) -> tuple[str, ...]:
    """Refuse a job whose gradients would reveal too much; returns warnings about a job that reveals more than necessary.

    Args:
        session: the attempt at the job.
        data: what this party trains on.
        side: its linear model at the start.
        widths: result of :func:`exchange_widths`.
        size: shared rows of an iteration.
        training: shared positions trained on.
        positions: those of each iteration.

    Raises:
        PolicyError: too few rows for the columns (``E_BATCH``), the active party's columns hide nothing
            (``E_NO_COVER``), or no record is shared (``E_STOPPED``).
    """
    train, parties = GeneralisedLinear.section_of(session.job), session.job.parties
    warnings = list(_doubts(train))
    for party, width in widths.items():
        if party == parties.active and train.labels == "active":
            continue  # it knows its own labels and dummies
        if size < LEAST * width:
            raise PolicyError(
                f"an iteration over {size} shared rows has fewer than {LEAST} for each of {party}'s {width} columns: {party} "
                "might solve its gradient for every residual, and so for labels and dummies",
                code="E_BATCH",
                hint="train on all rows at once (train.batch_size: null), on more records, or on fewer columns",
                for_peer=f"an iteration has fewer than {LEAST} rows a column of {party}'s",
            )
        if size < AMPLE * width:
            warnings.append(
                f"An iteration has {size} shared rows, fewer than {AMPLE} for each of {party}'s {width} columns: its "
                "gradients tell it more about labels and dummies than they need to."
            )
    if session.role == "active":
        theirs = {party: widths[party] for party in parties.passive}
        warnings += _few_rows_for_all(theirs, size)
        _check_genuine(data, train, side, theirs, training, positions)
        if data.alignment.hides_intersection:
            for party, width in theirs.items():
                _check_cover(side, training, party, width)
    return tuple(warnings)


def _check_genuine(
    data: TrainingData,
    train: GeneralisedLinear,
    side: Side,
    theirs: Mapping[str, int],
    training: Positions,
    positions: Callable[[int], Positions],
) -> None:
    """Refuse iterations with so few of this party's rows that a gradient would reveal which they are, or the others' values.

    ``theirs``: passive party → number of its columns.
    """
    if not side.owned[training].any():
        raise PolicyError(
            "no record is shared, so there is nothing to train on",
            code="E_STOPPED",
            hint="to stop here tells the other party something; see obfuscation.min_intersection",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )
    steps = range(train.iterations if train.batch_size else 1)
    fewest = min(int(np.count_nonzero(side.owned[positions(step)])) for step in steps)
    seen = [] if data.alignment.every_row_is_shared else [*theirs.values()]
    if train.flow == "coordinator":
        seen.append(side.width)
    needed = max(1, *(LEAST * width for width in seen)) if seen else 1
    if fewest < needed:
        raise PolicyError(
            f"an iteration has {fewest} rows that are this party's, and needs {needed}, {LEAST} for each column of the "
            "party that sees a gradient over them: fewer would reveal which they are, or what another party's values are",
            code="E_BATCH",
            hint="train on all rows at once (train.batch_size: null), on more records, or on fewer columns",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )


def _check_cover(side: Side, training: Positions, passive: str, columns: int) -> None:
    """Refuse a job in which this party's own scores vary too little to hide |I| and the dummies."""
    own = training[side.owned[training]]
    kinds = len(np.unique(side.scores(own)[:, 0].round(12)))
    if kinds < max(KINDS, columns + 1):
        raise PolicyError(
            f"this party's columns tell its shared records into {kinds} kinds only, and {passive} has {columns} columns: "
            f"from its gradients {passive} could compute how many records are shared, and find many dummies",
            code="E_NO_COVER",
            hint="add columns that vary from record to record (one of random numbers, drawn once, serves)",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )


def _few_rows_for_all(theirs: Mapping[str, int], size: int) -> Iterator[str]:
    """A warning where several passive parties that compare their gradients would learn much; ``theirs``: party → columns."""
    columns = sum(theirs.values())
    if len(theirs) > 1 and size < AMPLE * columns:
        yield (
            f"An iteration has {size} shared rows, fewer than {AMPLE} for each of the {columns} columns that "
            f"{' and '.join(theirs)} have together: if they compared their gradients, these would tell them more about labels "
            "than they need to."
        )


def _doubts(train: GeneralisedLinear) -> Iterator[str]:
    """Warnings about the job itself."""
    if train.key_bits < RECOMMENDED_BITS:
        yield f"The Paillier key has {train.key_bits} bits; {RECOMMENDED_BITS} are recommended today (train.key_bits)."
    if train.least_rows < AMPLE:
        yield (
            f"Columns that set as few as {train.least_rows} shared rows apart stay (train.least_rows), and their gradients "
            f"show those rows' residuals; at least {AMPLE} are recommended."
        )
    if train.short_exponents:
        yield "Noise with short exponents rests on a further assumption (train.short_exponents)."
