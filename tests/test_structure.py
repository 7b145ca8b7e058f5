"""The house as docs and reviews describe it: what its files may and may not contain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vfl_node.alignment.registry import ALIGNMENTS

PACKAGE = Path(__file__).parents[1] / "vfl_node"
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py") if "generated" not in path.parts}

MOST_LINES = 350

LONG = {
    "node/jobs.py",
    "node/peers.py",
    "node/store.py",
    "node/work.py",
    "training/logistic/decryption.py",
    "training/split/serving/protocol.py",
    "transport/grpc_channel.py",
    "transport/tls.py",
    "web/app.py",
}
"""Modules that are still longer; entries only leave this list."""


def test_modules_are_short() -> None:
    long = {name for name, path in MODULES.items() if len(path.read_text().splitlines()) > MOST_LINES}
    assert sorted(long - LONG) == [], f"split these modules: they have more than {MOST_LINES} lines"
    assert sorted(LONG - long) == [], "these modules are short enough now: take them off the list"


# Names of extensions: other rooms ask for a property, never for a name.


def compared_names(source: str, names: set[str]) -> list[int]:
    """Lines of ``source`` that decide by one of ``names``: comparisons, matches, tables and ``Literal`` types."""
    return sorted(line for node in ast.walk(ast.parse(source)) for line in _decides_by(node, names))


def _decides_by(node: ast.AST, names: set[str]) -> Iterator[int]:
    match node:
        case ast.Compare(left=left, comparators=others) if any(_names(side, names) for side in (left, *others)):
            yield node.lineno
        case ast.MatchValue(value=ast.Constant(value=value)) if value in names:
            yield node.lineno
        case ast.Dict(keys=keys) if sum(_names(key, names) for key in keys if key) > 1:
            yield node.lineno
        case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal"), slice=of) if _names(of, names):
            yield node.lineno


def _names(node: ast.expr, names: set[str]) -> int:
    """How many of ``names`` an expression spells out, by itself or within a tuple, list or set."""
    match node:
        case ast.Constant(value=str(value)):
            return value in names
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return sum(_names(item, names) for item in items)
    return 0


@pytest.mark.parametrize(
    "code",
    [
        'if job.align.protocol == "psu": pass',
        'if "psi" != name: pass',
        'if protocol in ("psu", "apsi"): pass',
        'if protocol not in {"apsi"}: pass',
        'match protocol:\n    case "psi" | "psu": pass',
        'rows = {"psu": 1, "psi": 2}[protocol]',
        'Name = Literal["psu", "other"]',
        'x: typing.Literal["apsi"]',
    ],
)
def test_a_decision_by_name_is_seen(code: str) -> None:
    assert compared_names(code, set(ALIGNMENTS))


@pytest.mark.parametrize(
    "code", ['Align(protocol="psi")', "if spec.name == other.name: pass", 'text = "psu"', 'options = {"psu": 1}']
)
def test_a_name_alone_is_no_decision(code: str) -> None:
    assert not compared_names(code, set(ALIGNMENTS))


def test_alignment_protocols_are_asked_for_properties() -> None:
    names, decisions = set(ALIGNMENTS), {}
    for name, path in MODULES.items():
        folder = re.match(r"alignment/(\w+)/", name)
        own = {folder[1]} if folder else set()
        if lines := compared_names(path.read_text(), names - own):
            decisions[name] = lines
    assert list(decisions) == ["alignment/registry.py"]  # the one table of names
    assert len(decisions["alignment/registry.py"]) == 1


@pytest.mark.parametrize("code", ["import unittest.mock", "from unittest.mock import patch", "def f(monkeypatch): pass"])
def test_a_replaced_part_is_seen(code: str) -> None:
    assert replacing(code)


def test_what_measures_the_product_replaces_no_part_of_it() -> None:
    """Benchmarks and experiments switch parts off by settings and arguments, as a user would."""
    root = PACKAGE.parent
    paths = [path for folder in ("benchmarks", "experiments") for path in (root / folder).rglob("*.py")]
    assert paths
    assert [path.relative_to(root).as_posix() for path in paths if replacing(path.read_text())] == []


def replacing(code: str) -> bool:
    """Whether ``code`` imports a mock, or asks for one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom):
            names |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return bool(names & {"mock", "monkeypatch", "MonkeyPatch"})


def test_templates_do_not_compare_names_of_alignment_protocols() -> None:
    quoted = re.compile("|".join(rf"[\"']{name}[\"']" for name in ALIGNMENTS))
    assert [path.name for path in PACKAGE.rglob("*.j2") if quoted.search(path.read_text())] == []
