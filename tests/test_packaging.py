"""What is shipped: version, command, files; and what must never be in it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import vfl_node
from vfl_node.job import load_job
from vfl_node.settings import load_settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vfl_node"

BANNED_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
BANNED_BUILTINS = {"eval", "exec", "compile", "__import__"}
BANNED_ATTRIBUTES = {("torch", "load"), ("torch", "save")}


def test_version_is_single_sourced() -> None:
    assert version("vfl-node") == vfl_node.__version__
    assert f"## [{vfl_node.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_console_script_resolves() -> None:
    from vfl_node.cli import main

    (script,) = entry_points(group="console_scripts", name="vfl-node")
    assert script.load() is main


def test_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "vfl_node", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, source],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"vfl_node-{vfl_node.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    ours = {path.relative_to(source).as_posix() for path in (source / "vfl_node").rglob("*") if path.is_file()}
    assert ours - shipped == set()
    assert {name.partition("/")[0] for name in shipped} == {"vfl_node", f"vfl_node-{vfl_node.__version__}.dist-info"}
    assert any(name.endswith("/licenses/LICENSE") for name in shipped)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_runs_what_it_reads(path: Path) -> None:
    assert dangerous(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import os, dill as d",
        "from marshal import loads",
        "from joblib import load",
        "import joblib.externals",
        "eval(text)",
        "exec(text)",
        "compile(text, '', 'exec')",
        "__import__(name)",
        "torch.load(path)",
        "torch.save(model, path)",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_ban_sees(code: str) -> None:
    assert len(dangerous(code)) == 1


def test_the_ban_lets_pass() -> None:
    assert dangerous("import re, torch\nmodel.eval()\nre.compile('x')\nnp.load(path, allow_pickle=False)") == []


def dangerous(source: str) -> list[str]:
    """Every use in ``source`` of what can run code that was read, as ``line: what``."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Import(names=names):
                found += [(line, name.name) for name in names if name.name.partition(".")[0] in BANNED_MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in BANNED_MODULES:
                    found.append((line, module))
                found += [(line, f"{module}.{name.name}") for name in names if (module, name.name) in BANNED_ATTRIBUTES]
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_BUILTINS:
                found.append((line, name))
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if (owner, attribute) in BANNED_ATTRIBUTES:
                found.append((line, f"{owner}.{attribute}"))
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                found.append((line, "allow_pickle"))
    return [f"{line}: {what}" for line, what in found]


def test_no_path_of_a_developers_machine() -> None:
    homes = re.compile("|".join(("/wo" + "rk/", "/ho" + r"me/\w", "/Us" + r"ers/\w", "/ro" + "ot/", "/op" + "t/(wheels|pypi)")))
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not (found := homes.search(text)), f"{name}: {found[0] if found else ''}"


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/job.yaml")), ids=lambda path: path.parent.name)
def test_example_jobs_parse(path: Path) -> None:
    assert load_job(path).name == path.parent.name.replace("_", "-")


@pytest.mark.parametrize("name", ["clinic", "lab", "coordinator"])
def test_compose_settings_parse(name: str) -> None:
    assert load_settings(ROOT / "deploy" / f"{name}.yaml").name == name
