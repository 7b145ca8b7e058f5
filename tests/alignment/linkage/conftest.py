"""Folders in memory: a disk would take nine tenths of the time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alignment.worlds import RAM


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        yield Path(folder)
