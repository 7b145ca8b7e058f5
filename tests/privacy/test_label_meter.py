"""The label meter: what each attack finds in tensors that are made for it, and what bounds it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.errors import PolicyError
from vfl_node.privacy.labels.attacks import OF_NUMBERS, OF_TWO_CLASSES
from vfl_node.privacy.labels.classes import class_attacks
from vfl_node.privacy.labels.meter import ADDED_UP, LabelMeter
from vfl_node.privacy.labels.row_columns import OF_ROW_COLUMNS, RowColumnMeter
from vfl_node.privacy.labels.shown import two_clusters
from vfl_node.privacy.labels.spectrum import leading
from vfl_node.privacy.labels.truth import DRAWS, KNOWN, LEAST, MOST, truth_of
from vfl_node.privacy.labels.words import INFORMED, WORDS
from vfl_node.privacy.memory import METER_ROWS, label_meter_bytes
from vfl_node.training.prediction.audit import SERVED

ROWS, WIDTH, BATCH = 1200, 6, 100
LABELS = np.random.default_rng(1).random(ROWS) < 0.2
SIGN = torch.from_numpy(np.where(LABELS, 1.0, -1.0).astype(np.float32))
OF_ONE_EPOCH = ("norm", "direction", "residual", "cosine", "embeddings", "embeddings_soft")


def meter(peers: Sequence[str] = ("lab",), labels: Any = LABELS, classes: int = 2, **more: Any) -> LabelMeter:
    names = np.random.default_rng(3).permutation(len(labels)).astype(np.uint64)
    truth = truth_of(np.asarray(labels, dtype=np.float64), np.arange(len(labels)), names, classes=classes)
    return LabelMeter(truth, peers, party="clinic", **more)


def noise(seed: int, width: int = WIDTH) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(ROWS, width)).astype(np.float32))


def epoch(of: LabelMeter, seed: int, gradients: Sequence[Tensor], embeddings: Sequence[Tensor] | None = None) -> Any:
    """One epoch over all rows, in an order of its own."""
    order = np.random.default_rng(seed).permutation(ROWS)
    made = embeddings or [noise(1000 + seed) for _ in gradients]
    for batch in np.array_split(order, ROWS // BATCH):
        rows = torch.from_numpy(batch)
        of.see(batch, [of_peer[rows] for of_peer in made], [of_peer[rows] / len(batch) for of_peer in gradients])
    of.epoch_done()
    return of.judge()


def test_every_attack_has_words() -> None:
    kinds = (OF_TWO_CLASSES, OF_NUMBERS, OF_ROW_COLUMNS, class_attacks(4))
    assert set(WORDS) == {ADDED_UP, SERVED}.union(*(of.names for of in kinds))
    assert set().union(*(of.informed for of in kinds)) | {ADDED_UP, SERVED} == set(INFORMED)


def test_rows_that_tell_nothing_are_at_chance() -> None:
    found = epoch(meter(), 0, [noise(0)])
    assert set(found) == set(OF_TWO_CLASSES.names)
    assert max(found.values()) < 0.6, found


@pytest.mark.parametrize(
    ("name", "gradients"),
    [
        ("norm", noise(1) * (1 + (SIGN > 0).float())[:, None]),
        ("direction", SIGN[:, None] * torch.eye(WIDTH)[0] * 3 + noise(1)),
        ("residual", 5 * torch.outer(noise(1)[:, 0], torch.eye(WIDTH)[0]) + (SIGN > 0).float()[:, None] * noise(2)),
        ("cosine", SIGN[:, None] * torch.eye(WIDTH)[3] + 0.2 * noise(1)),
        ("clusters", SIGN[:, None] * torch.eye(WIDTH)[2] * 4 + noise(1)),
        ("clusters_soft", SIGN[:, None] * torch.eye(WIDTH)[2] * 4 + noise(1)),
    ],
)
def test_each_attack_on_gradients_finds_what_is_there_for_it(name: str, gradients: Tensor) -> None:
    assert epoch(meter(), 0, [gradients])[name] > 0.85


WEIGHTS = np.random.default_rng(8).choice([0.5, 1.0, 4.0], ROWS)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [("norm", WEIGHTS), ("mean_norm", WEIGHTS), ("side_norm", WEIGHTS * np.where(LABELS, 9.0, 1.0))],
)
def test_lengths_tell_weights_of_rows_and_not_the_weights_of_other_rows(name: str, lengths: Any) -> None:
    """Of other rows a figure is .5 ± .014: one of 9 is above .6 in either direction once in 10^11 times."""
    turned = noise(1) / torch.linalg.vector_norm(noise(1), dim=1, keepdim=True)
    gradients = torch.from_numpy(lengths).float()[:, None] * (0.2 * turned + SIGN[:, None] * torch.eye(WIDTH)[0])
    names, rows = np.arange(ROWS).astype(np.uint64), np.arange(ROWS)
    own, others = (
        epoch(RowColumnMeter("row_weight", of, rows, names, ["lab"], party="clinic"), 0, [gradients])
        for of in (WEIGHTS, np.random.default_rng(9).permutation(WEIGHTS))
    )
    assert own[name] > 0.95, own
    assert max(others.values()) < 0.6, others


def test_embeddings_that_tell_labels_are_found_whatever_the_gradients_are() -> None:
    found = epoch(meter(), 0, [noise(0)], [SIGN[:, None] * torch.eye(WIDTH)[0] * 4 + noise(3)])
    assert found["embeddings"] > 0.95
    assert found["embeddings_soft"] > 0.95
    by_gradients = {"norm", "direction", "residual", "cosine", "clusters", "steady"} | {
        n for n in found if n.startswith("mean")
    }
    assert max(found[name] for name in by_gradients) < 0.6


def test_means_over_epochs_find_what_noise_hides_in_one() -> None:
    of = meter()
    hidden = 0.4 * SIGN[:, None] * torch.eye(WIDTH)[0]
    found = [epoch(of, number, [hidden + noise(number)]) for number in range(30)]
    assert max(value for name, value in found[0].items()) < 0.7
    assert max(found[-1][name] for name in OF_ONE_EPOCH) < 0.7
    assert found[-1]["mean_direction"] > 0.95
    assert found[-1]["mean_cosine"] > 0.95
    assert of.result()["mean_direction"] == max(each["mean_direction"] for each in found)


def test_a_smaller_last_batch_tells_nothing_by_itself() -> None:
    """Gradients of a batch's mean are longer where it has fewer rows; the rows with labels are as long as the others."""
    of = meter()
    even = torch.nn.functional.normalize(noise(4), dim=1)
    batches = [np.arange(1000), np.arange(1000, ROWS)]
    for batch in batches:
        rows = torch.from_numpy(batch)
        of.see(batch, [noise(5)[rows]], [even[rows] / len(batch)])
    of.epoch_done()
    assert of.judge()["norm"] < 0.56


def test_the_worst_of_several_peers_is_reported_and_all_together() -> None:
    telling = SIGN[:, None] * torch.eye(WIDTH)[0] * 3 + noise(1)
    for gradients in ([telling, noise(2)], [noise(2), telling]):
        assert epoch(meter(("lab", "insurer")), 0, gradients)["direction"] > 0.9
    weak = [0.9 * SIGN[:, None] * torch.eye(WIDTH)[0] + noise(seed) for seed in range(8)]
    one = epoch(meter(("lab",)), 0, weak[:1])["cosine"]
    every = epoch(meter([f"peer{number}" for number in range(8)]), 0, weak)["cosine"]
    assert every > one + 0.1


def test_rows_are_bounded_and_known_ones_are_not_judged() -> None:
    labels = np.random.default_rng(2).random(20_000) < 0.3
    of = meter(labels=labels)
    assert len(of._followed) == 2 * MOST
    assert [len(known.rows) for known in of._known] == [2 * KNOWN] * DRAWS
    assert of._truth._judged.sum() == 2 * MOST - 2 * KNOWN * DRAWS
    assert not of._truth._judged[np.concatenate(of._truth.known)].any()


@pytest.mark.parametrize("positives", [0, 1, LEAST - 1, ROWS])
def test_with_too_few_rows_of_a_class_nothing_is_said(positives: int) -> None:
    labels = np.arange(ROWS) < positives
    of = meter(labels=labels, limit=0.51)
    assert epoch(of, 0, [noise(0)]) == {}
    assert of.result() == {}


def test_above_the_limit_training_stops() -> None:
    telling = SIGN[:, None] * torch.eye(WIDTH)[0] * 3 + noise(1)
    epoch(meter(limit=0.62), 0, [noise(0)])
    with pytest.raises(PolicyError, match=r"an AUC of \d\.\d\d .*attacks\.labels allows 0\.9") as caught:
        epoch(meter(limit=0.9), 0, [telling])
    assert (caught.value.code, caught.value.peer_code) == ("E_LEAK", "E_STOPPED")
    assert "AUC" not in str(caught.value.for_peer)


def test_after_a_restart_it_says_the_same() -> None:
    hidden = 0.4 * SIGN[:, None] * torch.eye(WIDTH)[0]
    through, again = meter(), meter()
    for number in range(3):
        epoch(through, number, [hidden + noise(number)])
    again.restore(through.tensors())
    assert again.result() == through.result()
    assert epoch(again, 3, [hidden + noise(3)]) == epoch(through, 3, [hidden + noise(3)])
    assert again.result() == through.result()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e18])
def test_rows_of_any_size_are_judged(scale: float) -> None:
    found = epoch(meter(), 0, [scale * (SIGN[:, None] * torch.eye(WIDTH)[0] * 3 + noise(1))])
    assert all(value is not None and 0.5 <= value <= 1 for value in found.values())
    if scale:
        assert found["direction"] > 0.9


def test_leading_direction_is_that_of_the_singular_values() -> None:
    rows = noise(7) * torch.tensor([1.0, 1, 4, 1, 1, 1])
    expected = torch.linalg.svd(rows, full_matrices=False)[2][0]
    assert abs(leading(rows) @ expected).item() == pytest.approx(1, abs=1e-5)
    assert leading(rows).dtype == torch.float32


def test_two_clusters_are_those_of_lloyd() -> None:
    far = torch.cat([noise(8)[:900] - 5, noise(9)[:300] + 5])
    sides = two_clusters(far) > 0
    assert sides[:900].float().mean() in (0.0, 1.0)
    assert sides[900:].float().mean() == 1 - sides[:900].float().mean()
    assert two_clusters(torch.zeros(5, 3)).tolist() == [0.0] * 5


WIDE = 256
MEASURED = f"""
import re, numpy as np, torch
from pathlib import Path
from vfl_node.privacy.labels.meter import LabelMeter
from vfl_node.privacy.labels.truth import truth_of
torch.set_num_threads(1)
drawn, every = np.random.default_rng(0), np.arange({METER_ROWS})
meter = LabelMeter(truth_of(every % 2.0, every, every.astype(np.uint64), classes=2), ["lab"], party="clinic")
def epoch():
    for rows in np.array_split(drawn.permutation(every), 16):
        tensors = [torch.from_numpy(drawn.normal(size=(len(rows), {WIDE})).astype(np.float32)) for _ in range(2)]
        meter.see(rows, tensors[:1], tensors[1:])
    meter.judge()
    meter.epoch_done()
meter.see(every[:100], [torch.ones(100, 4)], [torch.ones(100, 4)])  # loads what it needs
LabelMeter(truth_of(every % 2.0, every, every.astype(np.uint64), classes=2), ["lab"], party="clinic")
meter = LabelMeter(truth_of(every % 2.0, every, every.astype(np.uint64), classes=2), ["lab"], party="clinic")
def most():  # of this process alone; what getrusage says is at least what its parent had
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = most()
for _ in range(2): epoch()
meter.judge(); meter.tensors()
print((most() - before) * 1024)
"""


def test_its_memory_is_counted() -> None:
    assert METER_ROWS == 2 * MOST
    taken = subprocess.run([sys.executable, "-c", MEASURED], check=True, capture_output=True, text=True).stdout
    assert 0.3 * label_meter_bytes(WIDE, 1) < int(taken) < label_meter_bytes(WIDE, 1)


def test_the_leading_direction_of_few_wide_rows_is_that_of_a_decomposition() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 300)).astype(np.float32)) + 0.2
    exact = torch.linalg.svd(rows.double(), full_matrices=False)[2][0].float()
    assert abs(float(leading(rows) @ exact)) == pytest.approx(1, abs=1e-5)
    assert float(rows.mean(dim=0) @ leading(rows)) > 0
    wide = torch.ones(8, 100_000)  # of which a matrix of inner products of columns would take 80 GB
    assert leading(wide).norm().item() == pytest.approx(1, abs=1e-3)
    assert leading(torch.zeros(3, 7)).norm().item() == pytest.approx(1)
