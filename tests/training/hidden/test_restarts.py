"""A training in shares that is killed anywhere ends with the bytes of one that was not, and no mask serves two values."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.thorough import every
from tests.training.shares_attempts import KilledError, assert_same, kills, shares
from vfl_node.errors import StateError
from vfl_node.session.openings import OpeningLog
from vfl_node.session.pins import MemoryPins
from vfl_node.training.checkpoints import FileCheckpoints, MemoryCheckpoints
from vfl_node.training.hidden.inputs import digest_of
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.shares.attempt import ShareSteps
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, MaskedShares

TRAIN = {"layers": (3,), "epochs": 2, "batch_size": 12}
DIGEST = "vfl_node.training.hidden.trainer.digest_of"
pytestmark = pytest.mark.usefixtures("small_messages")
MATRIX = [(2, "clinic", "owners"), (2, "lab", "none"), (2, "hub", "owners"), (3, "insurer", "none"), (3, "clinic", "none")]
SOME = [(2, "lab", "none"), (2, "hub", "owners")]


@pytest.mark.parametrize(
    ("parties", "victim", "reveal"), [pytest.param(*of, marks=[] if of in SOME else [pytest.mark.slow]) for of in MATRIX]
)
def test_killed_before_any_of_its_messages(world: Any, attempt: Any, parties: int, victim: str, reveal: str) -> None:
    over, train = world(parties, people=40), {**TRAIN, "reveal": reveal}
    uncut = attempt(train)
    whole = uncut(over)
    sent = {(a, b): set(shares(uncut, a, b)) for a in over.data for b in over.data if a != b}
    resumed_from = set()
    for at in every(5, range(sum(entry.sender == victim for entry in uncut.transcript))):
        first = attempt(train, tamper=kills(victim, at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        resumed_from.add(second.resume_from)
        for (a, b), messages in sent.items():  # every value under a mask is the one that was there before
            assert set(shares(first, a, b)) | set(shares(second, a, b)) <= messages
    assert resumed_from == {None, "epoch-000001", "epoch-000002"}


def test_killed_again_and_again(world: Any, attempt: Any, tmp_path: Any) -> None:
    """With checkpoints in files, as a node keeps them."""
    over, train = world(people=40), {**TRAIN, "epochs": 5}
    whole = attempt(train)(over)
    of = attempt(train, tamper=kills("lab", 20))
    of.state.checkpoints = {name: FileCheckpoints(tmp_path / name) for name in over.data}
    while any(isinstance(result, KilledError) for result in of.raw(over)):
        of = of.again(over, tamper=kills(("clinic", "hub", "lab")[of.number % 3], 16 + of.number))
        assert of.number < 40
    assert of.number > 3
    assert_same(of.again(over)(over), whole)


def test_what_a_checkpoint_has_is_what_it_goes_on_with(world: Any, attempt: Any) -> None:
    over, of = world(), attempt()
    whole = of(over)
    of.state.checkpoints["lab"].load("epoch-000002").tensors["weights 1"].add_(1 << 20)
    with pytest.raises(StateError, match="other masked values"):
        of.again(over, resume_from="epoch-000002")(over)
    with mock.patch.object(OpeningLog, "check"):
        other = of.again(over, resume_from="epoch-000002")(over)
    assert 0 < (other[1].weights["weight"] - whole[1].weights["weight"]).abs().max() < 0.1


def columns_sent(of: Any, sender: str, over: Any) -> np.ndarray:
    """What one of two parties sent first: its columns under their mask."""
    table, _ = over.data[sender]
    width = len(table.columns) + (sender == "clinic")
    values = np.frombuffer(of.sent(MaskedShares, sender)[0].values, "<u8")
    return values[: len(over) * width].reshape(len(over), width)


def test_other_columns_in_a_later_attempt_get_other_masks(world: Any, attempt: Any) -> None:
    """In one context the difference of what is sent would be that of the columns: the control has one digest for both."""
    over = world()
    changed = over.changed("clinic")
    for fresh in (True, False):
        digest = mock.patch(DIGEST, digest_of if fresh else lambda own, mark: bytes(32))
        pinned = mock.patch.object(MemoryPins, "check"), mock.patch.object(OpeningLog, "check")
        with digest, pinned[0], pinned[1]:  # as if everybody had lost what it had pinned
            first = attempt(tamper=kills("lab", 40))
            first.raw(over)
            second = first.again(changed)
            assert second.resume_from is not None
            results = second(changed)
        apart = columns_sent(second, "clinic", over) - columns_sent(first, "clinic", over)
        known = np.count_nonzero(apart) < len(over)  # one cell, and what scaling made of its column
        assert known != fresh
        (said, _) = second.sent(DealingTerms)
        assert (said.epoch == 0) == fresh
        if fresh:
            assert_same(results, attempt()(changed))
            assert len(np.unique(apart >> np.uint64(56))) > 100  # uniform


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_party_has_the_same_columns_in_all_attempts(world: Any, attempt: Any, name: str) -> None:
    over = world()
    first = attempt(tamper=kills("hub", 4))
    first.raw(over)
    with pytest.raises(StateError) as caught:
        first.again(over)(over.changed(name))
    assert caught.value.code == "E_REPLAY"


def test_a_coordinator_that_lost_its_secrets_is_refused(world: Any, attempt: Any) -> None:
    """Shares of a checkpoint fit the masks under which they were made: those of two parties may be of two attempts."""
    over, first = world(), attempt(tamper=kills("lab", 20))
    first.raw(over)
    second = first.again(over)
    true = second.randomness
    second.randomness = lambda name: true(name).derive("lost") if name == "hub" else true(name)
    with pytest.raises(StateError) as caught:
        second(over)
    assert caught.value.code == "E_REPLAY"


def test_a_checkpoint_of_another_schedule_is_refused(world: Any, attempt: Any) -> None:
    over, first = world(), attempt()
    first(over)
    with pytest.raises(StateError, match="another schedule") as caught:
        first.again(over, train={"seed": 1})(over)
    assert caught.value.code == "E_REPLAY"


def test_a_lost_checkpoint_is_named(world: Any, attempt: Any) -> None:
    over, first = world(), attempt()
    first(over)
    with pytest.raises(StateError, match="no checkpoint epoch-000009") as caught:
        first.again(over, resume_from="epoch-000009")(over)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_party_that_opens_something_else_in_a_later_attempt_gets_nothing_more(world: Any, attempt: Any) -> None:
    """Under masks that it has seen before the others' values would move by what it changed: the control shows by how much."""
    over = world()
    sizes: list[int] = []

    def changes(sent: Any) -> None:
        if sent.sender == "lab" and isinstance(sent.message, MaskedShares):
            sizes.append(len(sent.message.values))
            if len(sizes) == 4:  # what it opens of its weights in the first step
                sent.message.values = bytes([sent.message.values[0] ^ 1]) + sent.message.values[1:]

    for compared in (True, False):
        sizes.clear()
        first = attempt(tamper=kills("lab", 30))
        first.raw(over)
        second = first.again(over, resume_from=None, tamper=changes)
        if compared:
            results = second.raw(over)
            assert any(isinstance(of, StateError) and of.code == "E_REPLAY" for of in results)
        else:
            with mock.patch.object(OpeningLog, "check"):
                second.raw(over)
        before, after = (shares(of, "clinic", "lab") for of in (first, second))
        again = [one for one, other in zip(before, after, strict=False) if one != other]
        assert bool(again) == (not compared)  # no value was sent twice under one mask


def test_a_damaged_log_of_openings_is_refused(tmp_path: Path) -> None:
    log = OpeningLog(tmp_path / "openings", b"context")
    log.check("epoch 0", 0, [np.arange(3, dtype=np.uint64)])
    log.close()
    data = (tmp_path / "openings").read_bytes()
    (tmp_path / "openings").write_bytes(data + b"cut off")
    OpeningLog(tmp_path / "openings", b"context").check("epoch 0", 0, [np.arange(3, dtype=np.uint64)])
    with pytest.raises(StateError):
        OpeningLog(tmp_path / "openings", b"context").check("epoch 0", 0, [np.arange(4, dtype=np.uint64)])


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 3)])
def test_what_was_opened_is_compared_whatever_its_shape_and_place_in_memory(tmp_path: Path, shape: tuple[int, ...]) -> None:
    opened = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    log = OpeningLog(tmp_path / "openings", b"context")
    log.check("epoch 0", 0, [opened])
    log.check("epoch 0", 0, [np.asfortranarray(opened)])
    (digest,) = log._known.values()
    assert digest == hashlib.sha256(opened.astype("<u8").tobytes()).digest()


def test_a_power_failure_may_leave_a_tail_without_sense(tmp_path: Path) -> None:
    """What stands before a checkpoint is on the disk; a damaged record among good ones is refused."""
    path, opened = tmp_path / "openings", [np.arange(3, dtype=np.uint64)]
    log = OpeningLog(path, b"context")
    for number in range(3):
        log.check("epoch 0", number, opened)
    log.keep()
    log.close()
    data = path.read_bytes()
    path.write_bytes(data + bytes(5 * 56))
    OpeningLog(path, b"context").check("epoch 0", 2, opened)
    assert path.read_bytes() == data
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(StateError, match=f"record 1 of {path}.* is damaged"):
        OpeningLog(path, b"context")


@pytest.mark.parametrize("dead", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_checkpoints_of_another_context_are_gone_when_all_begin_anew(world: Any, attempt: Any, dead: str) -> None:
    """Else a party that was killed between two saves would agree on an old one again and again."""
    over, of = world(people=40), attempt({**TRAIN, "epochs": 4})
    saved = MemoryCheckpoints.save

    def breaks(kept: Any, name: str, *rest: Any) -> None:
        if name == "epoch-000004":
            raise KilledError
        saved(kept, name, *rest)

    with mock.patch.object(MemoryCheckpoints, "save", breaks), mock.patch.object(ShareSteps, "_hold"):
        assert any(isinstance(result, KilledError) for result in of.raw(over))
    old = HiddenProgram.version
    with mock.patch.object(HiddenProgram, "version", old + 1):  # as after an update of the software
        expected = attempt({**TRAIN, "epochs": 4})(over)

        def dies(kept: Any, name: str, *rest: Any) -> None:
            if kept is of.state.checkpoints[dead] and name == "epoch-000003":
                raise KilledError
            saved(kept, name, *rest)

        second = of.again(over)
        assert second.resume_from == "epoch-000003"
        with mock.patch.object(MemoryCheckpoints, "save", dies):
            assert any(isinstance(result, KilledError) for result in second.raw(over))
        third = second.again(over)
        assert third.resume_from == "epoch-000002"
        assert_same(third(over), expected)


def test_what_was_opened_once_is_not_opened_under_other_noise(world: Any, attempt: Any) -> None:
    """After an update of the software between the last epoch and the end of a job: it would be a second draw for one ε."""
    over, of = world(people=40), attempt(TRAIN)
    of(over)
    with mock.patch.object(HiddenProgram, "version", HiddenProgram.version + 1), pytest.raises(StateError) as caught:
        of.again(over)(over)
    assert caught.value.code == "E_REPLAY"
