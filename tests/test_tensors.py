"""When torch is loaded, on which device it computes, and what memory is set aside for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from vfl_node.errors import StateError, UsageError
from vfl_node.estimate import budget
from vfl_node.job import Job
from vfl_node.job.costs import TableShape
from vfl_node.process import tensors
from vfl_node.session.session import OwnMachine
from vfl_node.settings.limits import Limits

PARTIES = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}}


def test_a_machine_without_a_driver_computes_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So torch need not be asked: what only aligns does without."""
    monkeypatch.setattr(tensors, "_DRIVERS", (str(tmp_path / "nvidiactl"),))
    assert tensors.settle_device("auto") == "cpu"
    (tmp_path / "nvidiactl").touch()
    assert tensors.settle_device("auto") == "auto"
    monkeypatch.setattr(sys, "platform", "another")
    (tmp_path / "nvidiactl").unlink()
    assert tensors.settle_device("auto") == "auto"
    assert tensors.settle_device("cpu") == "cpu"


def test_a_device_that_is_named_and_absent_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="cuda:7 is not on this machine") as caught:
        tensors.settle_device("cuda:7")
    assert caught.value.code == "E_DEVICE"


def test_a_machine_on_the_cpu_is_not_accelerated() -> None:
    assert not OwnMachine().accelerated
    assert OwnMachine(device_name="meta").accelerated
    assert str(OwnMachine().device) == "cpu"


def test_torch_is_there_once_its_module_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = ModuleType("torch")
    coming.__spec__ = SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "torch", coming)
    assert not tensors.torch_is_loaded()
    coming.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    assert tensors.torch_is_loaded()
    monkeypatch.delitem(sys.modules, "torch")
    assert not tensors.torch_is_loaded()


def test_the_first_training_needs_room_for_torch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    train, align = Job.model_validate(PARTIES | {"train": {}}), Job.model_validate(PARTIES | {"align": {"protocol": "psi"}})
    shape, there = TableShape(rows=100), True
    monkeypatch.setattr(budget, "torch_is_loaded", lambda: there)
    monkeypatch.setattr(budget, "free_bytes", lambda: 2.0**40)
    needed = budget.Budget(None).fit(train, "active", shape, Limits())
    monkeypatch.setattr(budget, "free_bytes", lambda: needed + 1.0)
    assert budget.Budget(None).fit(train, "active", shape, Limits()) == needed
    there = False
    room = budget.Budget(None)
    room.fit(align, "active", shape, Limits())
    with pytest.raises(StateError) as caught:
        room.fit(train, "active", shape, Limits())
    assert caught.value.code == "E_MEMORY"
    monkeypatch.setattr(budget, "free_bytes", lambda: needed + tensors.TORCH_BYTES + 1.0)
    assert room.fit(train, "active", shape, Limits()) == needed
