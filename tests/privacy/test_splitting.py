"""Minimax against a plain reference, and what its simulated attacker must be like; each with a control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.defences.defence import Leaving, Sender, build
from vfl_node.privacy.defences.splitting import LearntWeights
from vfl_node.privacy.features.decoder import decoder
from vfl_node.privacy.features.targets import Target, Targets
from vfl_node.settings.defences import read_params

SECRET = Randomness(b"s" * 32)
BETA1, BETA2, TINY = 0.5, 0.9, 1e-8


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def flag(values: NDArray[Any], known: NDArray[np.bool_] | None = None, name: str = "s") -> Target:
    every = np.ones(len(values), dtype=bool) if known is None else known
    share = float(values[every].mean()) if every.any() else 0.0
    entropy = -sum(p * float(np.log(p)) for p in (share, 1 - share) if p > 0)
    return Target(name, "flag", 1, torch.from_numpy(values), torch.from_numpy(every), entropy)


def number(values: NDArray[Any], name: str = "z") -> Target:
    return Target(name, "number", 1, torch.from_numpy(values), torch.ones(len(values), dtype=torch.bool), 1.0)


class Affine(nn.Module):
    """A bottom without a bend, in double precision."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(SECRET.derive("w").normal((columns, width))).double())
        self.offset = nn.Parameter(torch.from_numpy(SECRET.derive("b").normal((width,))).double())

    def forward(self, rows: ModelInput) -> Tensor:
        return rows.numeric.double() @ self.weight + self.offset


def of_columns(
    model: nn.Module, x: NDArray[Any], columns: Sequence[Target], *, real: NDArray[np.bool_] | None = None
) -> Sender:
    rows = torch.from_numpy(x)
    owned = np.ones(len(x), dtype=bool) if real is None else real
    return Sender(
        "embeddings",
        owned,
        model,
        lambda positions: ModelInput.from_tensors(rows[torch.from_numpy(positions)]),
        lambda names: Targets([column for column in columns if not names or column.name in names]),
    )


def made(sender: Sender, **keys: Any) -> Any:
    (defence,) = build([read_params({"columns": "all", **keys})], sender, SECRET)
    return defence


class ReferenceAdam:
    """Adam of one array, as Kingma and Ba write it."""

    def __init__(self, rate: float) -> None:
        self.rate, self.m, self.v, self.t = rate, 0.0, 0.0, 0

    def __call__(self, value: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        self.t += 1
        self.m = BETA1 * self.m + (1 - BETA1) * gradient
        self.v = BETA2 * self.v + (1 - BETA2) * gradient**2
        m, v = self.m / (1 - BETA1**self.t), self.v / (1 - BETA2**self.t)
        return value - self.rate * m / (np.sqrt(v) + TINY)


class Reference:
    """Minimax with fixed weights in numpy, of an affine bottom and a linear decoder of a flag and a number."""

    def __init__(self, bottom: tuple[NDArray[Any], ...], nu: tuple[NDArray[Any], ...], most: NDArray[Any], **keys: Any) -> None:
        self.bottom, self.nu, self.most, self.keys = list(bottom), list(nu), most, keys
        self.slow = [ReferenceAdam(keys["model_rate"]) for _ in bottom]
        self.fast = [ReferenceAdam(keys["decoder_rate"]) for _ in nu]

    def __call__(self, x: NDArray[Any], s: NDArray[Any], z: NDArray[Any]) -> None:
        start, keys = [of.copy() for of in self.bottom], self.keys
        for _ in range(keys["rounds"]):
            for _ in range(keys["decoder_steps"]):
                h = x @ self.bottom[0] + self.bottom[1]
                _, errors = self.losses(h, s, z)
                self.nu = [adam(of, to) for adam, of, to in zip(self.fast, self.nu, (errors.T @ h, errors.sum(0)), strict=True)]
            for _ in range(keys["model_steps"]):
                h = x @ self.bottom[0] + self.bottom[1]
                losses, errors = self.losses(h, s, z)
                errors = -keys["tau1"] * errors * (losses < self.most)  # g = −l, the sum over two columns, bounded
                to_h = errors @ self.nu[0]
                if keys["distance"] == "features":
                    to_h += keys["tau2"] * (h - x @ start[0] - start[1]) / len(s)
                gradients = [x.T @ to_h, to_h.sum(0)]
                if keys["distance"] == "parameters":
                    gradients = [
                        of + keys["tau2"] * (now - at) for of, now, at in zip(gradients, self.bottom, start, strict=True)
                    ]
                self.bottom = [adam(of, to) for adam, of, to in zip(self.slow, self.bottom, gradients, strict=True)]

    def losses(self, h: NDArray[Any], s: NDArray[Any], z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """l of both columns, and its derivative by the decoder's outputs, [B, 2]."""
        outputs = h @ self.nu[0].T + self.nu[1]
        p = 1 / (1 + np.exp(-outputs[:, 0]))
        losses = -np.mean(s * np.log(p) + (1 - s) * np.log(1 - p)), np.mean((outputs[:, 1] - z) ** 2)
        return np.array(losses), np.stack([p - s, 2 * (outputs[:, 1] - z)], axis=1) / len(s)


@pytest.mark.parametrize(("distance", "tau2"), [("parameters", 1.3), ("parameters", 40.0), ("features", 1.3)])
def test_steps_with_fixed_weights_equal_a_reference_in_numpy(distance: str, tau2: float) -> None:
    """θ̂ after N2 rounds, twice, with what is remembered in between; ½ in the proximal term; the decoder descends l."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4))
    s, z = (x[:, 0] > 0).astype(np.float64), x[:, 1].copy()
    model = Affine(4, 3)
    columns = [flag(s), number(z)]
    keys: dict[str, Any] = {
        "distance": distance,
        "rounds": 7,
        "decoder_steps": 3,
        "model_steps": 2,
        "decoder_rate": 0.05,
        "model_rate": 0.02,
    }
    defence = made(of_columns(model, x, columns), name="fbs-fixed", decoder=[], warm_up=0, tau1=0.7, tau2=tau2, **keys)
    bottom = tuple(of.detach().numpy().copy() for of in (model.weight, model.offset))
    state = defence.state()
    nu = tuple(state[f"minimax.decoder.network.0.{name}"].numpy().copy() for name in ("weight", "bias"))
    most = Targets(columns).most.double().numpy()
    reference = Reference(bottom, nu, most, tau1=0.7, tau2=tau2, **keys)
    bounded = 0
    for at in (np.arange(40), np.arange(20, 60)):
        losses, _ = reference.losses(x[at] @ reference.bottom[0] + reference.bottom[1], s[at], z[at])
        bounded += int((losses >= most).sum())
        defence.prepare(Leaving("step", at))
        reference(x[at], s[at], z[at])
        for ours, theirs in zip((model.weight, model.offset), reference.bottom, strict=True):
            assert np.abs(ours.detach().numpy() - theirs).max() < 1e-6
    assert bounded  # the bound was met on the way
    assert np.abs(model.weight.detach().numpy() - bottom[0]).max() > 0.01


def test_with_learnt_weights_the_objective_is_that_of_uncertainty_weighting() -> None:
    """And a step of θ̂ and log τ descends it, by a derivative that is written out here."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, 4))
    s = (x[:, 0] > 0).astype(np.float64)
    model = Affine(4, 3)
    rate, keys = 0.02, {"warm_up": 0, "rounds": 1, "decoder_rate": 1e-9}
    far = replace(flag(s), constant_loss=9.0)  # so that l is below its bound
    defence = made(of_columns(model, x, [far]), name="fbs", decoder=[], model_rate=rate, **keys)
    weighting = defence._weighting
    losses = torch.tensor([0.4, 0.5], dtype=torch.float64)
    proximal = torch.tensor(0.3, dtype=torch.float64)
    with torch.no_grad():
        weighting.log_tau.copy_(torch.tensor([0.2, -0.4]))
    tau1, tau2 = weighting.tau
    g = np.exp(-0.4) + np.exp(-0.5)
    expected = g / (2 * tau1**2) + 0.3 / (2 * tau2**2) + np.log(tau1) + np.log(tau2)
    assert weighting.objective(losses, proximal).item() == pytest.approx(expected)
    assert weighting.pull == pytest.approx(1 / (2 * tau2**2))

    with torch.no_grad():
        weighting.log_tau.copy_(torch.tensor([-1.1, -0.4]))  # τ1 = 1/3, whose derivative 1 − g/τ1² is below 0
    state = defence.state()
    nu = tuple(state[f"minimax.decoder.network.0.{name}"].numpy().copy() for name in ("weight", "bias"))
    start, h = model.weight.detach().numpy().copy(), model(ModelInput.from_tensors(torch.from_numpy(x))).detach().numpy()
    outputs = h @ nu[0].T + nu[1]
    p = 1 / (1 + np.exp(-outputs[:, 0]))
    loss = -np.mean(s * np.log(p) + (1 - s) * np.log(1 - p))
    defence.prepare(Leaving("step", np.arange(50)))
    assert np.exp(-2.2) < np.exp(-loss)  # g/τ1² is above 1
    assert weighting.log_tau.tolist() == pytest.approx([-1.1 + rate, -0.4 - rate], abs=1e-5)  # the proximal term begins at 0
    slope = x.T @ ((p - s)[:, None] / 50 @ nu[0])  # of l
    moved = model.weight.detach().numpy() - start
    assert np.abs(slope).min() > 1e-4
    assert np.abs(moved - rate * np.sign(slope)).max() < 1e-4  # Adam's first step has the length of its rate


def rows_with_a_flag(rows: int = 1200) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns of which the first is the flag, and the flag."""
    rng = np.random.default_rng(3)
    s = rng.integers(0, 2, rows).astype(np.float32)
    return np.column_stack([s - 0.5, rng.normal(size=(rows, 4))]).astype(np.float32), s


def bottom(wide: int = 0) -> MlpBottom:
    network = MlpBottom(InputSchema(numeric=5), (16, 8), wide=wide)
    initialise(network, SECRET.derive("bottom"))
    return network


def moved(defence: Any, rows: int = 1200, batches: int = 40) -> None:
    """Let the defence move its bottom, without a task that moves it back."""
    rng = np.random.default_rng(4)
    for at in range(batches):
        defence.prepare(Leaving(f"step/{at}", rng.permutation(rows)[:128]))


def attacked(model: nn.Module, x: NDArray[Any], s: NDArray[Any], hidden: Sequence[int] = (128,)) -> float:
    """Accuracy of a fresh decoder on the rows that it has not learnt from."""
    with torch.no_grad():
        embeddings = model(ModelInput.from_tensors(torch.from_numpy(x))).float()
    embeddings = (embeddings - embeddings.mean(0)) / (embeddings.std(0) + 1e-6)
    targets, known = Targets([flag(s)]), 400
    fresh = decoder(embeddings.shape[1], hidden, 1, SECRET.derive("attack"))
    optimizer = torch.optim.Adam(fresh.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(200):
        optimizer.zero_grad()
        targets.losses(fresh(embeddings[:known]), torch.arange(known)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        guessed = fresh(embeddings[known:])[:, 0].numpy() > 0
    return float((guessed == (s[known:] > 0.5)).mean())


def simulated(defence: Any, model: nn.Module, x: NDArray[Any], s: NDArray[Any]) -> float:
    """Accuracy of the defence's own decoder."""
    with torch.no_grad():
        outputs = defence._minimax._decoder.network(model(ModelInput.from_tensors(torch.from_numpy(x))))
    return float(((outputs[:, 0].numpy() > 0) == (s > 0.5)).mean())


@pytest.mark.slow
def test_a_weak_simulated_decoder_looks_private_and_is_not() -> None:
    x, s = rows_with_a_flag()
    assert attacked(bottom(), x, s) > 0.85
    for hidden, least, most in (([4], 0.65, 1.0), ([256], 0.4, 0.6)):
        model = bottom()
        defence = made(of_columns(model, x, [flag(s)]), name="fbs-fixed", decoder=hidden)
        moved(defence, batches=25)
        assert simulated(defence, model, x, s) < 0.57
        assert least < attacked(model, x, s, (256,)) < most


def test_a_decoder_that_is_wrong_most_of_the_time_is_no_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a decoder that stays as it is, and so can be turned round; with the bound nothing is won by that."""
    x, s = rows_with_a_flag()
    x[:, 1:] *= 0.05
    found = {}
    for bounded in (False, True):
        model = Affine(5, 1)
        del model.offset
        model.offset = 0.0  # only the way of the flag can be turned round
        sender = of_columns(model, x, [flag(s)])
        learnt = made(sender, name="basic", decoder=[], warm_up=0, rounds=100, decoder_rate=0.05, model_rate=1e-9)
        learnt.prepare(Leaving("first", np.arange(1200)))
        assert simulated(learnt, model, x, s) > 0.9
        if not bounded:
            monkeypatch.setattr(Targets, "most", property(lambda self: torch.full_like(self._most, 1e9)))
        stays = made(sender, name="basic", decoder=[], warm_up=0, rounds=300, decoder_rate=1e-9, model_rate=0.01)
        stays.restore(learnt.state())
        stays.prepare(Leaving("second", np.arange(1200)))
        monkeypatch.undo()
        found[bounded] = simulated(stays, model, x, s), attacked(model, x, s)
    assert found[False][0] < 0.1
    assert found[False][1] > 0.9
    assert found[True][0] < 0.65
    assert found[True][1] < 0.75


def test_the_wide_coordinates_move_too() -> None:
    """They are linear in the columns, and a least-squares fit of them is an attack."""
    x, s = rows_with_a_flag()
    model = bottom(wide=1)

    def explained() -> float:
        with torch.no_grad():
            wide = model(ModelInput.from_tensors(torch.from_numpy(x)))[:, -1].numpy()
        return float(np.corrcoef(wide, s)[0, 1] ** 2)

    before = explained()
    moved(made(of_columns(model, x, [flag(s)]), name="fbs", decoder=[32]))
    assert before > 0.05
    assert explained() < 0.01


def test_learnt_weights_stay_between_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    x, s = rows_with_a_flag()
    taus = {}
    for bounded in (True, False):
        if not bounded:
            monkeypatch.setattr(LearntWeights, "settle", lambda self: None)
        keys = {"decoder": [8], "warm_up": 0, "model_rate": 0.01, "rounds": 20}
        defence = made(of_columns(bottom(), x, [flag(s)]), name="fbs", **keys)
        moved(defence, batches=8)
        taus[bounded] = defence.figures(), defence._weighting.log_tau.exp().tolist()
        assert defence.figures() == {}  # those of the steps since the last call
    means, last = taus[True]
    assert all(0.3 <= tau <= 3 for tau in (*means.values(), *defence._weighting.tau))
    assert last[1] == pytest.approx(0.3)
    assert means["tau2"] > 0.3
    assert taus[False][1][1] < 0.25


def test_the_work_for_a_batch_does_not_depend_on_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows alike, none known, or beyond the bound: the same number of steps and of rows computed."""
    x, s = rows_with_a_flag(300)
    s[:100], x[:100] = 1, 0
    known = np.arange(300) < 200
    model = bottom()
    defence = made(of_columns(model, x, [flag(s, known)]), name="fbs", decoder=[8])
    steps, rows = [], []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: (steps.append(1), step(self))[1])
    model.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    counted = []
    for at in (np.arange(50, 150), np.arange(100), np.arange(100, 200), np.arange(200, 300), np.arange(150, 250)):
        steps.clear(), rows.clear()
        defence.prepare(Leaving("step", at))
        counted.append((len(steps), list(rows)))
    first, *others = counted
    assert first == (220, [100] * 110)  # with 100 rounds before
    assert others == [(20, [100] * 10)] * 4


def test_rows_that_are_made_up_count_nowhere() -> None:
    x, s = rows_with_a_flag(200)
    known = np.arange(200) % 3 > 0
    weights = []
    for truth in (s, np.where(known, s, 1 - s)):
        model = bottom()
        moved(made(of_columns(model, x, [flag(truth, known)]), name="fbs", decoder=[8]), rows=200, batches=3)
        weights.append(model.state_dict())
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.parametrize(("keys", "weight"), [({"name": "fbs-fixed", "tau2": 3.0}, 3.0), ({"name": "basic"}, 0.0)])
def test_between_two_runs_of_minimax_the_bottom_is_pulled_to_the_last_result(keys: Any, weight: float) -> None:
    x, s = rows_with_a_flag(200)
    model = bottom()
    defence = made(of_columns(model, x, [flag(s)]), **keys, decoder=[8], warm_up=10, every=3)
    leaving = Leaving("step", np.arange(100))
    start = flat(model)
    defence.prepare(leaving)
    protected = flat(model)
    assert not torch.equal(protected, start)
    for _ in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1  # as the task does
        task = flat(model)
        defence.prepare(leaving)
        assert torch.allclose(flat(model), (task + weight * protected) / (1 + weight), atol=1e-6)
    defence.prepare(leaving)
    assert not torch.allclose(flat(model), protected, atol=1e-6)
    assert flat(model).isfinite().all()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().clone().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "fbs-fixed", "tau1": 0},
        {"name": "fbs-fixed", "tau2": -1},
        {"name": "naive", "strength": 0},
        {"name": "nopeek", "strength": -1},
        {"name": "fbs", "weights": "fixed"},
        {"name": "fbs", "distance": "inputs"},
        {"name": "basic", "distance": "features"},
        {"name": "fbs", "rounds": 0},
        {"name": "fbs", "decoder": [0]},
        {"name": "fbs", "columns": "most"},
    ],
)
def test_keys_that_mean_nothing_are_refused(keys: Any) -> None:
    with pytest.raises(ValueError, match=keys["name"]):
        read_params({"columns": "all", **keys})
    with pytest.raises(ValueError, match="columns"):
        read_params({"name": "fbs"})


@pytest.mark.parametrize("name", ["naive", "basic", "fbs", "fbs-fixed", "nopeek"])
def test_in_predictions_nothing_is_moved_or_kept(name: str) -> None:
    strength = {"strength": 1} if name in ("naive", "nopeek") else {}
    defence = made(
        Sender("embeddings", np.ones(3, dtype=bool), bottom(), lambda _: ModelInput.from_tensors(torch.zeros(1, 5))),
        name=name,
        **strength,
    )
    assert defence.state() == defence.figures() == {}
    assert defence.penalty(torch.zeros(3, 8), Leaving("step", np.arange(3))) is None
