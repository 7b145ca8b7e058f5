"""What parties see in a training of trees is uniform, as much whatever the data are, and tells only what a job says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.thorough import every
from tests.training.hidden.test_openings import CHANCE, recorded
from tests.training.trees.test_tree import ROWS, Case, Grower
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.bits import Bits, ShownBits, unpack_bits
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import Material, Opening, Operation
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.session.openings import OpeningLog
from vfl_node.training.trees import tree as tree_module
from vfl_node.transport.generated.vfl.v1.shares_pb2 import Corrections, MaskedShares

HIDDEN = {"reveal": "none", "leaves": "none", "trees": 2}
MANY = 20
"""Numbers of an operation that is judged."""

FAR_OFF = 5.0
"""Standard deviations: more by chance once in 1.7 million."""


@pytest.mark.parametrize(
    ("parties", "train"),
    [
        (2, {}),
        (2, {"epsilon": 50, "depth": 2}),
        pytest.param(3, {}, marks=pytest.mark.slow),
        pytest.param(2, {"task": "regression"}, marks=pytest.mark.slow),
        (2, {"classes": 3, "trees": 1}),
        pytest.param(3, {"classes": 3, "row_fraction": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_all_that_is_opened_and_dealt_is_uniform(world: Any, attempt: Any, parties: int, train: dict[str, Any]) -> None:
    over = world(parties, people=150, classes=train.get("classes", 2), numbers="task" in train)
    of = attempt({**HIDDEN, **train})
    with recorded() as found:
        of(over)
    assert len(found.seen) > 100
    assert found.p_value > CHANCE


def test_any_one_mask_of_numbers_left_out_is_noticed(world: Any, attempt: Any) -> None:
    """Of many; but for looked-up bits, which are compared with random numbers, and so are uniform themselves."""
    over, train = world(people=150), {**HIDDEN, "trees": 1}
    with recorded() as whole:
        attempt(train)(over)
    masks = [place for place, size in whole.masks.items() if place[2].startswith("mask") and size >= MANY]
    operations = list(dict.fromkeys(place[:2] for place in masks))
    assert {section for section, _ in operations} == {"both", "tree 0", "measure"}
    assert len(operations) > 40
    for operation in every(8, operations):
        with recorded(lambda place, of=operation: place[:2] == of and place[2].startswith("mask")) as found:
            attempt(train)(over)
        assert found.p_value < CHANCE, operation


def openings(of: Grower, place: int, shape: tuple[int, ...]) -> list[Ring]:
    """What a party saw opened with this shape, in order."""
    return [opened for opened in of.run.table.seen[place] if opened.shape == shape]


@pytest.mark.parametrize("reused", [True, False])
def test_masks_that_serve_two_trees_would_tell_who_is_shared(reused: bool) -> None:
    """A row that does not count has 0 in both, so what is opened of it does not change."""
    same = mock.patch.object(ShareMachine, "_section_seed", one_seed if reused else ShareMachine._section_seed)
    case = Case()
    with same:
        of = Grower(case)
    seen = openings(of, 1, (1, ROWS))  # of each tree as many; x comes after four openings of gradients
    apart = np.abs((seen[len(seen) // 2 + 4] - seen[4]).view(np.int64)[0].astype(float))
    area = roc_auc_score(case.counted, apart)
    deviation = np.sqrt((ROWS + 1) / 12 / case.counted.sum() / (ROWS - case.counted.sum()))
    assert area > 0.99 if reused else abs(area - 0.5) < FAR_OFF * deviation


def one_seed(machine: ShareMachine, seed: Randomness) -> bytes:
    """The same for all sections of a kind."""
    return seed.derive(machine.section.split()[0]).bytes(32)


@pytest.mark.parametrize("open_to_all", [True, False])
def test_ways_without_masks_would_tell_where_rows_go(open_to_all: bool) -> None:
    """The root's split sends each row left or right: one of the openings says so, or none does."""
    shown = naked_bits if open_to_all else tree_module.show_bits
    with mock.patch.object(tree_module, "show_bits", shown):
        of = Grower(Case())
    (pick,) = of.picks(0, 0)
    assert pick < of.plan.width
    goes_left = of.case.cells[:, pick]
    seen = [unpack_bits(words, (ROWS,)) for words in openings(of, 1, (words_of(ROWS),))]
    assert seen
    same = [float(np.mean(bits == goes_left)) for bits in seen]
    if open_to_all:
        assert 1.0 in same
    else:
        assert np.abs(np.array(same) - 0.5).max() < FAR_OFF * 0.5 / np.sqrt(ROWS)


def naked_bits(value: Bits) -> Operation[ShownBits]:
    """As bits under masks, and the masks are 0."""
    shape = value.part.shape

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (value.part,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> ShownBits:
        return ShownBits(opened[0], np.zeros(shape, np.uint64))

    return Operation(result, shown=(Opening(shape, binary=True),), shares=shares, binary=True)


def test_messages_have_the_same_lengths_whatever_the_tables_have(world: Any, attempt: Any) -> None:
    """Of the same shapes; a tree more is the control."""
    lengths = []
    for train, seed in (({}, 0), ({}, 1), ({"min_gain": 1e5}, 2), ({"trees": 4}, 0)):
        of = attempt(train)
        of(world(seed=seed))
        lengths.append([[len(each.values) for each in of.sent(kind, name)] for kind, name in SENDERS])
    assert lengths[0] == lengths[1] == lengths[2] != lengths[3]


SENDERS: list[tuple[Any, str]] = [(MaskedShares, "clinic"), (MaskedShares, "lab"), (Corrections, "hub")]


def opened_at_the_end(watch: Callable[[], Any]) -> list[str]:
    """Which parties had something opened in the last section."""
    check, found = OpeningLog.check, list[str]()

    def noted(log: OpeningLog, section: str, number: int, opened: Any) -> None:
        check(log, section, number, opened)
        told = any(values.any() for values in opened)
        found.extend([name for name in ("clinic", "lab") if f"/{name}/" in log._file.name and section == "reveal" and told])

    with mock.patch.object(OpeningLog, "check", noted):
        watch()
    return found


@pytest.mark.parametrize("reveal", ["owners", "none"])
@pytest.mark.parametrize("leaves", ["active", "none"])
def test_no_more_is_opened_and_told_than_the_job_says(world: Any, attempt: Any, reveal: str, leaves: str) -> None:
    over, of = world(people=400), attempt({"reveal": reveal, "leaves": leaves})
    results: list[Any] = []
    told = opened_at_the_end(lambda: results.extend(of(over)))
    expected = 2 * ["clinic", "lab"] * (reveal == "owners") + ["clinic"] * (leaves == "active")  # splits, and gains
    assert sorted(told) == sorted(expected)
    for name, result in zip(over.data, results, strict=True):
        section, words = result.section, {entry.what for entry in result.disclosures[name]}
        assert bool(section.splits) == any(section.gains.values()) == ("splits" in words) == (reveal == "owners")
        assert bool(section.leaves) == ("leaf values" in words) == (leaves == "active" and name == "clinic")
        assert {"masked values", "features"} <= words
        assert ("metrics" in words) == (name == "clinic")
    assert {entry.what for entry in results[0].disclosures["hub"]} == {"shapes"}


def test_masks_are_drawn_once_and_belong_to_one_context(world: Any, attempt: Any) -> None:
    """At each party, in all sections."""
    draw, drawn = ShareMachine._draw, list[Any]()

    def noted(machine: ShareMachine, seed: Any, number: int, name: str, shape: Any) -> Any:
        if machine.place >= 0:
            drawn.append((machine.place, machine.context, machine.section, number, name))
        return draw(machine, seed, number, name, shape)

    with mock.patch.object(ShareMachine, "_draw", noted):
        attempt()(world(3))
    assert len(drawn) == len(set(drawn)) > 500
    assert len({context for _, context, *_ in drawn}) == 1
    assert {section for *_, section, _, _ in drawn} == {"cells", "both", "tree 0", "tree 1", "tree 2", "measure", "gains"}
