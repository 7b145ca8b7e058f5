"""Split training that learns from rows outside of the alignment, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.outside_rows import QUICK, intersected, same_from_each, settings
from vfl_node.configuration.models import parse
from vfl_node.data.tables import CategoricalColumn
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.models import layers
from vfl_node.training.network import journal
from vfl_node.training.split import filled_rows
from vfl_node.training.unaligned.contract import EVERY

ONCE = [name for name in QUICK if name != "fedcvt"]
"""Methods that make embeddings up once."""

METHODS = [of if of in ("diffusion", "fedcvt") else pytest.param(of, marks=pytest.mark.slow) for of in QUICK]


def parties() -> Any:
    return intersected(400, 160, groups=np.arange(400) % 50)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [pytest.param(False, marks=pytest.mark.slow), True])
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


@pytest.mark.parametrize("method", METHODS)
def test_resumed_in_each_phase_the_result_has_the_same_bits(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    names = [f"r000-e{epoch:06d}" for epoch in range(1, 5)]  # pretrained, filled in, trained, the last
    same_from_each(run, settings(run, QUICK[method], batch_norm=True), parties(), names)


@pytest.mark.parametrize("method", [*METHODS, "ssl", pytest.param("mpd", marks=pytest.mark.slow)])
def test_a_category_of_very_many_levels_is_learnt_with_every_method(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table is sparse, for which Adam alone has no steps."""
    monkeypatch.setattr(layers, "SPARSE_FROM", 2)
    federation = parties()
    codes = np.arange(400) % 20
    columns = {**federation.clinic.columns, "user": CategoricalColumn(codes, tuple(f"{level:02d}" for level in range(20)))}
    federation = replace(federation, clinic=replace(federation.clinic, columns=columns))
    active, _ = run(**settings(run, QUICK.get(method, {"method": method, "pretrain_epochs": 1}), least_rows=0))(federation)
    assert active.section.unaligned.rows == 240


@pytest.mark.parametrize("method", ONCE)
def test_rows_are_filled_in_by_the_same_chunks_however_many_are_asked_for(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs of rows a filler asks for, the bottom meets the same batches, so that the bits are the same."""
    met: list[tuple[int, ...]] = []
    bottoms = filled_rows.FilledRows._part

    def watched(self: Any, *arguments: Any) -> Any:
        part = bottoms(self, *arguments)
        whole = part.own(EVERY)
        for run_of_rows in (slice(0, 7), slice(5, 70), slice(64, 65), slice(len(part) - 3, len(part))):
            assert torch.equal(part.own(run_of_rows), whole[run_of_rows])
            met.append(tuple(whole[run_of_rows].shape))
        return part

    monkeypatch.setattr(filled_rows, "ROWS_AT_ONCE", 32)
    monkeypatch.setattr(filled_rows.FilledRows, "_part", watched)
    run(**settings(run, QUICK[method]))(parties())
    assert len(met) == 8  # aligned rows and rows outside


def test_without_a_row_outside_the_job_is_refused(run: Any) -> None:
    with pytest.raises(DataError, match="there is none") as refused:
        run(**settings(run, QUICK["diffusion"]))(intersected(160, 160))
    assert refused.value.code == "E_EMPTY"


@pytest.mark.slow
@pytest.mark.parametrize(
    "methods",
    [
        ({"method": "jpl"}, {"method": "fedcvt"}),
        ({"method": "diffusion", "steps": 200},),
    ],
    ids=lambda methods: "-".join(of["method"] for of in methods),
)
def test_rows_outside_raise_the_auc_above_aligned_rows_and_own_rows(run: Any, methods: Any) -> None:
    """Without a method the first weights and batches are the same, so one that does nothing gains nothing."""
    keys: dict[str, Any] = {"bottom": (32, 16), "active_bottom": (64, 32), "top": (), "epochs": 20, "batch_size": 128}
    federation = intersected(4300, 2000, columns=(20, 3))

    def result(chosen: dict[str, Any]) -> Any:
        of = settings(run, chosen, **keys, learning_rate=0.003)
        return run(train=of["train"], evaluate=Evaluate(test_fraction=0.9, metrics=("auc",)))(federation)[0]

    plain = result({"method": "none"})
    for method in methods:
        filled = result(method)
        assert filled.results.metrics["auc"] >= plain.results.metrics["auc"] + 0.05, method
        assert filled.results.metrics["auc"] >= filled.results.alone.metrics["auc"] + 0.02, method


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("align: {protocol: psu}\ntrain: {unaligned: {method: jpl}}", "psu does not tell this party"),
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
