"""How much memory training trees in shares takes, from shapes alone; light: any command may ask."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.job.costs import Beside, TableShape
from vfl_node.roles import DataRole
from vfl_node.training.trees.config import Trees

USUAL_CANDIDATES = 120
"""Candidates of a party, where nobody says how many columns it has."""

CELL_BYTES = 2.13
"""What a cell of another party takes: the masked one, and its lowest bit."""

OWN_CELL_BYTES = 1.5
"""What an own one takes, about: its part of a column and of that column's bins."""

PROCESS_BYTES = 480 << 20
"""A process with libraries, and blocks of what it computes with."""

AHEAD_BYTES = 64 << 20
"""What comes from the dealer ahead of need."""

ROW_BYTES = 130
"""What alignment leaves of a row."""

NODE_NUMBERS = 12
"""Numbers of a row and a node of the last level: z and x with masks and their products, and what is put together."""

FOLLOWED = 1 << 22
"""Rows times nodes that are followed at a time in predictions."""

VALUE_BYTES = 400
"""What a candidate of a node of the last level takes: both sides, in all that a gain is made of, dealt and computed."""

GROWN_BYTES = 1 << 30
"""What rows take in the last level of all trees that grow side by side, at most, if more than one does."""

GROWN_CANDIDATES = 1 << 14
"""Candidates of all nodes in this level, at most, likewise: gains of more are computed in several goes anyway."""

MASKS_BYTES = 2 * (1 << 26)
"""Masks of cells that a dealer keeps for each party at most; of more cells it keeps none."""


def width_of(train: Trees, role: DataRole, table: TableShape) -> int:
    """Candidates of a party, at most as far as its table is known."""
    numbers = table.numeric * 2 * train.bins
    return max(1, numbers + sum(min(levels, 1000) for levels in table.cardinalities)) if table.rows else USUAL_CANDIDATES


def widths(train: Trees, passive_parties: int, beside: Beside) -> tuple[int, ...]:
    """Candidates of each data party; the columns that are known have all cuts."""
    known = beside.columns or (0,) * (1 + passive_parties)
    return tuple(columns * (train.bins - 1) or USUAL_CANDIDATES for columns in known)


def party_bytes(train: Trees, rows: int, of_all: Sequence[int]) -> int:
    """Memory of the data party that has most cells of others, where each has as many candidates as ``of_all`` says."""
    nodes, own = grown_at_once(train, rows, of_all) << (train.depth - 1), min(of_all)
    cells = CELL_BYTES * (sum(of_all) - own) + OWN_CELL_BYTES * own
    of_rows = int(rows * (cells + ROW_BYTES + 8 * NODE_NUMBERS * nodes))
    return of_rows + VALUE_BYTES * nodes * sum(of_all) + PROCESS_BYTES + AHEAD_BYTES


def dealer_bytes(train: Trees, rows: int, of_all: Sequence[int]) -> int:
    """Memory of the coordinator, which deals to each party by itself."""
    nodes, parties = grown_at_once(train, rows, of_all) << (train.depth - 1), len(of_all)
    numbers = 2 * parties + 5.5  # of a row and a node of the last level: masks of z, and of x with each party's share
    kept = sum(2 * rows * width for width in of_all if 2 * rows * width <= MASKS_BYTES)
    each = int(8 * rows * numbers * nodes) + VALUE_BYTES * nodes * sum(of_all) + AHEAD_BYTES
    return parties * each + kept + PROCESS_BYTES


def grown_at_once(train: Trees, rows: int, of_all: Sequence[int]) -> int:
    """How many trees of a round grow side by side; everybody must have the same number."""
    nodes = 1 << (train.depth - 1)
    by_rows = GROWN_BYTES // max(1, 8 * NODE_NUMBERS * rows * nodes)  # an estimate may not know any rows
    return max(1, min(train.outputs, by_rows, GROWN_CANDIDATES // (sum(of_all) * nodes)))


def trees_at_once(train: Trees, rows: int) -> int:
    """How many trees are followed at a time in a batch of predictions, so that memory is bounded."""
    return max(1, FOLLOWED // (rows << train.depth))


def answer_bytes(train: Trees, rows: int, of_all: Sequence[int]) -> int:
    """Memory of whoever has a part in a batch of predictions of so many ``rows``."""
    trees = train.trees * train.outputs
    followed = min(trees, trees_at_once(train, rows)) * (rows << train.depth)
    return int(rows * 12 * CELL_BYTES * sum(of_all)) + 8 * NODE_NUMBERS * followed + (trees * sum(of_all) << train.depth)
