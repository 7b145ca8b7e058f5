"""One record asked again and again: all answers together tell its score to a step, and no closer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import kstest

from tests.thorough import examples
from tests.training.hidden.answering import BATCH, Asked, errors_of, new_records, trained
from tests.training.predicting import Request
from vfl_node.crypto.shares.ring import Ring
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.training.shares.prediction import answers

ASKS = examples(256, fewer=48)
CUT = 40
"""Bits of a step."""


@dataclass
class Seen:
    """What parties see and add, by the asker's columns in a row.

    Attributes:
        intervals: row → for each answer the end of the interval of one step that holds what was cut, in steps.
        offsets: place and own columns of the row → what was added, each time.
    """

    intervals: dict[bytes, list[float]] = field(default_factory=lambda: defaultdict(list))
    offsets: dict[tuple[int, bytes], list[int]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def watched() -> Iterator[Seen]:
    """The asker sees x + r of a cut and the answer v: x is in (v − 1, v] steps + the bits of x + r that were cut off."""
    seen, answer = Seen(), answers.answer

    async def watch(machine: Any, form: Any, shares: Any, rows: int, own: Ring | None, offset: Ring | None, to: int) -> Ring:
        if own is None:
            return await answer(machine, form, shares, rows, own, offset, to)
        for row, added in zip(own, offset if offset is not None else (), strict=offset is not None):
            seen.offsets[machine.place, row.tobytes()].append(int(added[0]))
        opened, before = [], machine._seen
        machine._seen = lambda section, number, of: (opened.append(of), before(section, number, of))
        low = await answer(machine, form, shares, rows, own, offset, to)
        if machine.place == to:
            (cut,) = opened[-2]  # the last one is the answer
            ends = answers.read(low, form) * 16 + np.ldexp((cut & np.uint64((1 << CUT) - 1)).astype(float), -CUT)
            for row, end in zip(own, ends[:, 0], strict=True):
                seen.intervals[row.tobytes()].append(float(end))
        return low

    with mock.patch.object(answers, "answer", watch):
        yield seen


def attacked(asked: Asked, asks: int, *, batches: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of the records of some batches: the middle of what all answers leave, less the score; and its width. In steps."""
    request, positions = asked.all_rows("active")
    table, view = asked.data["clinic"]
    with watched() as seen:
        for number in range(asks):
            ids = Identifiers.from_items(request.table.ids.take(np.arange(len(positions) if batches is None else batches)))
            assert errors_of(asked.in_another_job(str(number)).talk("active", Request(Table(ids, {})))) == {}
    rows = [row.tobytes() for row in asked.kept("clinic").columns(table)[view.rows[positions]]]
    found = [place for place, row in enumerate(rows) if row in seen.intervals]
    ends = [seen.intervals[rows[place]] for place in found]
    assert all(len(of) >= asks for of in ends)
    lower, upper = np.array([max(of) - 1 for of in ends]), np.array([min(of) for of in ends])
    off = (lower + upper) / 2 - asked.scores(positions[found])[:, 0] * 16
    return (off + 256) % 512 - 256, upper - lower  # answers go round


def without_offsets() -> Any:
    """Each party adds the middle of a step, which is then taken away."""
    return mock.patch.object(answers, "offsets", lambda key, names, own, outputs: np.full((len(own), outputs), 1 << 63, "u8"))


def test_all_answers_to_a_record_tell_its_score_to_a_step(world: Any, attempt: Any) -> None:
    """256 answers tell what was cut to 2/257 of a step on average: 16.4 of 512 steps' bits, sd 1.2 a record, 8 or more.

    That is the score in the control. With offsets the score is somewhere in the step around it.
    """
    asked = trained(world, attempt)
    off, width = attacked(asked, ASKS, batches=1)
    assert len(off) == BATCH
    assert np.log2(512 / width).mean() > np.log2(ASKS) + 7
    assert np.abs(off).max() < 0.5 + width.max()
    assert np.abs(off).max() > 20 * ASKS / 256 * width.mean()
    with without_offsets():
        off, width = attacked(asked, ASKS, batches=1)
    assert np.log2(512 / width).mean() > np.log2(ASKS) + 7
    assert (np.abs(off) <= width / 2).all()


@pytest.mark.parametrize("parties", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_the_score_is_anywhere_in_that_step(world: Any, attempt: Any, parties: int) -> None:
    """Of each other party's offset it is as likely everywhere: what two of them add up to has a triangle's density."""
    asked = trained(world, attempt, parties, people=examples(400, fewer=200))
    off, width = attacked(asked, 12)
    assert len(off) > 50
    assert np.abs(off).max() < (parties - 1) / 2 + width.max()
    near = off if parties == 2 else np.sign(off) * (1 - (1 - np.minimum(np.abs(off), 1)) ** 2) / 2
    assert kstest(near, "uniform", (-0.5, 1)).pvalue > 1e-3
    with without_offsets():
        off, width = attacked(asked, 12)
    assert kstest(off, "uniform", (-0.5, 1)).pvalue < 1e-9


@pytest.mark.parametrize("to", ["active", "lab"])
def test_a_record_has_one_offset_at_each_other_party_in_all_jobs(world: Any, attempt: Any, to: str) -> None:
    asked = trained(world, attempt, 3)
    with watched() as seen:
        for job, batches in (("a", 3), ("b", 1), ("c", 3)):
            request, _ = asked.all_rows(to)
            ids = Identifiers.from_items(request.table.ids.take(np.arange(batches)))
            assert errors_of(asked.in_another_job(job).talk(to, Request(Table(ids, {})))) == {}
    others = {place for place, name in enumerate(asked.parties.data) if name != asked.name(to)}
    assert {place for place, _ in seen.offsets} == others
    assert all(len(set(of)) == 1 for of in seen.offsets.values())
    assert max(len(of) for of in seen.offsets.values()) >= 3
    assert len({of[0] for of in seen.offsets.values()}) == len(seen.offsets)


def with_one_row_changed(data: Any, party: str) -> Any:
    table, view = data[party]
    name, column = next(iter(table.columns.items()))
    values = column.values.copy()
    values[view.rows[0]] += 0.5
    return {**data, party: (replace(table, columns={**table.columns, name: NumericColumn(values)}), view)}


@pytest.mark.parametrize(("train", "same"), [({}, 2 * BATCH), ({"layers": [4]}, 2 * BATCH - 1)], ids=["linear", "layers"])
def test_a_new_record_has_the_same_offset_unless_its_owner_s_columns_change(
    world: Any, attempt: Any, train: Any, same: int
) -> None:
    """In whatever company it is asked, and by whatever columns of the asker; with hidden layers those count, too."""
    asked = trained(world, attempt, 2, train)
    some, company = new_records(asked, 40, shared=2 * BATCH), new_records(asked, 40, shared=3 * BATCH)
    seen = []
    for job, data in enumerate((some, company, with_one_row_changed(some, "clinic"), with_one_row_changed(some, "lab"))):
        with watched() as of:
            assert errors_of(asked.in_another_job(str(job)).once("active", data)) == {}
        seen.append({added for each in of.offsets.values() for added in each})
    assert [len(of) for of in seen] == [2 * BATCH, 3 * BATCH, 2 * BATCH, 2 * BATCH]
    assert seen[0] < seen[1]
    assert [len(seen[0] & of) for of in seen[2:]] == [same, 2 * BATCH - 1]
    assert not seen[2] - seen[0] & seen[3]


def test_offsets_depend_on_everything() -> None:
    names, own = np.array([3, -5, 3]), [b"one", b"one", b"two"]
    words = answers.offsets(bytes(32), names, own, 2)
    assert words.shape == (3, 2)
    assert len(np.unique(words)) == 6
    assert np.array_equal(words, answers.offsets(bytes(32), names, own, 2))
    assert not np.isin(answers.offsets(b"k" * 32, names, own, 2), words).any()
