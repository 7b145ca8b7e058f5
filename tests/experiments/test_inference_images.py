"""Images rebuilt from embeddings: the attacker with both controls, the pictures, a small run, and what the figures say."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch

from experiments.inference import images
from experiments.inference.images import HALF, SEEDS, SIDE, Attacker, explained, picture, pixels_of, trial
from vfl_node.crypto.randomness import Randomness

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "inference.json"


def attacker(rows: int = 400) -> Attacker:
    """One whose own columns say a little about images of 12 pixels that 3 numbers make; it knows 100 of them."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, 3))
    truth = 1 / (1 + np.exp(-numbers @ rng.normal(size=(3, 12))))
    own = torch.from_numpy((numbers + 2 * rng.normal(size=(rows, 3))).astype(np.float32))
    order = rng.permutation(rows)
    return Attacker(truth, own, order[:100], order[100:], Randomness(b"a" * 32))


def test_rows_that_tell_are_rebuilt_and_noise_is_not() -> None:
    of = attacker()
    mean = of.error(of.mean())
    telling = torch.from_numpy(of.truth.astype(np.float32)) @ torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(400, 8, generator=torch.Generator().manual_seed(2))
    assert of.error(of.guess(telling, "telling")) < 0.1 * mean
    assert of.error(of.guess(noise, "noise")) == pytest.approx(mean, rel=0.1)


def test_imputation_needs_no_embedding_and_is_the_better_of_two() -> None:
    of = attacker()
    assert of.error(of.impute()) <= of.error(of.ridge())
    assert 0.3 * of.error(of.mean()) < of.error(of.impute()) < of.error(of.mean())


def test_what_is_not_known_is_never_learnt_from() -> None:
    of = attacker()
    changed = of.truth.copy()
    changed[of.others] = 0.5
    other = Attacker(changed, of.own, of.known, of.others, of.randomness)
    assert (of.guess(of.own, "own") == other.guess(of.own, "own")).all()
    assert (of.ridge() == other.ridge()).all()


def test_the_picture_shows_whole_digits() -> None:
    rng = np.random.default_rng(0)
    shown = {name: rng.random((4, SIDE * HALF)) for name in ("right half", "original", "imputed")}
    drawing = ET.fromstring(picture(shown, [0, 2]))
    space = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in drawing.iter(f"{space}text")] == ["original", "imputed"]
    png = images._png(np.linspace(0, 1, 6).reshape(2, 3))
    assert struct.unpack(">II", png[16:24]) == (3, 2)
    start = png.index(b"IDAT") + 4
    assert zlib.decompress(png[start:])[1:4] == bytes([0, 51, 102])


def test_a_small_run_on_digits(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "DEFENCES", {"none": ()})
    split = images.halves(shared_data, 0, 800)
    assert split.tables["attacker"].image.shape == (1, SIDE, HALF)
    assert 0 < pixels_of(split.tables["victim"]).mean() < 0.3
    figures, pictures = trial(split, 0, {**images.TRAIN, "epochs": 3, "batch_size": 64})
    errors = figures["none"]["errors"]
    assert errors["static-pass"] < figures["imputation"] < figures["mean"]
    assert pictures["rebuilt"].shape == pictures["original"].shape == (608, SIDE * HALF)


@pytest.fixture(scope="module")
def trials() -> list[dict[str, object]]:
    return [of["outcome"] for of in json.loads(RESULTS.read_text())["experiments"]["images"].values()]


def test_embeddings_tell_more_than_the_attackers_own_half(trials: list[dict[str, object]]) -> None:
    """In every seed: the share of the variance that is rebuilt is larger than that of imputation by .1 at least."""
    assert len(trials) == SEEDS
    for figures in trials:
        best = min(figures["none"]["errors"].values())
        assert explained(figures, best) - explained(figures, figures["imputation"]) > 0.1


def test_fbs_hides_what_noise_does_not_and_costs_more(trials: list[dict[str, object]]) -> None:
    """What embeddings alone tell beyond imputation is gone, of noise a part is left; the price is accuracy."""
    imputed = np.mean([of["imputation"] for of in trials])

    def leak(name: str, line: str) -> float:
        return float(imputed - np.mean([of[name]["errors"][line] for of in trials]))

    for line in ("static-epoch", "static-pass", "stacked"):
        assert leak("fbs", line) < 0 < leak("noise", line) < leak("none", line)
    accuracy = {name: np.mean([of[name]["accuracy"] for of in trials]) for name in ("none", "noise", "fbs")}
    assert accuracy["none"] - 0.03 < accuracy["noise"]
    assert accuracy["none"] - 0.15 < accuracy["fbs"] < accuracy["none"]
