"""Halves that are trained without labels before the training with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.outside_rows import intersected, same_from_each
from vfl_node.configuration import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.defences.registry import read_params
from vfl_node.protection import FeatureAuditSettings, Protection
from vfl_node.training.network import journal
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.unaligned.methods import METHODS, unaligned_of
from vfl_node.training.unaligned.siamese import apart, disturbed, shuffled
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels

EACH = ("ssl", "mpd", "fedhssl")
ALIGNED, HELD_OUT, EPOCHS, BEFORE, BATCH = 160, 0.5, 2, 3, 32


def settings(run: Any, method: str, **keys: Any) -> dict[str, Any]:
    chosen = {"method": method} if method == "none" else {"method": method, "pretrain_epochs": BEFORE}
    update = {"epochs": EPOCHS, "batch_size": BATCH, "unaligned": unaligned_of(chosen)(**chosen), **keys}
    return {"train": run().train.model_copy(update=update), "evaluate": Evaluate(test_fraction=HELD_OUT, metrics=("auc",))}


def matching(rows: int = 400, shared: int = ALIGNED, seed: int = 0) -> Any:
    """Columns of both parties that have much in common, and one of the active party that nothing else has."""
    federation = intersected(rows, shared, columns=(4, 3), seed=seed)
    noise = np.random.default_rng(seed)
    of_lab = {int(bytes(federation.lab.ids[row])): row for row in range(len(federation.lab))}
    for number, column in enumerate(federation.lab.columns.values()):
        for row in range(shared):
            column.values[of_lab[row]] = federation.clinic.columns[f"x{number}"].values[row] + 0.3 * noise.normal()
    return federation


@pytest.mark.parametrize("norm", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", EACH)
def test_what_is_sent_what_the_report_has_and_what_is_left(run: Any, method: str, norm: bool) -> None:
    before, without = run(**settings(run, method, batch_norm=norm)), run(**settings(run, "none", batch_norm=norm))
    active, passive = before(matching())
    plain, _ = without(matching())
    sent, usual = (Counter(type(message).__name__ for message in of.transcript) for of in (before, without))
    batches = BEFORE * -(-ALIGNED // 2 // BATCH)
    more = {"ssl": {}, "mpd": {"Embedding": batches, "Gradient": batches}, "fedhssl": {"Projection": 2 * batches}}[method]
    assert sent - usual == Counter(more)
    found = active.section.unaligned
    assert (found.method, found.rows, found.generated, found.steps_federated) == (method, 240, 0, active.steps)
    assert found.figures["last_loss"] < found.figures["first_loss"]
    assert passive.section.unaligned is None
    for ours, theirs in zip((active, passive), without(matching()), strict=True):
        assert set(ours.weights) == set(theirs.weights)  # heads are dropped
    assert any(not torch.equal(active.weights[name], plain.weights[name]) for name in plain.weights)


@pytest.mark.parametrize("method", [of if of == "mpd" else pytest.param(of, marks=pytest.mark.slow) for of in EACH])
def test_resumed_in_each_phase_the_result_has_the_same_bits(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    how = settings(run, method, batch_norm=True, dropout=0.2)
    how["evaluate"] = Evaluate(test_fraction=HELD_OUT, repeats=2)
    names = [f"r{repeat:03d}-e{epoch:06d}" for repeat in range(2) for epoch in range(1, EPOCHS + 1)]
    if method != "ssl":  # whose parties do not meet
        names += [f"r{repeat:03d}-e000000-p{epoch:06d}" for repeat in range(2) for epoch in range(1, BEFORE + 1)]
    same_from_each(run, how, matching(), sorted(names))


@pytest.mark.parametrize("method", EACH)
def test_no_row_held_out_is_learnt_from(run: Any, method: str) -> None:
    """Rows held out with other columns change nothing of the weights; any other row does."""
    federation = matching()
    both = run(**settings(run, method))
    first = both(federation)
    _, testing, _ = both.schedule(federation).parts(0, HELD_OUT, 0.0)
    held_out = {name: view.rows[testing] for name, view in (("clinic", federation.clinic_view), ("lab", federation.lab_view))}

    def weights(rows: dict[str, Any]) -> list[bool]:
        changed = matching()
        for name, of in rows.items():
            for column in getattr(changed, name).columns.values():
                column.values[of] += 17.0
        after = run(**settings(run, method))(changed)
        return [
            all(torch.equal(a.weights[key], b.weights[key]) for key in b.weights) for a, b in zip(after, first, strict=True)
        ]

    assert weights(held_out) == [True, True]
    assert weights({"clinic": np.array([399])}) == [False, False]


def decoded(message: Any) -> Any:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape)).numpy()


def projections(of: Any) -> list[Any]:
    return [message for message in of.transcript if isinstance(message, training_pb2.Projection)]


def test_projections_tell_the_columns_in_part_and_other_methods_send_none(run: Any) -> None:
    """A linear decoder of the active party's columns, from what the passive one received; and of shuffled columns."""
    federation = intersected(600, 400, columns=(4, 3))
    both = run(**settings(run, "fedhssl"))
    both(federation)
    schedule = both.schedule(federation)
    training, _, _ = schedule.parts(0, HELD_OUT, 0.0)
    batches = schedule.batches(0, -1, training, BATCH)
    received = projections(both)[1 : 2 * len(batches) : 2]  # the active party answers
    z = np.concatenate([decoded(message) for message in received])
    rows = federation.clinic_view.rows[np.concatenate(batches)]
    x = np.stack([column.values[rows] for column in federation.clinic.columns.values()], axis=1)

    def explained(columns: Any) -> float:
        known, asked = slice(0, 150), slice(150, None)
        basis = np.hstack([z, np.ones((len(z), 1))])
        solved = np.linalg.solve(basis[known].T @ basis[known] + 1.0 * np.eye(basis.shape[1]), basis[known].T @ columns[known])
        rest = columns[asked] - basis[asked] @ solved
        return float(1 - (rest**2).sum() / ((columns[asked] - columns[known].mean(0)) ** 2).sum())

    assert explained(x) > 0.3
    assert explained(np.random.default_rng(0).permutation(x)) < 0.05
    for method in ("ssl", "mpd"):
        other = run(**settings(run, method))
        other(matching())
        assert not projections(other)


def test_matched_pairs_are_told_where_columns_have_much_in_common(run: Any) -> None:
    keys = {"unaligned": unaligned_of({"method": "mpd"})(method="mpd", pretrain_epochs=40)}
    like, unlike = (
        run(**settings(run, "mpd", **keys))(of)[0].section.unaligned.figures["last_loss"]
        for of in (matching(1200, 600), intersected(1200, 600, columns=(4, 3)))
    )
    assert like < 0.75 * unlike


def test_a_job_that_sends_projections_needs_its_owners_word(tmp_path: Any) -> None:
    from vfl_node.errors import PolicyError
    from vfl_node.execution.allowed import check_allowed
    from vfl_node.settings import Settings

    job = parse(
        "name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\ntrain: {unaligned: {method: fedhssl}}",
        Job,
        source="job",
    )
    base = {
        "name": "clinic",
        "role": "active",
        "peers": {"lab": {"address": "127.0.0.1:1"}},
        "data": {"path": "x.csv", "id": "id", "label": "y"},
        "insecure_loopback": True,
        "limits": {"max_memory_mib": 10**6},
    }
    with pytest.raises(PolicyError, match="fedhssl, which this node's settings do not allow"):
        check_allowed(Settings.model_validate(base), job)
    base["limits"] = {"methods": ["none", "fedhssl"], "max_memory_mib": 10**6}
    check_allowed(Settings.model_validate(base), job)
    assert {name for name, method in METHODS.usable() if not method.allowed_by_default} == {"fedhssl"}


@pytest.mark.parametrize(
    "protection",
    [Protection(defences=(read_params({"name": "noise", "sigma": 1.0}),)), Protection(max_feature_gain=0.5)],
    ids=["a defence", "a limit"],
)
def test_projections_are_refused_beside_what_protects_embeddings(run: Any, protection: Protection) -> None:
    both = run(**settings(run, "fedhssl"))
    both.protections = Protection(), protection
    channel = memory_channels("clinic", "lab")[1]
    session = both.session("lab", channel, b"s" * 32, 1)
    with pytest.raises(UsageError, match="sends projections of the same columns"):
        SplitTrainer().prepare(session)


def test_embeddings_before_labels_are_judged_and_a_resumed_audit_is_the_same(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    features = FeatureAuditSettings(columns="all", known_share=0.3)
    aligned = 400  # a decoder needs rows to learn from
    batches, federation = BEFORE * -(-aligned // 2 // BATCH), matching(500, aligned)

    def audited(limit: float | None) -> dict[str, Any]:
        lab = Protection(membership=False, features=features, max_feature_gain=limit)
        return settings(run, "mpd") | {"protections": (Protection(membership=False), lab)}

    stopped = run(**audited(0.01))
    error = stopped.raw(federation)[1]
    assert isinstance(error, PolicyError)
    assert error.code == "E_LEAK"
    assert 0 < sum(isinstance(message, training_pb2.Embedding) for message in stopped.transcript) <= batches
    names = [f"r000-e000000-p{epoch:06d}" for epoch in range(1, BEFORE + 1)]
    names += [f"r000-e{epoch:06d}" for epoch in range(1, EPOCHS + 1)]
    same_from_each(run, audited(None), federation, sorted(names))


def test_copies_are_disturbed_in_a_share_of_their_cells() -> None:
    rows = ModelInput.of(torch.zeros(500, 4), torch.zeros(500, 2, dtype=torch.int64))
    others = ModelInput.of(torch.ones(500, 4), torch.ones(500, 2, dtype=torch.int64))
    copy = disturbed(rows, others, 0.3, Randomness(bytes(32)))
    assert float(copy.numeric.mean()) == pytest.approx(0.3, abs=0.05)
    assert float(copy.categorical.float().mean()) == pytest.approx(0.3, abs=0.05)
    again = disturbed(rows, others, 0.3, Randomness(bytes(32)))
    assert torch.equal(copy.numeric, again.numeric)


def test_the_similarity_is_a_cosine_without_a_gradient_into_the_aim() -> None:
    aim = torch.tensor([[1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    given = torch.tensor([[2.0, 0.0], [1.0, 1.0]], requires_grad=True)
    value = apart(given, aim)
    assert value.item() == pytest.approx(-(1 + 2**-0.5) / 2)
    value.backward()
    assert aim.grad is None
    assert given.grad is not None


def test_a_last_batch_of_one_row_joins_the_one_before() -> None:
    assert [len(rows) for rows in shuffled(9, 4, Randomness(bytes(32)))] == [4, 5]
    assert sorted(np.concatenate(shuffled(9, 4, Randomness(bytes(32)))).tolist()) == list(range(9))
    assert [len(rows) for rows in shuffled(10, 4, Randomness(bytes(32)))] == [4, 4, 2]
    assert [len(rows) for rows in shuffled(1, 4, Randomness(bytes(32)))] == [1]


@pytest.mark.parametrize("method", ["mpd", "fedhssl"])
def test_validation_and_pretraining_go_together_and_progress_counts_every_batch(run: Any, method: str) -> None:
    how = settings(run, method, patience=1)
    how["evaluate"] = Evaluate(test_fraction=0.3, validation_fraction=0.2, metrics=("auc",))
    both = run(**how)
    active, _ = both(matching())
    assert active.section.early_stopping is not None
    steps = [message.step for message in both.transcript if hasattr(message, "step")]
    trained, validated, tested = (-(-rows // BATCH) for rows in (80, 32, 48))
    assert min(steps) == 0
    assert max(steps) == BEFORE * trained + EPOCHS * (trained + validated) + tested - 1


@pytest.mark.parametrize("method", ["mpd", "fedhssl"])
def test_bytes_and_steps_are_those_of_the_estimate(run: Any, method: str) -> None:
    how = settings(run, method)
    both = run(**how)
    both(matching())
    took = how["train"].cost(how["evaluate"], ALIGNED, "psi")
    plain = settings(run, "none")["train"].cost(how["evaluate"], ALIGNED, "psi")
    more = [message for message in both.transcript if isinstance(message, training_pb2.Projection)]
    if method == "mpd":
        number = 2 * BEFORE * -(-ALIGNED // 2 // BATCH)
        more = [message for message in both.transcript if hasattr(message, "step")][:number]
    assert took.steps - plain.steps == len(more) / 2
    values = sum(len(message.tensor.data) for message in more) / 2
    frames = (took.active_bytes - plain.active_bytes - values) / (len(more) / 2)
    assert took.active_bytes - plain.active_bytes == took.passive_bytes - plain.passive_bytes
    assert 0 < frames < 200  # of a message beside its values
