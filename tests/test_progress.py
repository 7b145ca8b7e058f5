"""Events of a job: facts that cost nothing to import and do not change."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import get_args

import pytest

from vfl_node.progress import EpochTrained, Event, Silent, WorkEvent


@pytest.mark.parametrize("event", get_args(Event))
def test_every_event_is_frozen_and_says_what_it_is(event: type) -> None:
    assert dataclasses.is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not (event.__doc__ or "").startswith(f"{event.__name__}(")  # which dataclasses write where nobody did


def test_events_of_work_are_events() -> None:
    assert set(get_args(WorkEvent)) < set(get_args(Event))


def test_who_is_silent_passes_over_everything() -> None:
    Silent().emit(EpochTrained(0.5))


def test_events_need_neither_tensors_nor_the_wire() -> None:
    code = "import sys, vfl_node.progress; print(*sorted({'torch', 'grpc', 'numpy', 'google'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
