from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.privacy.attacks.attack import Attack
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow, run_attacks
from vfl_node.privacy.audit import WEIGHT, Audit
from vfl_node.privacy.outgoing import Sent
from vfl_node.privacy.sample import Bounds, Sample
from vfl_node.privacy.sample import follow as sampled

Values = list[dict[str, float | None]]


def audit(secret: NDArray[np.bool_], *, limit: float | None = None, bounds: Bounds | None = None) -> Audit:
    return Audit("lab", secret, np.arange(len(secret)), Randomness(b"a" * 32), limit=limit, bounds=bounds)


def epochs(transcript: Sequence[Batch]) -> list[list[Batch]]:
    return [[batch for batch in transcript if batch.epoch == number] for number in sorted({of.epoch for of in transcript})]


def sent(batch: Batch) -> Sent:
    """A step as a training shows it, with gradients of the mean loss."""
    assert batch.gradients is not None
    return Sent(batch.positions, batch.rows, batch.gradients / len(batch.positions))


def watch(audited: Audit, transcript: Sequence[Batch]) -> Values:
    """What the audit says after each epoch."""
    values = []
    for batches in epochs(transcript):
        for batch in batches:
            audited.see(sent(batch))
        values.append(audited.epoch_done())
    return values


def chance() -> Any:
    """.5 within 2½ standard errors of 300 rows a kind."""
    return pytest.approx(0.5, abs=0.06)


def gradients(transcript: Sequence[Batch]) -> list[Batch]:
    """What the active party sends."""
    return [
        Batch(of.epoch, of.positions, of.gradients / len(of.positions), of.gradients)
        for of in transcript
        if of.gradients is not None
    ]


def test_honest_rows_leave_every_attack_at_chance(split: Any) -> None:
    world = split()
    found = watch(audit(world.synthetic), world.transcript(4))
    assert found[0]["longitudinal"] is None  # it compares epochs
    assert found[-1] == {name: chance() for name in ATTACKS}


@pytest.mark.parametrize(
    ("attack", "least"), [("longitudinal", 0.9), ("near_duplicate", 0.62), ("same_step_twin", 0.57), ("spectral", 0.57)]
)
def test_the_passive_party_sees_that_its_rows_would_be_found(split: Any, attack: str, least: float) -> None:
    world = split()
    unprotected: dict[str, Callable[[], list[Batch]]] = {
        "longitudinal": lambda: world.transcript(3, lambda epoch: world.copies(str(epoch))),
        "near_duplicate": lambda: world.transcript(4, lambda epoch: world.copies("once"), batch=300),
        "same_step_twin": lambda: world.transcript(4, lambda epoch: world.copies("once")),
        "spectral": lambda: world.gaussian(world.transcript(1)),
    }
    assert (watch(audit(world.synthetic), unprotected[attack]())[-1][attack] or 0) > least


def test_the_passive_party_sees_that_its_rows_do_not_fit_their_labels(split: Any) -> None:
    world = split(fits=True, learning_rate=1e-2)
    copied = watch(audit(world.synthetic), world.transcript(8, lambda epoch: world.copies("once")))
    assert (copied[-1]["row_loss"] or 0) > 0.62
    assert watch(audit(world.synthetic), world.transcript(8))[-1]["row_loss"] == chance()


def test_the_active_party_sees_that_labels_drawn_anew_would_be_found(split: Any) -> None:
    world = split()
    redrawn, fixed = (
        watch(audit(world.synthetic), gradients(world.transcript(4, labels=whose)))[-1]["longitudinal"]
        for whose in (lambda epoch: world.copies(str(epoch)), lambda epoch: world.copies("once"))
    )
    assert (redrawn or 0) > 0.8
    assert fixed == chance()


def test_where_every_row_is_followed_it_finds_what_the_peer_finds(split: Any) -> None:
    """Batches of 160 rows, the last of 120: gradients of a mean loss are longer there, and must not count as more."""
    world = split()
    transcript = world.transcript(3, lambda epoch: world.copies(str(epoch)), batch=160)
    audited = audit(world.synthetic, bounds=Bounds(looks=600, beside=600))
    for number, values in enumerate(watch(audited, transcript)):
        so_far = [batch for batch in transcript if batch.epoch <= number]
        theirs = run_attacks(so_far, world.synthetic)
        theirs["spectral"] = follow(ATTACKS["spectral"], epochs(transcript)[number], world.synthetic).score()
        for name in ATTACKS:
            near = name in ("near_duplicate", "distance_ratio")  # sought in leaves of 38 of 600 rows
            assert values[name] == pytest.approx(theirs[name], abs=0.04 if near else 1e-4), name  # rounding may swap two ranks


def test_twins_of_all_repeats_add_up(split: Any) -> None:
    """Six repeats of an epoch each; in each of the first five another sixth of the rows is held out."""
    world = split()
    transcript = world.transcript(6, lambda epoch: world.copies("once"))
    earlier: dict[str, torch.Tensor] = {}
    alone: list[float] = []
    for number, batches in enumerate(epochs(transcript)):
        trained = np.arange(600)[np.arange(600) % 6 != number] if number < 5 else np.arange(600)
        seen = [(of.positions, np.flatnonzero(np.isin(of.positions, trained)), of) for of in batches]
        values: Values = []
        for follows in (False, True):
            audited = Audit("lab", world.synthetic, trained, Randomness(bytes([number]) * 32), limit=None)
            if follows:
                audited.follow_on(load(save(earlier)) if earlier else {})
            for positions, rows, of in seen:
                assert of.gradients is not None
                which = torch.from_numpy(rows)
                audited.see(Sent(positions[rows], of.rows[which], of.gradients[which] / len(rows)))
            values.append(audited.epoch_done())
        assert number or values[0] == values[1]
        alone.append(values[0]["same_step_twin"] or 0)
        earlier = audited.carry_over()
    assert set(earlier) == {f"{attack}.{key}" for attack in ("near_duplicate", "same_step_twin") for key in ("sums", "counts")}
    assert earlier["same_step_twin.counts"].tolist() == [5 if position % 6 < 5 else 6 for position in range(600)]
    assert (values[1]["same_step_twin"] or 0) > max(alone) + 0.05
    assert (values[1]["near_duplicate"] or 0) > (values[0]["near_duplicate"] or 0)
    idle = audit(np.zeros(600, dtype=bool))
    idle.follow_on(earlier)
    assert idle.carry_over() == earlier


def test_it_changes_neither_what_is_sent_nor_the_global_generator(split: Any) -> None:
    world = split()
    transcript, again = world.transcript(1), world.transcript(1)
    state = torch.get_rng_state()
    watch(audit(world.synthetic), transcript)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(batch.rows, other.rows) for batch, other in zip(transcript, again, strict=True))


@pytest.mark.parametrize("kind", [False, True])
def test_rows_of_one_kind_leave_nothing_to_tell_apart(split: Any, kind: bool) -> None:
    world = split()
    audited = audit(np.full(world.rows, kind), limit=0.5)
    assert watch(audited, world.transcript(1)) == [{}]
    assert audited.averages == audited.tensors() == {}
    audited.restore({})
    assert watch(audited, world.transcript(1)) == [{}]


def test_averages_move_by_a_share_of_each_epoch(split: Any) -> None:
    world = split()
    audited = audit(world.synthetic)
    assert audited.averages == {}
    shown = watch(audited, world.transcript(4))
    for name, average in audited.averages.items():
        first, *later = [value for of in shown if (value := of[name]) is not None]
        expected = first
        for value in later:
            expected += WEIGHT * (value - expected)
        assert average == pytest.approx(expected)
    assert list(audited.averages) == list(ATTACKS)


def test_a_limit_lets_honest_rows_pass_and_stops_redrawn_ones(split: Any) -> None:
    world = split()
    watch(audit(world.synthetic, limit=0.62), world.transcript(4))
    audited = audit(world.synthetic, limit=0.62)
    with pytest.raises(
        PolicyError, match=r"^lab's own attacks .* AUC of 0\.\d\d .*attacks\.rows allows 0\.62 \[E_LEAK\]"
    ) as caught:
        watch(audited, world.transcript(4, lambda epoch: world.copies(str(epoch))))
    assert caught.value.code == "E_LEAK"
    assert (caught.value.peer_code, caught.value.for_peer) == ("E_STOPPED", "stopped by lab's policy")


def test_an_auc_far_below_a_half_tells_as_well(split: Any) -> None:
    world = split()
    noise = world.gaussian(world.transcript(1))
    assert (watch(audit(world.synthetic), noise)[0]["near_duplicate"] or 1) < 0.1  # noise has no near neighbour
    with pytest.raises(PolicyError):
        watch(audit(world.synthetic, limit=0.9), noise)


def test_one_bad_epoch_weighs_less_than_two(split: Any) -> None:
    world = split()
    transcript = world.transcript(4)
    spoilt = [of if of.epoch < 2 else bad for of, bad in zip(transcript, world.gaussian(transcript), strict=True)]
    audited = audit(world.synthetic, limit=0.72)
    assert len(watch(audited, [of for of in spoilt if of.epoch < 3])) == 3
    with pytest.raises(PolicyError):
        watch(audited, [of for of in spoilt if of.epoch == 3])


def test_it_goes_on_from_a_checkpoint_with_the_same_bits(split: Any) -> None:
    world = split()
    transcript = world.transcript(4, lambda epoch: world.copies(str(epoch)), batch=70)
    through = audit(world.synthetic)
    expected = watch(through, transcript)[2:]

    before = audit(world.synthetic)
    watch(before, [batch for batch in transcript if batch.epoch < 2])
    saved = save(before.tensors())
    first = next(batch for batch in transcript if batch.epoch == 2)
    before.see(sent(first))  # a batch after the checkpoint, lost with the process

    after = audit(world.synthetic)
    after.restore(load(saved))
    assert watch(after, [batch for batch in transcript if batch.epoch >= 2]) == expected
    before.restore(load(saved))  # also where the process lived on
    assert watch(before, [batch for batch in transcript if batch.epoch >= 2]) == expected
    assert after.averages == before.averages == through.averages
    for tensors in (after.tensors(), before.tensors()):
        assert all(torch.equal(tensor.nan_to_num(9), through.tensors()[name].nan_to_num(9)) for name, tensor in tensors.items())


def test_a_checkpoint_in_memory_does_not_change_while_training_goes_on(split: Any) -> None:
    world = split()
    one, two = epochs(world.transcript(2))
    audited = audit(world.synthetic)
    watch(audited, one)
    saved = audited.tensors()
    copies = {name: tensor.clone() for name, tensor in saved.items()}
    watch(audited, two)
    audited.restore(saved)
    watch(audited, two)
    assert all(torch.equal(tensor.nan_to_num(9), copies[name].nan_to_num(9)) for name, tensor in saved.items())


@pytest.mark.parametrize(("synthetic", "chosen"), [(5000, 1024), (1500, 1024), (300, 300), (7000, 1048), (7990, 2038)])
def test_it_follows_a_bounded_number_of_rows_half_of_them_synthetic_if_there_are_enough(synthetic: int, chosen: int) -> None:
    random = np.random.default_rng(0)
    secret = random.permutation(8000) < synthetic
    trained = np.arange(0, 8000)
    followed, rank = sampled(trained, secret, 2048, Randomness(b"f" * 32))
    assert len(followed) == len(set(followed.tolist())) == Bounds().followed == 2048
    assert (np.diff(followed) > 0).all()
    assert secret[followed].sum() == chosen
    few = followed[rank < 200]
    assert secret[few].sum() == 100
    assert np.array_equal(sampled(trained, secret, 2048, Randomness(b"f" * 32))[0], followed)
    assert not np.array_equal(sampled(trained, secret, 2048, Randomness(b"g" * 32))[0], followed)


def test_its_work_in_an_epoch_is_bounded(split: Any) -> None:
    """Bounds smaller than the product's, batches of 100 rows: 100 positions followed, two closer looks."""
    world = split()
    bounds = Bounds(followed=100, looks=2, together=30, beside=7)
    audited = audit(world.synthetic, bounds=bounds)
    (values,) = watch(audited, world.transcript(1))
    assert len(audited.tensors()["longitudinal.rows"]) == 100
    assert all(values[name] is not None for name in ATTACKS if name != "longitudinal")
    assert audited.judged == {
        "collinear": 14,
        "distance_ratio": 100,
        "near_duplicate": 600,
        "row_loss": 100,
        "same_step_twin": 600,
        "spectral": 60,
    }
    sample = Sample(world.synthetic, np.arange(600), Randomness(b"a" * 32), bounds)
    looked = []
    for batch in world.transcript(1):
        sample.meet(batch)
        together = sample.select_together(batch)
        looked.append((len(sample.select_beside(batch)), 0 if together is None else len(together.rows)))
        assert sample.reduce(batch).shape == (100, 16)
        assert np.isin(sample.alone(batch).positions, sample.followed.positions).all()
    assert looked == [(7, 30), (0, 0), (0, 0)] * 2


class Peeking(Attack):
    """Tells all, and needs what it says."""

    def see(self, batch: Batch) -> None: ...

    def score(self) -> float | None:
        return 1.0

    @property
    def judged(self) -> int | None:
        return 3

    def state(self) -> dict[str, torch.Tensor]:
        return {}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None: ...


def test_it_runs_those_attacks_that_find_membership_in_what_it_can_show(split: Any) -> None:
    class Columns(Peeking):
        needs = frozenset({"columns"})  # type: ignore[arg-type]

    class Labels(Peeking):
        finds = "labels"

    world, kinds = split(), {"peeking": Peeking, "columns": Columns, "labels": Labels}
    audited = Audit("lab", world.synthetic, np.arange(600), Randomness(b"a" * 32), limit=None, attacks=kinds)
    assert watch(audited, world.transcript(1)) == [{"peeking": 1.0}]
    assert audited.judged == {"peeking": 3}


def test_switched_off_no_attack_runs(split: Any) -> None:
    world = split()
    audited = Audit("lab", world.synthetic, np.arange(600), Randomness(b"a" * 32), limit=None, attacks={})
    assert watch(audited, world.transcript(2, lambda epoch: world.copies("once"))) == [{}, {}]
    audited.judge(np.arange(600), torch.zeros(600, 4))
    assert audited.held_out is None
    assert audited.averages == audited.tensors() == audited.carry_over() == audited.judged == {}


def test_beyond_its_sample_it_finds_the_twins_that_an_attack_on_all_rows_finds() -> None:
    """6,400 rows, half of them copies: the plain attack compares every pair of every batch."""
    size, randomness = 6400, Randomness(b"m" * 32)
    secret = np.arange(size) >= size // 2
    sources = np.where(secret, randomness.choices(size // 2, size), np.arange(size))
    features = torch.from_numpy(randomness.normal((size // 2, 6)))
    bottom = MlpBottom(InputSchema(6), (24,))
    audited, transcript = audit(secret), []
    for epoch in range(3):
        initialise(bottom, randomness.derive(f"weights {epoch}"))  # other weights, as after some steps
        order = randomness.permutation(size)
        for positions in np.split(order, range(400, size, 400)):
            with torch.no_grad():
                rows = bottom(ModelInput.from_tensors(features[torch.from_numpy(sources[positions])]))
            transcript.append(Batch(epoch, positions, rows, rows))
    shown = watch(audited, transcript)
    for number, values in enumerate(shown):
        plain = [batch for batch in transcript if batch.epoch <= number]
        assert values["same_step_twin"] == follow(ATTACKS["same_step_twin"], plain, secret).score()
    assert (shown[-1]["same_step_twin"] or 0) > 0.56
    theirs = follow(ATTACKS["near_duplicate"], epochs(transcript)[0], secret).score()
    assert shown[0]["near_duplicate"] == pytest.approx(theirs, abs=0.03)
    assert audited.judged["same_step_twin"] == audited.judged["near_duplicate"] == size
    assert audited.judged["longitudinal"] == Bounds().followed


def test_a_batch_of_one_row_has_no_neighbour_and_no_nan(split: Any) -> None:
    world = split(rows=21)
    audited = audit(world.synthetic)
    found = watch(audited, world.transcript(3, batch=4))  # five batches of four rows and one of one
    assert all(value is not None and math.isfinite(value) for value in found[-1].values())
    assert audited.tensors()["near_duplicate.sums"].isfinite().all()


def test_only_rows_trained_on_are_followed(split: Any) -> None:
    world = split()
    trained = np.arange(0, world.rows, 3)
    audited = Audit("lab", world.synthetic, trained, Randomness(b"a" * 32), limit=None)
    rows = torch.randn(len(trained), 4, generator=torch.Generator().manual_seed(0))
    audited.see(Sent(trained[::-1].copy(), rows, rows))
    assert set(audited.epoch_done()) == set(ATTACKS)
    assert torch.equal(audited.tensors()["longitudinal.rows"], rows.flip(0))
