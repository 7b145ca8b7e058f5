"""Sparse tables: the rows of a batch alone are updated, as by the dense optimiser, and what it remembers survives a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.models import OPTIMISERS, InputSchema, layers
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import SPARSE_FROM, lookup_tables
from vfl_node.models.networks import MlpBottom
from vfl_node.models.updates import Updates, clip_gradients
from vfl_node.training.network.learner import Learner
from vfl_node.training.split.config import Train

CODES = 12
BATCHES = ([1, 2, 2, 5], [5, 7, 1, 1], [3, 3, 3, 2])
TRAIN = Train(learning_rate=0.1, bottom=(6, 4))


@pytest.fixture
def small_are_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "SPARSE_FROM", 6)


def bottom(seed: int = 1) -> MlpBottom:
    """A dense and, where small tables are sparse, a sparse column."""
    model = MlpBottom(InputSchema(1, (4, CODES)), TRAIN.bottom, embedding_size=3)
    initialise(model, Randomness(bytes([seed]) * 32))
    return model


def loss(model: nn.Module, codes: Sequence[int]) -> Tensor:
    of = torch.tensor(codes)
    rows = ModelInput(torch.linspace(-1, 1, len(codes))[:, None], torch.stack([of % 4, of], dim=1))
    return (model(rows) - torch.arange(4)).square().mean()


def trained(model: nn.Module, train: Train = TRAIN, batches: Sequence[Sequence[int]] = BATCHES) -> Updates:
    updates = Updates(model, train.optimizer, train)
    for batch in batches:
        updates.zero_grad()
        loss(model, batch).backward()
        if train.clip is not None:
            clip_gradients(model.parameters(), train.clip)
        updates.step()
    return updates


def densely(train: Train = TRAIN, batches: Sequence[Sequence[int]] = BATCHES) -> MlpBottom:
    """The same training as plain torch has it, with dense tables."""
    model = bottom()
    for table in model.categories:
        table.sparse = False
    optimizer = OPTIMISERS[train.optimizer](model.parameters(), train)
    for batch in batches:
        optimizer.zero_grad()
        loss(model, batch).backward()
        if train.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        optimizer.step()
    return model


def same_bits(ours: nn.Module, theirs: nn.Module) -> bool:
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_tables_are_sparse_from_that_many_codes_on() -> None:
    with torch.device("meta"):
        assert [table.sparse for table in lookup_tables((2, SPARSE_FROM - 1, SPARSE_FROM), 4)] == [False, False, True]


@pytest.mark.usefixtures("small_are_sparse")
def test_rows_of_the_batch_alone_are_updated_by_adam() -> None:
    ours, theirs = bottom(), densely(batches=BATCHES[:1])
    start = ours.categories[1].weight.detach().clone()
    trained(ours, batches=BATCHES[:1])
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):  # a first step has no moments
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)  # SparseAdam adds its ε before the bias is corrected
    ours, theirs = bottom(), densely()
    trained(ours)
    here, there = ours.categories[1].weight.detach(), theirs.categories[1].weight.detach()
    absent = [code for code in range(CODES) if all(code not in batch for batch in BATCHES)]
    assert torch.equal(here[absent], start[absent])
    assert torch.equal(there[absent], start[absent])
    once = [7]  # only in the second batch: dense moments move it in the third one as well
    late = bottom()
    trained(late, batches=BATCHES[:2])
    assert torch.equal(late.categories[1].weight[once], here[once])
    assert not torch.allclose(there[once], here[once], atol=1e-3)


@pytest.mark.usefixtures("small_are_sparse")
@pytest.mark.parametrize("changed", [{}, {"clip": 0.01}, {"clip": 100.0}])
def test_a_sparse_step_of_sgd_is_a_dense_one(changed: dict[str, Any]) -> None:
    train = TRAIN.model_copy(update={"optimizer": "sgd", **changed})
    ours = bottom()
    trained(ours, train)
    for one, other in zip(ours.parameters(), densely(train).parameters(), strict=True):
        torch.testing.assert_close(one, other)
    unclipped = bottom()
    trained(unclipped, train.model_copy(update={"clip": None}))
    moved = not torch.allclose(unclipped.categories[1].weight, ours.categories[1].weight, atol=1e-3)
    assert moved is (changed == {"clip": 0.01})


@pytest.mark.usefixtures("small_are_sparse")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_with_weight_decay_every_weight_moves_in_every_step(optimizer: str) -> None:
    train = TRAIN.model_copy(update={"optimizer": optimizer, "weight_decay": 0.1})
    ours = bottom()
    start = ours.categories[1].weight.detach().clone()
    assert ours.categories[1].sparse
    trained(ours, train)
    assert not ours.categories[1].sparse
    assert same_bits(ours, densely(train))
    assert (ours.categories[1].weight[1:] != start[1:]).all()


@pytest.mark.usefixtures("small_are_sparse")
def test_an_optimiser_without_a_sparse_one_beside_it_has_dense_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.models.updates.SPARSE_OPTIMISERS", {})
    ours = bottom()
    trained(ours)
    assert same_bits(ours, densely())


@pytest.mark.usefixtures("small_are_sparse")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_learner_that_is_restored_goes_on_with_the_same_bits(optimizer: str) -> None:
    train = TRAIN.model_copy(update={"optimizer": optimizer, "clip": 0.5})

    def steps(learner: Learner, numbers: Sequence[int]) -> None:
        for number in numbers:
            learner.begin(number)
            loss(learner.model, BATCHES[number % 3]).backward()
            learner.step()

    whole, first, then = (Learner(bottom(seed), train, Randomness(b"m" * 32)) for seed in (1, 1, 2))
    steps(whole, range(20))
    steps(first, range(11))
    kept = first.tensors()
    if optimizer == "adam":
        assert {name for name in kept if name.startswith("optimizer.1.")} == {
            "optimizer.1.step",
            "optimizer.1.exp_avg",
            "optimizer.1.exp_avg_sq",
        }
    then.restore({name: tensor.clone() for name, tensor in kept.items()})
    steps(then, range(11, 20))
    assert same_bits(then.model, whole.model)
    ours, theirs = then.tensors(), whole.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    if optimizer == "adam":  # a control: without its moments it would go elsewhere
        bare = Learner(bottom(2), train, Randomness(b"m" * 32))
        bare.restore({name: tensor for name, tensor in kept.items() if not name.startswith("optimizer.1.")})
        steps(bare, range(11, 20))
        assert not same_bits(bare.model, whole.model)


def test_a_checkpoint_of_a_dense_table_is_taken_back_by_a_sparse_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = bottom()
    kept = trained(dense).tensors()
    monkeypatch.setattr(layers, "SPARSE_FROM", 6)
    ours = bottom()
    ours.load_state_dict(dense.state_dict())
    updates = Updates(ours, "adam", TRAIN)
    updates.restore(kept)
    again = updates.tensors()
    assert again.keys() == kept.keys()
    assert all(torch.equal(again[name].double(), kept[name].double()) for name in kept)
    assert int(again["1.step"]) == len(BATCHES)


class Tied(nn.Module):
    """A table that another layer shares, or whose weights are read by something else than codes."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(CODES, 3, sparse=True)
        self.back = nn.Linear(3, CODES)
        if shared:
            self.back.weight = self.table.weight

    def forward(self, rows: ModelInput) -> Tensor:
        of = self.back(self.table(rows.categorical[:, 1]))
        return (of + self.table.weight.sum())[:, :4]


def test_a_table_that_a_dense_layer_shares_is_dense_and_one_that_is_read_whole_is_refused() -> None:
    shared = Tied(shared=True)
    trained(shared)
    assert not shared.table.sparse
    with pytest.raises(UsageError, match="otherwise than by codes") as refused:
        trained(Tied(shared=False))
    assert refused.value.code == "E_EXTENSION"
    assert "sparse=False" in str(refused.value.hint)


def test_five_million_rows_are_drawn_in_parts_and_only_code_0_is_zero() -> None:
    model = nn.ModuleDict({"table": lookup_tables((5_000_001,), 1)[0]})
    initialise(model, Randomness(b"w" * 32))
    weight = model["table"].weight.detach()[:, 0]
    assert (weight[0], int((weight == 0).sum())) == (0, 1)
    assert abs(float(weight.mean())) < 5 / 5_000_001**0.5
    assert abs(float(weight.var()) - 1) < 0.01
