"""Which shared rows are held out where the last ones are (``evaluate.hold_out``), and how the parties agree on them.

::

    active:   order of its rows at the shared positions, by its private column data.order; equal ones by shared position
              the last ⌈m · last⌉ are held out, the ⌈m · validation_fraction⌉ before them set apart for validation
              HeldOutRows → , a bit for each position →        (once, to every passive party, before the first batch)
    passive:  checks numbers and bits, and that they are those of an earlier attempt

Nothing is drawn: every attempt sends the same bits. Only for alignments whose parties know which of their records are shared.

What each passive party learns: which of its shared records are the last ones, and with validation which come before them; not
their order among themselves, nor their dates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.errors import DataError, ProtocolError
from vfl_node.job import Evaluate
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.schedule import Parts, Schedule
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

PartsOf = Callable[[int], Parts]
"""Number of a repeat → what its shared rows are for."""

_WIDTH = 2
"""Bytes of an element: eight positions held out, and the same eight set apart for validation."""


async def agreed_parts(session: Session, data: TrainingData, schedule: Schedule) -> PartsOf:
    """What the shared rows are for: as the schedule draws them or, where the job says so, by the active party's order.

    Args:
        session: this party's, in the phase of training.
        data: what it trains on; at the active party its table has an order.
        schedule: of the job.

    Cost: at the active party a sort of m numbers; on the wire m/4 bytes to each passive party. Nothing without
        ``evaluate.hold_out``.

    Raises:
        DataError: the active party's table has no order (``E_CONFIG``).
        ProtocolError: the active party sent other numbers of rows than follow from the job (``E_COUNT``), or marked other rows
            than it announced (``E_HELD_OUT``).
        StateError: it held out other rows in an earlier attempt (``E_REPLAY``).

    Leaks: to each passive party which shared positions are the last ones, as above.
    """
    evaluate = session.job.evaluate
    if evaluate.hold_out is None:
        return lambda repeat: schedule.parts(repeat, evaluate.test_fraction, evaluate.validation_fraction)
    if session.role == "active":
        parts = last_rows(_order(data), evaluate)
        for channel in session.data_peers.values():
            await _send(channel, parts, schedule.size)
    else:
        channel = session.peers[session.job.parties.active]
        held_out, validation = await _received(channel, schedule.size, evaluate)
        digest = hashlib.sha256(np.packbits([held_out, validation], axis=1).tobytes()).digest()
        session.attempt.pins.check("held-out rows", digest)
        parts = Parts(np.flatnonzero(~(held_out | validation)), np.flatnonzero(held_out), np.flatnonzero(validation))
    failpoints.reach("held-out")
    return lambda _: parts


def counts(size: int, evaluate: Evaluate) -> tuple[int, int]:
    """How many of ``size`` rows are held out, and set apart for validation; as :meth:`Schedule.parts` has them."""
    held_out = math.ceil(size * evaluate.test_fraction)
    return held_out, min(math.ceil(size * evaluate.validation_fraction), size - held_out)


def last_rows(order: NDArray[np.float64], evaluate: Evaluate) -> Parts:
    """The parts of m rows by their ``order``, float64[m]; equal ones are ordered by shared position."""
    held_out, validation = counts(len(order), evaluate)
    ascending = np.argsort(order, kind="stable")
    trained = len(order) - held_out - validation
    training, apart, testing = map(np.sort, np.split(ascending, [trained, trained + validation]))
    return Parts(training, testing, apart)


def _order(data: TrainingData) -> NDArray[np.float64]:
    """The order of the record at each shared position, float64[m]; every one is this party's."""
    order = data.table.order
    if order is None:
        raise DataError(
            "the job holds out the last rows (evaluate.hold_out), and this party's table has no order",
            code="E_CONFIG",
            hint="set data.order",
        )
    return order[data.alignment.rows]


async def _send(channel: Channel, parts: Parts, size: int) -> None:
    await channel.send(training_pb2.HeldOutRows(rows=size, held_out=len(parts.testing), validation=len(parts.validation)))
    bits = np.zeros((_WIDTH, size), dtype=np.bool_)
    bits[0, parts.testing] = bits[1, parts.validation] = True
    elements = np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little").T)  # uint8[⌈m/8⌉, 2]
    await channel.send_rows(elements, count=len(elements), width=_WIDTH)


async def _received(channel: Channel, size: int, evaluate: Evaluate) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each of ``size`` shared positions is held out, and set apart for validation, bool[m] each."""
    said, expected = await channel.receive(training_pb2.HeldOutRows), counts(size, evaluate)
    if (said.rows, said.held_out, said.validation) != (size, *expected):
        raise ProtocolError(
            f"{channel.peer} holds out {said.held_out} and {said.validation} of {said.rows} shared rows; by the job these are "
            f"{expected[0]} and {expected[1]} of {size}",
            code="E_COUNT",
        )
    elements = await channel.receive_rows(width=_WIDTH, count=-(-size // 8))
    bits = np.unpackbits(elements.T, axis=1, bitorder="little").astype(np.bool_)
    held_out, validation = bits[:, :size]
    counted = int(np.count_nonzero(held_out)), int(np.count_nonzero(validation))
    if counted != expected or (held_out & validation).any() or bits[:, size:].any():
        raise ProtocolError(
            f"{channel.peer} announced {expected[0]} rows held out and {expected[1]} for validation, and marked others: "
            f"{counted[0]} and {counted[1]}, or a row twice or beyond the last one",
            code="E_HELD_OUT",
        )
    return held_out, validation
