"""The structure that CONTRIBUTING.md promises: what files may and may not contain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TRAINERS
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.settings.defences import DEFENCES
from vfl_node.training.split.missing.strategies import FEATURES, LABELS

PACKAGE = Path(__file__).parents[1] / "vfl_node"
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py") if "generated" not in path.parts}

MOST_LINES = 350


@cache
def nodes(source: str) -> list[ast.AST]:
    """Of a module; many tests look at all."""
    return list(ast.walk(ast.parse(source)))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    yield
    nodes.cache_clear()  # half a million objects


def test_modules_are_short() -> None:
    long = [name for name, path in MODULES.items() if len(path.read_text().splitlines()) > MOST_LINES]
    assert long == [], f"split these modules: they have more than {MOST_LINES} lines"


def test_the_package_needs_nothing_that_stands_beside_it() -> None:
    """Installed, it has no experiments, benchmarks or tests."""
    beside = re.compile(r"^\s*(?:from|import) (?:experiments|benchmarks|tests)\b", re.MULTILINE)
    assert [module for module, path in MODULES.items() if beside.search(path.read_text())] == []


def test_a_class_name_stands_in_one_module_only() -> None:
    modules: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        for node in nodes(path.read_text()):
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, set()).add(module)
    shared = {name: sorted(where) for name, where in modules.items() if len(where) > 1}
    assert shared == {}, "give each class its own name"


# Circles: of two files that need each other, none can be read first.


def imported(source: str, modules: set[str]) -> set[str]:
    """Those of ``modules`` that ``source`` imports: at its top, for types alone, or within a function."""
    found: set[str] = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.add(module if module in modules else str(node.module))
    return found & modules


def circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Modules each of which needs the next one, the first at the end again; none where all can be read one after the other."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_seen() -> None:
    modules = {"room", "room.oak", "room.elm"}
    oak = imported("if TYPE_CHECKING:\n    from room import elm", modules)
    elm = imported("def f() -> None:\n    from room.oak import bark", modules)
    assert (oak, elm) == ({"room.elm"}, {"room.oak"})
    assert set(circle({"room": set(), "room.oak": oak, "room.elm": elm})) == {"room.oak", "room.elm"}
    assert circle({"room": {"room.oak", "room.elm"}, "room.oak": set(), "room.elm": {"room.oak"}}) == []


def test_no_two_modules_need_each_other() -> None:
    """Imports for types and within functions count, too: a reader follows them all."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in MODULES.values()}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    modules = set(paths)
    assert circle({name: imported(path.read_text(), modules) - {name} for name, path in paths.items()}) == []


# Names of extensions: other packages ask for a property, never for a name.


def compared_names(source: str, names: set[str]) -> list[int]:
    """Lines of ``source`` that decide by one of ``names``: comparisons, matches, tables and ``Literal`` types."""
    return sorted(line for node in nodes(source) for line in _decides_by(node, names))


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


@dataclass(frozen=True)
class Extension:
    """Things of one kind that a registry names.

    Attributes:
        names: all of them.
        home: pattern of the modules that may spell them: only the one in its group, where it has a group.
        registry: the module with the one table of names; none where that lies at home.
    """

    names: frozenset[str]
    home: str
    registry: str | None = None

    def spelled_at(self, module: str) -> frozenset[str]:
        """The names by which ``module`` may decide."""
        match = re.match(self.home, module)
        if match is None:
            return frozenset()
        return frozenset(match.groups()) & self.names if match.groups() else self.names


STRATEGIES = "training/split/missing/strategies.py"
NOTHING = {"none"}  # what a job says where no row is missing, of calibration too

EXTENSIONS = {
    "alignment protocols": Extension(frozenset(ALIGNMENTS), r"alignment/(\w+)/", "job/alignment.py"),
    "trainers": Extension(frozenset(TRAINERS), r"training/(\w+)/", "job/training.py"),
    "label strategies": Extension(frozenset(LABELS) - NOTHING, r"training/split/missing/labels/", STRATEGIES),
    "feature strategies": Extension(frozenset(FEATURES) - NOTHING, r"training/split/missing/features/", STRATEGIES),
    "attacks": Extension(frozenset(ATTACKS), r"privacy/attacks/(\w+)\.py", "privacy/attacks/__init__.py"),
    "defences": Extension(frozenset(DEFENCES), r"privacy/defences/", "settings/defences.py"),
}
extensions = pytest.mark.parametrize("kind", EXTENSIONS.values(), ids=EXTENSIONS)


@pytest.mark.parametrize(
    ("home", "spelled"), [(r"room/(\w+)/", {"oak"}), (r"room/", {"oak", "elm"}), (r"room/(elm)/", set()), (r"other/", set())]
)
def test_a_module_may_spell_the_names_of_its_home(home: str, spelled: set[str]) -> None:
    assert Extension(frozenset({"oak", "elm"}), home).spelled_at("room/oak/bark.py") == spelled


@extensions
def test_other_packages_ask_for_properties(kind: Extension) -> None:
    decisions = {}
    for name, path in MODULES.items():
        spelled = frozenset().union(*(other.spelled_at(name) for other in EXTENSIONS.values()))  # two kinds may share a name
        if lines := compared_names(path.read_text(), set(kind.names - spelled)):
            decisions[name] = lines
    assert list(decisions) == ([kind.registry] if kind.registry else [])
    assert all(len(lines) == 1 for lines in decisions.values())


@extensions
def test_templates_do_not_compare_names(kind: Extension) -> None:
    quoted = re.compile("|".join(rf"[\"']{name}[\"']" for name in kind.names))
    assert [path.name for path in PACKAGE.rglob("*.j2") if quoted.search(path.read_text())] == []


FIRST_PARTY = re.compile(r"\b(passive|others|peers)\[\d\]|\bnext\(\(?(name|peer|other) for (name|peer|other) in")


@pytest.mark.parametrize("code", ["parties.passive[0]", "others[0]", "next(name for name in parties.all if name != own)"])
def test_a_party_picked_by_its_place_is_seen(code: str) -> None:
    assert FIRST_PARTY.search(code)


def test_no_party_is_picked_by_its_place() -> None:
    """A protocol of two asks for ``Session.peer`` or ``Parties.pair``, which refuse a third party."""
    templates = {path.name: path for path in PACKAGE.rglob("*.j2")}
    assert [name for name, path in (MODULES | templates).items() if FIRST_PARTY.search(path.read_text())] == []


CONFIGS = {TRAINERS[name].__name__: name for name in TRAINERS}
"""Class of a job's ``train`` section → its trainer."""


def sections_told_apart(source: str) -> set[str]:
    """Trainers whose section ``source`` recognises by its class."""
    calls = [node for node in nodes(source) if isinstance(node, ast.Call)]
    asked = [call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance"]
    within = {node for kinds in asked for node in ast.walk(kinds)}
    named = {node.id for node in within if isinstance(node, ast.Name)}
    attributes = {node.attr for node in within if isinstance(node, ast.Attribute)}
    return {CONFIGS[name] for name in (named | attributes) & set(CONFIGS)}


@pytest.mark.parametrize(
    "code", ["isinstance(job.train, Train)", "not isinstance(x, config.Logistic)", "isinstance(x, (int, Train | Logistic))"]
)
def test_a_section_told_by_its_class_is_seen(code: str) -> None:
    assert sections_told_apart(code)


def test_no_other_package_recognises_a_trainers_section() -> None:
    told = {name: sections_told_apart(path.read_text()) for name, path in MODULES.items()}
    trainers = EXTENSIONS["trainers"]
    assert {name: kinds for name, kinds in told.items() if kinds - trainers.spelled_at(name)} == {}


TRAINERS_IMPORTED = re.compile(rf"vfl_node\.training\.({'|'.join(TRAINERS)})\b")


def trainers_imported(source: str) -> set[str]:
    """Trainers from whose packages ``source`` imports something, for types alone too."""
    modules = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return {match[1] for module in modules if (match := TRAINERS_IMPORTED.match(module))}


@pytest.mark.parametrize(
    "code",
    [
        "import vfl_node.training.split.config",
        "from vfl_node.training import split",
        "from vfl_node.training.split import costs",
        "if TYPE_CHECKING:\n    from vfl_node.training.split.prediction import SplitModel",
    ],
)
def test_an_import_of_a_trainer_is_seen(code: str) -> None:
    assert trainers_imported(code) == {"split"}


def test_a_trainer_is_imported_nowhere_but_in_its_own_package() -> None:
    """The registry names its config as text; all else is loaded through the contract."""
    imported = {name: trainers_imported(path.read_text()) for name, path in MODULES.items()}
    trainers = EXTENSIONS["trainers"]
    assert {name: kinds for name, kinds in imported.items() if kinds - trainers.spelled_at(name)} == {}


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
