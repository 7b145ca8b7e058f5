"""Learning from rows outside of an asymmetric intersection: the passive party must not learn how many records are shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.sessions import session
from tests.thorough import every
from tests.training.outside_rows import QUICK, intersected, same_from_each, settings
from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Align, Evaluate, Job
from vfl_node.privacy.attachment import Forward, TrainingStep
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split import filled_rows
from vfl_node.training.split.estimated_rows import EstimatedRows
from vfl_node.training.split.local_branch import LocalBranch
from vfl_node.training.split.outside import repeat_to_announced
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned import diffusion as filler
from vfl_node.training.unaligned.diffusion import Generator
from vfl_node.training.unaligned.fedcvt import Estimator
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels

OWN, SET, SHARED = 400, 280, 160
"""Records of the active party, size of the obfuscated set, and how many are shared."""

METHODS = [of if of in ("diffusion", "fedcvt") else pytest.param(of, marks=pytest.mark.slow) for of in QUICK]


def obfuscated(shared: int = SHARED, **of: Any) -> Any:
    """Among the first ``shared`` records of the clinic, in the order of the alignment, stand others of the lab."""
    return intersected(OWN, shared, SET - shared, groups=np.arange(OWN) % 50, **of)


@pytest.mark.parametrize("method", METHODS)
def test_the_passive_party_meets_the_same_messages_and_the_report_counts_the_rows(run: Any, method: str) -> None:
    with_rows, without = run(**settings(run, QUICK[method])), run(**settings(run, {"method": "none"}))
    active, passive = with_rows(obfuscated())
    without(obfuscated())
    sizes = [[(type(message), message.ByteSize()) for message in of.transcript] for of in (with_rows, without)]
    assert sizes[0] == sizes[1]
    found, outside = active.section.unaligned, OWN - SHARED
    assert (found.method, found.rows, found.steps_federated) == (method, outside, active.steps)
    assert found.generated == (0 if method == "fedcvt" else outside)
    assert found.steps_local == 2 * 13  # ⌈400/32⌉ in each of two epochs after the filling, by all records and not those outside
    told = [of.disclosures["lab"] for of in (active, passive)]
    (pace,) = {entry.text for of in told for entry in of if entry.what == "pace"}
    assert "does not depend on how many are shared" in pace


@pytest.mark.parametrize("method", METHODS)
def test_what_the_passive_party_waits_for_is_as_much_work_however_many_records_are_shared(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int | str] = []
    take, beside, draw = PositionedInput.take, Estimator.losses_beside, Generator.draw

    def counted(self: PositionedInput, positions: Any) -> Any:
        done.append(len(positions))
        return take(self, positions)

    def counted_beside(self: Estimator, own: Tensor, *rest: Any) -> Any:
        done.append(len(own))
        return beside(self, own, *rest)

    def counted_draw(self: Generator, conditions: Tensor, *rest: Any) -> Any:
        done.append(len(conditions))
        return draw(self, conditions, *rest)

    def counted_distances(made: Tensor, real: Tensor) -> None:
        done.append(len(real))

    monkeypatch.setattr(filler, "BLOCK", 32)  # some blocks of the table are wholly shared
    monkeypatch.setattr(Generator, "draw", counted_draw)
    monkeypatch.setattr(filled_rows, "nearest_real", counted_distances)
    monkeypatch.setattr(PositionedInput, "take", counted)
    monkeypatch.setattr(Estimator, "losses_beside", counted_beside)

    def work(federation: Any) -> list[int | str]:
        done.clear()
        run(**settings(run, QUICK[method]), tamper=lambda message: done.append(message.DESCRIPTOR.name))(federation)
        return done[: len(done) - done[::-1].index("Embedding")]  # after the last one nobody waits

    few, many = (work(obfuscated(shared)) for shared in (60, SHARED))
    assert few == many
    plain = [work(intersected(OWN, shared, groups=np.arange(OWN) % 50)) for shared in (60, SHARED)]
    assert sum(isinstance(of, int) for of in plain[0]) != sum(isinstance(of, int) for of in plain[1])


def test_batches_without_any_shared_row_are_trained_on(run: Any) -> None:
    """Few are shared, and many batches have none of them."""
    active, _ = run(**settings(run, QUICK["fedcvt"], batch_size=4, epochs=2))(obfuscated(30))
    assert active.section.unaligned.steps_local == 100
    assert np.isfinite(list(active.section.unaligned.figures.values())).all()


@pytest.mark.parametrize(("padding", "count"), [(0, 400), (1, 512)])
def test_rows_are_repeated_alike_up_to_the_announced_number(padding: int, count: int) -> None:
    channel, _ = memory_channels("clinic", "lab")
    align = Align(protocol="apsi", obfuscation="private", padding=padding)
    active = session("clinic", {"lab": channel}, Randomness(bytes(32)), align=align)
    outside, asymmetric = np.arange(SHARED, OWN), obfuscated()
    rows = repeat_to_announced(active, TrainingData(asymmetric.clinic_view, asymmetric.clinic), outside, active.randomness)
    assert (len(rows), (np.diff(rows) >= 0).all()) == (count, True)
    found, times = np.unique(rows, return_counts=True)
    assert found.tolist() == outside.tolist()
    assert np.ptp(times) <= 1
    plain = intersected(OWN, SHARED)
    assert repeat_to_announced(active, TrainingData(plain.clinic_view, plain.clinic), outside, active.randomness) is outside


def poison(monkeypatch: pytest.MonkeyPatch, spoiled: Callable[[Any], Any]) -> None:
    """What methods get of rows that are ``spoiled``, a bool for each shared position, is not a number."""
    done, beside = LocalBranch.step_done, EstimatedRows.loss_beside

    def poisoned(half: Any, positions: Any, tensor: Tensor) -> Tensor:
        bad = torch.from_numpy(spoiled(half._active.alignment)[positions])
        return torch.where(bad if tensor.dim() == 1 else bad[:, None], torch.nan, tensor)

    def poisoned_step(self: Any, step: TrainingStep) -> None:
        done(self, replace(step, embeddings=[poisoned(self, step.positions, tensor) for tensor in step.embeddings]))

    def poisoned_beside(self: Any, of: Forward) -> Any:
        own, targets = (poisoned(self, of.positions, tensor) for tensor in (of.own, of.targets))
        received = [poisoned(self, of.positions, tensor) for tensor in of.embeddings]
        return beside(self, Forward(of.positions, own, received, targets))

    monkeypatch.setattr(LocalBranch, "step_done", poisoned_step)
    monkeypatch.setattr(EstimatedRows, "loss_beside", poisoned_beside)


@pytest.mark.parametrize("method", every(3, list(QUICK)))
def test_nothing_is_learnt_from_stand_ins(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = settings(run, QUICK[method])
    expected, _ = run(**how)(obfuscated())
    with monkeypatch.context() as patched:
        poison(patched, lambda view: ~view.owned)
        found, _ = run(**how)(obfuscated())
    assert all(torch.equal(found.weights[name], expected.weights[name]) for name in expected.weights)
    assert found.section == expected.section
    with monkeypatch.context() as patched:  # and from one of the shared rows all this would be noticed
        poison(patched, lambda view: view.owned & (np.arange(len(view)) % 2 == 0))
        with pytest.raises(DataError) as refused:
            run(**how)(obfuscated())
    assert refused.value.code == "E_DIVERGED"


@pytest.mark.parametrize("method", [pytest.param("jpl", marks=pytest.mark.slow), "fedcvt"])
def test_resumed_in_each_phase_the_result_has_the_same_bits(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    same_from_each(run, settings(run, QUICK[method]), obfuscated(), [f"r000-e{epoch:06d}" for epoch in range(1, 5)])


def beside_the_line(run: Any) -> tuple[Tensor, Any]:
    """How far each gradient of the first batch is from a line through 0, float32[B]; and which rows are shared, bool[B].

    With one linear layer on top the joint loss has all gradients on a line. The passive party can see what is not.
    """
    trained, federation = run(**settings(run, QUICK["fedcvt"], top=(), epochs=2)), obfuscated()
    trained(federation)
    message = next(of for of in trained.transcript if isinstance(of, training_pb2.Gradient))
    gradient = codec.decode(message.tensor, dtype=torch.float32, shape=(32, 8))
    schedule = trained.schedule(federation)
    first = schedule.batches(0, 0, schedule.split(0, 0.5)[0], 32)[0]
    left, values, right = torch.linalg.svd(gradient, full_matrices=False)
    rest = gradient - values[0] * left[:, :1] @ right[:1]
    return rest.norm(dim=1) / gradient.norm(), torch.from_numpy(federation.clinic_view.owned[first])


def test_a_gradient_does_not_tell_a_stand_in_by_what_fedcvt_lessens_for_shared_rows_alone(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart, shared = beside_the_line(run)
    assert 0 < shared.sum() < len(shared)
    assert apart.max() < 1e-5
    monkeypatch.setattr(Alignment, "hides_intersection", False)  # without the protection every row is told right
    apart, shared = beside_the_line(run)
    assert apart[~shared].min() > 1.5 * apart[shared].max()  # most rows are shared, and the line is theirs


def test_the_passive_party_is_told_the_same_whatever_these_rows_do_not_allow(run: Any) -> None:
    told = set()
    enclosed = intersected(SHARED, SHARED, SET - SHARED)
    one_class = obfuscated(labels=lambda x, z: np.arange(len(x)) >= SHARED)
    for federation, code in ((enclosed, "E_EMPTY"), (one_class, "E_ONE_CLASS")):
        with pytest.raises(DataError) as refused:
            run(**settings(run, QUICK["jpl"]))(federation)
        assert refused.value.code == code
        told.add((refused.value.peer_code, refused.value.for_peer))
    assert len(told) == 1


@pytest.mark.slow
def test_rows_outside_raise_the_auc_above_aligned_rows_alone(run: Any) -> None:
    keys: dict[str, Any] = {"bottom": (32, 16), "active_bottom": (64, 32), "top": (), "epochs": 20, "batch_size": 128}
    federation = intersected(4300, 2000, 1000, columns=(20, 3))

    def auc(chosen: dict[str, Any]) -> float:
        of = settings(run, chosen, **keys, learning_rate=0.003)
        result = run(train=of["train"], evaluate=Evaluate(test_fraction=0.9, metrics=("auc",)))(federation)[0]
        return float(result.results.metrics["auc"])

    assert auc({"method": "jpl"}) >= auc({"method": "none"}) + 0.05


@pytest.mark.parametrize("method", ["ssl", "mpd", "fedhssl"])
def test_a_method_that_trains_both_bottoms_is_refused_before_anything_runs(method: str) -> None:
    job = f"align: {{protocol: apsi, obfuscation: private}}\ntrain: {{unaligned: {{method: {method}}}}}"
    with pytest.raises(UsageError, match=f"{method} trains both parties.*apsi keeps from the passive party.*jpl"):
        parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\n{job}", Job, source="job")


def test_the_view_of_the_made_up_federation_has_stand_ins() -> None:
    federation = obfuscated()
    assert (federation.clinic_view.missing, len(federation.clinic_view)) == (SET - SHARED, SET)
    ids = [bytes(federation.clinic.ids[row]) if row != NOT_MINE else None for row in federation.clinic_view.rows]
    theirs = [bytes(federation.lab.ids[row]) for row in federation.lab_view.rows]
    assert all(own is None or own == other for own, other in zip(ids, theirs, strict=True))
