"""Split training with sparse tables: after a kill it goes on with the same bits, and a moving defence moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.test_resume import Fatal, KilledError, assert_same_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Evaluate
from vfl_node.models import layers
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.defences.defence import Leaving, Sender, build
from vfl_node.privacy.features.targets import Target, Targets
from vfl_node.settings.defences import read_params
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal


@pytest.mark.usefixtures("audits")
@pytest.mark.parametrize("model", ["wide_deep", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_killed_training_with_sparse_tables_goes_on_with_the_same_bits(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    train = run().train.model_copy(update={"batch_size": 16, "model": model, "clip": 1.0, "least_rows": 0})
    settings = {"train": train, "evaluate": Evaluate()}
    parties = synthetic(200)
    dense = run(**settings)(parties)
    monkeypatch.setattr(layers, "SPARSE_FROM", 2)
    whole = run(**settings)(parties)
    assert any(not torch.equal(whole[0].weights[name], dense[0].weights[name]) for name in dense[0].weights)
    killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal("r000-e000002")))
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    resumed = run(**settings, checkpoints=killed.checkpoints, resume_from=newest)
    for ours, theirs in zip(resumed(parties), whole, strict=True):
        assert_same_bits(ours, theirs)


@pytest.mark.parametrize("distance", ["features", "parameters"])
def test_a_moving_defence_moves_a_sparse_bottom_as_a_dense_one(distance: str) -> None:
    rng = np.random.default_rng(1)
    flag, codes = rng.integers(0, 2, 64).astype(np.float32), torch.from_numpy(rng.integers(0, 20, (64, 1)))
    known = torch.ones(64, dtype=torch.bool)
    column = Target("s", "flag", 1, torch.from_numpy(flag), known, 9.0)  # so that its loss is below its bound
    numeric = torch.from_numpy(np.stack([flag + rng.normal(0, 0.1, 64), rng.normal(0, 1, 64)], axis=1).astype(np.float32))
    moved: list[dict[str, Tensor]] = []
    for sparse in (False, True):
        model = MlpBottom(InputSchema(2, (20,)), (8, 4), embedding_size=3)
        initialise(model, Randomness(b"w" * 32))
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.categories[0].sparse = sparse
        sender = Sender(
            "embeddings",
            np.ones(64, dtype=bool),
            model,
            lambda positions: ModelInput(numeric, codes).take(torch.from_numpy(positions)),
            lambda _: Targets([column]),
        )
        params = {"name": "fbs-fixed", "columns": ["s"], "decoder": [8], "warm_up": 0, "distance": distance}
        (defence,) = build([read_params(params)], sender, Randomness(b"s" * 32))
        for _ in range(3):
            defence.prepare(Leaving("step", np.arange(64)))
        moved.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        assert not torch.equal(moved[-1]["categories.0.weight"], start["categories.0.weight"])
    assert all(torch.allclose(moved[0][name], moved[1][name], atol=1e-6) for name in moved[0])
