from __future__ import annotations

import inspect
import re
from pathlib import Path

from vfl_node import errors
from vfl_node.errors import VflError

ROOT = Path(__file__).parents[1]


def tree() -> list[type[VflError]]:
    return [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, VflError)]


def test_every_code_is_documented() -> None:
    used = {code for path in (ROOT / "vfl_node").rglob("*.py") for code in re.findall(r"\bE_[A-Z_]+[A-Z]\b", path.read_text())}
    documented = set(re.findall(r"\bE_[A-Z_]+[A-Z]\b", (ROOT / "docs" / "reference" / "errors.md").read_text()))
    assert used - documented == set()
    assert documented - used == set()


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = set(re.findall(r"^[ │├└─]*(\w+) {2,}", errors.__doc__ or "", re.MULTILINE))
    assert drawn == {c.__name__ for c in tree()}


def test_a_peer_is_never_told_the_owners_text() -> None:
    for kind in tree():
        error = kind("column 'salary' of /data/people.csv", hint="look at line 7")
        assert "salary" not in error.for_peer
        assert "people" not in error.for_peer
        assert error.for_peer
        assert error.code.startswith("E_")
        assert "hint: look at line 7" in str(error)
