"""Where a finished report is logged besides: MLflow and TensorBoard, each an extra of this package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from vfl_node.errors import UsageError
from vfl_node.report.tracked import TrackedRun, read_run

EXPERIMENT = "vfl-node"
"""The experiment of MLflow to which runs belong, where no other is named."""

BATCH = 1000
"""So many metrics MLflow takes at once."""

URI = re.compile(r"[a-z][a-z0-9+.-]*://")
SECRET = re.compile(r"//\S*@")


def log_to_mlflow(folder: Path, store: str, experiment: str = EXPERIMENT, beside: Sequence[tuple[Path, str]] = ()) -> None:
    """Log the report in ``folder`` as a run of MLflow.

    Args:
        folder: with ``report.json`` and ``report.html``.
        store: URI of a tracking server or database; or a folder, in which ``mlflow.db`` is made.
        experiment: to which the run belongs; made where there is none.
        beside: more files, each with the folder of the run that it goes into; empty: none.

    Raises:
        UsageError: there is no report (``E_FILE``), MLflow is not installed (``E_EXTENSION``), or it did not take the run
            (``E_SINK``).
    """
    run = read_run(folder)
    check_sink("mlflow")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a node tells nobody that it runs
    with _explain("MLflow"):
        _write_to_mlflow(run, store, experiment, beside)


def log_to_tensorboard(folder: Path, store: str) -> None:
    """Log the report in ``folder`` as a run of TensorBoard, into a folder of its own below the folder ``store``.

    Raises:
        UsageError: as :func:`log_to_mlflow`.
    """
    run = read_run(folder)
    check_sink("tensorboard")
    with _explain("TensorBoard"):
        _write_to_tensorboard(run, Path(store) / run.name)


SINKS = ("mlflow", "tensorboard")
"""Where a report can be logged; the name is that of the library and of the extra, too."""


def check_sink(name: str) -> None:
    """Raises UsageError (``E_EXTENSION``) if what a sink needs is not installed."""
    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed", code="E_EXTENSION", hint=f"pip install 'vfl-node[{name}]'")


def parse_sink(option: str) -> tuple[str, str]:
    """Name and store of ``NAME=STORE``. Raises UsageError if it is not that, or as :func:`check_sink`."""
    name, _, store = option.partition("=")
    if name not in SINKS or not store:
        raise UsageError("--sink is mlflow=URI, mlflow=FOLDER or tensorboard=FOLDER", hint="for example --sink mlflow=runs")
    check_sink(name)
    return name, store


def _write_to_mlflow(run: TrackedRun, store: str, experiment: str, beside: Sequence[tuple[Path, str]]) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    place = None
    if not URI.match(store):
        folder = Path(store).resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        store, place = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artefacts").as_uri()
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    known = client.get_experiment_by_name(experiment)
    number = known.experiment_id if known else client.create_experiment(experiment, artifact_location=place)
    begun = client.create_run(number, start_time=run.started, run_name=run.name).info.run_id
    metrics = [Metric(name, value, run.finished, step) for name, value, step in _points(run)]
    client.log_batch(
        begun,
        params=[Param(name, value) for name, value in run.params.items()],
        tags=[RunTag(name, value) for name, value in run.tags.items()],
    )
    try:
        for first in range(0, len(metrics), BATCH):
            client.log_batch(begun, metrics=metrics[first : first + BATCH])
        for path, place in (*((path, "") for path in run.files), *beside):
            client.log_artifact(begun, str(path), place or None)
    except Exception:
        client.set_terminated(begun, status="FAILED")
        raise
    client.set_terminated(begun, end_time=run.finished)


def _write_to_tensorboard(run: TrackedRun, folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for title, texts in (("tags", run.tags), ("params", run.params)):
            rows = "\n".join(f"    {name}: {value}" for name, value in texts.items())
            writer.add_text(title, rows, walltime=run.finished / 1000)
        for name, value, step in _points(run):
            writer.add_scalar(name, value, step, walltime=run.finished / 1000)


def _points(run: TrackedRun) -> Iterator[tuple[str, float, int]]:
    """Name, value and step of all metrics and curves; epochs begin at 1."""
    for name, value in run.metrics.items():
        yield name, value, 0
    for name, values in run.curves.items():
        yield from ((name, value, step) for step, value in enumerate(values, 1) if value is not None)


@contextmanager
def _explain(tool: str) -> Iterator[None]:
    """Turns what a library raises into a UsageError with its first line, without the password of an address."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - of libraries that raise errors of many kinds
        said = SECRET.sub("//", next(iter(str(error).splitlines()), ""))[:300]
        raise UsageError(
            f"{tool} did not take the run: {said or type(error).__name__}",
            code="E_SINK",
            hint="the report is whole; log it again from Python (docs/guides/log-to-mlflow-or-tensorboard.md)",
        ) from None
