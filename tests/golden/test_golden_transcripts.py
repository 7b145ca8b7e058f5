"""Whole jobs of all parties in memory, message by message: sender, receiver, phase, type, size and digest.

They hold training, prediction and alignment in place as tests/alignment/test_transcripts.py holds the bytes of alignments. The
preflight is left out, whose digests change with the job's schema. After a change that is meant to be seen on the wire (say
so in the changelog), record them anew and look at what differs::

    pytest tests/golden --record-transcripts

A tensor's last bits depend on the processor and on the release of torch. Where these compute otherwise than where the
transcripts were recorded, everything but the digests is compared, and a test that says so is skipped. Alignments and training
in shares compute with whole numbers alone, and their digests are compared everywhere.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.predicting import NEW_TO_ACTIVE, NEW_TO_PASSIVE, TO_ACTIVE, TO_PASSIVE, Shown, World, met
from tests.training.test_prediction import aligned
from vfl_node.configuration.models import parse
from vfl_node.crypto.kernels.choice import _native
from vfl_node.crypto.randomness import Randomness
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Entry, Recorder

FOLDER = Path(__file__).with_name("transcripts")

ARITHMETIC = Path(__file__).with_name("arithmetic.json")
"""Transcript → what computes as the machine did on which it was recorded (:func:`arithmetic`)."""

SPLIT = "train: {bottom: [6, 4], active_bottom: [5], top: [6], epochs: 2, batch_size: 40"
LOGISTIC = "evaluate: {test_fraction: 0.25}\ntrain: {algorithm: logistic, iterations: 3, key_bits: 2048, least_rows: 0"
HIDDEN = "evaluate: {test_fraction: 0.25}\ntrain: {algorithm: hidden, epochs: 2"
TREES = "evaluate: {test_fraction: 0.25}\ntrain: {algorithm: trees, trees: 2, depth: 3, bins: 4"
ASYMMETRIC = "align: {protocol: apsi, obfuscation: {fraction: 0.9}}\n"
INTERSECTION = "align: {protocol: psi}\n"

JOBS = {
    "align-psu": "align: {protocol: psu, padding: 2, dummies: 5}",
    "align-psi": "align: {protocol: psi, group: modp2048}",
    "align-apsi": ASYMMETRIC,
    "align-upsi": "align: {protocol: upsi}",
    "align-upsi-active": "align: {protocol: upsi, server: active, padding: 1, group: modp2048}",
    "split-psu": f"evaluate: {{share_with_passive: true, repeats: 2}}\n{SPLIT}, missing: {{calibration: train}}}}",
    "split-psi": f"{INTERSECTION}{SPLIT}, model: wide_deep, optimizer: sgd}}",
    "split-apsi": f"{ASYMMETRIC}{SPLIT}, missing: {{labels: neighbors, features: smoothed}}}}",
    "split-dummies": f"align: {{dummies: 10}}\n{SPLIT}, missing: {{labels: random-pred, draws: 2, features: gaussian}}}}",
    "split-classes": f"{SPLIT}, classes: 3, missing: {{features: naive, labels: minority}}}}",
    "split-matched": f"evaluate: {{matched: true, test_fraction: 0.9}}\n{SPLIT}, missing: {{labels: random-pos}}}}",
    "split-validation": (
        f"evaluate: {{validation_fraction: 0.2, repeats: 2}}\n{SPLIT.replace('epochs: 2', 'epochs: 9')}, patience: 1, "
        "learning_rate: 0.05, learning_rate_schedule: cosine}"
    ),
    "split-last": f"evaluate: {{hold_out: {{last: 0.2}}}}\n{INTERSECTION}{SPLIT}, model: wide_deep, optimizer: sgd}}",
    "logistic-two-party": f"{INTERSECTION}{LOGISTIC}}}",
    "logistic-coordinator-open-scores": f"{INTERSECTION}{LOGISTIC}, flow: coordinator-open-scores, batch_size: 30}}",
    "logistic-coordinator": f"{ASYMMETRIC}{LOGISTIC}, flow: coordinator, loss: taylor, mask: multiplicative}}",
    "logistic-classes": f"{ASYMMETRIC}{LOGISTIC}, classes: 3, l2: 0.01, short_exponents: true}}",
    "logistic-passive-labels": (
        f"{INTERSECTION}{LOGISTIC.replace('0.25', '0')}, flow: coordinator, loss: taylor, labels: passive}}"
    ),
    "hidden-psu": f"{HIDDEN}, reveal: owners}}",
    "hidden-parties": f"{HIDDEN}, reveal: owners, randomness: parties}}",
    "hidden-parties-taylor": (
        f"{ASYMMETRIC}{HIDDEN}, epsilon: null, batch_size: 50, loss: taylor, metrics_by: none, randomness: parties}}"
    ),
    "trees-psu": f"{TREES}}}",
    "statistics": "statistics: {bins: 4, correlations: true}",
    "statistics-exact": "statistics: {bins: 4, epsilon: null, worth: true}",
    "trees-squares": f"{INTERSECTION}{TREES}, task: regression, reveal: none, leaves: none, metrics_by: none}}",
    "trees-epsilon": f"{INTERSECTION}{TREES}, epsilon: 5}}",
    "hidden-layers": f"{INTERSECTION}{HIDDEN}, epsilon: null, batch_size: 50, layers: [3], classes: 3}}",
}
"""Name of a transcript → what its job says beside its parties."""

SERVICES = {
    "predict-to-active": TO_ACTIVE,
    "predict-to-passive": TO_PASSIVE,
    "predict-new-to-active": NEW_TO_ACTIVE,
    "predict-new-to-passive": NEW_TO_PASSIVE,
}

Line = list[Any]


def recorded_job(text: str, folder: Path, seed: str = "golden") -> list[Line]:
    coordinated = any(word in text for word in ("flow: coordinator", "algorithm: hidden", "algorithm: trees", "statistics"))
    hub = ", coordinator: hub" if coordinated and "randomness: parties" not in text else ""
    job = parse(f"name: golden\nparties: {{active: clinic, passive: lab{hub}}}\n{text}\n", Job, source="job")
    recorder = Recorder()
    seeds = {name: Randomness(f"{seed} {name}".encode().ljust(32)) for name in job.parties.all}
    ordered = {"clinic": private_settings({"data": {"order": "c0"}}, source="settings")} if job.evaluate.hold_out else {}
    settings = trial_settings(job, tables(folder, job), given=ordered)
    simulate(job, {}, folder / "out", randomness=seeds, wrap=recorder.wrap, settings=settings)
    return list(lines(recorder.entries))


def tables(folder: Path, job: Job) -> dict[str, Path]:
    """Both parties' tables: 180 records, of which they share 140."""
    rng = np.random.default_rng(0)
    times = 6 if job.evaluate.matched else 1
    values = rng.normal(size=(180 * times, 5)).round(4)
    kinds = np.array(["red", "green", "blue"])[rng.integers(0, 3, len(values))]
    labels = np.digitize(values.sum(axis=1), [0, 1.5][: job.classes - 1])
    files = {}
    for name, records, columns in (
        ("clinic", range(160 * times), (0, 1)),
        ("lab", range(20 * times, 180 * times), (2, 3, 4)),
    ):
        labelled = name == ("lab" if job.label_holder == "passive" else "clinic")
        files[name] = folder / f"{name}.csv"
        with files[name].open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"c{c}" for c in columns), "kind", *(["label"] if labelled else [])])
            writer.writerows(
                [record, *values[record, columns], kinds[record], *([labels[record]] if labelled else [])] for record in records
            )
    return files


def recorded_service(name: str, world: World) -> list[Line]:
    predict = SERVICES[name]
    parties = world.parties
    if predict.rows == "new":
        recorder = Recorder()
        ends = map(recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        sides = aligned(world, np.arange(60), np.arange(59, -1, -1), "psi")
        run_together(
            *((predict_new(met(end, predict=predict), side, shown=Shown()), end) for end, side in zip(ends, sides, strict=True))
        )
        return list(lines(recorder.entries))
    own = parties.clinic if predict.to == "active" else parties.lab
    world.ask(predict, world.known(own, range(0, 30, 2)), world.known(own, range(5, 25)))
    return list(lines(world.entries))


def lines(entries: Iterable[Entry]) -> Iterator[Line]:
    for entry in entries:
        if entry.frame.phase != "preflight":
            digest = hashlib.sha256(entry.frame.body).hexdigest()[:16]
            yield [entry.sender, entry.receiver, entry.frame.phase, entry.kind, len(entry.frame.body), digest]


def arithmetic() -> str:
    """Tells processors and releases of torch apart whose last bits of a training differ."""
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32))
    layers = [torch.nn.Linear(24, 16), torch.nn.Linear(16, 1)]
    for number, layer in enumerate(layers):
        weight = np.random.default_rng(number).normal(size=layer.weight.shape).astype(np.float32)
        layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.zeros_like(layer.bias)
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(values)[:, 0], (values[:, 0] > 0).float())
        loss.backward()
        optimizer.step()
    floats = np.random.default_rng(0).normal(size=(64, 64))
    found = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    return hashlib.sha256(b"".join([*found, np.exp(floats @ floats).tobytes()])).hexdigest()[:16]


@pytest.fixture(scope="module", autouse=True)
def computes_alike() -> Set[str]:
    """The transcripts recorded on a machine that computes as this one does."""
    torch.set_num_threads(1)
    mine = arithmetic()
    return {name for name, recorded in json.loads(ARITHMETIC.read_text()).items() if recorded == mine}


def check(name: str, found: list[Line], request: pytest.FixtureRequest, *, exact: bool) -> None:
    path = FOLDER / f"{name}.json"
    if request.config.getoption("--record-transcripts", default=False):
        path.write_text("[\n" + ",\n".join(json.dumps(line) for line in found) + "\n]\n")
        recorded = json.loads(ARITHMETIC.read_text()) | {name: arithmetic()}
        ARITHMETIC.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
        exact = True
    golden = json.loads(path.read_text())
    assert len(golden) > 5
    assert [line[:5] for line in found] == [line[:5] for line in golden]
    if exact:
        assert found == golden


@pytest.mark.parametrize("name", JOBS)
def test_a_job_sends_what_it_sent(name: str, request: pytest.FixtureRequest, computes_alike: Set[str], tmp_path: Path) -> None:
    if "randomness: parties" in JOBS[name] and _native() is None:
        pytest.skip("nothing was compiled here, and two parties without a coordinator need it")
    exact = name in computes_alike or name.startswith(("align", "hidden", "trees", "statistics"))
    check(name, recorded_job(JOBS[name], tmp_path), request, exact=exact)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_sends_what_it_sent(name: str, world: Any, request: pytest.FixtureRequest, computes_alike: Set[str]) -> None:
    check(name, recorded_service(name, world()), request, exact=name in computes_alike)


def test_digests_are_compared(computes_alike: Set[str]) -> None:
    if len(computes_alike) < len({*JOBS, *SERVICES}):
        pytest.skip("this processor or release of torch computes other last bits: digests of some tensors are not compared")


def test_another_seed_is_noticed(tmp_path: Path) -> None:
    """The negative control: with other randomness the sizes stay, and the digests do not."""
    golden = json.loads((FOLDER / "split-psi.json").read_text())
    found = recorded_job(JOBS["split-psi"], tmp_path, seed="another")
    assert [line[:5] for line in found] == [line[:5] for line in golden]
    assert sum(line == other for line, other in zip(found, golden, strict=True)) < len(golden) / 2
