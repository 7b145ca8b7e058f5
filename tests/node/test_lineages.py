"""Tables about the same records are counted as one, however they are called and however they grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.marks import Growth, Marks
from vfl_node.data.tables import CategoricalColumn, ListColumn, NumericColumn, Table
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.node.lineages import Lineages
from vfl_node.node.partners import Partner
from vfl_node.process.files import write_checked
from vfl_node.session.counted import telling_training, telling_training_of_set
from vfl_node.session.spent import Expense
from vfl_node.settings.declared import DeclaredList

SECRET = b"s" * 32
KINDS = np.array(["tea", "milk", "rye", "oil"])


def table(rows: range, *, spoilt: int | None = None, seed: int = 0) -> Table:
    """Records of these numbers, whose cells go by the number alone; one may be another than it was."""
    numbers = np.array(rows)
    values = np.sin(numbers + 1.0)
    values[numbers % 7 == 0] = np.nan
    if spoilt is not None:
        values[numbers == spoilt] = 99
    levels, codes = np.unique(KINDS[numbers % 4], return_inverse=True)
    items, item_codes = np.unique(KINDS[np.repeat(numbers, 2) % 3], return_inverse=True)
    lists = ListColumn(item_codes, np.arange(0, 2 * len(numbers) + 1, 2), tuple(items), DeclaredList())
    made = Table(
        Identifiers.from_items(f"r{number}".encode() for number in rows),
        {"x": NumericColumn(values), "kind": CategoricalColumn(codes, tuple(levels)), "seen": lists},
        labels=(numbers % 2).astype(np.float32),
    )
    order = np.random.default_rng(seed).permutation(len(numbers))
    ids = Identifiers.from_items(made.ids[place] for place in order.tolist())
    kind, seen = made.columns["kind"], lists.rows(order)
    assert isinstance(kind, CategoricalColumn)
    columns = {"x": NumericColumn(values[order]), "kind": replace(kind, codes=kind.codes[order]), "seen": seen}
    return replace(made, ids=ids, columns=columns, labels=made.labels[order])  # type: ignore[index]


@pytest.mark.parametrize(
    ("later", "growth", "word"),
    [
        (table(range(100), seed=1), Growth(100, 100, 100, 0), "same"),
        (table(range(103), seed=2), Growth(100, 103, 100, 0), "grown"),
        (table(range(103), spoilt=5, seed=3), Growth(100, 103, 100, 1), "changed"),
        (table(range(1, 300)), Growth(100, 299, 99, 0), "shrunk"),
        (table(range(50, 150)), Growth(100, 100, 50, 0), "shrunk"),
        (table(range(51, 151)), Growth(100, 100, 49, 0), "other"),
        (table(range(3)), Growth(100, 3, 3, 0), "shrunk"),  # a part of it
    ],
)
def test_what_has_become_of_a_table(later: Table, growth: Growth, word: str) -> None:
    """Another order of rows, and levels that come new, change no mark."""
    assert Marks.from_table(table(range(100)), SECRET).compare(Marks.from_table(later, SECRET)) == growth
    assert growth.word == word


def test_marks_are_of_this_node_and_of_these_columns() -> None:
    marks = Marks.from_table(table(range(50)), SECRET)
    foreign = Marks.from_table(table(range(50)), b"t" * 32)
    assert marks.compare(foreign).word == "other"
    fewer = replace(table(range(50)), columns={"x": table(range(50)).columns["x"]})
    assert marks.compare(Marks.from_table(fewer, SECRET)) == Growth(50, 50, 50, 50)
    assert Marks.from_bytes(marks.to_bytes()).compare(marks).word == "same"
    relabelled = replace(table(range(50)), labels=1 - (np.arange(50) == 3).astype(np.float32))
    assert marks.compare(Marks.from_table(relabelled, SECRET)).changed > 20


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    (folder / "partners").mkdir(parents=True)
    return folder


def train(state: Path, name: str, of: Table, number: int, limit: int = 3) -> int:
    """A training that counts, as a node would run it."""
    Lineages(state).note(name, of, SECRET)
    job = f"job-{number}"
    counts = (telling_training(name, of.identity, job, limit), telling_training_of_set(of.identity, job, limit))
    return Partner(state / "partners", "lab").count(*counts)


def test_a_row_more_or_a_second_name_begins_no_new_count(state: Path) -> None:
    assert [train(state, "cards", table(range(100 + more)), more) for more in range(2)] == [1, 2]
    assert train(state, "loans", table(range(90)), 2) == 3
    assert Lineages(state).names("loans") == ("loans", "cards")
    for number, name in enumerate(("cards", "loans"), start=3):
        with pytest.raises(PolicyError) as caught:
            train(state, name, table(range(101 + number)), number)
        assert caught.value.code == "E_BUDGET"
    assert Partner(state / "partners", "lab").usage()["trainings"] == 3
    assert train(state, "staff", table(range(1000, 1100)), 5) == 1, "other records have a count of their own"


def test_counts_go_on_without_marks_as_before(state: Path) -> None:
    """The control: without what was noted a second name does begin a new count."""
    memory = Partner(state / "partners", "lab")
    for number, name in enumerate(("cards", "cards", "cards", "loans")):
        memory.count(telling_training(name, b"%d" % number, f"job-{number}", 3))
    assert memory.usage()["trainings"] == 3


def test_other_records_begin_a_count_when_the_owner_says_so(state: Path) -> None:
    for number in range(3):
        train(state, "cards", table(range(100)), number)
    lineages, later = Lineages(state), table(range(500, 600))
    with pytest.raises(UsageError, match="no other records than before"):
        lineages.accept("cards")
    with pytest.raises(PolicyError):
        train(state, "cards", later, 3)
    known = lineages.find("cards")
    assert known is not None
    assert (known.counted, known.word, known.rows, lineages.awaits_word(known)) == ("cards~1", "new", 100, True)
    assert lineages.names("cards") == ("cards~1", "cards")
    assert lineages.accept("cards").counted == "cards~1"
    assert lineages.names("cards") == ("cards~1",)
    assert train(state, "cards", later, 3) == 1
    assert Partner(state / "partners", "lab").usage()["trainings"] == 3, "the earlier count is full"
    with pytest.raises(PolicyError):
        train(state, "cards", table(range(120)), 4)  # what was under the name before, again
    assert Lineages(state).names("cards") == ("cards",)
    assert train(state, "cards", table(range(500, 610)), 5) == 2


def test_tables_that_go_along_are_not_torn_apart(state: Path) -> None:
    """One is about the records of another one, that one about those of a third, which has none of the first."""
    for number in range(3):
        train(state, "b", numbered(range(100)), number)
    train(state, "a", numbered(range(1000, 1100)), 3)
    with pytest.raises(PolicyError):
        train(state, "c", numbered(range(50, 150)), 4)
    Lineages(state).note("a", numbered(range(50), range(2000, 2050)), SECRET)
    Lineages(state).accept("a")
    for name in "ab":
        assert set(Lineages(state).names(name)) == {"a~1", "b", "c"}
    with pytest.raises(PolicyError):
        train(state, "c", numbered(range(50, 150)), 5)


def numbered(*ranges: range) -> Table:
    numbers = [number for each in ranges for number in each]
    return Table(Identifiers.from_items(b"r%d" % n for n in numbers), {"x": NumericColumn(np.sin(np.array(numbers, float)))})


@pytest.mark.parametrize("place", [1, 2, 3])
def test_what_is_new_is_known_after_a_death_between_writes(state: Path, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Lineages(state).note("cards", table(range(100)), SECRET)
    writes = iter(range(1, 4))

    def die(path: Path, content: bytes) -> None:
        if next(writes) == place:
            raise KeyboardInterrupt
        write_checked(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("vfl_node.node.lineages.write_checked", die)
        with pytest.raises(KeyboardInterrupt):
            Lineages(state).note("cards", table(range(150)), SECRET)
    known = Lineages(state).note("cards", table(range(150)), SECRET)
    assert (known.word, known.added, known.gone) == ("grown", 50, 0)


def test_lost_marks_are_no_empty_ones(state: Path) -> None:
    for number in range(3):
        train(state, "cards", table(range(100)), number)
    (state / "tables" / "cards.ever").unlink()
    with pytest.raises(StateError, match="is gone") as caught:
        train(state, "loans", table(range(101)), 3)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_what_was_counted_over_other_records_stays_counted(state: Path) -> None:
    later = table(range(500, 600))
    assert train(state, "cards", table(range(100)), 0) == 1
    assert [train(state, "cards", later, number) for number in (1, 2)] == [2, 3]
    Lineages(state).accept("cards")
    assert train(state, "cards", later, 3) == 3, "two over these records came before the word"
    with pytest.raises(PolicyError):
        train(state, "loans", table(range(500, 601)), 4)


def test_tables_that_meet_are_counted_together(state: Path) -> None:
    """One grows into another; one is made of two; one has the half that another had once."""
    for number, rows in enumerate((range(100), range(100, 200))):
        train(state, "ab"[number], table(rows), number)
    train(state, "c", table(range(300, 400)), 2)
    assert Lineages(state).names("a") == ("a",)
    Lineages(state).note("c", table(range(300, 350)), SECRET)
    Lineages(state).note("d", table(range(350, 400)), SECRET)
    assert set(Lineages(state).names("d")) == {"c", "d"}
    Lineages(state).note("a", table(range(200)), SECRET)
    assert set(Lineages(state).names("b")) == {"a", "b"}
    Lineages(state).note("e", table(range(400)), SECRET)
    assert set(Lineages(state).names("c")) == set("abcde")


def test_a_node_that_dies_between_two_writes_joins_them_later(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lineages = Lineages(state)
    lineages.note("cards", table(range(100)), SECRET)
    monkeypatch.setattr(lineages, "_write", lambda *_: None)
    lineages.note("loans", table(range(101)), SECRET)
    assert Lineages(state).names("loans") == ("loans",)
    Lineages(state).note("loans", table(range(101)), SECRET)
    assert set(Lineages(state).names("loans")) == {"cards", "loans"}


def test_what_is_spent_counts_over_both_names(state: Path) -> None:
    memory = Partner(state / "partners", "lab")
    memory.spend(Expense("cards", "job-1", 0.3, limit=None))
    lineages = Lineages(state)
    lineages.note("cards", table(range(100)), SECRET)
    memory.spend(Expense("loans", "job-2", 0.4, limit=None))
    assert memory.spent_over("loans").mu == pytest.approx(0.4)
    lineages.note("loans", table(range(100)), SECRET)
    assert memory.spent_over("loans").mu == memory.spent_over("cards").mu == pytest.approx(0.5)
    with pytest.raises(PolicyError, match="table 'loans'"):
        memory.spend(Expense("loans", "job-3", 0.1, limit=1.0))
    assert dict(memory.group_tables(memory.account(), ["loans"])) == {
        "cards": ("cards", "loans"),
        "loans": ("loans", "cards"),
    }


def test_a_damaged_or_foreign_index_is_refused(state: Path) -> None:
    Lineages(state).note("cards", table(range(100)), SECRET)
    path = state / "tables" / "index.json"
    path.write_bytes(path.read_bytes()[:-1] + b"}")
    with pytest.raises(StateError) as caught:
        Lineages(state).names("cards")
    assert caught.value.code == "E_STATE_CORRUPT"
    marks = state / "tables" / "cards.marks"
    marks.write_bytes(marks.read_bytes()[:-1] + b"x")
    path.unlink()
    with pytest.raises(StateError, match="is damaged"):
        Lineages(state).note("cards", table(range(101)), SECRET)
    for path in (state / "tables").glob("cards.*"):
        path.unlink()
    assert Lineages(state).note("cards", table(range(101)), SECRET).word == "new"
