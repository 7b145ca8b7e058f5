"""The feature audit on the page of a passive party's report."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.test_report import HOSTILE, RESULT, UNTOLD, build, page, parsed, text
from vfl_node.data.encoded import EncodedColumn
from vfl_node.report.envelope import Report
from vfl_node.report.rebuilt import MOST_COLUMNS, feature_audit
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.trainer import Audits

pytestmark = pytest.mark.usefixtures("invented_facts")

FBS = {"name": "fbs", "columns": ["occupation"], "rounds": 10}


def found(metric: str = "accuracy", worst: float | None = 0.35, constant: float = 0.13, **changes: Any) -> dict[str, Any]:
    """What the audit says of one column."""
    return {
        "kind": {"accuracy": "categories", "auc": "flag", "r2": "number"}[metric],
        "metric": metric,
        "constant": constant,
        **dict.fromkeys(("static", "adaptive", "held_out"), None if worst is None else worst - 0.02),
        "stacked": worst,
        "worst": worst,
        "attack": None if worst is None else "stacked",
        "epoch": None if worst is None else 2,
        "known": 50,
        "judged": 1024,
        "figures": {metric: worst},
        "constants": {metric: constant},
    } | changes


def report(
    columns: dict[str, dict[str, Any]] | None, *defences: dict[str, Any], party: str = "lab", limit: float | None = None
) -> Report:
    """That of a training whose columns are those tried and ``town``."""
    names = (*(columns or {}), "town")
    trained = replace(
        UNTOLD if party == "lab" else RESULT,
        columns=tuple(EncodedColumn(name, "categorical", None, 7, 0, (), 0) for name in names),
        audits=Audits(features=columns),
    )
    protection = Protection(defences=tuple(map(read_params, defences)), max_feature_gain=limit)
    return build(party=party, training=trained, protection=protection)


def said_on(of: Report) -> str:
    """The page's text, without the spaces that :func:`text` puts where an element ends."""
    return re.sub(r" ([,.:;])", r"\1", text(page(of)))


COLUMNS = {"occupation": found(), "flag": found("auc", 0.96, 0.5), "age": found("r2", 0.8, 0.0)}


def test_each_column_has_a_sentence_with_its_constant() -> None:
    said = said_on(report(COLUMNS))
    for sentence in (
        "occupation can be rebuilt with an accuracy of 0.350 from what lab sent",
        "; always guessing the commonest value gives 0.130.",
        "flag can be told with an AUC of 0.960 from what lab sent; by always guessing the same it is 0.500.",
        "age can be rebuilt with an R² of 0.800 from what lab sent; always guessing the mean gives 0.000.",
        "50 of its rows are taken as known",
        "This is a lower bound: clinic may know better attacks or more records, and is stronger if it joins columns of its own",
        "could guess from its own columns alone, without any embedding, is not known here",
        "those of clinic may be read from the gradients that lab gets, whatever is done to the embeddings",
        "chosen on one half of the judged rows, and the figures are of the other half",
        "No defence hides any of these columns.",
    ):
        assert sentence in said, sentence
    assert said.index("age can be") < said.index("flag can be") < said.index("occupation can be")  # worst first


def test_columns_that_a_defence_hides_come_first_and_are_marked() -> None:
    of = report(COLUMNS, FBS)
    said = said_on(of)
    assert said.count("(hidden by a defence)") == 1
    assert "No defence hides any" not in said
    words = feature_audit(of.model_dump(mode="json"))
    assert words is not None
    assert [(row.name, row.hidden) for row in words.rows] == [("occupation", True), ("age", False), ("flag", False)]
    everything = said_on(report(COLUMNS, FBS | {"columns": "all"}))
    assert everything.count("(hidden by a defence)") == len(COLUMNS)


def test_of_many_columns_the_worst_are_shown_and_the_hidden_ones() -> None:
    many = {f"flag-{number:03d}": found("auc", 0.5 + number / 1000, 0.5) for number in range(223)} | {
        "occupation": found(worst=0.13)
    }
    of = report(many, FBS)
    words = feature_audit(of.model_dump(mode="json"))
    assert words is not None
    assert [row.name for row in words.rows] == [
        "occupation",
        *(f"flag-{number}" for number in range(222, 222 - MOST_COLUMNS, -1)),
    ]
    said = said_on(of)
    assert "Of 224 columns these are those that a defence hides and the others that are rebuilt best" in said
    assert len(of.model_dump(mode="json")["training"]["feature_audit"]) == 224  # the JSON has all


def test_projections_have_a_column_where_any_left() -> None:
    """A report of an earlier version has no such figure."""
    assert "Projections" not in said_on(report(COLUMNS))
    projected = found("r2", 0.52, 0.0, projections=0.52, attack="projections")
    words = feature_audit(report({"age": projected}).model_dump(mode="json"))
    assert words is not None
    assert words.attacks[-1][0] == "projections"
    assert words.rows[0].worst == len(words.attacks) - 1
    assert words.rows[0].successes[-1] == 0.52
    assert "Projections: fresh decoders learn from what was sent before" in said_on(report({"age": projected}))


def test_a_column_that_could_not_be_judged_says_so() -> None:
    said = said_on(report({"occupation": found(worst=None)}))
    assert "occupation was not judged" in said


def test_the_limit_of_the_owner_is_named() -> None:
    limited = report(COLUMNS, limit=0.5)
    assert "Training would have stopped at a gain over the constant of more than 0.5" in said_on(limited)
    assert "Training would have stopped" not in said_on(report(COLUMNS))


def test_a_defence_without_an_audit_says_that_nobody_has_tried() -> None:
    said = said_on(report(None, FBS))
    assert "A defence hides columns, and nobody has tried to rebuild them: audit.features" in said


@pytest.mark.parametrize("of", [report(None), report(None, {"name": "noise", "sigma": 0.1}), report(None, party="clinic")])
def test_without_either_the_page_has_no_such_part(of: Report) -> None:
    assert "What can be rebuilt of columns" not in page(of)


def test_hostile_names_of_columns_stay_text() -> None:
    html = page(report({HOSTILE: found()}, FBS | {"columns": [HOSTILE]}))
    parsed(html)
    assert "<img" not in html
    assert "<script" not in html


def test_settings_of_a_defence_are_written_as_a_person_would() -> None:
    said = said_on(report(COLUMNS, FBS | {"columns": ["occupation", "flag"], "decoder": [32, 16]}))
    assert "lab changed what it sent by fbs (columns occupation and flag, decoder 32 and 16, decoder_steps 1" in said
