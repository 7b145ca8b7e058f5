"""Fixtures that several folders of tests share."""

from __future__ import annotations

import csv
import gc
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
from hypothesis import HealthCheck, settings

from tests.declared import undeclared
from tests.thorough import examples
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job
from vfl_node.report import envelope

settings.register_profile(
    "patient", deadline=None, max_examples=examples(100, fewer=50), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")  # no test asserts a time: on a machine that does much else nothing is late


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-transcripts", action="store_true", help="write the transcripts of the tests that run anew")
    parser.addoption("--record-durations", action="store_true", help="write what each file takes, for the order of files")


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """What a test sets of torch's threads or of the log holds in its whole process."""
    torch.set_num_threads(1)  # on a busy machine many wait for each other
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def nothing_undeclared() -> Iterator[None]:
    """Every report that a test makes in this process says only what the manifest of its job would have declared."""
    collect = envelope._collect_entries

    def checked(job: Job, party: str, *further: Any) -> Any:
        learnt = collect(job, party, *further)
        if not job.predict:  # which goes by what another job has trained: tests/trust/test_manifest.py
            assert (more := undeclared(job, learnt)) == set(), f"learnt, and not declared (docs/reference/ledger.md): {more}"
        return learnt

    checked.__wrapped__ = collect  # type: ignore[attr-defined]
    envelope._collect_entries = checked
    yield
    envelope._collect_entries = collect


@pytest.fixture(scope="module")
def invented_facts() -> Iterator[None]:
    """The reports of this module are made of facts that no job has, so nobody has declared what they say."""
    checked = envelope._collect_entries
    envelope._collect_entries = getattr(checked, "__wrapped__", checked)
    yield
    envelope._collect_entries = checked


DURATIONS = Path(__file__).parent / "durations.json"
"""File of tests → seconds that it took in all when ``make durations`` ran last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All folders go on side by side, each with its longest files first.

    So tests of one kind, such as those that wait for nodes, never fill all workers while others use no core, and no worker is
    alone with a long file at the end.
    """
    known: dict[str, float] = json.loads(DURATIONS.read_text())
    seconds = {path: known.get(str(path.relative_to(DURATIONS.parent)), 0.0) for path in {item.path for item in items}}
    folders: dict[Path, list[Path]] = {}
    for path in sorted(seconds, key=lambda path: (-seconds[path], path)):
        folders.setdefault(path.parent, []).append(path)
    share: dict[Path, float] = {}
    """File → what part of its folder's time those before it take."""
    for files in folders.values():
        passed, whole = 0.0, sum(seconds[path] for path in files) or 1.0
        for path in files:
            share[path] = passed / whole
            passed += seconds[path]
    items.sort(key=lambda item: (share[item.path], -seconds[item.path], item.path))


MEMORY, NEEDED_BYTES = Path("/dev/shm"), 4 << 30
"""Where files are in memory, and how much of it must be free there: the folders of a whole run take a tenth of it."""


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests are in memory where there is room. Measure what each file takes, where that is wanted.

    Nodes sync what they write: a third of the time of a small job would be that of a disk.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


class Stopwatch:
    """Writes what each file of tests took, in whole tenths of a second; what did not run keeps its figure."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = json.loads(DURATIONS.read_text()) | {name: round(took, 1) for name, took in self.seconds.items()}
        found = {name: took for name, took in sorted(known.items()) if (DURATIONS.parent / name).exists()}
        DURATIONS.write_text(json.dumps(found, indent=0) + "\n")


def pytest_collection_finish() -> None:
    """What is imported stays, and so do the tests: the garbage collector need not go through them again and again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Trial:
    """Two small real tables that overlap in part, and a job over them."""

    clinic: Path
    lab: Path
    shared: int
    ids: tuple[str, ...]

    @property
    def files(self) -> dict[str, Path]:
        return {"clinic": self.clinic, "lab": self.lab}

    def few_columns(self, file: Path) -> Path:
        """Write the lab's table with four of its columns: under encryption each takes a ciphertext a record."""
        with self.lab.open(newline="") as whole, file.open("w", newline="") as part:
            csv.writer(part).writerows(row[:5] for row in csv.reader(whole))
        return file

    def job(self, text: str = "") -> Job:
        return parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\n{text or TRAIN}", Job, source="job")


TRAIN = """\
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 3, batch_size: 32, learning_rate: 0.01, missing: {calibration: test}}
evaluate: {test_fraction: 0.3}
"""


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """As :func:`make_trial`."""
    return make_trial(tmp_path_factory.mktemp("trial"))


def make_trial(folder: Path) -> Trial:
    """200 patients of scikit-learn's breast-cancer table: the clinic has 160 of them, the lab 160, both 120."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    ids = tuple(f"canary-{i:04d}-patient" for i in range(200))

    def write(name: str, rows: range, columns: list[int], *, labels: bool) -> Path:
        path = folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"measure-{c:02d}-canary" for c in columns), *(["label"] if labels else [])])
            for row in rows:
                label = [1 - int(table.target[row])] if labels else []
                writer.writerow([ids[row], *(f"{table.data[row, c]:.6g}" for c in columns), *label])
        return path

    clinic = write("clinic", range(160), [0, 1, 4, 5], labels=True)
    lab = write("lab", range(40, 200), [c for c in range(30) if c not in (0, 1, 4, 5)], labels=False)
    return Trial(clinic, lab, 120, ids)


@pytest.fixture
def seeds() -> dict[str, Randomness]:
    """Injected randomness, so that two runs can be compared bit by bit."""
    return {"clinic": Randomness(b"c" * 32), "lab": Randomness(b"l" * 32)}


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of the shared data sets; the test is skipped where there is none."""
    given = os.environ.get("VFL_SHARED_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no shared data sets here (VFL_SHARED_DATA)")
    return folder
