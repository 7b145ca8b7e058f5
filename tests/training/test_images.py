"""Training with images: at one party or several, beside other columns, over missing rows, resumed, asked for predictions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from tests.training.conftest import Run
from tests.training.conftest import synthetic as make_federation
from tests.training.predicting import (
    CPU,
    NEW_TO_ACTIVE,
    NEW_TO_PASSIVE,
    SERVE,
    TO_ACTIVE,
    TO_PASSIVE,
    Request,
    World,
    taken,
)
from tests.training.several import USUAL
from tests.training.test_joint import joint_curves
from tests.training.test_resume import Fatal, KilledError, assert_same_bits
from tests.training.test_several import joint_weights, largest_difference
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.images import Image
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PolicyError
from vfl_node.estimate.memory import Need, check_limits, need, parameters, shape_of
from vfl_node.job import Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import InputSchema, architecture_of
from vfl_node.models.building import build_bottom
from vfl_node.models.initial_weights import initialise
from vfl_node.models.networks import CnnBottom
from vfl_node.privacy.features.targets import targets_of
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.defences import read_params
from vfl_node.settings.limits import Limits, SizeLimits
from vfl_node.settings.protection import FeatureAuditSettings
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder

Make = Callable[..., Any]

SHAPE = (1, 6, 5)


def with_image(table: Table, seed: int, shape: tuple[int, int, int] = SHAPE) -> Table:
    """``table`` with an image a record besides: noise with a bright stripe, whose height follows the first column."""
    rng = np.random.default_rng(seed)
    grey = rng.normal(60, 10, (len(table), *shape))
    first = next(iter(table.columns.values()), None)
    steers = first.values if isinstance(first, NumericColumn) else rng.normal(size=len(table))
    height = np.clip(np.round(shape[1] / 2 + steers), 0, shape[1] - 1).astype(np.int64)
    grey[np.arange(len(table)), :, height] += 150
    grey[:, :, :, 0] = 0  # a border that never varies
    pixels = {f"pixel_{at}": NumericColumn(values) for at, values in enumerate(grey.reshape(len(table), -1).T)}
    return dataclasses.replace(table, columns={**table.columns, **pixels}, image=Image(columns=tuple(pixels), shape=shape))


def with_images(parties: Any, *, active: bool = True, passive: bool = True) -> Any:
    """A federation in which one party or both have images, of other sizes."""
    clinic = with_image(parties.clinic, 1, (2, 4, 4)) if active else parties.clinic
    return dataclasses.replace(parties, clinic=clinic, lab=with_image(parties.lab, 2) if passive else parties.lab)


def cnn(run: Any, **changes: Any) -> Any:
    both = run()
    both.train = both.train.model_copy(update={"model": "cnn", **changes})
    return both


@pytest.mark.parametrize(
    ("active_features", "images"), every(2, list(product([True, False], [(True, True), (False, True), (True, False)])))
)
def test_split_training_is_joint_training(synthetic: Make, run: Any, active_features: bool, images: tuple[bool, bool]) -> None:
    active, passive = images
    parties = with_images(synthetic(200, (1.0, 1.0), active_features=active_features), active=active, passive=passive)
    both = cnn(run)
    result, other = both(parties)
    losses, aucs = joint_curves(parties, both)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-6)
    assert [epoch.auc for epoch in result.epochs] == pytest.approx(aucs, abs=1e-3)
    assert losses[-1] < losses[0]
    assert any(name.startswith("bottom.convolutions.") for name in result.weights) == active
    assert any(name.startswith("bottom.convolutions.") for name in other.weights) == passive


def test_the_image_is_what_tells(synthetic: Make, run: Any) -> None:
    """Of a table of pixels alone the network learns where the stripe is; with pixels in another order in each row, nothing."""
    parties = synthetic(500, (1.0, 1.0), active_features=False, numeric=1)
    lab = with_image(parties.lab, 2)
    image_alone = {name: lab.columns[name] for name in lab.image.columns}
    shown = dataclasses.replace(parties, lab=dataclasses.replace(lab, columns=image_alone))
    both = cnn(run, epochs=12)
    found = both(shown)[0].results.metrics["auc"]
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(np.stack([column.values for column in image_alone.values()], axis=1), axis=1)
    hidden = {name: NumericColumn(values) for name, values in zip(image_alone, shuffled.T, strict=True)}
    lost = cnn(run, epochs=12)(dataclasses.replace(parties, lab=dataclasses.replace(lab, columns=hidden)))[0].results.metrics[
        "auc"
    ]
    assert found > lost + 0.1


def test_other_models_read_pixels_as_columns(synthetic: Make, run: Any) -> None:
    parties = with_images(synthetic(200, (1.0, 1.0)))
    both = run()
    result, _ = both(parties)
    losses, _ = joint_curves(parties, both)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-6)
    assert result.weights["bottom.layers.0.weight"].shape[1] == 4 + 32 + 4  # numbers, pixels, an embedded category


def test_several_passive_parties_with_images_and_tables(several_parties: Make, several_runs: Any) -> None:
    parties = several_parties(3, 200)
    tables = {
        name: with_image(table, place) if name in ("lab", "telco") else table
        for place, (name, table) in enumerate(parties.tables.items())
    }
    parties = dataclasses.replace(parties, tables=tables)
    runs = several_runs()
    runs.train = runs.train.model_copy(update={"model": "cnn"})
    results = runs(parties)
    assert largest_difference(results, joint_weights(parties, runs)) < 1e-6
    convolved = {name for name, of in results.items() if any("convolutions" in key for key in of.weights)}
    assert convolved == {"lab", "telco"}


NORMALISED = {"batch_norm": True, "dropout": 0.3}
OTHERS = [pytest.param(of, marks=pytest.mark.slow) for of in ({}, {"layer_norm": True})]


@pytest.mark.parametrize(
    "options", [NORMALISED, *(pytest.param(of, marks=pytest.mark.slow) for of in ({}, {"layer_norm": True}))]
)
@pytest.mark.usefixtures("audits")
def test_a_killed_training_ends_with_the_same_bits(
    synthetic: Make, run: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = with_images(synthetic(140))
    both = cnn(run, batch_size=16, **options)
    both.evaluate = Evaluate(repeats=2)
    whole = both(parties)
    killed = dataclasses.replace(
        both, checkpoints=(MemoryCheckpoints(), Fatal("r001-e000002")), pins=(MemoryPins(), MemoryPins())
    )
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    for ours, theirs in zip(dataclasses.replace(killed, resume_from=newest)(parties), whole, strict=True):
        assert_same_bits(ours, theirs)


@pytest.mark.parametrize("features", every(2, ["sampling", "smoothed", "naive", "gaussian", "random"]))
def test_every_strategy_for_missing_rows_makes_images(synthetic: Make, run: Any, features: str) -> None:
    parties = with_images(synthetic(200))
    both = cnn(run, missing=Missing(features=features), class_weight="balanced")
    both.evaluate = Evaluate(contributions=True)
    result, _ = both(parties)
    assert all(math.isfinite(epoch.loss) for epoch in result.epochs)
    assert set(result.section.contributions) == {"clinic", "lab"}


@pytest.mark.parametrize("features", ["smoothed", "naive"])
def test_made_up_pixels_are_values_of_their_columns(synthetic: Make, features: str) -> None:
    from vfl_node.training.split.missing.features.filling import fill_in

    parties = with_images(synthetic(200))
    encoder = Encoder.fit(parties.lab, np.arange(len(parties.lab)))
    filled, source = fill_in(parties.lab_view, parties.lab, encoder, Missing(features=features), Randomness(b"d" * 32))
    read = PositionedInput.from_features(filled, source, CPU, images=True)
    assert read.schema == InputSchema(4, filled.cardinalities, SHAPE)
    images = read.take(np.arange(len(source))).images
    border = encoder.transform(parties.lab).numeric[0, filled.pixels.columns].reshape(SHAPE)[0, :, 0]
    assert images.shape == (len(source), *SHAPE)
    np.testing.assert_array_equal(images[:, 0, :, 0].numpy(), np.broadcast_to(border, (len(source), SHAPE[1])))
    if features == "smoothed":
        known = encoder.transform(parties.lab).numeric[:, filled.pixels.columns]
        made = filled.numeric[len(parties.lab) :][:, filled.pixels.columns]
        assert all(np.isin(made[:, at], known[:, at]).all() for at in range(made.shape[1]))


@pytest.fixture(scope="module")
def served() -> World:
    train = cnn(Run, epochs=2, missing=Missing(features="smoothed"), batch_size=64).train
    parties = with_images(make_federation(200))
    return World(parties, Run(train=train, evaluate=Evaluate(test_fraction=0.5))(parties), train, SERVE)


def test_known_records_are_predicted(served: World) -> None:
    for predict, table, view in (
        (TO_ACTIVE, served.parties.clinic, served.parties.clinic_view),
        (TO_PASSIVE, served.parties.lab, served.parties.lab_view),
    ):
        (answer,) = served.ask(predict, served.known(table, view.rows[view.owned][:20]))
        assert ((answer > 0) & (answer < 1)).all()


@pytest.mark.parametrize("predict", [NEW_TO_ACTIVE, NEW_TO_PASSIVE])
def test_new_records_are_predicted_as_the_same_rows_were(served: World, predict: Any) -> None:
    """Both halves on one machine, with new tables of the same images: the embedding of a row is that of its image."""
    embedder = served.sides[1]
    own = np.flatnonzero(served.parties.lab_view.owned)[:10]
    rows = served.parties.lab_view.rows[own]
    new = taken(served.parties.lab, rows, prefix=b"new ")
    view = dataclasses.replace(served.parties.lab_view, rows=np.arange(10), spec=ALIGNMENTS["psi"])
    again = Embedder(served.kept(1), view, new, CPU)
    torch.testing.assert_close(again.embed_new(np.arange(10)), embedder.embed_new(own))
    shifted = Embedder(served.kept(1), view, taken(served.parties.lab, rows, prefix=b"new ", shift=40), CPU)
    assert not torch.allclose(shifted.embed_new(np.arange(10)), embedder.embed_new(own))


def test_unnamed_rows_with_images_are_predicted(synthetic: Make, run: Any) -> None:
    """The active party has labels alone, so rows of the passive one have no names."""
    train = cnn(run, epochs=1, missing=Missing(features="smoothed")).train
    parties = with_images(synthetic(150, active_features=False), active=False)
    world = World(parties, run(train=train, evaluate=Evaluate(test_fraction=0.5))(parties), train, SERVE)
    new = taken(parties.lab, np.arange(12), prefix=b"new ", shift=1.0)
    (answer,) = world.ask(TO_PASSIVE, Request(new))
    assert ((answer > 0) & (answer < 1)).all()


def test_pixels_are_targets_of_their_own(synthetic: Make) -> None:
    lab = with_image(synthetic(100).lab, 2)
    rows = np.arange(len(lab))
    border = {f"pixel_{at}" for at in range(0, 30, 5)}
    found = targets_of(lab, rows, ())
    pixels = [column for column in found.columns if column.name.startswith("pixel_")]
    assert {column.kind for column in pixels} == {"number"}
    assert {column.name for column in pixels} == set(lab.image.columns) - border
    (one,) = targets_of(lab, rows, ["pixel_7"]).columns
    assert one.truth.std(unbiased=False).item() == pytest.approx(1, abs=1e-4)


TABLE = InputSchema(3, (4, 6), (1, 28, 14))


@pytest.mark.parametrize("options", [{}, {"batch_norm": True, "dropout": 0.5}, {"layer_norm": True}])
@pytest.mark.parametrize(
    "schema",
    [TABLE, InputSchema(image=(3, 5, 7)), InputSchema(image=(1, 1, 1)), InputSchema(2, image=(2, 1, 9)), InputSchema(3)],
)
def test_weights_are_counted_as_they_are_built(schema: InputSchema, options: dict[str, Any]) -> None:
    train = Train(model="cnn", bottom=(16, 8), **options)
    architecture = architecture_of("cnn")
    bottom = build_bottom(architecture, train, schema, train.bottom)
    initialise(bottom, Randomness(b"w" * 32))
    assert isinstance(bottom, CnnBottom) == (schema.image is not None)
    counted = architecture.bottom_weights(schema, train.bottom, train)
    assert sum(parameter.numel() for parameter in bottom.parameters()) == counted
    assert all(parameter.isfinite().all() for parameter in bottom.parameters())


def test_a_number_a_row_takes_is_counted_for_each_layer() -> None:
    """By hand: image 392; 16 channels of 28 × 14, pooled 14 × 7; 32 of 14 × 7, pooled 7 × 4; then dense."""
    found = architecture_of("cnn").bottom_values(TABLE, (16, 8), Train(model="cnn"))
    assert found == 392 + 16 * (392 + 98) + 32 * (98 + 28) + (3 + 32 * 28 + 2 * 4) + 16 + 8


def job(**train: Any) -> Job:
    return Job.model_validate(
        {
            "name": "images",
            "parties": {"active": "clinic", "passive": "lab"},
            "align": {"protocol": "psi"},
            "train": {"model": "cnn", **train},
        }
    )


def test_the_estimate_and_the_owners_limit_count_the_image(synthetic: Make) -> None:
    lab = with_image(synthetic(50).lab, 2)
    shape = shape_of(lab)
    assert (shape.image, shape.numeric) == (SHAPE, 2 * 4 + 30)
    schema = InputSchema(2 * 4, shape.cardinalities, SHAPE)
    train = Train(model="cnn")
    weights = architecture_of("cnn").bottom_weights(schema, train.bottom, train)
    assert parameters(job(), "passive", shape) == weights
    check_limits(job(), "passive", Limits(size=SizeLimits(parameters=weights)), shape)
    with pytest.raises(PolicyError, match=f"{weights:,} weights of a model"):
        check_limits(job(), "passive", Limits(size=SizeLimits(parameters=weights - 1)), shape)
    without: Need = need(job(model="mlp"), "passive", shape)
    assert need(job(), "passive", shape).batch > 2 * without.batch


def test_what_the_image_is_stays_with_its_party(synthetic: Make, run: Any) -> None:
    """Messages have the same types and sizes with an image at the other party and without."""
    sizes = []
    for passive in (True, False):
        both = cnn(run)
        both(with_images(synthetic(200, (1.0, 1.0)), active=False, passive=passive))
        sizes.append([(type(message).__name__, message.ByteSize()) for message in both.transcript])
    assert [kind for kind, _ in sizes[0]] == [kind for kind, _ in sizes[1]]
    assert max(abs(one - other) for (_, one), (_, other) in zip(*sizes, strict=True)) <= 2  # how a number is written


def test_pixels_are_audited_and_defended_as_columns(synthetic: Make, run: Any) -> None:
    """Each pixel that varies has figures of its own; messages keep their number while fbs moves the convolutions."""
    parties = with_images(synthetic(250, (1.0, 1.0)), active=False)
    audited = FeatureAuditSettings(columns="all", known_share=0.3)
    fbs = read_params({"name": "fbs", "columns": ["pixel_7", "pixel_8"], "rounds": 2})
    seen = {}
    for name, defences in (("none", ()), ("fbs", (fbs,))):
        both = cnn(run, epochs=1)
        both.protections = (USUAL, dataclasses.replace(USUAL, defences=defences, features=audited))
        seen[name] = (both(parties), len(both.transcript))
    columns = {*parties.lab.columns} - {f"pixel_{at}" for at in range(0, 30, 5)}
    for (_, passive), _ in seen.values():
        assert passive.audits.features.keys() == columns
        assert all(passive.audits.features[name]["metric"] == "r2" for name in columns - {"colour"})
    assert seen["none"][1] == seen["fbs"][1]
    plain, moved = (of[0][1].weights["bottom.convolutions.0.weight"] for of in seen.values())
    assert not torch.equal(plain, moved)
