"""Which columns enter hidden training follows from raw values, once for each partner, and cannot be asked in other words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.thorough import every
from tests.training import shares_attempts
from tests.training.hidden.conftest import NOISED
from tests.training.hidden.test_rows import NAN, categorical, numeric, table, usual
from tests.training.shares_attempts import State
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Column, DateColumn, Table, rows_of
from vfl_node.errors import DataError, StateError
from vfl_node.node.partners import Partner
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.training.hidden.frequent import Feature, find, late_features, write_down
from vfl_node.training.hidden.rows import RowEncoder

N, LEAST = 200, 20


def memory() -> MemoryOfOneRun:
    return MemoryOfOneRun(Randomness(bytes(32)))


def found(column: Column, least: int = LEAST) -> Any:
    return find(table({"x": column}, N), least)


def kinds(column: Column, least: int = LEAST) -> list[tuple[str, str]]:
    """What enters of a column where nothing is written down."""
    return [(of.kind, of.level) for of in found(column, least).entering["x"] if of.kind != "bin"]


def marks(*counts: int) -> Column:
    """A category whose levels so many records have, and of all others the cell is missing."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return categorical(np.append(codes, np.full(N - len(codes), -1)), len(counts))


@pytest.mark.parametrize(
    ("counts", "entering"),
    [
        ((100, 60, 40), ["0001", "0002"]),  # the usual one has no column
        ((40, 60, 100), ["0000", "0001"]),
        ((100, 100), ["0001"]),
        ((161, 20, 19), ["0001"]),
        ((180, 20), ["0001"]),
        ((181, 19), []),
        ((200,), []),
        ((), []),
        ((100, 80), ["0001", ""]),  # twenty are missing
        ((100, 81), ["0001"]),
        ((150,), [""]),
    ],
    ids=str,
)
def test_levels_that_enough_records_have(counts: tuple[int, ...], entering: list[str]) -> None:
    assert sorted(level for _, level in kinds(marks(*counts))) == sorted(entering)


@pytest.mark.parametrize(("differ", "enters"), [(20, True), (19, False), (1, False)])
def test_numbers_that_enough_records_differ_in(differ: int, enters: bool) -> None:
    values = np.zeros(N)
    values[:differ] = np.linspace(1, 2, differ)
    assert (("number", "") in kinds(numeric(values))) == enters
    assert ("number", "") in kinds(numeric(values), least=0)
    values[differ:] = NAN  # as few have a number at all
    assert (("number", "") in kinds(numeric(values))) == enters


def test_missing_numbers_are_marked_where_enough_are_missing() -> None:
    values = np.arange(float(N))
    for missing, marked in ((0, False), (19, False), (20, True), (180, True)):
        values[:missing] = NAN
        assert (("missing", "") in kinds(numeric(values))) == marked


def test_one_record_that_has_more_than_a_fifth_of_the_squares_takes_a_column_away() -> None:
    values = np.zeros(N)
    values[:30] = 1e-3
    values[0] = 1.0
    of = found(numeric(values))
    assert of.left_out == {Feature("x", None, "number"): "outstanding"}
    assert not of.present
    assert found(numeric(values), least=0).present


def test_a_few_wild_numbers_take_no_column_away() -> None:
    """They are scaled by ranks."""
    values = np.random.default_rng(0).normal(size=N)
    values[0] = 1e12
    assert kinds(numeric(values)) == [("number", "")]


def test_dates_in_one_month_have_no_column_of_months() -> None:
    seconds = np.where(np.arange(N) < 100, 86_400.0 * (np.arange(N) % 28), NAN)
    of = find(table({"d": DateColumn(seconds)}, N), LEAST).entering["d"]
    assert {(feature.part, feature.kind) for feature in of if feature.kind != "bin"} == {
        ("days", "number"),
        ("days", "missing"),
    }


def test_levels_of_quantiles_that_enough_records_have() -> None:
    of = found(numeric(np.arange(float(N))))
    assert [feature.level for feature in of.entering["x"] if feature.kind == "bin"] == list("01234567")  # of 25 each
    assert not [feature for feature in found(numeric(np.arange(float(N))), least=26).entering["x"] if feature.kind == "bin"]


def test_names_in_reports_hold_no_level() -> None:
    shown = [of.shown for of in find(usual(), 0).present]
    assert {"place: a level", "holes missing", "since", "since.month: a level", "height: an interval"} <= set(shown)
    assert not any(character.isdigit() for text in shown for character in text)


def width(of: Table, memories: list[Any], *, bins: bool = False, bounded: bool = True, scaling: Any = "standard") -> int:
    what = find(of, LEAST)
    features = write_down(memories, "default", what.entering)
    encoder = RowEncoder.fit(of, features, what, scaling, bins=bins, bounded=bounded)
    assert encoder.transform(of).shape == (len(of), encoder.width)
    return encoder.width


def without(of: Table, row: int) -> Table:
    rows = np.delete(np.arange(len(of)), row)
    return table({name: rows_of(column, rows) for name, column in of.columns.items()}, len(rows))


def changed(of: Table, **columns: Column) -> Table:
    return table({**of.columns, **columns}, len(of))


def test_one_width_whatever_jobs_say_and_whatever_becomes_of_the_table() -> None:
    of = table({"x": numeric(np.arange(float(N))), "c": marks(100, 80, 20), "d": marks(181, 19)}, N)
    memories = [memory()]
    widths = {bins: width(of, memories, bins=bins) for bins in (False, True)}
    assert widths == {False: 3, True: 11}
    later = [
        of,
        without(of, 199),  # the rarest level is too rare
        without(of, 0),
        changed(of, c=marks(200)),  # and all gone
        changed(of, c=marks(80, 100, 20)),  # another one is usual
        changed(of, d=marks(180, 20)),  # one is frequent enough
        changed(of, x=numeric([7.0] * N)),
        changed(of, x=numeric([NAN] * 100 + [1e300] * 100)),
        table({name: column for name, column in of.columns.items() if name != "x"}, N),
    ]
    for each, scaling, bounded in itertools.product(
        later, ("standard", "unit", "none", "quantile", "log", "auto"), (True, False)
    ):
        for bins, expected in widths.items():
            assert width(each, memories, bins=bins, bounded=bounded, scaling=scaling) == expected


def test_a_column_that_is_new_in_the_table_enters() -> None:
    of, memories = table({"x": numeric(np.arange(float(N)))}, N), [memory()]
    assert width(of, memories) == 1
    more = changed(of, y=numeric(np.arange(float(N))), rare=marks(199, 1))
    assert width(more, memories) == 2
    assert width(changed(more, rare=marks(100, 100)), memories) == 2


def test_what_enters_too_late_is_named_but_not_what_follows_from_the_others() -> None:
    of, memories = table({"c": marks(101, 99), "d": marks(150, 31, 19)}, N), [memory()]

    def said(each: Table) -> list[str]:
        what = find(each, LEAST)
        return [feature.name for feature in late_features(what, write_down(memories, "default", what.entering))]

    assert said(of) == []
    assert said(changed(of, c=marks(99, 101))) == []
    assert said(changed(of, d=marks(150, 30, 20))) == ["d"]
    assert said(changed(of, d=marks(30, 150, 20))) == ["d"]


def test_two_partners_that_first_saw_other_columns_are_not_met_together() -> None:
    of, one, other = table({"x": numeric(np.arange(float(N))), "c": marks(100, 80, 20)}, N), memory(), memory()
    less = without(of, 199)
    assert (width(of, [one]), width(less, [other])) == (3, 2)
    for each in (of, less):
        with pytest.raises(StateError) as caught:
            width(each, [one, other])
        assert caught.value.code == "E_INPUT_CHANGED"
        assert caught.value.for_peer == "its input changed"
        assert (width(each, [one]), width(each, [other])) == (3, 2)
    assert width(less, [one, memory()]) == 3


def test_a_partner_that_comes_later_sees_what_the_first_one_has_seen() -> None:
    of, one, other = table({"x": numeric(np.arange(float(N))), "c": marks(100, 80, 20)}, N), memory(), memory()
    assert width(of, [one]) == 3
    assert width(without(of, 199), [one, other]) == 3
    assert width(without(of, 199), [other]) == 3


def test_columns_are_in_one_order_before_and_after_they_are_written_down() -> None:
    of, memories = usual(), [memory(), memory()]
    entering = find(of, LEAST).entering
    first = write_down(memories, "default", dict(reversed(entering.items())))
    assert write_down(memories, "default", entering) == first
    assert set(first) == {feature for each in entering.values() for feature in each}


def test_another_table_begins_anew() -> None:
    memories, entering = [memory()], find(usual(), LEAST).entering
    write_down(memories, "default", {})
    assert write_down(memories, "other", entering)
    assert not write_down(memories, "default", {})


def test_of_two_jobs_at_a_time_one_writes_and_both_read() -> None:
    """The other one has written between the two looks of this one."""
    of = {"x": (Feature("x", None, "number"),)}
    theirs = {"x": (Feature("x", None, "number"), Feature("x", None, "missing"))}

    class Slower(MemoryOfOneRun):
        def keep(self, name: str, data: bytes) -> bytes:
            super().keep(name, json.dumps(theirs).encode())
            return super().keep(name, data)

    memories = [Slower(Randomness(bytes(32)))]
    assert write_down(memories, "default", of) == theirs["x"]
    assert write_down(memories, "default", of) == theirs["x"]


def test_a_node_remembers_on_its_disk(tmp_path: Any) -> None:
    of = usual()
    entering = find(of, LEAST).entering
    first = write_down([Partner(tmp_path, "lab")], "a table, ü", entering)
    assert write_down([Partner(tmp_path, "lab")], "a table, ü", {}) == first


# Whole trainings

QUICK: dict[str, Any] = {"metrics_by": "none", "reveal": "none"}


def job(train: Mapping[str, Any], **evaluate: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {**QUICK, **train}, {"test_fraction": 0.25, **evaluate}


JOBS = [
    job({}),
    job({"scaling": "unit", "seed": 4}),
    job({"scaling": "none"}, test_fraction=0.6),
    job({"scaling": "quantile", "task": "regression", "learning_rate": 0.1}),
    job({**NOISED, "epochs": 2}),
    job({**NOISED, "epochs": 2, "scaling": "none", "epsilon": 4.0}),
]


def with_levels(over: Any, count: int) -> Any:
    """The lab has a category, of which so many of its records have the rarer level, and large numbers."""
    owned, view = over.data["lab"]
    marked = (np.arange(len(owned)) < count).astype(int)
    numbers = numeric(np.random.default_rng(2).normal(1e6, 1e3, len(owned)))
    columns = {**owned.columns, "mark": categorical(marked, 2), "large": numbers}
    return replace(over, data={**over.data, "lab": (Table(owned.ids, columns, owned.labels), view)})


def test_no_sequence_of_jobs_tells_more_of_widths(world: Any, attempt: Any) -> None:
    over, state = world(), State()
    for (train, evaluate), count in every(2, list(itertools.product(JOBS, (5, 4, 6)))):
        of = attempt(train, evaluate, state=State(memories=state.memories))
        results = of(with_levels(over, count))
        assert results[0].section.columns == {"clinic": 4, "lab": 6}
    for train, evaluate in JOBS:
        of = attempt({**train, "columns": "bins"}, evaluate, state=State(memories=state.memories))
        assert of(with_levels(over, 4))[0].section.columns == {"clinic": 28, "lab": 46}


def test_a_table_of_which_nothing_is_left_is_still_trained_on(world: Any, attempt: Any) -> None:
    """Else a partner would see that it is gone. One that never had a column is refused, and remembered with none."""
    over, state = world(), State()
    owned, view = over.data["lab"]
    bare = Table(owned.ids, {name: numeric(np.zeros(len(owned))) for name in owned.columns}, None)
    gone = replace(over, data={**over.data, "lab": (bare, view)})
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            attempt(QUICK, state=State(memories=state.memories))(gone)
        assert caught.value.code == "E_NO_FEATURES"
    for each in (over, gone):
        assert attempt(QUICK, state=State(memories=state.memories))(each)[0].section.columns == {"clinic": 4, "lab": 4}


def test_records_that_a_job_leaves_out_count_for_columns_and_scaling(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``align.at_most`` takes some of a table's records into a job; which columns enter, and how, is of all."""
    over = with_levels(world(), 4)
    few = over.data["lab"][0]
    twice = np.arange(2 * len(few)) % len(few)
    more = {name: rows_of(column, twice) for name, column in few.columns.items()}
    whole = table(more | {"large": numeric(np.append(more["large"].values[: len(few)], np.full(len(few), 2e6)))}, len(twice))
    alone = attempt(QUICK)(over)[1]
    true = shares_attempts.TrainingData
    given = lambda view, of: true(view, of, whole=whole if of is few else None)  # noqa: E731
    monkeypatch.setattr(shares_attempts, "TrainingData", given)
    found = attempt(QUICK)(over)[1]
    assert (alone.section.dropped, found.section.dropped) == (("mark", "mark: a level"), ())
    (mean,) = (of.encoding.centre for of in RowEncoder.from_json(found.encoder).columns if of.encoding.name == "large")
    assert mean == pytest.approx(1.5e6, rel=0.01)
