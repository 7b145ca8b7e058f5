"""Fresh, stacked and adaptive decoders on embeddings that tell of columns, and on embeddings that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.features.attacks import Adaptive, depth, rebuild, stack_epochs, views
from vfl_node.privacy.features.measures import measure

N, KNOWN = 1200, 200


@pytest.fixture
def world() -> dict[str, Any]:
    """Columns that four hidden numbers decide, and an embedding of 16 numbers that a random network makes of these."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(N, 4))
    columns = {
        "colour": np.array(["red", "green", "blue"])[np.argmax(hidden[:, :3], axis=1)],
        "flag": (hidden[:, 3] > 0).astype(float),
        "crossed": np.where(hidden[:, 0] * hidden[:, 1] > 0, 1.0, 0.0),
        "size": 3 + 2 * hidden[:, 2],
    }
    rows = np.tanh(hidden @ rng.normal(size=(4, 16)))
    return {"rng": rng, "hidden": hidden, "columns": columns, "rows": rows}


def test_what_an_embedding_tells_is_rebuilt_and_noise_tells_nothing(attacked: Any, world: dict[str, Any]) -> None:
    told = attacked(world["columns"], world["rows"], KNOWN)
    assert told["colour"].success > 0.9 > 0.4 > told["colour"].constant
    assert told["flag"].success > 0.97
    assert told["crossed"].success > 0.9  # not linear in the embedding
    assert told["size"].success > 0.9
    noise = attacked(world["columns"], world["rng"].normal(size=(N, 16)), KNOWN)
    assert all(abs(score.gain) < 0.06 for score in noise.values())
    assert all(noise[name].figures["error"] < noise[name].constants["error"] + 0.06 for name in ("colour", "flag"))


def test_a_linear_decoder_is_no_weaker_than_scikit_learn_on_a_weak_signal(attacked: Any) -> None:
    ours, theirs = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        flag = rng.random(N) < 0.5
        rows = rng.normal(size=(N, 16)) + 0.35 * flag[:, None] * rng.normal(size=16)
        ours.append(attacked({"flag": flag.astype(float)}, rows, KNOWN)["flag"].success)
        model = LogisticRegression(C=0.1).fit(rows[:KNOWN], flag[:KNOWN])
        theirs.append(roc_auc_score(flag[KNOWN:], model.decision_function(rows[KNOWN:])))
    assert 0.6 < np.mean(theirs) < 0.9
    assert np.mean(ours) > np.mean(theirs) - 0.02


def test_the_same_draws_give_the_same_bits(world: dict[str, Any], targets: Any) -> None:
    of, at, rows = targets(world["columns"]), torch.arange(N), torch.from_numpy(world["rows"]).float()

    def outputs(seed: int) -> torch.Tensor:
        return rebuild(rows[:KNOWN], at[:KNOWN], rows[KNOWN:], of, Randomness(bytes([seed]) * 32))

    assert torch.equal(outputs(1), outputs(1))
    assert not torch.equal(outputs(1), outputs(2))


def test_only_the_truth_of_known_rows_is_used(world: dict[str, Any], targets: Any) -> None:
    at, rows = torch.arange(N), torch.from_numpy(world["rows"]).float()
    flag = world["columns"]["flag"]
    changed = np.concatenate([flag[:KNOWN], 1 - flag[KNOWN:]])
    said = [
        rebuild(rows[:KNOWN], at[:KNOWN], rows[KNOWN:], targets({"flag": of}), Randomness(bytes(32))) for of in (flag, changed)
    ]
    assert torch.equal(*said)


def epochs_of(world: dict[str, Any], noise: float, count: int) -> list[np.ndarray[Any, Any]]:
    return [world["rows"] + noise * world["rng"].normal(size=world["rows"].shape) for _ in range(count)]


def test_fresh_noise_in_each_epoch_averages_out(attacked: Any, world: dict[str, Any]) -> None:
    columns = {"flag": world["columns"]["flag"]}

    def success(epochs: list[np.ndarray[Any, Any]]) -> float:
        tensors = [torch.from_numpy(rows) for rows in epochs]
        first, *more = (view.numpy() for view in views(tensors, torch.stack(tensors).mean(dim=0)))
        return float(attacked(columns, first, KNOWN, *more)["flag"].success)

    epochs = epochs_of(world, 3.0, 12)
    one, all_of_them = success(epochs[:1]), success(epochs)
    assert one < 0.8
    assert all_of_them > one + 0.12
    again = success([epochs[0]] * 12)  # the same view twelve times is one view
    assert again < one + 0.05


def test_epochs_are_side_by_side_up_to_a_bound() -> None:
    epochs = [torch.full((3, 100), float(epoch)) for epoch in range(20)]
    assert depth(8) == 16
    assert depth(1000) == 2
    assert stack_epochs(epochs).shape == (3, 100 * depth(100))
    assert stack_epochs(epochs)[0, -1] == 19
    assert stack_epochs(epochs[:1]).shape == (3, 100)


def adaptive(world: dict[str, Any], targets: Any, *, replay: int, tells: bool = True) -> tuple[float, Adaptive]:
    """Success after five epochs of batches of 64 whose embeddings move slowly."""
    of, rng = targets({"flag": world["columns"]["flag"]}), np.random.default_rng(1)
    attack = Adaptive(16, of, Randomness(bytes(32)), replay=replay)
    rows = world["rows"] if tells else rng.normal(size=world["rows"].shape)
    for _ in range(5):
        rows = rows @ (np.eye(16) + 0.05 * rng.normal(size=(16, 16)))
        for batch in np.split(rng.permutation(N), range(64, N, 64)):
            known = np.sort(batch[batch < KNOWN])
            sent, theirs = (torch.from_numpy(rows[of_batch]).float() for of_batch in (batch, known))
            attack.see(sent, theirs, torch.from_numpy(known))
    said = attack.rebuild(torch.from_numpy(rows[KNOWN:]).float())
    success = measure(of, said, torch.arange(KNOWN, N))["flag"].success
    assert success is not None
    return success, attack


def test_one_decoder_follows_a_model_that_moves(world: dict[str, Any], targets: Any) -> None:
    assert adaptive(world, targets, replay=0)[0] > 0.85
    assert adaptive(world, targets, replay=64)[0] > 0.9
    assert abs(adaptive(world, targets, replay=64, tells=False)[0] - 0.5) < 0.06


@pytest.mark.parametrize("replay", [0, 8])
def test_an_adaptive_decoder_goes_on_with_the_same_bits(world: dict[str, Any], targets: Any, replay: int) -> None:
    _, attack = adaptive(world, targets, replay=replay)
    of = targets({"flag": world["columns"]["flag"]})
    other = Adaptive(16, of, Randomness(bytes(32)), replay=replay)
    other.restore(attack.tensors())
    rows = torch.from_numpy(world["rows"]).float()
    for each in (attack, other):
        each.see(rows[:64], rows[:20], torch.arange(20))
    assert torch.equal(attack.rebuild(rows), other.rebuild(rows))


def test_a_column_is_rebuilt_by_way_of_another_one(attacked: Any, targets: Any) -> None:
    """To hide one column is not enough where another one that nobody hides tells of it."""
    rng = np.random.default_rng(0)
    education = rng.integers(0, 6, N)
    occupation = np.where(rng.random(N) < 0.8, education // 2, rng.integers(0, 3, N))
    columns = {"education": education.astype(str), "occupation": occupation.astype(str)}
    sent = np.eye(6)[education] @ rng.normal(size=(6, 12)) + 0.3 * rng.normal(size=(N, 12))  # occupation is no part of it

    at = torch.arange(N)
    of = targets({"education": columns["education"]})
    rows = torch.from_numpy(sent).float()
    rebuilt = rebuild(rows[:KNOWN], at[:KNOWN], rows, of, Randomness(bytes(32))).softmax(dim=1).numpy()
    chained = attacked({"occupation": columns["occupation"]}, rebuilt, KNOWN)["occupation"]
    assert chained.gain > 0.3
    independent = attacked({"occupation": rng.permutation(columns["occupation"])}, rebuilt, KNOWN)["occupation"]
    assert abs(independent.gain) < 0.06
