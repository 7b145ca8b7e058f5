"""Each warning comes where it is due and not elsewhere, and only the party with the labels has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.execution import cautions
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate

EVALUATE = Evaluate(test_fraction=0.2)


def table(rows: int = 400) -> Table:
    rng = np.random.default_rng(1)
    labels = (np.arange(rows) % 2).astype(np.float32)
    ids = Identifiers.of(str(row).encode() for row in range(rows))
    return Table(ids, {"age": NumericColumn(rng.normal(size=rows) + labels)}, labels)


def test_nothing_is_said_of_good_data() -> None:
    assert cautions.of_labels(table(), 2) == ()
    assert cautions.of_rows(1000, EVALUATE) == ()
    assert cautions.of_positives(30, 1000) == ()
    assert cautions.of_results([[60, 10], [10, 40]], 100 / 120) == ()
    assert cautions.of_results([[30, 2, 0], [2, 30, 0], [0, 1, 9]], 69 / 74) == ()


def test_class_names_without_a_positive_one() -> None:
    (text,) = cautions.of_labels(replace(table(), classes=("canary", "bird"), positive_assumed=True), 2)
    assert text == (
        "The labels are 2 classes by name, and the positive one is the last in their order. To choose the other one set "
        "data.label.positive."
    )


def test_columns_that_give_the_label_away() -> None:
    good = table()
    assert good.labels is not None
    leaky = {f"code {number}": NumericColumn(good.labels + 7.0) for number in range(7)}
    *named, more = cautions.of_labels(replace(good, columns={**good.columns, **leaky}), 2)
    assert named[0] == (
        "Column 'code 0' alone predicts the label almost perfectly (AUC 1.0000 on 400 of your records). If it was recorded "
        "together with the label or after it, new records do not have it yet, and the model is useless for them: leave it out "
        "(data.columns: {code 0: ignore})."
    )
    assert len(named) == cautions.MOST_NAMED
    assert more == "2 more columns alone predict the label almost perfectly."


def test_few_rows() -> None:
    assert cautions.of_rows(250, EVALUATE) == ()
    (held_out,) = cautions.of_rows(200, EVALUATE)
    assert held_out == (
        "About 40 labelled rows are held out, fewer than 50: metrics measured on them may be far off. Use more records, a "
        "larger evaluate.test_fraction, or more evaluate.repeats."
    )
    trained, held_out = cautions.of_rows(5, EVALUATE)
    assert trained == (
        "There are about 4 labelled rows to train on, fewer than 50: a model hardly learns anything general from them. Use "
        "more records."
    )
    assert held_out.startswith("About 1 labelled rows")
    assert len(cautions.of_rows(5, Evaluate(test_fraction=0))) == 1
    few = cautions.of_rows(70, Evaluate(test_fraction=0, validation_fraction=0.3))
    assert few[0].startswith("There are about 49 labelled rows to train on")


def test_rare_positives() -> None:
    (text,) = cautions.of_positives(4, 2000)
    assert text == (
        "4 of 2,000 rows measured on are positive, fewer than 30: metrics depend on single rows. Use more records, a larger "
        "evaluate.test_fraction, or more evaluate.repeats."
    )
    assert cautions.of_positives(1, 9)[0].startswith("1 of 9 rows measured on is positive")
    assert cautions.of_positives(0, 9)[0].startswith("None of 9 rows measured on are positive")
    assert cautions.of_positives(0, 9, about="About")[0].startswith("About 0 of 9 rows")


def test_an_accuracy_that_needs_no_model() -> None:
    few, accuracy = cautions.of_results([[1996, 0], [4, 0]], 1996 / 2000)
    assert few.startswith("4 of 2,000 rows")
    assert accuracy == (
        "Accuracy 0.998 is no better than always predicting the commonest class (0.998). Judge the model by AUC or PR AUC "
        "instead (evaluate.metrics), and set evaluate.threshold so that both classes are predicted."
    )
    (several,) = cautions.of_results([[50, 0, 0], [30, 0, 0], [20, 0, 0]], 0.5)
    assert several.endswith("Judge the model by AUC or PR AUC instead (evaluate.metrics).")
    assert len(cautions.of_results([[1996, 0], [4, 0]], None)) == 1
    assert cautions.of_results(None, None) == ()


def test_an_accuracy_is_judged_over_all_repeats() -> None:
    """The confusion matrix is the first repeat's, which may be the worst."""
    first = [[20, 30], [20, 30]]
    assert cautions.of_results(first, 0.7) == ()
    (accuracy,) = cautions.of_results(first, 0.4)
    assert accuracy.startswith("Accuracy 0.400 is no better than always predicting the commonest class (0.500)")


@pytest.fixture(scope="module")
def named(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The clinic's table with class names, and one column that gives them away."""
    folder = tmp_path_factory.mktemp("named")
    head, *rows = (line.split(",") for line in trial.clinic.read_text().splitlines())
    names = {"0": "benign-canary", "1": "malign-canary"}
    lines = [[*head[:-1], "outcome", "diagnosis"], *([*row[:-1], row[-1], names[row[-1]]] for row in rows)]
    path = folder / "clinic.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return replace(trial, clinic=path)


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
    assert (lab["classes"], lab["warnings"]) == (None, [])
    page = (folders["clinic"] / "report.html").read_text()
    assert f"The positive class is {clinic['classes'][1]}. In brackets" in page
    assert "as benign-canary" in page
    for word in (*order, "outcome", "positive class is"):
        assert all(word.encode() not in path.read_bytes() for path in (tmp_path / "lab").iterdir())
    assert all(word not in logged for word in order)
    about = (folders["clinic"] / "model.safetensors").read_bytes()
    assert b"benign-canary" in about
