"""What is shipped: version, command, files; and what must never be in it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import entry_points, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import vfl_node
from vfl_node.job import load_job
from vfl_node.settings.reading import load_settings
from vfl_node.version import PROTOCOL_VERSION

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vfl_node"

BANNED_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
BANNED_BUILTINS = {"eval", "exec", "compile", "__import__"}
BANNED_ATTRIBUTES = {("torch", "load"), ("torch", "save")}


def test_version_is_single_sourced_and_tells_the_protocol() -> None:
    """What an older installation of this tree says is not asked: a wheel is made with the version below."""
    assert 'version = {attr = "vfl_node.version.VERSION"}' in (ROOT / "pyproject.toml").read_text()
    assert vfl_node.__version__.split(".")[1] == str(PROTOCOL_VERSION)
    assert f"## [{vfl_node.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_console_script_resolves() -> None:
    from vfl_node.cli import main

    (script,) = entry_points(group="console_scripts", name="vfl-node")
    assert script.load() is main


def built(folder: Path, **environment: str) -> tuple[set[str], set[str]]:
    """Files of the package, and of a wheel made of it."""
    source = folder / "source"
    shutil.copytree(PACKAGE, source / "vfl_node", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copytree(ROOT / "native", source / "native")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"vfl_node-{vfl_node.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    return {path.relative_to(source).as_posix() for path in (source / "vfl_node").rglob("*") if path.is_file()}, shipped


def test_wheel_holds_every_file_of_the_package_and_is_made_without_a_compiler_too(tmp_path: Path) -> None:
    ours, shipped = built(tmp_path, CC="/bin/false")
    assert ours - shipped == set()
    assert {name.partition("/")[0] for name in shipped} == {"vfl_node", f"vfl_node-{vfl_node.__version__}.dist-info"}
    assert any(name.endswith("/licenses/LICENSE") for name in shipped)
    assert not [name for name in shipped if name.endswith(".so")]


COMPILES = shutil.which("cc") is not None


@pytest.mark.skipif(not COMPILES, reason="no compiler")
def test_what_runs_here_was_compiled_of_these_sources() -> None:
    """A compilation that fails stops no installation, and would leave an older module in its place."""
    (compiled,) = (PACKAGE / "crypto" / "kernels").glob("_native*.so")
    assert compiled.stat().st_mtime >= max(path.stat().st_mtime for path in (ROOT / "native").iterdir())


@pytest.mark.slow  # it compiles for half a minute, as the installation of what runs here did
def test_wheel_holds_kernels(tmp_path: Path) -> None:
    ours, shipped = built(tmp_path)
    assert ours - shipped == set()
    assert len([name for name in shipped if name.endswith(".so")]) == COMPILES


def test_nothing_runs_what_it_reads() -> None:
    """But for what a seal vouches for: blocks of this node's own workers (tests/engines/test_sealing.py)."""
    assert set(seen_by(dangerous)) == {"vfl_node/engines/ray/sealing.py"}


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


def seen_by(rule: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What a rule says of each of the package's files about which it says anything."""
    said = {path.relative_to(ROOT).as_posix(): rule(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(said) > 500
    return {name: lines for name, lines in said.items() if lines}


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


LIBRARY_DRAWS = re.compile(
    r"manual_seed\w*|rand|randn|rand(int|n)?_like|randint|randperm|bernoulli_?|multinomial|default_rng|RandomState"
    r"|(normal|uniform|random|exponential|cauchy|geometric|log_normal|trunc_normal|xavier_\w+|kaiming_\w+|orthogonal)_",
    re.IGNORECASE,
)
"""Names under which torch and numpy draw with a generator of their own."""

LIBRARY_DROPOUT = re.compile(r"\w*dropout\w*_?", re.IGNORECASE)
"""Likewise, where torch is named beside them: a job's key has the same name."""


def test_every_draw_comes_from_our_stream() -> None:
    """torch's CPU generator keeps 32 bits of its seed, and a process has one global generator for all parties in it."""
    assert seen_by(library_draws) == {}


@pytest.mark.parametrize(
    "code",
    [
        "torch.Generator(device)",
        "from torch import Generator",
        "generator.manual_seed(1)",
        "torch.randn(3)",
        "torch.normal(mean, sd)",
        "weight.uniform_(-1, 1)",
        "functional.dropout(x, 0.5)",
        "nn.Dropout(0.5)",
        "torch.nn.functional.alpha_dropout(x)",
        "from torch.nn import Dropout2d",
        "nn.init.trunc_normal_(weight)",
        "import random",
        "from random import shuffle",
        "import numpy.random as r",
        "from numpy import random",
        "np.random.rand",
        "np.random.normal(size=3)",
    ],
)
def test_the_ban_on_other_draws_sees(code: str) -> None:
    assert library_draws(code)


def test_the_ban_on_other_draws_lets_pass() -> None:
    assert library_draws("from collections.abc import Generator\nrandomness.normal(s)\nfrom vfl_node.x.random import y") == []


def library_draws(source: str) -> list[str]:
    """Every draw in ``source`` by a library's own generator, as ``line: what``."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Import(names=names):
                found += [(line, name.name) for name in names if name.name in {"random", "numpy.random"}]
            case ast.ImportFrom(module=str(module), names=names):
                if module in {"random", "numpy.random", "torch.nn.init"}:
                    found.append((line, module))
                found += [(line, f"{module}.{name.name}") for name in names if LIBRARY_DRAWS.fullmatch(name.name)]
                if module.partition(".")[0] == "torch":
                    found += [(line, f"{module}.{name.name}") for name in names if LIBRARY_DROPOUT.fullmatch(name.name)]
                found += [
                    (line, f"{module}.{name.name}")
                    for name in names
                    if (module, name.name) in {("torch", "Generator"), ("torch", "normal"), ("numpy", "random")}
                ]
            case ast.Attribute(value=ast.Name(id=("torch" | "np" | "numpy") as owner), attr=attribute) if attribute in {
                "Generator",
                "normal",
                "random",
            }:
                found.append((line, f"{owner}.{attribute}"))
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=attribute) if owner in {
                "torch",
                "nn",
                "functional",
                "F",
            } and LIBRARY_DROPOUT.fullmatch(attribute):
                found.append((line, f"{owner}.{attribute}"))
            case ast.Attribute(attr=attribute) if LIBRARY_DRAWS.fullmatch(attribute):
                found.append((line, attribute))
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


PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def pins(name: str, python: str) -> list[Requirement]:
    """What the constraints say of a distribution on one Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    here = (pin for pin in PINS if pin.marker is None or pin.marker.evaluate(environment))
    return [pin for pin in here if canonicalize_name(pin.name) == canonicalize_name(name)]


def required(*extras: str) -> list[Requirement]:
    """What pyproject.toml requires."""
    text = (ROOT / "pyproject.toml").read_text()
    blocks = [text.partition("\ndependencies = [\n")[2].partition("\n]")[0]]
    optional = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    blocks += [re.split(r"^\w+ = |\n\n", optional.partition(f"\n{extra} = ")[2], flags=re.M)[0] for extra in extras]
    found = [Requirement(each) for block in blocks for each in re.findall(r'"([^"]+)"', block)]
    return [requirement for requirement in found if requirement.name != "vfl-node"]


@pytest.mark.parametrize("python", PYTHONS)
def test_what_ci_installs_is_exact_and_within_what_the_package_allows(python: str) -> None:
    names = {requirement.name for requirement in required("demo", "dev")}
    assert names >= {"torch", "starlette", "scikit-learn", "pytest"}
    for requirement in required("demo", "dev"):
        (pin,) = pins(requirement.name, python)
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert requirement.specifier.contains(exact.version), (requirement, exact.version)


def test_everything_that_is_installed_for_the_tests_is_pinned() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted, seen = [requirement.name for requirement in required("demo", "dev")], set[str]()
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in seen or name.startswith(("nvidia-", "cuda-", "triton")):
            continue
        seen.add(name)
        assert len(pins(name, python)) == 1, name
        for text in requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                wanted.append(needed.name)


def test_what_make_asks_of_python_is_answered() -> None:
    """No type checker and no search by name for modules sees these lines."""
    asked = re.findall(r"\$\(BIN\)/python -c '([^']+)'", (ROOT / "Makefile").read_text())
    assert asked
    for code in asked:
        answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (answer.returncode, bool(answer.stdout.strip())) == (0, True), answer.stderr


def test_make_and_the_image_install_by_the_constraints_which_name_no_host() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "install --no-compile -c constraints.txt\n" in makefile
    stamps = re.findall(r"^\$\(VENV\)/[\w-]+\.stamp: (.*)\|", makefile, flags=re.M)
    assert len(stamps) >= 4
    assert all("constraints.txt" in stamp for stamp in stamps)
    for line in re.findall(r"pip install .*", (ROOT / "deploy" / "Dockerfile").read_text()):
        assert "-c " in line or "--no-deps" in line
    assert not re.search(r"://|--|@", (ROOT / "constraints.txt").read_text())


@pytest.mark.parametrize("path", sorted(ROOT.glob("ex*/*/job.yaml")), ids=lambda path: path.parent.name)
def test_jobs_of_examples_and_experiments_parse(path: Path) -> None:
    assert load_job(path).name == path.parent.name.replace("_", "-")


@pytest.mark.parametrize("name", ["clinic", "lab", "insurer", "agency", "schools", "coordinator"])
def test_compose_settings_parse(name: str) -> None:
    assert load_settings(ROOT / "deploy" / f"{name}.yaml").name == name
