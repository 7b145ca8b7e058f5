"""How much memory training in shares takes, from shapes alone; light: any command may ask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from vfl_node.crypto.lattice.sizes import Tiles, matrix_bytes
from vfl_node.crypto.shares.paired.blocks import LEAST_ROWS, block_rows, fill
from vfl_node.job.costs import Beside, TableShape
from vfl_node.job.names import LEVELS
from vfl_node.roles import DataRole
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import most_epochs

USUAL_COLUMNS = 16
"""Encoded columns of a party, where nobody says how many it has."""

NUMBER_BYTES = 8

COLUMN_COPIES = 4
"""The most copies of all parties' columns at a party at a time: as numbers, as integers, under masks, and on their way."""

DEALT_COPIES = 1.25
"""The most copies of all columns' masks at the coordinator at a time, for each party that it deals to."""

UNIT_NUMBERS = 30
"""Numbers of a unit of a layer and a row: 2·9 or 2·5 of a sum of sines, and products."""

AHEAD_BYTES = 128 << 20
"""What has come from the dealer and is not used yet, once more while it is put together; of a small job all that it deals."""

ROUND_BYTES, STEP_ROUNDS = 170, 20
"""What a party remembers of a round's openings, and rounds of a step, about."""

CANDIDATES = 16
"""Products of ownership bits that are dealt with an audit; all of them are here before one is used, and twice while joined."""

ROWS_AT_ONCE = 1 << 16
"""Rows of which a step makes gradients at a time: it adds them up before it moves."""

OWN_COPIES = 4
"""Without a coordinator: the most copies of a party's own columns at a time."""

PAIR_BYTES = 32 << 20
"""Likewise: keys, tables of polynomials, and blocks of columns on their way."""

EXACT_BYTES, TAYLOR_BYTES, MADE_COPIES = 248, 72, 4
"""Likewise: what is made ahead for a row of a step and an output, and copies of it while it is made and written to the disk."""

TALLIED_AHEAD = 64 << 20
"""Likewise: ciphertexts of scores of an output with 256 bins, while they are counted."""

CHECKED_COPIES = 3
"""Copies of a batch's numbers with an audit: all that a step is dealt is here before it is used, and twice while joined."""

TALLIED = 1 << 18
"""Numbers of the rows that a histogram counts at a time."""

LEAST_TALLIED = 16
"""Rows of these at least."""

TALLY_COPIES = 12
"""Copies of a row of the histogram: the bin of a mask, and that times two amounts; dealt, drawn and computed."""


def widths(passive_parties: int, beside: Beside) -> tuple[int, ...]:
    """Encoded columns of each data party, the active one's intercept included."""
    known = beside.columns or (0,) * (1 + passive_parties)
    active, *others = (columns or USUAL_COLUMNS for columns in known)
    return active + 1, *others


def parameters(train: Hidden, role: DataRole, table: TableShape, passive_parties: int, beside: Beside) -> int:
    """How many the whole model has, in shares at every party; args as :meth:`~vfl_node.job.costs.TrainingPlan.parameters`."""
    after = (*train.layers, train.outputs)
    return sum(_widths(train, role, table, passive_parties, beside)) * after[0] + sum((a + 1) * b for a, b in pairwise(after))


def batch_bytes(train: Hidden, role: DataRole, table: TableShape, passive_parties: int, beside: Beside) -> int:
    """As :func:`party_bytes`, before alignment.

    The length of the shared order is not known yet. It is taken to be that of the party's table: a union is longer.
    """
    share = train.shared_fraction or 1.0
    rows = table.rows if train.epsilon is not None else min(table.rows, int(train.batch / share) + 1)
    return party_bytes(train, table.rows, _widths(train, role, table, passive_parties, beside), rows)


def party_bytes(train: Hidden, m: int, widths: Sequence[int], batch: int) -> int:
    """Memory of a data party: columns, a batch, what comes from the dealer and what is remembered, and measuring.

    Args:
        train: the job's section.
        m: length of the shared order.
        widths: as :func:`widths`.
        batch: rows of one.
    """
    columns, steps = sum(widths), most_epochs(train) * (m // max(batch, 1))
    of_row = _row_numbers(train, columns)
    if not train.coordinated:
        return _paired_bytes(train, m, widths, max(batch, 1)) + ROUND_BYTES * STEP_ROUNDS * steps
    at_once = CHECKED_COPIES * batch if train.dealer_audit else min(batch, ROWS_AT_ONCE)
    numbers = COLUMN_COPIES * m * columns + at_once * of_row + 2 * CANDIDATES * m * (train.dealer_audit > 0)
    ahead = min(AHEAD_BYTES, 2 * NUMBER_BYTES * (steps + 1) * batch * of_row)
    return NUMBER_BYTES * numbers + ahead + ROUND_BYTES * STEP_ROUNDS * steps + _tally(train)


def _paired_bytes(train: Hidden, m: int, widths: Sequence[int], batch: int) -> int:
    """Without a coordinator: own columns, the other party's as ciphertexts, and all that is made ahead for a step."""
    size = block_rows(fill(batch, LEAST_ROWS), max(widths))
    rows = fill(m, size)
    own = OWN_COPIES * NUMBER_BYTES * rows * max(widths)
    ciphertexts = matrix_bytes(Tiles(rows, max(widths), size))
    step = MADE_COPIES * fill(batch, size) * train.outputs * (TAYLOR_BYTES if train.loss == "taylor" else EXACT_BYTES)
    tally = TALLIED_AHEAD * train.outputs * train.bins // 256 if train.metrics_by == "histogram" else 0
    return own + ciphertexts + PAIR_BYTES + step + tally


def coordinator_bytes(train: Hidden, m: int, widths: Sequence[int], batch: int) -> int:
    """Memory of the coordinator: it deals to each party by itself, and has the masks of all columns for each.

    Args as :func:`party_bytes`.
    """
    columns, batch = sum(widths), min(batch, ROWS_AT_ONCE)
    numbers = DEALT_COPIES * m * columns + len(widths) * batch * _row_numbers(train, columns)  # every party's shares
    return len(widths) * (int(NUMBER_BYTES * numbers) + _tally(train))


def answer_bytes(train: Hidden, rows: int, widths: Sequence[int]) -> int:
    """Memory of whoever has a part in a batch of predictions of so many ``rows``; widths as :func:`widths`."""
    columns = sum(widths)
    return NUMBER_BYTES * rows * (COLUMN_COPIES * columns + CHECKED_COPIES * _row_numbers(train, columns))


def _row_numbers(train: Hidden, columns: int) -> int:
    """Numbers of a row in a batch: its columns, and what is dealt and computed for each unit of a layer."""
    return columns + UNIT_NUMBERS * (sum(train.layers) + train.outputs)


def _tally(train: Hidden) -> int:
    """What the histogram of one model takes while it is made of some rows."""
    if train.metrics_by != "histogram":
        return 0
    return TALLY_COPIES * NUMBER_BYTES * max(TALLIED, LEAST_TALLIED * train.bins * train.outputs)


def _widths(train: Hidden, role: DataRole, table: TableShape, passive_parties: int, beside: Beside) -> tuple[int, ...]:
    """As :func:`widths`, with this party's table as far as it is known."""
    pixels = math.prod(table.image) if table.image else 0
    numbers = (table.numeric + pixels) // 2 * (1 + LEVELS * (train.columns == "bins"))
    own = numbers + sum(levels - 2 for levels in table.cardinalities)
    known = list(beside.columns or (0,) * (1 + passive_parties))
    place = 0 if role == "active" else 1
    known[place] = known[place] or own
    return widths(passive_parties, Beside(columns=tuple(known)))
