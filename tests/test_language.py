"""The language that CONTRIBUTING.md promises: functions are verbs or plain nouns, docstrings name what they describe."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

STORED = {"between_nodes"}
"""Names of functions that stand in files of results, and so stay."""

FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("vfl_node", "benchmarks", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "generated" not in path.parts
]

LITTLE_WORDS = re.compile(
    "_*(?:about|above|across|after|against|along|among|apart|around|as|at|before|behind|below|beside|besides|between|beyond|both|by"
    "|down|during|each|either|every|except|for|how|in|inside|into|like|near|of|off|on|only|onto|out|outside|over|per|same|since"
    "|than|that|this|through|together|toward|under|unlike|until|up|upon|via|what|when|where|whether|which|while|who|whose|why"
    "|with|within|without)(?:_.*)?"
)
"""A function or method does not begin with one of these: it says what is done, or what is returned."""


def faults(source: str) -> list[str]:
    """What breaks a rule, with its line."""
    found = [fault for node in ast.walk(ast.parse(source)) for fault in (*_name_faults(node), *_docstring_faults(node))]
    return sorted(found, key=lambda fault: int(fault.split(":")[0]))


def _name_faults(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id="of", ctx=ast.Store()) | ast.arg(arg="of") | ast.MatchAs(name="of") | ast.MatchStar(name="of"):
            yield f"{node.lineno}: 'of' names nothing"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if LITTLE_WORDS.fullmatch(name) and not (name in STORED or _is_named_elsewhere(node)):
                yield f"{node.lineno}: {name} does not begin with a verb or a noun"


def _is_named_elsewhere(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a property, which is read as an adjective may be, or has its name from a base."""
    return any("property" in name or "override" in name for name in map(ast.unparse, node.decorator_list))


def _docstring_faults(node: ast.AST) -> Iterator[str]:
    """Faults of what Python calls docstrings, and of texts below attributes and constants."""
    for statement in getattr(node, "body", ()) if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))):
                if text.startswith("Of "):
                    yield f"{statement.lineno}: says of what, not what: {text[:40]!r}"
                if re.fullmatch(r"As (?:in )?the (?:base|contract)\.?", text):
                    yield f"{statement.lineno}: says nothing: use typing_extensions.override without a docstring"


@pytest.mark.parametrize(
    "code",
    [
        "of = 1",
        "for name, of in pairs: pass",
        "[of for of in rows]",
        "def join(of): pass",
        "lambda of: of",
        "def of(rows): pass",
        "class Rows:\n    def at(self, place): pass",
        "def _by_rows(rows): pass",
        'def rows():\n    """Of the table."""',
        'MOST = 1\n"""Of the rows, how many."""',
        'def rows():\n    """As the base."""',
        'def rows():\n    """As in the contract."""',
    ],
)
def test_a_fault_is_seen(code: str) -> None:
    assert len(faults(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        'def rows_of(table):\n    """Rows of the table."""',
        'def rows():\n    """As the base: without those that are missing."""',
        "class Rows:\n    @property\n    def within(self): pass",
        "class Rows:\n    @override\n    def on_done(self): pass",
        "class Rows:\n    @classmethod\n    def from_table(cls, table): pass",
    ],
)
def test_what_is_clear_is_no_fault(code: str) -> None:
    assert faults(code) == []


def test_names_and_docstrings_say_what_they_are() -> None:
    found = {name: faults((ROOT / name).read_text()) for name in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}
