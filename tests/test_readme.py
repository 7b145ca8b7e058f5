"""Every command of the README is run, or recognised and checked another way: none is only text.

What imports a whole node is forked from a process that has; that the command is installed is tested in test_packaging.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.node import forked_node
from tests.node.nodes import Child, accepting, command
from tests.trust.talks import Talk

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def shorter(job: str) -> str:
    """The same job with fewer epochs, iterations and splits of its rows."""
    text, changes = re.subn(r"(epochs|iterations|repeats): \d+", r"\1: 2", job)
    assert changes or "algorithm: hidden" in job  # whose steps are set by rule
    return text


@pytest.fixture
def services() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for process in started:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(240) for process in started] == [0] * len(started)


ENDING = ("run", "estimate", "init", "certify", "jobs", "submit", "doctor")
"""Commands that end by themselves."""


def test_every_command(tmp_path: Path, trial: Any, services: list[Child]) -> None:
    """In the order of the README, in one folder, as a reader would."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(trial.clinic, work / "clinic.csv")
    trial.few_columns(work / "lab.csv")
    for name, job in zip(("job.yaml", "hidden.yaml", "asymmetric.yaml"), blocks("yaml"), strict=True):
        (work / name).write_text(shorter(job))
    left = commands()

    for line in commands():
        if line.startswith(tuple(f"vfl-node {word}" for word in ENDING)):
            done = command(*shlex.split(line)[1:], folder=work)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            if line.startswith("vfl-node submit"):
                assert "federated: auc 0." in done.stdout
                assert (work / done.stdout.partition("\nreport: ")[2].split("\n")[0]).is_file()
            if line.startswith("vfl-node jobs"):
                assert " done " in done.stdout
                assert "(alone 0." in done.stdout
        elif line.startswith("vfl-node --role"):
            _serve(line, work, services)
        elif line.startswith("vfl-node invite"):
            inviting = _say(line, work)
            place = inviting.stdout.readline().strip()
        elif line.startswith("vfl-node join"):
            _answer_yes(_say(line.replace("HOST:PORT/CODE", place), work), inviting)
        else:
            continue
        left.remove(line)
    assert (work / "runs" / "trial" / "report.html").exists()
    elsewhere = {  # these run in the checks of a fresh clone and of the containers
        "make demo",
        "make test",
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install .",
    }
    assert set(left) == elsewhere


def _say(line: str, work: Path) -> Talk:
    """A command whose owner has not answered yet."""
    return Talk(*shlex.split(line)[1:], folder=work)


def _answer_yes(*commands: Talk) -> None:
    """Both owners hear the same words."""
    said = [each.communicate("y\n")[0] for each in commands]
    words = [re.findall(r"Your words: (.+)", text) for text in said]
    assert words[0] == words[1] != [], said
    assert [each.returncode for each in commands] == [0, 0], said


def _serve(line: str, work: Path, services: list[Child]) -> None:
    """Start a node after the edits that the README asks for: where the data lie, and the peer."""
    words = shlex.split(line)
    config = work / words[words.index("--config") + 1]
    name = config.parent.name
    settings = yaml.safe_load(config.read_text())
    settings |= {"data": {"path": f"../{name}.csv"}, "http": "127.0.0.1:0"}
    if name == "clinic":
        settings |= {"listen": "127.0.0.1:0"}
    else:
        del settings["listen"]
        config.with_name("policy.yaml").write_text(yaml.safe_dump({"approve": accepting("clinic")}))
    config.write_text(yaml.safe_dump(settings))
    services.append(Child(serve_in, work, words[1:], work / f"{name}.log"))
    limit = time.monotonic() + 240
    while not (config.parent / "state" / "running.json").exists():
        assert time.monotonic() < limit, (work / f"{name}.log").read_text()
        time.sleep(0.05)


def serve_in(folder: Path, words: list[str], log: Path) -> None:
    """Become a node that an owner starts in this folder."""
    os.chdir(folder)
    forked_node.run({}, words, log)


class NoPandas(MetaPathFinder):
    """It cannot be imported: pyarrow takes a module that is None for one that is there."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def test_the_block_of_python_runs_after_the_line_that_installs(
    trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else is installed here is hidden from it."""
    (line,) = [line for line in commands() if line.startswith("pip install")]
    extras = re.findall(r"\[([a-z,]+)\]", line)
    needed = requirements("vfl-node", set(extras[0].split(",")) if extras else set())
    modules = {name: {canonicalize_name(of) for of in by} for name, by in metadata.packages_distributions().items()}
    absent = {name for name, by in modules.items() if not by & needed}
    assert {"pandas", "polars", "sklearn"} <= absent  # or this test shows nothing
    for name in {name for name in absent if name not in sys.modules} - {"pandas"} | {"polars", "sklearn"}:
        monkeypatch.setitem(sys.modules, name, None)  # cannot be imported
    for name in [name for name in sys.modules if name.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoPandas(), *sys.meta_path])
    shutil.copy(trial.clinic, tmp_path / "clinic.csv")
    shutil.copy(trial.lab, tmp_path / "lab.csv")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python")
    exec(compile(re.sub(r'"epochs": \d+', '"epochs": 2', block), "README.md", "exec"), {})
    assert re.fullmatch(r"(0\.\d+|1\.0) alone: (0\.\d+|1\.0)\n", capsys.readouterr().out)
    assert (tmp_path / "report.html").exists()


def requirements(package: str, extras: set[str]) -> set[str]:
    """Names of all that ``package`` with ``extras`` installs, itself included."""
    found, waiting = set(), [(package, frozenset(extras))]
    while waiting:
        name, of = waiting.pop()
        if (name, of) in found:
            continue
        found.add((name, of))
        with suppress(metadata.PackageNotFoundError):  # for another system
            for text in metadata.requires(name) or ():
                wanted = Requirement(text)
                if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (of or {""})):
                    waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return {name for name, _ in found}


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_makefile_has_the_targets_named() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
