"""Statistics that are killed anywhere end with the figures of those that were not, and no mask serves two values."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.training.hidden.test_openings import CHANCE, recorded
from tests.training.shares_attempts import KilledError, kills, shares, with_values
from tests.training.trees.test_restarts import Sections, dying
from vfl_node.errors import StateError
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.statistics import computation, correlations, plan
from vfl_node.training.statistics.inputs import digest_of

pytestmark = pytest.mark.usefixtures("small_messages")
DIGEST = "vfl_node.training.statistics.trainer.digest_of"


@pytest.fixture(autouse=True)
def _two_columns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "BLOCK_CELLS", 2 * 5 * 100)


def assert_same(results: Any, whole: Any) -> None:
    for ours, theirs in zip(results, whole, strict=True):
        for name in ("steps", "disclosures", "encoder", "rows", "warnings", "columns", "split"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert (ours.section.columns, ours.section.compared) == (theirs.section.columns, theirs.section.compared)
        assert ours.weights["evidence"].equal(theirs.weights["evidence"])


@pytest.mark.parametrize(
    ("parties", "victim", "train"),
    [
        (2, "lab", {}),
        (2, "clinic", {}),
        (3, "insurer", {}),
        (2, "lab", {"correlations": True}),
        (2, "clinic", {"correlations": True}),
        (2, "lab", {"epsilon": None, "worth": True}),
        (2, "clinic", {"epsilon": None, "worth": True}),
    ],
)
def test_killed_in_each_section(world: Any, attempt: Any, parties: int, victim: str, train: dict[str, Any]) -> None:
    over, uncut = world(parties, "psi"), attempt(train)
    with Sections() as found:
        whole = uncut(over)
    ends = ["products", "open"] if "correlations" in train else ["open"]
    assert found.seen == ["both", *(f"block {number}" for number in range(len(uncut.plan(over).blocks))), *ends]
    for section in found.seen:
        first = attempt(train)
        with Sections(victim, section):
            assert any(isinstance(result, KilledError) for result in first.raw(over)), section
        second = first.again(over)
        assert section not in ("both", "block 0") or second.resume_from is None
        assert section not in ends or second.resume_from
        assert_same(second(over), whole)
        for a in over.data:
            for b in over.data:
                assert a == b or set(shares(second, a, b)) <= set(shares(uncut, a, b))


@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_killed_after_each_block(world: Any, attempt: Any, tmp_path: Path, victim: str) -> None:
    """Before its checkpoint is on the disk, and once it is; with checkpoints in files, as a node keeps them."""
    over, saved, of = world(2, "psi"), list[str](), attempt()
    whole, resumed = attempt()(over), []
    of.state.checkpoints = {name: FileCheckpoints(tmp_path / name) for name in over.data}
    with mock.patch.object(FileCheckpoints, "save", dying(victim, saved, FileCheckpoints.save)):
        while any(isinstance(result, KilledError) for result in of.raw(over)):
            of = of.again(over)
            resumed.append(of.resume_from)
    names = [f"block-{number + 1:06}" for number in range(len(of.plan(over).blocks))]
    assert set(saved) == {f"{name}{end}" for name in names for end in ("", " written")}
    assert list(dict.fromkeys(resumed)) == [None, *names]
    assert len(names) == 3
    assert_same(of(over), whole)


def test_the_coordinator_is_killed_before_any_of_its_messages(world: Any, attempt: Any) -> None:
    over, uncut = world(2, "psu", people=60), attempt()
    whole = uncut(over)
    for at in range(0, sum(entry.sender == "hub" for entry in uncut.transcript), 5):
        first = attempt(tamper=kills("hub", at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        assert_same(first.again(over)(over), whole)


def test_another_table_in_a_later_attempt_is_refused_or_gets_other_masks(world: Any, attempt: Any) -> None:
    """The control has one digest for both tables: then the difference of what is sent would be that of the cells."""
    over = world(2, "psu")
    first = attempt(tamper=kills("hub", 3))
    assert any(isinstance(result, KilledError) for result in first.raw(over))
    with pytest.raises(StateError) as caught:
        first.again(over)(with_values(world(2, "psu"), "lab", others_large))
    assert caught.value.code == "E_REPLAY"
    for digest in (digest_of, lambda own, salt: bytes(32)):
        with mock.patch(DIGEST, digest):
            first = attempt()
            first(over)
            second = attempt()
            second(with_values(world(2, "psu"), "clinic", others_large))
        sent = [shares(of, "clinic", "lab") for of in (first, second)]
        same = sum(a == b for a, b in zip(*sent, strict=True))
        assert (same > 0) == (digest is not digest_of)


def test_all_that_is_opened_and_dealt_is_uniform(world: Any, attempt: Any) -> None:
    with recorded(telling_in=(computation, correlations)) as found:
        attempt({"correlations": True})(world(2, "psu", people=150))
    assert {section for section, *_ in found.seen} == {"both", "products", "open", *(f"block {number}" for number in range(7))}
    assert found.p_value > CHANCE


def test_messages_have_the_same_lengths_whatever_the_tables_have(world: Any, attempt: Any) -> None:
    found = []
    for seed in (0, 3, 5):
        of = attempt()
        of(world(2, "psu", seed=seed))
        found.append([(one.sender, one.receiver, len(getattr(one.message, "values", b""))) for one in of.transcript])
    assert found[0] == found[1] == found[2]


def others_large(values: np.ndarray) -> None:
    """Every other one is now large."""
    values[::2] += 100
