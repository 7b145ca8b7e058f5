"""One bit that flips in any file of a job, wherever it was cut off: a named error, or the same result; never another one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.test_recovery import ROLES, attempt, outcome
from tests.thorough import every
from vfl_node.crypto.groups import Curve25519
from vfl_node.errors import VflError
from vfl_node.node import partners

JOB = """\
train: {bottom: [4], top: [4], epochs: 3, batch_size: 32, missing: {calibration: test}}
evaluate: {test_fraction: 0.3}
"""
SOME = [("lab", 0.15), ("clinic", 0.45), ("lab", 0.8), ("clinic", 0.99)]
MORE = [of for of in product(ROLES, (0.15, 0.45, 0.8, 0.99)) if of not in SOME]
NAMED = {"E_STATE_CORRUPT", "E_STATE_LOST", "E_REPLAY"}


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Lists in several chunks each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curve25519, "chunk_rows", 50)
        patch.setattr(partners, "secrets", SimpleNamespace(token_bytes=lambda count: b"p" * count))  # so that runs compare
        yield


@pytest.fixture(scope="module")
def clean(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], int]:
    folder = tmp_path_factory.mktemp("clean")
    results, left = attempt(trial, folder, 1, "lab", 1 << 20, job=JOB)
    assert results == [None, None]
    return outcome(folder), (1 << 20) - left


@pytest.mark.parametrize(("victim", "moment"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in MORE)])
def test_a_bit_flips_while_the_job_is_at_rest(
    trial: Any, clean: tuple[list[Any], int], ram: Path, victim: str, moment: float
) -> None:
    expected, frames = clean
    at_rest = ram / "at rest"
    attempt(trial, at_rest, 1, victim, int(moment * frames), job=JOB)
    files = sorted(path.relative_to(at_rest) for path in (at_rest / victim).rglob("*") if path.is_file())
    assert files
    errors = 0
    for number, name in every(5, list(enumerate(files))):
        folder = ram / str(number)
        shutil.copytree(at_rest, folder)
        data = bytearray((folder / name).read_bytes())
        if not data:
            continue
        data[(2 * len(data)) // 3] ^= 1 << number % 8
        (folder / name).write_bytes(data)
        results, _ = attempt(trial, folder, 2, job=JOB)
        if results == [None, None]:
            assert outcome(folder) == expected, name
        else:
            errors += 1
            first = results[list(ROLES).index(victim)]
            assert isinstance(first, VflError), name
            assert first.code in NAMED, (name, first)
        shutil.rmtree(folder)
    assert errors or moment < 0.2
