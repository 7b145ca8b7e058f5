"""What is installed by hash is what every change is tested with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "constraints-hashes.txt").read_text()
ENTRIES = re.findall(r"^(\S[^\n]*?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+)", TEXT, flags=re.MULTILINE)
HASHED = [Requirement(entry) for entry, _ in ENTRIES]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def versions(requirements: list[Requirement], python: str) -> dict[str, str]:
    here = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
    chosen = [of for of in requirements if of.marker is None or of.marker.evaluate(here)]
    return {canonicalize_name(of.name): str(of.specifier) for of in chosen}


def test_every_line_is_an_entry_or_a_hash() -> None:
    lines = TEXT.splitlines()
    hashes = [line for line in lines if line.startswith("    --hash=sha256:")]
    assert len(ENTRIES) > 50
    assert len(hashes) + len(ENTRIES) == len(lines)
    assert "://" not in TEXT


@pytest.mark.parametrize("python", PYTHONS)
def test_versions_are_those_of_the_constraints(python: str) -> None:
    hashed, pinned = versions(HASHED, python), versions(PINS, python)
    for name, version in hashed.items():
        if name.startswith(("nvidia-", "cuda-", "triton")):
            continue  # PyTorch names these exactly
        assert pinned.get(name) == version, name


@pytest.mark.parametrize("python", PYTHONS)
def test_everything_that_the_package_requires_is_there(python: str) -> None:
    text = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [\n")[2].partition("\n]")[0]
    names = {canonicalize_name(Requirement(each).name) for each in re.findall(r'"([^"]+)"', text)}
    assert names >= {"torch", "grpcio"}
    assert names | {"cffi", "setuptools"} <= set(versions(HASHED, python))
