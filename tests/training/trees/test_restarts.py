"""A training of trees that is killed anywhere ends with the bytes of one that was not, and no mask serves two values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.thorough import every
from tests.training.shares_attempts import KilledError, assert_same, kills, shares
from vfl_node.data.tables import NumericColumn
from vfl_node.errors import StateError
from vfl_node.session.openings import OpeningLog
from vfl_node.session.pins import MemoryPins
from vfl_node.training.checkpoints import FileCheckpoints, MemoryCheckpoints
from vfl_node.training.trees.inputs import digest_of
from vfl_node.training.trees.program import TreesProgram
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms

pytestmark = pytest.mark.usefixtures("small_messages")
TRAIN = {"trees": 2}
DIGEST = "vfl_node.training.trees.trainer.digest_of"


class Sections:
    """Which sections were opened at any party, in order, while this is in effect; it may kill at one."""

    def __init__(self, victim: str = "", section: str = "") -> None:
        self.seen: list[str] = []
        self._victim, self._section, self._check = victim, section, OpeningLog.check

    def __enter__(self) -> Sections:
        def check(log: OpeningLog, section: str, number: int, opened: Any) -> None:
            self._check(log, section, number, opened)
            self.seen += [section] if section not in self.seen else []
            if section == self._section and f"/{self._victim}/" in log._file.name:
                raise KilledError

        self._patch = mock.patch.object(OpeningLog, "check", check)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def assert_alike(first: Any, second: Any, uncut: Any, over: Any) -> None:
    """Every value under a mask is one that was there in the uncut training."""
    for a in over.data:
        for b in over.data:
            if a != b:
                assert set(shares(first, a, b)) | set(shares(second, a, b)) <= set(shares(uncut, a, b))


@pytest.mark.parametrize(
    ("parties", "victim", "reveal"),
    [
        (2, "lab", "none"),
        pytest.param(2, "clinic", "owners", marks=pytest.mark.slow),
        pytest.param(3, "insurer", "owners", marks=pytest.mark.slow),
    ],
)
def test_killed_in_each_section(world: Any, attempt: Any, parties: int, victim: str, reveal: str) -> None:
    over, train = world(parties, people=80), {**TRAIN, "reveal": reveal}
    uncut = attempt(train)
    with Sections() as found:
        whole = uncut(over)
    assert found.seen == ["cells", "both", "tree 0", "tree 1", "measure", *["gains"] * (reveal == "owners"), "reveal"]
    for section in found.seen:
        if section == "reveal" and reveal == "none" and victim != "clinic":
            continue
        first = attempt(train)
        with Sections(victim, section):
            assert any(isinstance(result, KilledError) for result in first.raw(over)), section
        second = first.again(over)
        expected = {"tree 1": "tree-000001", **dict.fromkeys(("measure", "gains", "reveal"), "tree-000002")}
        assert second.resume_from == expected.get(section)
        results = second(over)
        assert_same(results, whole)
        assert [of.section.gains for of in results] == [of.section.gains for of in whole]
        assert_alike(first, second, uncut, over)


MATRIX = [(2, "hub", "owners"), (2, "lab", "none"), (2, "clinic", "none"), (3, "insurer", "owners"), (3, "hub", "none")]
SOME = [(2, "hub", "owners")]


@pytest.mark.parametrize(
    ("parties", "victim", "leaves"), [pytest.param(*of, marks=[] if of in SOME else [pytest.mark.slow]) for of in MATRIX]
)
def test_killed_before_any_of_its_messages(world: Any, attempt: Any, parties: int, victim: str, leaves: str) -> None:
    train: dict[str, Any] = {**TRAIN, "leaves": "active" if leaves == "owners" else "none"}
    over, uncut = world(parties, people=60), attempt(train)
    whole = uncut(over)
    resumed_from = set()
    for at in every(15, range(sum(entry.sender == victim for entry in uncut.transcript))):
        first = attempt(train, tamper=kills(victim, at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        resumed_from.add(second.resume_from)
        assert_alike(first, second, uncut, over)
    assert {None, "tree-000001"} <= resumed_from


@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_killed_after_each_tree(world: Any, attempt: Any, tmp_path: Any, victim: str) -> None:
    """Before its checkpoint is on the disk, and once it is; with checkpoints in files, as a node keeps them."""
    train, over, saved = {"trees": 3, "depth": 1}, world(people=60), list[str]()
    whole, of = attempt(train)(over), attempt(train)
    of.state.checkpoints = {name: FileCheckpoints(tmp_path / name) for name in over.data}
    with mock.patch.object(FileCheckpoints, "save", dying(victim, saved, FileCheckpoints.save)):
        for number in range(1, 7):
            assert any(isinstance(result, KilledError) for result in of.raw(over))
            assert len(saved) == number
            of = of.again(over)
    assert_same(of(over), whole)


def test_the_coordinator_is_killed_after_each_tree(world: Any, attempt: Any) -> None:
    train, over = {"trees": 3, "depth": 1}, world(people=60)
    whole, of = attempt(train)(over), attempt(train)
    for tree in range(1, 4):
        of.tamper = after_checkpoint(of, tree)
        assert any(isinstance(result, KilledError) for result in of.raw(over))
        of = of.again(over)
        assert of.resume_from == f"tree-{tree:06}"
    assert_same(of(over), whole)


def dying(victim: str, saved: list[str], save: Callable[..., None]) -> Callable[..., None]:
    """Kills a party at each of its checkpoints twice: before, and after it was written."""

    def dies(kept: Any, name: str, *rest: Any) -> None:
        mine = f"/{victim}" in str(vars(kept))
        if mine and name not in saved:
            saved.append(name)
            raise KilledError
        save(kept, name, *rest)
        if mine:
            saved.append(f"{name} written")
            raise KilledError

    return dies


def after_checkpoint(of: Any, tree: int) -> Callable[[Any], None]:
    """Kills the coordinator once both have a checkpoint of a tree."""

    def tamper(sent: Any) -> None:
        if sent.sender == "hub" and of.state.newest("clinic", "lab") == f"tree-{tree:06}":
            raise KilledError

    return tamper


def test_other_cells_in_a_later_attempt_are_refused_or_get_other_masks(world: Any, attempt: Any) -> None:
    """In one context the difference of what is sent would be that of the cells: the control has one digest for both."""
    over = world(people=80)
    for name in over.data:
        first = attempt(TRAIN, tamper=kills("hub", 33))
        first.raw(over)
        with pytest.raises(StateError) as caught:
            first.again(over)(other_cells(over, name))
        assert caught.value.code == "E_REPLAY"
    changed = other_cells(over, "clinic")
    for fresh in (True, False):
        digest = mock.patch(DIGEST, digest_of if fresh else lambda own, salt: bytes(32))
        with digest, mock.patch.object(MemoryPins, "check"), mock.patch.object(OpeningLog, "check"):
            first = attempt(TRAIN, tamper=kills("hub", 33))
            first.raw(over)
            second = first.again(changed)
            second.raw(changed)
        one, other = (masked_cells(of, over) for of in (first, second))
        apart = np.count_nonzero(one - other) / one.size
        assert (apart > 0.99) == fresh
        assert apart > 0
        (said, _) = second.sent(DealingTerms)
        assert (said.epoch == 0) == fresh


def other_cells(over: Any, party: str) -> Any:
    """A party's first column in another order."""
    table, view = over.data[party]
    name, column = next(iter(table.columns.items()))
    columns = {**table.columns, name: NumericColumn(column.values[::-1].copy())}
    return replace(over, data={**over.data, party: (replace(table, columns=columns), view)})


def masked_cells(of: Any, over: Any) -> np.ndarray:
    """What the active party sent first: its candidates under masks."""
    width = of.sent(DealingTerms)[0].widths[0]
    sent = b"".join(shares(of, "clinic", "lab"))
    return np.frombuffer(sent[: 2 * len(over) * width], "<u2").astype(np.int64)


def test_a_coordinator_that_lost_its_secrets_is_refused(world: Any, attempt: Any) -> None:
    over, first = world(people=80), attempt(TRAIN, tamper=kills("lab", 40))
    first.raw(over)
    second = first.again(over)
    true = second.randomness
    second.randomness = lambda name: true(name).derive("lost") if name == "hub" else true(name)
    with pytest.raises(StateError) as caught:
        second(over)
    assert caught.value.code == "E_REPLAY"


def test_what_a_checkpoint_has_is_what_it_goes_on_with(world: Any, attempt: Any) -> None:
    over, of = world(people=80), attempt()
    of(over)
    of.state.checkpoints["lab"].load("tree-000002").tensors["scores"].add_(1 << 12)
    with pytest.raises(StateError, match="other masked values"):
        of.again(over, resume_from="tree-000002")(over)


def test_checkpoints_of_another_version_are_not_used_and_nothing_is_opened_twice(world: Any, attempt: Any) -> None:
    """Before the end all begin anew; once all trees are there, another context is refused."""
    over, of = world(people=80), attempt()
    with Sections("lab", "tree 2"):
        of.raw(over)
    with mock.patch.object(TreesProgram, "version", TreesProgram.version + 1):
        expected = attempt()(over)
        second = of.again(over)
        assert second.resume_from == "tree-000002"
        assert_same(second(over), expected)
    assert {terms.epoch for terms in second.sent(DealingTerms)} == {0}
    done = attempt()
    done(over)
    with mock.patch.object(TreesProgram, "version", TreesProgram.version + 1), pytest.raises(StateError) as caught:
        done.again(over)(over)
    assert caught.value.code == "E_REPLAY"


def test_checkpoints_that_fit_no_more(world: Any, attempt: Any) -> None:
    over, first = world(people=80), attempt()
    first(over)
    with pytest.raises(StateError, match="another schedule"):
        first.again(over, train={"seed": 1})(over)
    with pytest.raises(StateError, match="no checkpoint tree-000009"):
        first.again(over, resume_from="tree-000009")(over)


def test_a_training_that_is_over_is_only_read_again(world: Any, attempt: Any) -> None:
    """The coordinator goes on after the last tree, too."""
    over, of = world(people=80), attempt(TRAIN)
    whole = of(over)
    again = of.again(over)
    assert again.resume_from == "tree-000002"
    assert_same(again(over), whole)
    assert isinstance(again.state.checkpoints["lab"], MemoryCheckpoints)
