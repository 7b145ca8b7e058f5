"""Hidden labels, Table 4 of FedAds: made-up clicks, the published defences and what breaks them, the page, small runs."""

from __future__ import annotations

import json
import tracemalloc
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.fedads import literal, members, table_4
from experiments.fedads.data import ACTIVE, TABLES
from experiments.fedads.generator import BLOCK, IDS, LABEL_PARTY, OTHER_PARTY, USER, Market
from experiments.fedads.run import NAME, Labels
from experiments.fedads.table_4 import Results
from experiments.fedads.training import Done, train
from experiments.fedads.trials import (
    NONE,
    OF_TABLE,
    PUBLISHED,
    STRENGTHS,
    TOPS,
    Plan,
    hidden_labels,
    hidden_members,
    trial,
    works,
)
from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import auc
from vfl_node.privacy.defences.defence import Leaving, Sender, build
from vfl_node.privacy.labels.attacks import OF_TWO_CLASSES
from vfl_node.settings.defences import read_params
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / f"{NAME}.json"
NOWHERE = Path("/nowhere")
SMALL = Plan(seeds=1, small=True)
MARVELL = {"name": "marvell", "power": 4.0}


def folded(labels: Any, scores: Any) -> float:
    value = auc(np.asarray(labels), np.asarray(scores, dtype=np.float64))
    assert value is not None
    return max(value, 1 - value)


def test_clicks_have_the_columns_of_the_public_table() -> None:
    made = Market(0.05, users=500, items=100).table(2_000)
    assert (len(LABEL_PARTY), len(OTHER_PARTY), len(made.columns)) == (16, 7, 22)
    assert set(made.columns) == {*LABEL_PARTY, *OTHER_PARTY}
    assert set(LABEL_PARTY) & set(OTHER_PARTY) == {USER}
    assert {column.dtype for column in made.columns.values()} == {np.dtype(np.int64)}
    assert len(made) == 2_000
    assert set(made.labels.tolist()) == {0.0, 1.0}
    assert all(made.columns[name].max() < 24 for name in made.columns if name not in IDS)


@pytest.mark.parametrize("share", [0.006, 0.01, 0.05, 0.3])
def test_the_share_of_positives_is_as_wanted(share: float) -> None:
    labels = Market(share, users=40_000, items=8_000, seed=1).table(3 * BLOCK).labels
    assert labels.mean() == pytest.approx(share, rel=0.1)


def test_both_parties_columns_tell_of_the_label_and_none_says_it() -> None:
    made = Market(0.05, users=20_000, items=4_000).table(BLOCK)
    told = {name: folded(made.labels, column) for name, column in made.columns.items()}
    assert max(told.values()) < 0.95
    for party in (LABEL_PARTY, OTHER_PARTY):
        assert max(told[name] for name in party) > 0.6
    assert all(told[name] < 0.54 for name in (USER, "l_i_fea_1", "l_i_fea_6", "l_u_fea_6"))  # the control: ids, and noise


def test_what_a_user_shows_stays_with_the_user() -> None:
    made = Market(0.05, users=200, items=100).table(5_000)
    of_user, levels = made.columns[USER], made.columns["l_u_fea_4"]
    assert all(len(set(levels[of_user == user].tolist())) == 1 for user in np.unique(of_user)[:50])
    assert len(np.unique(levels)) == 16
    moments = made.columns["f_uc_fea_1"]
    assert any(len(set(moments[of_user == user].tolist())) > 1 for user in np.unique(of_user)[:50])


def test_rows_depend_on_the_seed_and_not_on_how_many_are_made() -> None:
    few, many, other = (Market(0.05, 500, 100, seed).table(rows) for seed, rows in ((0, 900), (0, BLOCK + 10), (1, 900)))
    for name, column in few.columns.items():
        assert (column == many.columns[name][:900]).all()
        assert (column != other.columns[name]).any()
    assert (few.labels == many.labels[:900]).all()
    assert [len(block) for block in Market(0.05, 500, 100).blocks(BLOCK + 10)] == [BLOCK, 10]


def test_many_rows_take_the_memory_of_a_block() -> None:
    def peak(blocks: int) -> int:
        tracemalloc.start()
        for _ in islice(Market(0.006).blocks(10_000_000), blocks):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(4) < 1.2 * peak(2) < 1.2 * 100 * 2**20


def test_a_share_that_no_table_has_is_refused() -> None:
    for share in (0.0, 1.0, 1.2):
        with pytest.raises(ValueError, match="share of positives"):
            Market(share)


def gradients(top: str, rows: int = 256, width: int = 16) -> tuple[Tensor, Tensor]:
    """A batch's gradients and labels, a tenth positive: of a top of one layer, or of one with a hidden layer."""
    random = torch.Generator().manual_seed(3)
    labels = (torch.rand(rows, generator=random) < 0.1).float()
    error = torch.rand(rows, generator=random) * 0.4 - labels  # ŷ − y
    weights = torch.randn(8, width, generator=random)
    open_units = (torch.rand(rows, 8, generator=random) < 0.5).float()
    along = weights[0].expand(rows, -1) if top == "one layer" else (open_units * weights[:, :1].abs().T) @ weights
    return error[:, None] * along / rows, labels


def sent(entry: dict[str, Any], tensor: Tensor, labels: Tensor) -> Tensor:
    literal.install()
    sender = Sender("gradients", np.ones(len(tensor), bool))
    (defence,) = build([read_params(entry)], sender, Randomness(b"d" * 32))
    return defence.protect(tensor, Leaving("step/0", np.arange(len(tensor)), labels=labels, mean_of=len(tensor)))


def across(rows: Tensor) -> Tensor:
    """Length of the part of each row across the leading direction of all."""
    _, _, directions = torch.linalg.svd(rows, full_matrices=False)
    return torch.linalg.vector_norm(rows - torch.outer(rows @ directions[0], directions[0]), dim=1)


def test_published_mixpro_makes_rows_of_one_sign_zero() -> None:
    tensor, labels = gradients("one layer")
    published, repaired = (
        torch.linalg.vector_norm(sent({"name": name, "goal": 0.866}, tensor, labels), dim=1)
        for name in ("mixpro-literal", "mixpro")
    )
    vanished = published < 1e-3 * published.median()
    assert vanished[labels == 1].float().mean() > 0.4  # mixed with a negative row a positive one may change its sign
    assert vanished[labels == 0].float().mean() < 0.1
    assert not (repaired < 0.5 * published[published > 0].median()).any()
    several, _ = gradients("hidden layer")
    kept = torch.linalg.vector_norm(sent({"name": "mixpro-literal", "goal": 0.866}, several, labels), dim=1)
    assert not (kept < 1e-3 * kept.median()).any()  # the control: gradients in several directions


def test_published_marvell_is_read_across_the_line() -> None:
    tensor, labels = gradients("one layer")
    published, repaired = (sent({"name": name, "power": 4.0}, tensor, labels) for name in ("marvell-literal", "marvell"))
    assert folded(labels, across(published)) > 0.8
    assert folded(labels, across(repaired)) < 0.65
    for one in (published, repaired):
        assert folded(labels, torch.linalg.vector_norm(one, dim=1)) < 0.7
    assert folded(labels, torch.linalg.vector_norm(tensor, dim=1)) > 0.95  # the control: no defence


def test_published_marvell_leaves_a_batch_of_one_class_as_it_is() -> None:
    tensor, _ = gradients("one layer")
    ones = torch.ones(len(tensor))
    assert (sent({"name": "marvell-literal", "power": 4.0}, tensor, ones) == tensor).all()
    assert (sent(MARVELL, tensor, ones) != tensor).any()


@cache
def small(top: str, defence: str) -> Done:
    entries = {"none": [], "marvell": [MARVELL]}[defence]
    settings = {"top": TOPS[top], "epochs": 3, **OF_TABLE["small"]}
    return train(TABLES["small"](NOWHERE, 0), 0, settings=settings, defences=entries, recorded=True)


@pytest.mark.parametrize("top", [pytest.param(of, marks=[pytest.mark.slow] if at else []) for at, of in enumerate(TOPS)])
def test_gradients_tell_labels_and_marvell_hides_them_for_an_epoch(top: str) -> None:
    clean, hidden = small(top, "none").labels, small(top, "marvell").labels
    assert max(value or 0 for value in clean[0].values()) > 0.95  # the control
    for attack in ("norm", "direction", "residual"):
        value = hidden[0][attack]
        assert value is not None
        assert value < 0.8
    assert small(top, "marvell").auc > 0.6


@pytest.mark.parametrize("defence", ["none", "marvell"])
def test_the_meter_judges_what_the_other_party_receives(defence: str) -> None:
    """The gradients in the recorded messages, ranked by their norm, give the figure of the meter."""
    done, labels = small("one layer", defence), TABLES["small"](NOWHERE, 0).tables[ACTIVE].labels
    assert labels is not None
    received = [_tensor(message) for message in done.recorder.messages(training_pb2.Gradient, sender=ACTIVE)]
    assert len(received) == len(done.steps)
    last = range(len(done.steps) * 2 // 3, len(done.steps))  # of three epochs
    norms = np.concatenate([(received[step] * len(received[step])).norm(dim=1).numpy() for step in last])
    positions = np.concatenate([done.steps[step] for step in last])
    assert folded(labels[positions], norms) == pytest.approx(done.labels[-1]["norm"], abs=0.04)
    shuffled = np.random.default_rng(0).permutation(norms)
    assert folded(labels[positions], shuffled) < 0.6  # the control


def _tensor(message: training_pb2.Gradient) -> Tensor:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))


def test_trials_of_a_seed_are_paired() -> None:
    """Without anything to hide, equal bits; what differs between defences of a seed is the defence."""
    first, second = small("one layer", "none"), small.__wrapped__("one layer", "none")
    assert first.auc == second.auc
    assert first.labels == second.labels
    assert all((a == b).all() for a, b in zip(first.steps, small("one layer", "marvell").steps, strict=True))


def test_what_a_trial_keeps() -> None:
    kept = hidden_labels(NOWHERE, table="small", top=[], defence=MARVELL, seed=0, epochs=[1, 2])
    assert set(kept) == {"auc", "alone", "labels"}
    assert kept["alone"] is None
    assert set(kept["labels"]) == {"1", "2"}
    assert set(kept["labels"]["2"]) == set(OF_TWO_CLASSES.names)
    without = hidden_labels(NOWHERE, table="small", top=[], defence={}, seed=0, epochs=[1, 2])
    assert 0.55 < without["alone"] < without["auc"]


def test_who_is_known_is_attacked_over_a_union() -> None:
    of = hidden_members(NOWHERE, table="small", top=[], defence={}, seed=0, epochs=3)
    assert 0.6 < of["auc"] < 0.95
    assert sum(value is not None for value in of["attacks"].values()) >= 3


def outcome(auc: float, leak: float, alone: float | None = None) -> dict[str, Any]:
    return {
        "auc": auc,
        "alone": alone,
        "labels": {str(epoch): dict.fromkeys(OF_TWO_CLASSES.names, leak) for epoch in (1, 3, 10)},
    }


def made_up_results(values: dict[str, tuple[float, float]]) -> Results:
    """On adult with a top of one layer: noise of dp → (AUC, every attack); without a defence .9 and 1."""
    plan = Plan(seeds=1)
    found = {trial(plan, "adult", "one layer", NONE, 0).name: outcome(0.9, 1.0, 0.8)}
    for one, (of, leak) in zip(plan.strengths["dp"], values.values(), strict=True):
        found[trial(plan, "adult", "one layer", one, 0).name] = outcome(of, leak)
    return Results(plan, found, "adult", "one layer")


@pytest.mark.parametrize(
    ("aucs", "leaks", "loss", "leak"),
    [
        ((0.899, 0.891, 0.85), (0.9, 0.7, 0.5), 0.009, 0.7),  # a strength that is near enough
        ((0.90, 0.898, 0.878), (1.0, 0.9, 0.5), 0.01, 0.74),  # between two: 8 of 20 parts
        ((0.88, 0.85, 0.8), (0.6, 0.5, 0.5), 0.01, 0.8),  # between none and the weakest
        ((0.9, 0.899, 0.898), (1.0, 0.9, 0.8), None, None),  # never
    ],
)
def test_a_defence_is_taken_where_it_costs_a_hundredth(
    aucs: tuple[float, ...], leaks: tuple[float, ...], loss: float | None, leak: float | None
) -> None:
    of = made_up_results(dict(zip("abc", zip(aucs, leaks, strict=True), strict=True)))
    row = of.row_at_loss(Plan().strengths["dp"])
    if loss is None:
        assert row is None
        return
    assert row is not None
    assert row.loss == pytest.approx(loss)
    assert row.leaks["norm"] == pytest.approx(leak)


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_the_pages_show_what_was_measured(stored: dict[str, Any]) -> None:
    plan = Plan(stored["seeds"])
    assert set(stored["trainings"]) == {work.name for work in works(plan)}
    pages = Labels(plan).pages(stored["trainings"], plan.seeds)
    assert set(pages) == {path.name for path in RESULTS.parent.glob(f"{NAME}*.md")}
    for name, text in pages.items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == text
    for name, svg in table_4.drawings(plan, stored["trainings"]).items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == svg


def of_stored(stored: dict[str, Any], data: str, top: str) -> Results:
    return Results(Plan(stored["seeds"]), stored["trainings"], data, top)


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("data", Plan().tables)
def test_labels_are_read_without_a_defence_and_over_epochs_with_one(stored: dict[str, Any], data: str, top: str) -> None:
    of = of_stored(stored, data, top)
    assert min(of.leak(NONE, "direction")) > 0.95  # the control
    strongest = STRENGTHS["marvell"][-1]
    for attack in ("norm", "direction", "residual"):
        assert np.mean(of.leak(strongest, attack, 1)) < 0.7
    for name, one in Plan().middle.items():
        rise = np.mean(of.leak(one, "mean_direction", 10)) - np.mean(of.leak(one, "mean_direction", 1))
        assert rise > 0.05 or name in ("isotropic", "maxnorm", "mixpro", "randomised-labels")


@pytest.mark.parametrize("top", TOPS)
def test_what_the_repairs_of_both_defences_change(stored: dict[str, Any], top: str) -> None:
    of = of_stored(stored, "generator-5", top)
    (mixpro, marvell), (own_mixpro, own_marvell) = PUBLISHED, table_4.repaired(Plan())
    assert np.mean(of.leak(mixpro, "norm", 1)) > np.mean(of.leak(own_mixpro, "norm", 1)) + 0.3
    assert np.mean(of.leak(marvell, "residual", 10)) > np.mean(of.leak(own_marvell, "residual", 10)) + 0.3


@pytest.mark.parametrize("top", TOPS)
def test_noise_on_gradients_also_hides_who_is_known(stored: dict[str, Any], top: str) -> None:
    plan, found = Plan(stored["seeds"]), stored["trainings"]
    without = np.mean(members.strongest(plan, found, "adult", top, NONE))
    assert without > 0.7  # the control
    for name in ("dp", "isotropic", "marvell"):
        assert np.mean(members.strongest(plan, found, "adult", top, plan.middle[name])) < without - 0.1


@pytest.mark.slow
def test_a_small_run_of_all() -> None:
    found = {work.name: work.run(NOWHERE) for work in works(SMALL)}
    pages = Labels(SMALL).pages(found, SMALL.seeds)
    text = "".join(pages.values())
    assert all(name in pages[f"{NAME}.md"] for name in SMALL.strengths)
    assert all(name in text for name in (*SMALL.strengths, *(one["name"] for one in PUBLISHED), *table_4.ATTACKS))
    assert all(svg.startswith("<svg") for svg in table_4.drawings(SMALL, found).values())
    assert Labels(SMALL).check(found)
    assert members.attacks(SMALL, found)
