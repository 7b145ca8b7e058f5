"""Each warning comes where it is due and not elsewhere, and only the party with the labels has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from vfl_node.configuration.models import parse
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.execution import cautions
from vfl_node.execution.column_cautions import MOST_NAMED
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate, Job
from vfl_node.training.evaluation import Rival, Values
from vfl_node.training.intervals import ConfidenceInterval, Intervals
from vfl_node.training.section import JointAttack
from vfl_node.training.summary import Summary

EVALUATE = Evaluate(test_fraction=0.2)


def table(rows: int = 400) -> Table:
    rng = np.random.default_rng(1)
    labels = (np.arange(rows) % 2).astype(np.float32)
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))
    return Table(ids, {"age": NumericColumn(rng.normal(size=rows) + labels)}, labels)


def test_nothing_is_said_of_good_data() -> None:
    assert cautions.label_cautions(table(), 2) == ()
    assert cautions.row_cautions(1000, EVALUATE) == ()
    assert cautions.positive_cautions(30, 1000) == ()
    assert cautions.result_cautions([[60, 10], [10, 40]], 100 / 120) == ()
    assert cautions.result_cautions([[30, 2, 0], [2, 30, 0], [0, 1, 9]], 69 / 74) == ()


def test_class_names_without_a_positive_one() -> None:
    (text,) = cautions.label_cautions(replace(table(), classes=("canary", "bird"), positive_assumed=True), 2)
    assert text == (
        "The labels are 2 classes by name, and the positive one is the last in their order. To choose the other one set "
        "data.label.positive."
    )


def test_columns_that_give_the_label_away() -> None:
    good = table()
    assert good.labels is not None
    leaky = {f"code {number}": NumericColumn(good.labels + 7.0) for number in range(7)}
    *named, more = cautions.label_cautions(replace(good, columns={**good.columns, **leaky}), 2)
    assert named[0] == (
        "Column 'code 0' alone predicts the label almost perfectly (AUC 1.0000 on 400 of your records). If it was recorded "
        "together with the label or after it, new records do not have it yet, and the model is useless for them: leave it out "
        "(data.columns: {code 0: ignore})."
    )
    assert len(named) == MOST_NAMED
    assert more == "2 more columns alone predict the label almost perfectly."


def test_few_rows() -> None:
    assert cautions.row_cautions(250, EVALUATE) == ()
    (held_out,) = cautions.row_cautions(200, EVALUATE)
    assert held_out == (
        "About 40 labelled rows are held out, fewer than 50: metrics measured on them may be far off. Use more records, a "
        "larger evaluate.test_fraction, or more evaluate.repeats."
    )
    trained, held_out = cautions.row_cautions(5, EVALUATE)
    assert trained == (
        "There are about 4 labelled rows to train on, fewer than 50: a model hardly learns anything general from them. Use "
        "more records."
    )
    assert held_out.startswith("About 1 labelled rows")
    assert len(cautions.row_cautions(5, Evaluate(test_fraction=0))) == 1
    few = cautions.row_cautions(70, Evaluate(test_fraction=0, validation_fraction=0.3))
    assert few[0].startswith("There are about 49 labelled rows to train on")


def test_rare_positives() -> None:
    (text,) = cautions.positive_cautions(4, 2000)
    assert text == (
        "4 of 2,000 rows measured on are positive, fewer than 30: metrics depend on single rows. Use more records, a larger "
        "evaluate.test_fraction, or more evaluate.repeats."
    )
    assert cautions.positive_cautions(1, 9)[0].startswith("1 of 9 rows measured on is positive")
    assert cautions.positive_cautions(0, 9)[0].startswith("None of 9 rows measured on are positive")
    assert cautions.positive_cautions(0, 9, about="About")[0].startswith("About 0 of 9 rows")


def test_an_accuracy_that_needs_no_model() -> None:
    few, accuracy = cautions.result_cautions([[1996, 0], [4, 0]], 1996 / 2000)
    assert few.startswith("4 of 2,000 rows")
    assert accuracy == (
        "Accuracy 0.998 is no better than always predicting the commonest class (0.998). Judge the model by AUC or PR AUC "
        "instead (evaluate.metrics), and set evaluate.threshold so that both classes are predicted."
    )
    (several,) = cautions.result_cautions([[50, 0, 0], [30, 0, 0], [20, 0, 0]], 0.5)
    assert several.endswith("Judge the model by AUC or PR AUC instead (evaluate.metrics).")
    assert len(cautions.result_cautions([[1996, 0], [4, 0]], None)) == 1
    assert cautions.result_cautions(None, None) == ()


def test_an_accuracy_is_judged_over_all_repeats() -> None:
    """The confusion matrix is the first repeat's, which may be the worst."""
    first = [[20, 30], [20, 30]]
    assert cautions.result_cautions(first, 0.7) == ()
    (accuracy,) = cautions.result_cautions(first, 0.4)
    assert accuracy.startswith("Accuracy 0.400 is no better than always predicting the commonest class (0.500)")


def interval(mean: float, half: float) -> ConfidenceInterval:
    return {"mean": mean, "sd": half / 2, "low": mean - half, "high": mean + half, "method": "delong"}


def results(alone: Values | None = None, gains: Intervals | None = None, **known: Any) -> Summary:
    """Those of the federated model, beside the metrics of the party alone and the gains over it."""
    own = Rival("", None, alone or {}, gains=gains or {}) if alone or gains else None
    return Summary(known.pop("metrics", {}), alone=own, **known)


def test_nothing_is_said_of_a_model_that_is_as_good_as_it_should_be() -> None:
    gains = {"auc": interval(-0.01, 0.02), "nll": interval(0.01, 0.02), "ace": interval(-0.1, 0.02)}
    good = results({"auc": 0.8}, gains, metrics={"auc": 0.99}, intervals={"auc": interval(0.48, 0.03)})
    assert cautions.model_cautions(good, held_out=True) == ()
    assert cautions.model_cautions(results(), held_out=True) == ()


@pytest.mark.parametrize(("alone", "said"), [({"auc": 0.62}, "this party alone reaches 0.620"), (None, "tell little")])
def test_a_result_too_good_to_be_true_is_questioned(alone: Any, said: str) -> None:
    perfect = results(alone, metrics={"auc": 0.9991})
    (text,) = cautions.model_cautions(perfect, held_out=True)
    assert text.startswith("AUC 0.9991 on held-out rows is nearly perfect")
    assert said in text
    assert "Ask the other party whether one of its columns is a consequence of the outcome" in text
    assert cautions.model_cautions(perfect, held_out=False) == ()
    assert cautions.model_cautions(results({"auc": 0.97}, metrics={"auc": 0.9991}), held_out=True) == ()


def test_a_metric_that_is_worse_than_alone_is_named() -> None:
    gains = {"auc": interval(-0.1, 0.05), "nll": interval(0.2, 0.1), "accuracy": interval(-0.1, 0.2)}
    (text,) = cautions.model_cautions(results(gains=gains), held_out=True)
    assert text.startswith("The federated model is significantly worse than this party alone in auc (by 0.1), nll (by 0.2).")
    tree = Rival(kind="", trained_rows=9, metrics={}, gains=gains)
    (text,) = cautions.model_cautions(results(rival=tree), held_out=True)
    assert "worse than a boosted tree of this party alone in auc" in text


@pytest.mark.parametrize(("name", "mean"), [("auc", 0.4), ("lift", 0.5), ("r2", -0.3)])
def test_a_metric_below_chance_is_named(name: str, mean: float) -> None:
    (text,) = cautions.model_cautions(results(intervals={name: interval(mean, 0.09)}), held_out=True)
    assert text.startswith(f"The federated model is worse than chance in {name}: {mean:.3f}, with an interval from")


@pytest.fixture(scope="module")
def named(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The clinic's table with class names, and one column that gives them away; the lab's with a copy of the names."""
    folder = tmp_path_factory.mktemp("named")
    head, *rows = (line.split(",") for line in trial.clinic.read_text().splitlines())
    names = {"0": "benign-canary", "1": "malign-canary"}
    lines = [[*head[:-1], "outcome", "diagnosis"], *([*row[:-1], row[-1], names[row[-1]]] for row in rows)]
    path = folder / "clinic.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    lab = folder / "lab.csv"
    head, *rows = trial.lab.read_text().splitlines()
    lab.write_text("\n".join([f"{head},diagnosis,Unnamed: 0", *(f"{row},benign-canary,{n}" for n, row in enumerate(rows))]))
    return replace(trial, clinic=path, lab=lab)


@pytest.mark.parametrize("positive", [None, "benign-canary"])
def test_the_owner_of_the_labels_has_names_and_warnings_and_nobody_else(named: Any, tmp_path: Path, positive: Any) -> None:
    label = "diagnosis" if positive is None else {"column": "diagnosis", "positive": positive}
    with structlog.testing.capture_logs() as lines:
        job = named.job(
            "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}\n"
            "evaluate: {test_fraction: 0.3, share_with_passive: true}"
        )
        folders = simulate(job, named.files, tmp_path, columns={"label": label}, threads=1)
    reports = {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}
    order = ["benign-canary", "malign-canary"]
    clinic, lab = reports["clinic"]["training"], reports["lab"]["training"]
    assert clinic["classes"] == (order if positive is None else order[::-1])
    said = "\n".join(clinic["warnings"])
    assert ("the last in their order" in said) == (positive is None)
    assert "Column 'outcome' alone predicts" in said
    assert "48 labelled rows are held out" in said
    logged = "\n".join(str(line) for line in lines)
    assert all(warning in logged for warning in clinic["warnings"] if "Column" in warning or "rows" in warning)
    assert lab["classes"] is None
    assert [text[: text.index(":")] for text in lab["warnings"]] == ["Column 'diagnosis' is left out", "Column 'Unnamed"]
    assert all(warning in logged for warning in lab["warnings"])
    assert {"diagnosis", "Unnamed: 0"}.isdisjoint(column["name"] for column in lab["columns"])
    page = (folders["clinic"] / "report.html").read_text()
    assert f"The positive class is {clinic['classes'][1]}. In brackets" in page
    assert "as benign-canary" in page
    for word in (*order, "outcome", "positive class is"):
        assert all(word.encode() not in path.read_bytes() for path in (tmp_path / "lab").iterdir())
    assert all(word not in logged for word in order)
    about = (folders["clinic"] / "model.safetensors").read_bytes()
    assert b"benign-canary" in about


def test_a_column_that_few_values_spoil_is_named_to_its_owner_alone(trial: Any, tmp_path: Path) -> None:
    head, *rows = trial.lab.read_text().splitlines()
    name = head.split(",")[1]
    rows[0] = ",".join([rows[0].split(",")[0], "999999999", *rows[0].split(",")[2:]])
    path = tmp_path / "lab.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    with structlog.testing.capture_logs() as lines:
        job = parse(
            "name: trial\nparties: {active: clinic, passive: lab, coordinator: notary}\nalign: {protocol: psi}\n"
            "train: {algorithm: hidden, epochs: 1}",
            Job,
            source="job",
        )
        folders = simulate(job, replace(trial, lab=path).files, tmp_path / "out", threads=1)
    reports = {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}
    warning = reports["lab"]["training"]["warnings"][0]
    assert warning.startswith(f"Column {name!r}: a few values")
    assert f"{name}&#39;: a few values" in (folders["lab"] / "report.html").read_text()
    assert sum(line["event"] == warning and line["log_level"] == "warning" for line in lines) == 1
    assert all("a few values" not in text for text in reports["clinic"]["training"]["warnings"])
    (spoilt,) = (of for of in reports["lab"]["training"]["columns"] if of["name"] == name)
    assert spoilt["transform"] == "quantile"


def test_rows_that_do_not_fit_are_warned_of_above_a_limit_and_an_estimate_is_called_one() -> None:
    assert cautions.membership_cautions(JointAttack(value=0.6, estimate=False, judged=900)) == ()
    (exact,), (guess,) = (
        cautions.membership_cautions(JointAttack(value=0.8125, estimate=estimate, judged=900)) for estimate in (False, True)
    )
    assert "81 of 100 pairs" in exact
    assert "psi" in exact
    assert "hidden" in exact
    assert "estimate" not in exact
    assert "by an estimate" in guess
