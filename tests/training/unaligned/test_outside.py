"""Split training that learns from rows outside of the alignment, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.training.outside_rows import intersected, same_from_each
from vfl_node.configuration import parse
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.training.network import journal
from vfl_node.training.unaligned.methods import unaligned_of

QUICK: dict[str, dict[str, Any]] = {
    "diffusion": {"method": "diffusion", "steps": 20, "sampler_steps": 5, "updates": 30},
    "jpl": {"method": "jpl", "updates": 20},
    "heuristic": {"method": "heuristic"},
    "fedcvt": {"method": "fedcvt", "pretrain": 0.5, "candidates": 16},
}
ONCE = [name for name in QUICK if name != "fedcvt"]
"""Methods that make embeddings up once."""


def settings(run: Any, method: dict[str, Any], **keys: Any) -> dict[str, Any]:
    update = {"epochs": 4, "batch_size": 32, "unaligned": unaligned_of(method)(**method), **keys}
    return {"train": run().train.model_copy(update=update), "evaluate": Evaluate(test_fraction=0.5)}


def parties() -> Any:
    return intersected(400, 160, groups=np.arange(400) % 50)


@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize("norm", [False, True])
def test_the_passive_party_meets_the_same_messages_and_the_report_counts_the_rows(run: Any, method: str, norm: bool) -> None:
    with_rows = run(**settings(run, QUICK[method], batch_norm=norm))
    without = run(**settings(run, {"method": "none"}, batch_norm=norm))
    active, passive = with_rows(parties())
    plain, _ = without(parties())
    sizes = [[(type(message), message.ByteSize()) for message in of.transcript] for of in (with_rows, without)]
    assert sizes[0] == sizes[1]
    found = active.section.unaligned
    generated = 240 if method in ONCE else 0
    assert (found.method, found.rows, found.generated, found.steps_federated) == (method, 240, generated, active.steps)
    assert found.steps_local == 2 * 8  # ⌈240/32⌉ in each of two epochs after the filling
    assert passive.section.unaligned is None
    assert plain.section.unaligned is None
    assert any(not torch.equal(active.weights[name], plain.weights[name]) for name in plain.weights)
    assert set(active.weights) == set(plain.weights)  # the local branch is dropped


@pytest.mark.parametrize("method", QUICK)
def test_resumed_in_each_phase_the_result_has_the_same_bits(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    names = [f"r000-e{epoch:06d}" for epoch in range(1, 5)]  # pretrained, filled in, trained, the last
    same_from_each(run, settings(run, QUICK[method], batch_norm=True), parties(), names)


def test_without_a_row_outside_the_job_is_refused(run: Any) -> None:
    with pytest.raises(DataError, match="there is none") as refused:
        run(**settings(run, QUICK["diffusion"]))(intersected(160, 160))
    assert refused.value.code == "E_EMPTY"


@pytest.mark.parametrize("method", [{"method": "diffusion", "steps": 200}, {"method": "fedcvt"}], ids=lambda of: of["method"])
def test_rows_outside_raise_the_auc_above_aligned_rows_and_own_rows(run: Any, method: dict[str, Any]) -> None:
    keys: dict[str, Any] = {"bottom": (32, 16), "active_bottom": (64, 32), "top": (), "epochs": 30, "batch_size": 128}
    federation = intersected(8300, 2500, columns=(20, 3))

    def result(chosen: dict[str, Any]) -> Any:
        of = settings(run, chosen, **keys, learning_rate=0.003)
        return run(train=of["train"], evaluate=Evaluate(test_fraction=0.9, metrics=("auc",)))(federation)[0]

    filled, plain = result(method), result({"method": "none"})
    assert filled.metrics["auc"] >= plain.metrics["auc"] + 0.05
    assert filled.metrics["auc"] >= filled.local_metrics["auc"] + 0.02


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("align: {protocol: psu}\ntrain: {unaligned: {method: jpl}}", "psu does not tell both parties"),
        ("align: {protocol: apsi, obfuscation: private}\ntrain: {unaligned: {method: jpl}}", "apsi does not tell both parties"),
        ("align: {protocol: psi}\ntrain: {epochs: 1, unaligned: {method: jpl}}", "epochs of 2 or more"),
        (
            "align: {protocol: psi}\ntrain: {unaligned: {method: jpl}}\nevaluate: {validation_fraction: 0.1}",
            "validation_fraction may stop",
        ),
    ],
)
def test_a_job_that_cannot_use_such_rows_is_refused_before_anything_runs(job: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\n{job}", Job, source="job")
