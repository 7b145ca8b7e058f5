"""``data.weight`` in split training: a row of weight 2 is the row twice, gradients show it, equal weights change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.training.conftest import Federation, federation
from tests.training.test_class_weight import gradients
from tests.training.test_resume import Fatal, KilledError
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.job import Evaluate
from vfl_node.privacy.labels.row_columns import OF_ROW_COLUMNS
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Compare, Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.row_weights import scale_weights, shared_weights
from vfl_node.training.split.config import Train
from vfl_node.training.words import ReportedTraining

Make = Callable[..., Any]
FULL = Train(bottom=(8, 4), active_bottom=(4,), top=(4,), epochs=5, batch_size=10_000, learning_rate=0.05, least_rows=0)
ALL = Evaluate(test_fraction=0)


def weighed(parties: Federation, weights: NDArray[np.float64] | None) -> Federation:
    return replace(parties, clinic=replace(parties.clinic, weights=weights))


def categories(people: NDArray[np.int64], classes: int) -> Federation:
    """Both own all, with columns whose encoding is the same however often a row stands there."""
    rng = np.random.default_rng(4)
    kind, colour = rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    labels = ((kind + colour + rng.integers(0, 2, 60)) % classes).astype(np.float32)
    owns = np.ones(len(people), np.bool_)
    return federation({"kind": kind[people].astype(str)}, {"colour": colour[people].astype(str)}, labels[people], owns, owns)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_row_of_weight_2_is_the_row_twice(run: Make, classes: int) -> None:
    """Over five steps of all rows each, at both parties and in the active party's own model."""
    twice = np.arange(60) % 3 == 0
    once, repeated = (categories(people, classes) for people in (np.arange(60), np.repeat(np.arange(60), 1 + twice)))
    person = np.array([int(id_) for id_ in once.clinic.ids])
    train = FULL.model_copy(update={"classes": classes})
    given = run(train, evaluate=ALL)(weighed(once, 1.0 + twice[person]))
    expected = run(train, evaluate=ALL)(repeated)
    plain = run(train, evaluate=ALL)(once)
    assert [epoch.loss for epoch in given[0].epochs] == pytest.approx([epoch.loss for epoch in expected[0].epochs], rel=1e-4)
    for ours, theirs, without in zip(given, expected, plain, strict=True):
        for name, tensor in ours.weights.items():
            torch.testing.assert_close(tensor, theirs.weights[name], rtol=2e-3, atol=2e-4)
        assert any(not torch.allclose(ours.weights[name], without.weights[name], atol=1e-2) for name in ours.weights)


def test_equal_weights_give_the_bits_of_none(synthetic: Make, run: Make) -> None:
    """A reader makes none of equal ones; were there any, they would be 1 each."""
    parties = synthetic(people=120, owned=(1.0, 1.0))
    weights = np.full(len(parties.clinic), 3.0)
    assert (scale_weights(weights, np.arange(10)) == 1).all()
    given, plain = run(run.train)(weighed(parties, weights)), run(run.train)(parties)
    for ours, theirs in zip(given, plain, strict=True):
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)


def position_weights(both: Any, parties: Federation, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Those of the first batch, by hand; NaN where the clinic does not own the row."""
    schedule = both.schedule(parties)
    training = schedule.split(0, 0.2)[0]
    rows = parties.clinic_view.rows
    mean = weights[rows[training][rows[training] >= 0]].mean()
    positions, *_ = schedule.batches(0, 0, training, 64)
    return np.where(rows[positions] >= 0, weights[rows[positions]] / mean, np.nan)


def test_a_row_s_gradient_is_as_many_times_longer(synthetic: Make, run: Make) -> None:
    """And a row that the clinic lacks has the weight of another: its length is none that tells it."""
    parties = synthetic(people=200)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 4.0], len(parties.clinic))
    plain, given = run(run.train.model_copy(update={"epochs": 1})), run(run.train.model_copy(update={"epochs": 1}))
    plain(parties)
    active, passive = given(weighed(parties, weights))
    lengths = gradients(plain).norm(dim=1)
    some = lengths > 0  # there is a row of which no unit learns
    times = gradients(given).norm(dim=1)[some] / lengths[some]
    expected = position_weights(given, parties, weights)[some.numpy()]
    own = ~np.isnan(expected)
    assert 40 < own.sum() < len(own)
    assert times[torch.from_numpy(own)].numpy() == pytest.approx(expected[own], rel=1e-4)
    made_up = times[torch.from_numpy(~own)].numpy()
    assert np.isclose(made_up[:, None], np.unique(expected[own]), rtol=1e-4).any(axis=1).all()
    assert len(np.unique(made_up.round(3))) == 3
    (said,) = (entry.text for entry in active.disclosures["lab"] if entry.what == "gradients")
    assert "as its row counts more (data.weight of clinic), so that the lengths show weights" in said
    (known,) = (entry.text for entry in passive.disclosures["lab"] if entry.what == "gradients")
    assert "data.weight" not in known  # the lab is not told that there are any


def weight_audit(run: Make, parties: Federation, weights: NDArray[np.float64] | None, **clinic: Any) -> Any:
    """What the active party's own attacks found of ``weights``; its settings are ``clinic``."""
    both = run(run.train.model_copy(update={"epochs": 2}), protections=(Protection(**clinic), Protection()))
    return both(weighed(parties, weights))[0].section.row_weight_audit


def test_own_attacks_say_how_well_gradients_tell_weights(synthetic: Make, run: Make) -> None:
    """With noise that hides all, and of equal weights, they tell nothing.

    At chance a figure of these 272 rows is .5 ± .029: one of 18 is above .65 or below .35 four times in a million.
    """
    parties = synthetic(people=400, owned=(1.0, 1.0))
    weights = np.random.default_rng(1).choice([0.5, 1.0, 4.0], len(parties.clinic))
    found = weight_audit(run, parties, weights)
    assert set(found) == set(OF_ROW_COLUMNS.names)
    assert found["norm"] > 0.75
    hidden = weight_audit(run, parties, weights, defences=(read_params({"name": "noise", "sigma": 1000.0}),))
    assert max(hidden.values()) < 0.65
    assert weight_audit(run, parties, np.ones(len(parties.clinic))) == {}
    assert weight_audit(run, parties, None) is None
    assert weight_audit(run, parties, weights, labels=False) is None


def test_offsets_are_attacked_too_and_the_page_says_what_was_found(synthetic: Make, run: Make) -> None:
    """Without a layer above, a gradient is the residual times one direction."""
    parties = synthetic(people=400, owned=(1.0, 1.0))
    offsets = np.random.default_rng(1).uniform(0, 6, len(parties.clinic))
    clinic = replace(parties.clinic, offsets=offsets, offset_columns={"offset": "known"})
    both = run(run.train.model_copy(update={"epochs": 2, "top": ()}), protections=(Protection(), Protection()))
    active, passive = both(replace(parties, clinic=clinic))
    section = active.section
    assert section.row_weight_audit is None
    assert section.row_offset_audit["side_direction"] > 0.8
    reported = ReportedTraining(run.train, "clinic", "active", "lab", "clinic", "lab", None, 2, 9, 1)
    (remark,) = section.words(reported).remarks
    assert remark.startswith("clinic attacked its own offsets of rows with what lab got.")
    assert f"{max(section.row_offset_audit.values()):.0%} of the time" in remark
    for of, told in ((active, True), (passive, False)):
        (gradients_of,) = (entry.text for entry in of.disclosures["lab"] if entry.what == "gradients")
        assert ("offset" in gradients_of) == told


def test_noise_hides_the_heaviest_row_as_well(synthetic: Make, run: Make) -> None:
    parties = synthetic(people=120, owned=(1.0, 1.0))
    noise = Protection(defences=(read_params({"name": "noise", "sigma": 1000.0}),))
    weights = np.where(np.arange(len(parties.clinic)) % 2 == 0, 3.0, 1.0)
    spread = []
    for of in (None, weights):
        both = run(run.train.model_copy(update={"epochs": 1}), protections=(noise, Protection()))
        both(weighed(parties, of))
        spread.append(gradients(both).std().item())
    assert spread[1] / spread[0] == pytest.approx(1.5, rel=0.05)


def test_own_models_are_weighed_and_metrics_are_not(synthetic: Make, run: Make) -> None:
    """Heavy positives raise what all models say of rows; what is measured counts each held-out row once."""
    parties = synthetic(people=500, owned=(1.0, 1.0), positives=0.2)
    weights = np.where(parties.clinic.labels == 1, 8.0, 1.0)
    plain, given = (
        run(run.train.model_copy(update={"epochs": 6}), compare=Compare(boosted_tree=True))(weighed(parties, of))[0].results
        for of in (None, weights)
    )
    for before, after in ((plain, given), (plain.alone, given.alone), (plain.rival, given.rival)):
        assert after.confusion[1][1] > before.confusion[1][1]
        assert np.sum(after.confusion) == np.sum(before.confusion) == 100  # rows, not weights
    assert given.constant == plain.constant


def test_validation_counts_rows_as_training_does(synthetic: Make, run: Make) -> None:
    parties = synthetic(people=300, owned=(1.0, 1.0))
    weights = np.random.default_rng(2).choice([0.2, 3.0], len(parties.clinic))
    given, plain = (
        run(run.train.model_copy(update={"epochs": 1}), evaluate=Evaluate(validation_fraction=0.2))(weighed(parties, of))[0]
        for of in (weights, None)
    )
    assert given.epochs[0].validation_loss is not None
    assert given.epochs[0].validation_loss != pytest.approx(plain.epochs[0].validation_loss, rel=1e-3)


def test_killed_and_resumed_it_ends_with_the_same_bits(synthetic: Make, run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = synthetic(people=140)
    parties = weighed(parties, np.random.default_rng(3).choice([0.5, 2.0], len(parties.clinic)))
    whole = run(run.train)(parties)
    killed = run(run.train, checkpoints=(MemoryCheckpoints(), Fatal("r000-e000002")))
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    for ours, theirs in zip(run(run.train, checkpoints=killed.checkpoints, resume_from=newest)(parties), whole, strict=True):
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
        assert ours.results == theirs.results


def test_rows_trained_on_that_all_weigh_0_are_refused(synthetic: Make) -> None:
    parties = synthetic(people=40)
    weights = np.zeros(len(parties.clinic))
    weights[0] = 1
    with pytest.raises(DataError) as refused:
        scale_weights(weights, np.arange(1, 10))
    assert (refused.value.code, refused.value.peer_code) == ("E_WEIGHT", "E_STOPPED")


def test_weights_of_rows_that_are_lacking_are_drawn_from_own_ones(synthetic: Make) -> None:
    parties = synthetic(people=400)
    weights = np.random.default_rng(5).uniform(0.5, 2, len(parties.clinic))
    view = parties.clinic_view
    labelled = np.flatnonzero(view.owned)
    drawn = [shared_weights(weights, view, labelled, Randomness(bytes([seed]) * 32)) for seed in (1, 1, 2)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0][labelled].mean() == pytest.approx(1)
    assert set(drawn[0][~view.owned]) <= set(drawn[0][view.owned])
    assert len(set(drawn[0][~view.owned])) > 20
