"""Fixtures that several folders of tests share."""

from __future__ import annotations

import csv
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
import torch
from hypothesis import HealthCheck, settings

from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # no test asserts a time: on a machine that does much else nothing is late


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-transcripts", action="store_true", help="write the transcripts of the tests that run anew")


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """What a test sets of torch's threads or of the log holds in its whole process."""
    torch.set_num_threads(1)  # on a busy machine many wait for each other
    yield
    structlog.reset_defaults()


LONGEST = (
    "test_benchmarks",
    "test_faults",
    "test_two_processes",
    "test_resume",
    "test_predictions",
    "test_recovery",
    "test_rare_columns",
    "test_restart",
    "test_examples",
    "test_three_parties",
    "test_pretraining",
    "test_feature_audit",
    "test_kill_regression",
    "test_rebuilt_columns",
    "test_packaging",
    "test_audit",
    "test_pages",
    "test_kill_defended",
    "test_florist",
    "test_mutated_jobs",
    "test_transcripts",
    "test_stopping",
    "test_label_audit",
    "test_moving_defences",
    "test_cli",
    "test_readme",
    "test_structure",
    "test_hidden_training",
    "test_restarts",
    "test_extension",
    "test_asymmetric_mnist",
    "test_light_commands",
    "test_images",
    "test_audited_columns",
    "test_asymmetric",
    "test_kill_hidden",
    "test_queue",
    "test_kill_alignment",
    "test_golden_transcripts",
    "test_calibration_effect",
    "test_canaries",
    "test_outside",
    "test_learns",
    "test_flood",
    "test_inference_defences",
    "test_matrix",
    "test_labels_in_training",
    "test_several",
)
"""Files that take longest. They begin first, so that no worker is alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; otherwise in their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


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
