"""Defences: where they act, what they draw, and what is left of attacks; each with a control without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks.embedding_inversion import invert
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import run_attacks
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, build, names_of_positions
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.privacy.outgoing import Exit, Sent

SENDER = Sender("embeddings", np.ones(1000, dtype=bool))
SECRET = Randomness(b"s" * 32)


def noise(*sigmas: float, randomness: Randomness = SECRET, **sender: Any) -> list[Defence]:
    return build([NoiseParams(name="noise", sigma=sigma) for sigma in sigmas], SENDER, randomness)


def step(number: int, size: int = 100, **changes: Any) -> Leaving:
    return Leaving(f"step/{number}", np.arange(size), **changes)


def of_rows(positions: Sequence[int]) -> Leaving:
    """Rows that may leave again under the same weights."""
    return Leaving("predictions", np.array(positions), rows=lambda: names_of_positions(np.array(positions)))


def added(defence: Defence, leaving: Leaving, width: int = 64) -> Tensor:
    return defence.protect(torch.zeros(len(leaving.positions), width), leaving)


def test_noise_has_the_scale_that_its_owner_sets_and_gradients_count_by_row() -> None:
    (defence,) = noise(0.25)
    drawn = added(defence, step(1, 1000))
    assert drawn.dtype == torch.float32
    assert drawn.std().item() == pytest.approx(0.25, rel=0.01)
    assert drawn.mean().item() == pytest.approx(0, abs=0.005)
    of_a_mean = added(defence, step(1, 1000, mean_of=1000))
    assert torch.allclose(1000 * of_a_mean, drawn)


def test_a_step_repeats_its_noise_and_another_has_its_own() -> None:
    (defence,), (again,), (other,) = noise(1.0), noise(1.0), noise(1.0, randomness=Randomness(b"o" * 32))
    first = added(defence, step(1))
    assert torch.equal(first, added(again, step(1)))
    for different in (added(defence, step(2)), added(other, step(1)), added(noise(1.0, 1.0)[1], step(1))):
        assert np.corrcoef(first.ravel(), different.ravel())[0, 1] == pytest.approx(0, abs=0.05)


def test_noises_of_two_strengths_do_not_cancel() -> None:
    weak, strong = (added(noise(sigma)[0], step(1)) for sigma in (0.5, 1.0))
    assert np.corrcoef(weak.ravel(), strong.ravel())[0, 1] == pytest.approx(0, abs=0.05)


def test_under_one_set_of_weights_a_row_has_the_same_noise_in_any_company() -> None:
    (defence,) = noise(1.0)
    some, others = added(defence, of_rows([5, 7, 9])), added(defence, of_rows([9, 800, 5]))
    assert torch.equal(some[[0, 2]], others[[2, 0]])
    assert np.corrcoef(some[0], some[1])[0, 1] == pytest.approx(0, abs=0.5)
    assert not torch.equal(some[0], added(defence, step(1))[5])


def test_without_noise_the_tensor_itself_is_sent() -> None:
    tensor = torch.ones(3, 2)
    for exit_ in (Exit(), Exit(noise(0.0))):
        assert exit_.protect(tensor, step(1, 3)) is tensor
        assert exit_.step(tensor, step(1, 3)) is tensor
        assert exit_.protect_held_out([tensor], [step(1, 3)])[0] is tensor
        assert exit_.penalty(tensor, step(1, 3)) is None
        assert exit_.state() == {}


class Watching:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.judged: list[tuple[NDArray[np.int64], Tensor]] = []

    def see(self, sent: Sent) -> None:
        self.sent.append(sent)

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        self.judged.append((positions, rows))


class Scaling(Defence):
    """Counts its steps and multiplies by the number of the step, its place and the labels' mean."""

    def __init__(self, factor: float) -> None:
        self.factor, self.steps = factor, 0

    def prepare(self, leaving: Leaving) -> None:
        self.steps += 1

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        return self.factor * tensor + (0 if leaving.labels is None else leaving.labels.mean())

    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor:
        return self.factor * embedding.square().sum()

    def state(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.steps = int(state["steps"])


def test_defences_act_in_their_order_and_observers_see_what_is_sent() -> None:
    watching, (plus,) = Watching(), noise(1.0)
    exit_ = Exit([Scaling(2), plus], [watching])
    tensor, gradient = torch.ones(3, 2), torch.full((3, 2), 7.0)
    sent = exit_.step(tensor, step(1, 3))
    assert torch.equal(sent, plus.protect(2 * tensor, step(1, 3)))
    assert not torch.equal(sent, 2 * plus.protect(tensor, step(1, 3)))
    assert torch.equal(tensor, torch.ones(3, 2))
    assert not watching.sent  # the step is not over
    exit_.step_done(gradient)
    assert watching.sent[0].rows is sent
    assert watching.sent[0].gradients is gradient
    exit_.step(tensor, step(2, 3))
    exit_.step_done()
    assert watching.sent[1].gradients is watching.sent[1].rows  # gradients are what left

    parts = exit_.protect_held_out([tensor, tensor[:1]], [of_rows([4, 2, 6]), of_rows([8])])
    positions, rows = watching.judged[0]
    assert positions.tolist() == [4, 2, 6, 8]
    assert torch.equal(rows, torch.cat(parts))
    assert not torch.equal(rows, torch.ones(4, 2))


def test_a_defence_may_use_labels_prepare_the_model_add_to_the_loss_and_remember() -> None:
    exit_ = Exit([Scaling(2), Scaling(3)])
    exit_.prepare(step(1, 3))
    sent = exit_.protect(torch.ones(3, 2), step(1, 3, labels=torch.tensor([1.0, 0.0, 0.5])))
    assert sent.tolist() == [[7.5 + 0.5] * 2] * 3 or sent.tolist() == [[8.0] * 2] * 3  # 3 · (2 · 1 + ½) + ½
    embedding = torch.ones(3, 2, requires_grad=True)
    penalty = exit_.penalty(embedding, step(1, 3))
    assert penalty is not None
    penalty.backward()
    assert embedding.grad is not None
    assert embedding.grad.tolist() == [[10.0] * 2] * 3  # 2 · (2 + 3) · 1
    after = Exit([Scaling(2), Scaling(3)])
    after.restore(exit_.state())
    assert after.state() == exit_.state() == {"0.steps": torch.tensor(1), "1.steps": torch.tensor(1)}


def defended(transcript: Sequence[Batch], sigma: float) -> list[Batch]:
    """The same training, each step's rows through the exit."""
    exit_ = Exit(noise(sigma))
    return [
        Batch(of.epoch, of.positions, exit_.protect(of.rows, Leaving(f"step/{number}", of.positions)), of.gradients)
        for number, of in enumerate(transcript)
    ]


def test_noise_hides_copies_from_what_compares_rows_and_none_leaves_them(split: Any) -> None:
    world = split()
    transcript = world.transcript(4, lambda epoch: world.copies("once"))
    plain, none, strong = (run_attacks(defended(transcript, sigma), world.synthetic) for sigma in (0.0, 0.0, 1.0))
    assert plain == none == run_attacks(transcript, world.synthetic)
    for name in ("same_step_twin", "near_duplicate"):
        assert (plain[name] or 0) > 0.6
        assert strong[name] == pytest.approx(0.5, abs=0.06)
    assert strong["row_loss"] == plain["row_loss"]  # of the gradients, which came from the peer


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # within torch.func
@pytest.mark.parametrize(("sigma", "least", "most"), [(0.0, 0.98, 1.0), (0.3, 0.0, 0.02)])
def test_noise_keeps_embeddings_from_being_inverted_and_none_does_not(sigma: float, least: float, most: float) -> None:
    """With initial weights that the attacker knows, as in test_embedding_inversion.py."""
    torch.set_num_threads(1)
    network = MlpBottom(InputSchema(numeric=8), embedding_size=1, sizes=(64, 64), wide=0)
    initialise(network, SECRET.derive("weights"))
    x = torch.from_numpy(SECRET.derive("rows").normal((100, 8)))
    with torch.no_grad():
        clean = network(ModelInput.from_tensors(x))
    received = Exit(noise(sigma)).protect(clean, step(1)).double()
    believed = network.double()
    embed: Callable[[Tensor], Tensor] = lambda rows: believed(ModelInput.from_tensors(rows))  # noqa: E731
    guess, _ = invert(embed, received, width=8, randomness=SECRET.derive("attack"), starts=4, iterations=30)
    recovered = ((guess - x).abs().amax(dim=1) < 1e-2).double().mean().item()
    assert least <= recovered <= most
