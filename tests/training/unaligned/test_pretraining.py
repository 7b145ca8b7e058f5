"""Halves that are trained without labels before the training with them."""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.outside_rows import intersected, same_from_each
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.unaligned import METHODS, unaligned_of
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.features.audit import DecoderAudit
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.training.network import journal
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.unaligned.self_supervised import disturb, negative_cosine, shuffle_batches
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
    plain = without(matching())
    sent, usual = (Counter(type(message).__name__ for message in of.transcript) for of in (before, without))
    batches = BEFORE * -(-ALIGNED // 2 // BATCH)
    more = {"ssl": {}, "mpd": {"Embedding": batches, "Gradient": batches}, "fedhssl": {"Projection": 2 * batches}}[method]
    assert sent - usual == Counter(more)
    found = active.section.unaligned
    assert (found.method, found.rows, found.generated, found.steps_federated) == (method, 240, 0, active.steps)
    assert found.figures["last_loss"] < found.figures["first_loss"]
    assert passive.section.unaligned is None
    for ours, theirs in zip((active, passive), plain, strict=True):
        assert set(ours.weights) == set(theirs.weights)  # heads are dropped
    assert any(not torch.equal(active.weights[name], weights) for name, weights in plain[0].weights.items())


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


NOISE = {"name": "noise", "sigma": 20.0}


def explained(run: Any, protection: Protection, *, shuffled: bool = False) -> float:
    """Share of the variance of the active party's columns that a linear decoder finds in what the passive one received."""
    federation = intersected(600, 400, columns=(4, 3))
    both = run(**settings(run, "fedhssl"), protections=(protection, Protection()))
    both(federation)
    schedule = both.schedule(federation)
    training, _, _ = schedule.parts(0, HELD_OUT, 0.0)
    batches = schedule.batches(0, -1, training, BATCH)
    received = projections(both)[1 : 2 * len(batches) : 2]  # the active party answers
    z = np.concatenate([decoded(message) for message in received])
    rows = federation.clinic_view.rows[np.concatenate(batches)]
    columns = np.stack([column.values[rows] for column in federation.clinic.columns.values()], axis=1)
    if shuffled:
        columns = np.random.default_rng(0).permutation(columns)
    known, asked = slice(0, 150), slice(150, None)
    basis = np.hstack([z, np.ones((len(z), 1))])
    solved = np.linalg.solve(basis[known].T @ basis[known] + 1.0 * np.eye(basis.shape[1]), basis[known].T @ columns[known])
    rest = columns[asked] - basis[asked] @ solved
    return float(1 - (rest**2).sum() / ((columns[asked] - columns[known].mean(0)) ** 2).sum())


def test_projections_tell_the_columns_in_part_and_noise_hides_them(run: Any) -> None:
    assert explained(run, Protection()) > 0.3
    assert explained(run, Protection(), shuffled=True) < 0.05
    assert explained(run, Protection(defences=(read_params(NOISE),))) < 0.05


@pytest.mark.parametrize("method", ["ssl", "mpd"])
def test_other_methods_send_no_projection(run: Any, method: str) -> None:
    other = run(**settings(run, method))
    other(matching())
    assert not projections(other)


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_noise_changes_what_is_sent_of_projections_and_not_what_is_learnt_from_them(run: Any, party: str) -> None:
    """In the first batch both parties have the weights that they have without noise."""
    noisy = Protection(defences=(read_params(NOISE),))
    protections = (noisy, Protection()) if party == "clinic" else (Protection(), noisy)
    with_noise, without = run(**settings(run, "fedhssl"), protections=protections), run(**settings(run, "fedhssl"))
    active, passive = with_noise(matching())
    without(matching())
    first = [[decoded(message) for message in projections(of)[:4]] for of in (with_noise, without)]
    own, other = (1, 0) if party == "clinic" else (0, 1)  # the passive party speaks first
    added = first[0][own] - first[1][own]
    assert added.std() == pytest.approx(NOISE["sigma"], rel=0.05)  # of 32 · 64 draws: six standard deviations
    assert np.array_equal(first[0][other], first[1][other])
    again = first[0][own + 2] - first[1][own + 2]
    assert abs(np.corrcoef(again.ravel(), added.ravel())[0, 1]) < 0.1  # fresh in each step: four and a half deviations
    (owner, peer), to = ((active, passive), "lab") if party == "clinic" else ((passive, active), "clinic")
    said = "normal noise of standard deviation 20 is added to each number of every projection"
    assert [said in entry.text for entry in owner.disclosures[to] if entry.what == "projections"] == [True]
    assert not any(said in entry.text for entries in peer.disclosures.values() for entry in entries)  # its own affair


def test_matched_pairs_are_told_where_columns_have_much_in_common(run: Any) -> None:
    keys = {"epochs": 1, "unaligned": unaligned_of({"method": "mpd"})(method="mpd", pretrain_epochs=30)}
    like, unlike = (
        run(**settings(run, "mpd", **keys))(of)[0].section.unaligned.figures["last_loss"]
        for of in (matching(900, 600), intersected(900, 600, columns=(4, 3)))
    )
    assert like < 0.75 * unlike


def test_a_job_that_sends_projections_needs_its_owners_word(tmp_path: Any) -> None:
    from vfl_node.errors import PolicyError
    from vfl_node.execution.allowed import check_allowed
    from vfl_node.settings.node import Settings

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
        "resources": {"memory_mib": 10**6},
    }
    with pytest.raises(PolicyError, match="fedhssl, which this node's policy does not allow"):
        check_allowed(Settings.model_validate(base), job)
    base["policy"] = {"everyone": {"unaligned": ["none", "fedhssl"]}}
    check_allowed(Settings.model_validate(base), job)
    assert {name for name, method in METHODS.usable() if not method.allowed_by_default} == {"fedhssl"}


FBS = {"name": "fbs", "columns": ["z0"]}
NOPEEK = {"name": "nopeek", "columns": "all", "strength": 1.0}


def prepare(run: Any, party: str, protection: Protection) -> None:
    both = run(**settings(run, "fedhssl"))
    number = ["clinic", "lab"].index(party)
    both.protections = (protection, protection)
    SplitTrainer().prepare(both.session(party, memory_channels("clinic", "lab")[number], b"s" * 32, number))


@pytest.mark.parametrize("chosen", [FBS, NOPEEK])
def test_projections_are_refused_beside_what_protects_embeddings_alone(run: Any, chosen: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"'{chosen['name']}' changes embeddings alone, .* projections of the same columns"):
        prepare(run, "lab", Protection(defences=(read_params(NOISE), read_params(chosen))))


@pytest.mark.parametrize(
    ("party", "protection"),
    [
        ("lab", Protection(defences=(read_params(NOISE),), max_feature_gain=0.5)),
        ("clinic", Protection(defences=(read_params(NOISE), read_params({"name": "marvell", "power": 4.0})))),
    ],
    ids=["columns", "labels"],
)
def test_projections_go_with_what_protects_them_and_with_defences_of_labels(
    run: Any, party: str, protection: Protection
) -> None:
    prepare(run, party, protection)


def test_methods_that_pretrain_meet_no_synthetic_row() -> None:
    """So no attack on membership has anything to find in what leaves before the training with labels."""
    specs = [spec for _, spec in ALIGNMENTS.usable()]
    seen = [spec for spec in specs if spec.shows_shared_records_to("active") and spec.shows_shared_records_to("passive")]
    assert 0 < len(seen) < len(specs)
    assert not any(spec.synthetic_rows_at for spec in seen)


COLUMNS = FeatureAuditSettings(columns="all", known_share=0.3)


def audited(run: Any, method: str, limit: float | None = None, defences: tuple[Any, ...] = (), **keys: Any) -> dict[str, Any]:
    chosen = tuple(map(read_params, defences))
    lab = Protection(membership=False, features=COLUMNS, max_feature_gain=limit, defences=chosen)
    return settings(run, method, **keys) | {"protections": (Protection(membership=False), lab)}


ENOUGH = 400
"""Aligned rows: a decoder needs some to learn from."""


@pytest.mark.parametrize("method", ["mpd", "fedhssl"])
def test_what_leaves_before_labels_is_judged_and_stops_the_job(run: Any, method: str) -> None:
    stopped = run(**audited(run, method, 0.01))
    error = stopped.raw(matching(500, ENOUGH))[1]
    assert isinstance(error, PolicyError)
    assert error.code == "E_LEAK"
    sent = [message for message in stopped.transcript if hasattr(message, "step")]
    assert 0 < len(sent) <= 2 * BEFORE * -(-ENOUGH // 2 // BATCH)  # none of the training with labels


@pytest.mark.parametrize(("method", "defences"), [pytest.param("mpd", (), marks=pytest.mark.slow), ("fedhssl", (NOISE,))])
def test_a_resumed_audit_of_what_leaves_before_labels_is_the_same(
    run: Any, method: str, defences: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    names = [f"r000-e000000-p{epoch:06d}" for epoch in range(1, BEFORE + 1)]
    names += [f"r000-e{epoch:06d}" for epoch in range(1, EPOCHS + 1)]
    same_from_each(run, audited(run, method, None, defences), matching(500, ENOUGH), sorted(names))


def test_the_audit_of_columns_sees_projections_and_changes_no_message(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch's embedding, a single number, tells less of three columns than all projections. Noise hides both."""
    narrow, federation = {"bottom": (8, 1), "epochs": 1}, matching(600, 500)

    def found(**more: Any) -> tuple[Any, dict[str, Any]]:
        both = run(**audited(run, "fedhssl", **narrow, **more))
        return both, both(federation)[1].audits.features

    seen, lab = found()
    unseen = run(**settings(run, "fedhssl", **narrow))
    unseen(federation)
    assert [of.SerializeToString() for of in seen.transcript] == [of.SerializeToString() for of in unseen.transcript]
    _, noisy = found(defences=(NOISE,))
    monkeypatch.setattr(DecoderAudit, "projections", None)  # an audit that does not see them
    _, blind = found()
    assert all(of["projections"] is None for of in blind.values())
    assert fmean(of["projections"] for of in lab.values()) > fmean(of["static"] for of in lab.values())
    assert fmean(of["worst"] for of in lab.values()) > fmean(of["worst"] for of in blind.values()) + 0.05
    assert all(of[attack] < 0.1 for of in noisy.values() for attack in ("projections", "worst"))  # of R², 0 at chance


def test_copies_are_disturbed_in_a_share_of_their_cells() -> None:
    rows = ModelInput.from_tensors(torch.zeros(500, 4), torch.zeros(500, 2, dtype=torch.int64))
    others = ModelInput.from_tensors(torch.ones(500, 4), torch.ones(500, 2, dtype=torch.int64))
    copy = disturb(rows, others, 0.3, Randomness(bytes(32)))
    assert float(copy.numeric.mean()) == pytest.approx(0.3, abs=0.05)
    assert float(copy.categorical.float().mean()) == pytest.approx(0.3, abs=0.05)
    again = disturb(rows, others, 0.3, Randomness(bytes(32)))
    assert torch.equal(copy.numeric, again.numeric)


def test_the_similarity_is_a_cosine_without_a_gradient_into_the_aim() -> None:
    aim = torch.tensor([[1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    given = torch.tensor([[2.0, 0.0], [1.0, 1.0]], requires_grad=True)
    value = negative_cosine(given, aim)
    assert value.item() == pytest.approx(-(1 + 2**-0.5) / 2)
    value.backward()
    assert aim.grad is None
    assert given.grad is not None


def test_a_last_batch_of_one_row_joins_the_one_before() -> None:
    assert [len(rows) for rows in shuffle_batches(9, 4, Randomness(bytes(32)))] == [4, 5]
    assert sorted(np.concatenate(shuffle_batches(9, 4, Randomness(bytes(32)))).tolist()) == list(range(9))
    assert [len(rows) for rows in shuffle_batches(10, 4, Randomness(bytes(32)))] == [4, 4, 2]
    assert [len(rows) for rows in shuffle_batches(1, 4, Randomness(bytes(32)))] == [1]


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
    took = how["train"].make_plan().cost(how["evaluate"], ALIGNED, "psi")
    plain = settings(run, "none")["train"].make_plan().cost(how["evaluate"], ALIGNED, "psi")
    more = [message for message in both.transcript if isinstance(message, training_pb2.Projection)]
    if method == "mpd":
        number = 2 * BEFORE * -(-ALIGNED // 2 // BATCH)
        more = [message for message in both.transcript if hasattr(message, "step")][:number]
    assert took.steps - plain.steps == len(more) / 2
    values = sum(len(message.tensor.data) for message in more) / 2
    frames = (took.active_bytes - plain.active_bytes - values) / (len(more) / 2)
    assert took.active_bytes - plain.active_bytes == took.passive_bytes - plain.passive_bytes
    assert 0 < frames < 200  # of a message beside its values
