"""Training with lists: at one party or several, over missing rows, resumed, under a defence, asked for predictions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.conftest import Run
from tests.training.conftest import synthetic as make_federation
from tests.training.predicting import CPU, NEW_TO_ACTIVE, NEW_TO_PASSIVE, SERVE, TO_ACTIVE, TO_PASSIVE, Request, World, taken
from tests.training.several import USUAL
from tests.training.test_joint import joint_curves
from tests.training.test_resume import Fatal, KilledError, assert_same_bits
from tests.training.test_several import joint_weights, largest_difference
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.tables import CategoricalColumn, ListColumn, NumericColumn, Table
from vfl_node.errors import UsageError
from vfl_node.estimate.memory import need, parameters, shape_of
from vfl_node.job import Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import InputSchema, architecture_of, layers
from vfl_node.models.building import build_bottom
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import YoutubeDnnBottom
from vfl_node.privacy.features.targets import targets_of
from vfl_node.settings.declared import DeclaredList
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import FeatureAuditSettings
from vfl_node.training.boosted_tree import design
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder
from vfl_node.training.split.prediction.model import column_kinds
from vfl_node.training.split.table_use import SplitTableUse

Make = Callable[..., Any]


def history(rows: int, seed: int, items: int, steers: np.ndarray[Any, Any] | None = None) -> ListColumn:
    """0 to 7 items a row; with ``steers`` most of them are of the upper half where it is positive, else of the lower one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 8, rows)
    codes = rng.integers(0, items // 2, lengths.sum())
    if steers is not None:
        codes += items // 2 * (np.repeat(steers, lengths) + rng.normal(0, 0.3, len(codes)) > 0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return ListColumn(codes.astype(np.int64), starts.astype(np.int64), tuple(f"{i:03}" for i in range(items)), DeclaredList())


def with_lists(table: Table, seed: int, items: int = 20) -> Table:
    """``table`` with a column of lists, which follow the first column, and another one of noise."""
    first = next(iter(table.columns.values()), None)
    steers = first.values if isinstance(first, NumericColumn) else None
    lists = {"history": history(len(table), seed, items, steers), "searched": history(len(table), seed + 1, 6)}
    return dataclasses.replace(table, columns={**table.columns, **lists})


def both_with_lists(parties: Any) -> Any:
    return dataclasses.replace(parties, clinic=with_lists(parties.clinic, 1), lab=with_lists(parties.lab, 3))


def dnn(run: Any, **changed: Any) -> Any:
    both = run()
    both.train = both.train.model_copy(update={"model": "youtube_dnn", "least_rows": 0, **changed})
    return both


SCHEMA = InputSchema(2, (4,), lists=((9, 3), (5, 2)))
TRAIN = Train(model="youtube_dnn", bottom=(16, 8), embedding_size=3)


def bottom(schema: InputSchema = SCHEMA) -> torch.nn.Module:
    model = build_bottom(architecture_of("youtube_dnn"), TRAIN, schema, TRAIN.bottom)
    initialise(model, Randomness(b"w" * 32))
    return model


def rows(bags: list[list[int]]) -> ModelInput:
    count = len(bags)
    numbers = torch.linspace(-1, 1, 2 * count).view(count, 2)
    return ModelInput(numbers, torch.arange(count)[:, None] % 4, bags=torch.tensor(bags, dtype=torch.int32))


def test_the_dense_layers_read_the_mean_of_each_rows_items() -> None:
    model = bottom()
    given = rows([[1, 1, 8, 4, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    first, second = (table.weight.detach() for table in model.items)
    means = torch.stack(
        [
            torch.cat([(2 * first[1] + first[8]) / 3, second[4]]),
            torch.cat([first[2], torch.zeros(3)]),
            torch.zeros(6),  # a row without items
        ]
    )
    category = model.dense.categories[0](given.categorical[:, 0])
    expected = model.dense.layers(torch.cat([given.numeric, means, category], dim=1))
    torch.testing.assert_close(model(given), expected)
    assert not torch.allclose(model(rows([[1, 8, 0, 4, 0], *3 * [[0] * 5]]))[:1], expected[:1])  # an item counts each time


def test_where_the_items_stand_does_not_matter_and_code_0_is_never_learnt() -> None:
    model = bottom()
    torch.testing.assert_close(model(rows([[1, 2, 0, 0, 3]])), model(rows([[0, 2, 1, 3, 0]])))
    model(rows([[0, 2, 1, 3, 0], [0, 0, 0, 0, 0]])).square().sum().backward()
    gradient = model.items[0].weight.grad
    assert (gradient[0] == 0).all()
    assert (gradient[1] != 0).any()


@pytest.mark.parametrize("options", [{}, {"batch_norm": True, "dropout": 0.5}, {"layer_norm": True}])
@pytest.mark.parametrize("schema", [SCHEMA, InputSchema(lists=((3, 1),)), InputSchema(3), InputSchema(0, (4, 6))])
def test_weights_are_counted_as_they_are_built(schema: InputSchema, options: dict[str, Any]) -> None:
    train = TRAIN.model_copy(update=options)
    architecture = architecture_of("youtube_dnn")
    built = build_bottom(architecture, train, schema, train.bottom)
    for parameter in built.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    initialise(built, Randomness(b"w" * 32))
    assert isinstance(built, YoutubeDnnBottom) == bool(schema.lists)
    assert sum(of.numel() for of in built.parameters()) == architecture.bottom_weights(schema, train.bottom, train)
    assert all(of.isfinite().all() for of in built.parameters())
    assert all((table.weight[0] == 0).all() for table in getattr(built, "items", []))


def test_a_number_a_row_takes_is_counted() -> None:
    """By hand: 5 codes; then 2 numbers, an embedded category and two means of 3 numbers each, and the layers."""
    assert architecture_of("youtube_dnn").bottom_values(SCHEMA, (16, 8), TRAIN) == 5 + (2 + 3 + 6) + 16 + 8


@pytest.mark.parametrize("active_features", [True, False])
def test_split_training_is_joint_training(synthetic: Make, run: Any, active_features: bool) -> None:
    parties = both_with_lists(synthetic(200, (1.0, 1.0), active_features=active_features))
    both = dnn(run)
    result, other = both(parties)
    losses, aucs = joint_curves(parties, both)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-6)
    assert [epoch.auc for epoch in result.epochs] == pytest.approx(aucs, abs=1e-3)
    assert losses[-1] < losses[0]
    assert any(name.startswith("bottom.items.") for name in result.weights)
    assert any(name.startswith("bottom.items.") for name in other.weights)


def test_several_passive_parties_with_lists_and_tables(several_parties: Make, several_runs: Any) -> None:
    parties = several_parties(people=150)
    first, *_, last = parties.names
    parties.tables.update({name: with_lists(parties.tables[name], 4) for name in (first, last)})
    runs = several_runs()
    runs.train = runs.train.model_copy(update={"model": "youtube_dnn", "least_rows": 0})
    results = runs(parties)
    assert largest_difference(results, joint_weights(parties, runs)) < 1e-5


def lists_alone(parties: Any, column: ListColumn) -> Any:
    return dataclasses.replace(parties, lab=dataclasses.replace(parties.lab, columns={"history": column}))


def test_the_items_are_what_tells(synthetic: Make, run: Any) -> None:
    """The label follows what the history has; of the same lists in other rows nothing is learnt."""
    parties = synthetic(600, (1.0, 1.0), active_features=False, numeric=1)
    own = with_lists(parties.lab, 3).columns["history"]
    elsewhere = own.rows(np.random.default_rng(0).permutation(len(parties.lab)))
    found, lost = (dnn(run, epochs=12)(lists_alone(parties, of))[0].results.metrics["auc"] for of in (own, elsewhere))
    assert found > lost + 0.1


@pytest.mark.parametrize("sparse", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.usefixtures("audits")
def test_a_killed_training_goes_on_with_the_same_bits(
    synthetic: Make, run: Any, monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    if sparse:
        monkeypatch.setattr(layers, "SPARSE_FROM", 2)
    parties = both_with_lists(synthetic(200))
    settings = {"train": dnn(run, batch_size=16, clip=1.0).train, "evaluate": Evaluate()}
    whole = run(**settings)(parties)
    killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal("r000-e000002")))
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    resumed = run(**settings, checkpoints=killed.checkpoints, resume_from=newest)
    for ours, theirs in zip(resumed(parties), whole, strict=True):
        assert_same_bits(ours, theirs)


def test_sparse_tables_of_items_learn_as_dense_ones_by_sgd(synthetic: Make, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parties = both_with_lists(synthetic(200, (1.0, 1.0)))
    made = []
    for most in (layers.SPARSE_FROM, 2):
        monkeypatch.setattr(layers, "SPARSE_FROM", most)
        made.append(dnn(run, optimizer="sgd", learning_rate=0.5)(parties)[1].weights)
    assert all(torch.allclose(made[0][name], made[1][name], atol=1e-5) for name in made[0])


@pytest.mark.parametrize(
    "features",
    ["sampling", "smoothed", *(pytest.param(of, marks=pytest.mark.slow) for of in ("naive", "gaussian", "random"))],
)
def test_every_strategy_for_missing_rows_makes_lists(synthetic: Make, run: Any, features: str) -> None:
    both = dnn(run, missing=Missing(features=features))
    both.evaluate = Evaluate(contributions=True)
    result, _ = both(both_with_lists(synthetic(200)))
    assert all(math.isfinite(epoch.loss) for epoch in result.epochs)
    assert set(result.section.contributions) == {"clinic", "lab"}


def whole_lists(bags: Any) -> set[tuple[int, ...]]:
    return set(map(tuple, bags.tolist()))


@pytest.mark.parametrize("features", ["smoothed", "naive"])
def test_made_up_lists_are_lists_of_the_table_and_not_always_of_the_same_row(synthetic: Make, features: str) -> None:
    parties = both_with_lists(synthetic(300))
    encoder = Encoder.fit(parties.lab, np.arange(len(parties.lab)))
    filled, source = fill_in(parties.lab_view, parties.lab, encoder, Missing(features=features), Randomness(b"d" * 32))
    own, made = filled.take(np.arange(len(parties.lab))), filled.take(np.arange(len(parties.lab), len(filled)))
    assert len(made) == parties.lab_view.missing > 0
    for known, drawn in zip(own.split_bags(), made.split_bags(), strict=True):
        assert whole_lists(drawn) <= whole_lists(known)
        assert len(whole_lists(drawn)) > 5
    assert not whole_lists(made.bags) <= whole_lists(own.bags)  # two columns need not come from one row
    read = PositionedInput.from_features(filled, source, CPU)
    assert read.schema == InputSchema(4, filled.cardinalities, lists=filled.lists)
    assert read.take(np.arange(len(source))).bags.shape == (len(source), 14)


@pytest.fixture(scope="module")
def served() -> World:
    train = dnn(Run, epochs=2, missing=Missing(features="smoothed"), batch_size=64).train
    parties = both_with_lists(make_federation(200))
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
    """A new table has other items, too: a row's embedding is still that of its own list."""
    embedder = served.sides[1]
    own = np.flatnonzero(served.parties.lab_view.owned)[:10]
    at = served.parties.lab_view.rows[own]
    new = taken(served.parties.lab, at, prefix=b"new ")
    view = dataclasses.replace(served.parties.lab_view, rows=np.arange(10), spec=ALIGNMENTS["psi"])
    again = Embedder(served.kept(1), view, new, CPU)
    torch.testing.assert_close(again.embed_new(np.arange(10)), embedder.embed_new(own))
    backwards = {**new.columns, "history": new.columns["history"].rows(np.arange(10)[::-1])}
    other = Embedder(served.kept(1), view, dataclasses.replace(new, columns=backwards), CPU)
    assert not torch.allclose(other.embed_new(np.arange(10)), embedder.embed_new(own))


def test_unnamed_rows_with_lists_are_predicted(synthetic: Make, run: Any) -> None:
    """The active party has labels alone. A known row whose list has changed is a new one."""
    train = dnn(run, epochs=1, missing=Missing(features="smoothed")).train
    parties = synthetic(150, active_features=False)
    parties = dataclasses.replace(parties, lab=with_lists(parties.lab, 3))
    world = World(parties, run(train=train, evaluate=Evaluate(test_fraction=0.5))(parties), train, SERVE)
    new = taken(parties.lab, np.arange(12), prefix=b"new ", shift=1.0)
    (answer,) = world.ask(TO_PASSIVE, Request(new))
    assert ((answer > 0) & (answer < 1)).all()
    side = world.sides[1]
    same = taken(parties.lab, np.arange(12))
    changed = {**same.columns, "history": same.columns["history"].rows(np.arange(12)[::-1])}
    agreed, fresh = (side.hide_rows(table) for table in (same, dataclasses.replace(same, columns=changed)))
    assert (agreed.places < agreed.count * world.serve.batch_size).all()
    assert fresh.count > agreed.count or (fresh.places != agreed.places).any()


def test_other_records_are_read_as_the_model_was_told(served: World) -> None:
    kinds = column_kinds(served.kept(1).encoder)
    assert kinds["history"] == DeclaredList()
    assert kinds["colour"] == "categorical"


def test_lists_are_defended_and_left_out_of_the_audit_of_columns(synthetic: Make, run: Any) -> None:
    parties = both_with_lists(synthetic(300, (1.0, 1.0)))
    audited = FeatureAuditSettings(columns="all", known_share=0.3)
    fbs = read_params({"name": "fbs", "columns": ["z0"], "rounds": 2})
    made: list[dict[str, Tensor]] = []
    for defences in ((), (fbs,)):
        both = dnn(run, epochs=1)
        both.protections = (USUAL, dataclasses.replace(USUAL, defences=defences, features=audited))
        _, passive = both(parties)
        assert passive.audits.features.keys() == {"z0", "z1", "z2", "z3", "colour"}
        made.append(passive.weights)
    assert not torch.equal(made[0]["bottom.items.0.weight"], made[1]["bottom.items.0.weight"])
    with pytest.raises(UsageError, match="holds lists") as refused:
        targets_of(parties.lab, np.arange(len(parties.lab)), ["history"])
    assert refused.value.code == "E_CONFIG"


def test_the_boosted_tree_reads_how_many_items_there_are(synthetic: Make) -> None:
    lab = with_lists(synthetic(50).lab, 3)
    cells, categorical = design(lab, np.arange(len(lab)))
    at = list(lab.columns).index("history")
    assert cells[:, at].tolist() == lab.columns["history"].lengths.tolist()
    assert not categorical[at]


def test_the_estimate_counts_lists(synthetic: Make) -> None:
    lab = with_lists(synthetic(50).lab, 3, items=500)
    shape = shape_of(lab)
    longest = tuple(int(lab.columns[name].lengths.max()) for name in ("history", "searched"))
    assert shape.lists == ((502, longest[0]), (8, longest[1]))
    spec = {"name": "lists", "parties": {"active": "clinic", "passive": "lab"}, "align": {"protocol": "psi"}}
    job = Job.model_validate({**spec, "train": {"model": "youtube_dnn"}})
    train = Train(model="youtube_dnn")
    schema = InputSchema(8, shape.cardinalities, lists=shape.lists)
    assert parameters(job, "passive", shape) == architecture_of("youtube_dnn").bottom_weights(schema, train.bottom, train)
    bare = dataclasses.replace(shape, lists=())
    assert parameters(job, "passive", shape) > parameters(job, "passive", bare) + 500 * train.embedding_size
    assert need(job, "passive", shape).rows > need(job, "passive", bare).rows
    assert need(job, "passive", shape).batch > need(job, "passive", bare).batch


@pytest.mark.parametrize("name", ["mlp", "wide_deep", "cnn", "youtube_dnn"])
def test_one_model_reads_lists(name: str) -> None:
    assert SplitTableUse(Train(model=name)).reads_lists() == (name == "youtube_dnn")


def test_a_list_of_a_table_without_other_columns_is_enough(synthetic: Make, run: Any) -> None:
    parties = synthetic(150, active_features=False)
    both = dnn(run, missing=Missing(features="smoothed"))
    result, other = both(lists_alone(parties, history(len(parties.lab), 1, 10)))
    assert math.isfinite(result.epochs[-1].loss)
    assert isinstance(parties.lab.columns["colour"], CategoricalColumn)
    assert {name.split(".")[1] for name in other.weights} == {"items", "dense"}
