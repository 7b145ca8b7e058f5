from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from pydantic import ValidationError

from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.data.encoded import EncodedColumn
from vfl_node.errors import UsageError
from vfl_node.execution import joint
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TRAINERS
from vfl_node.ledger import Disclosure
from vfl_node.prediction.play import report_predictions
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.report import envelope, results, words
from vfl_node.report import page as page_module
from vfl_node.report.envelope import Report
from vfl_node.report.sections import CommonFigures
from vfl_node.report.terms import TERMS
from vfl_node.settings.protection import Protection
from vfl_node.training.evaluation import Rival
from vfl_node.training.glm.section import GlmSection
from vfl_node.training.intervals import ConfidenceInterval
from vfl_node.training.predictor import Predicted, ServiceCount, predictor_of
from vfl_node.training.section import JointAttack
from vfl_node.training.split.missing.strategies import FEATURES, LABELS
from vfl_node.training.split.section import (
    Drop,
    EarlyStopping,
    HeldOut,
    MatchedMetrics,
    SplitSection,
    Strategies,
    strategies_used,
)
from vfl_node.training.summary import Population, Summary
from vfl_node.training.trainer import Audits, Epoch, Trained, unaudited
from vfl_node.training.words import Code, Figure, Panel, ReportedTraining, Term, TrainingWords, several
from vfl_node.transport.pipe import Traffic

pytestmark = pytest.mark.usefixtures("invented_facts")

ROOT = Path(__file__).parents[1]
HOSTILE = "<img src=x onerror=alert(1)>\"'</style><script>alert(2)</script>"

VALUES = {"auc": 0.991, "ace": 0.031, "nll": 0.104, "accuracy": 0.956}
ALONE = {"auc": 0.972, "ace": 0.037, "nll": 0.214, "accuracy": 0.916}


def around(value: float, method: Literal["repeats", "delong", "bootstrap"] = "repeats") -> ConfidenceInterval:
    return {"mean": value, "sd": 0.004, "low": value - 0.01, "high": value + 0.01, "method": method}


def a_job(
    *, align: dict[str, Any] | None = None, train: bool = True, missing: dict[str, Any] | None = None, **evaluate: Any
) -> Job:
    parties = {"active": "clinic", "passive": "lab"}
    rest = {"train": {"epochs": 3, "missing": missing or {}}, "evaluate": evaluate} if train else {}
    return Job.model_validate({"name": "trial", "parties": parties, "align": align or {}, **rest})


SECTION = SplitSection(
    strategies=Strategies(labels="majority", features="sampling", calibration="none"), held_out=None, matched_metrics=None
)

RESULT = Trained(
    section=SECTION,
    epochs=(Epoch(0.7, 0.8, 0.1, 1000), Epoch(0.5, 0.9, 0.1, 1000), Epoch(0.4, 0.95, 0.1, 1000)),
    steps=12,
    rows=(455, 114),
    device="cpu",
    results=Summary(
        metrics=VALUES,
        population=Population("owned", 103, 453 / 512),
        curve=[(0.1, 0.0, 50), (0.9, 1.0, 53)],
        alone=Rival(kind="", trained_rows=None, metrics=ALONE, curve=[(0.2, 0.1, 50), (0.7, 0.9, 53)]),
    ),
    weights={},
    encoder="",
    columns=(
        EncodedColumn("age", "numeric", "quantile", None, None, (), 3),
        EncodedColumn("town", "categorical", None, 7, 12, (), 0),
        EncodedColumn("opened", "date", "standard", None, None, ("month", "weekday"), 1),
        EncodedColumn("visits", "list", None, 30, 4, (), 2, cut=5),
    ),
    disclosures={
        "clinic": (Disclosure("embeddings", 1479, "an embedding of each shared row"),),
        "lab": (Disclosure("gradients", 1365, "a gradient for each row of every batch"), Disclosure("figures", 0, "none")),
    },
)


def measured(of: Trained, alone: dict[str, Any] | None = None, **results: Any) -> Trained:
    """``of`` with other results, and with others of the active party alone."""
    assert of.results is not None
    if alone is not None:
        results["alone"] = replace(of.results.alone, **alone)
    return replace(of, results=replace(of.results, **results))


REPEATED = measured(
    RESULT,
    intervals={name: around(value) for name, value in VALUES.items()},
    alone={
        "intervals": {name: around(value) for name, value in ALONE.items()},
        "gains": {name: around(VALUES[name] - ALONE[name]) for name in VALUES},
    },
)

EACH = measured(
    RESULT,
    intervals={name: around(value, "delong" if name == "auc" else "bootstrap") for name, value in VALUES.items()},
    repeats={name: [value] for name, value in VALUES.items()},
    constant={"nll": 0.6629},
    confusion=[[60, 3], [2, 38]],
    alone={
        "gains": {"auc": around(0.019, "delong")},
        "repeats": {name: [value] for name, value in ALONE.items()},
        "confusion": [[58, 5], [4, 36]],
    },
)
"""One split with all that is measured on its rows."""

TREE = {"auc": 0.987, "ace": 0.05, "nll": 0.2, "accuracy": 0.94}

COMPARED = measured(
    EACH,
    alone={"kind": "a network of the same kind", "trained_rows": 4_000},
    rival=Rival(
        kind="a boosted tree (of a library)",
        trained_rows=3_999,
        metrics=TREE,
        repeats={name: [value] for name, value in TREE.items()},
        intervals={"auc": around(0.987, "delong")},
        gains={"auc": around(0.004, "delong")},
        curve=[(0.3, 0.2, 50), (0.6, 0.8, 53)],
        confusion=[[59, 4], [3, 37]],
    ),
)
"""Beside a network and a boosted tree alone."""

BY_ALIGNED = measured(
    COMPARED,
    aligned=replace(
        COMPARED.results.rival,
        kind="a network of the same kind",
        trained_rows=409,
        metrics={"auc": 0.811, "ace": 0.05, "nll": 0.2, "accuracy": 0.94},
        gains={"auc": around(0.18, "delong")},
    ),
)
"""Also beside a network by aligned rows alone."""

UNTOLD = replace(
    RESULT,
    epochs=tuple(replace(epoch, loss=None, auc=None) for epoch in RESULT.epochs),
    results=None,
)


AUDITED = replace(
    RESULT,
    epochs=tuple(
        replace(epoch, attacks={"longitudinal": late, "row_loss": 0.5 - step, "same_step_twin": 0.6 + step, "spectral": 0.51})
        for epoch, late, step in zip(RESULT.epochs, (None, 0.52, 0.54), (0.1, 0.2, 0.3), strict=True)
    ),
    audits=Audits(membership={"longitudinal": 0.53, "row_loss": 0.22, "same_step_twin": 0.7, "spectral": 0.51}),
)


def with_matched(**values: Any) -> Trained:
    return replace(RESULT, section=SECTION.model_copy(update={"matched_metrics": MatchedMetrics(**values)}))


VALIDATED = replace(
    RESULT,
    section=SECTION.model_copy(update={"early_stopping": EarlyStopping(best_epochs=(2,), last_epochs=(3,))}),
    epochs=tuple(
        replace(epoch, validation_loss=loss, validation_auc=auc)
        for epoch, loss, auc in zip(RESULT.epochs, (0.71, 0.52, 0.55), (0.79, 0.88, 0.87), strict=True)
    ),
    validated=np.arange(57),
)

CONTRIBUTIONS = replace(
    RESULT,
    section=SECTION.model_copy(
        update={
            "contributions": {
                "clinic": {"auc": Drop(mean=0.0211, sd=0.004), "nll": Drop(mean=-0.012, sd=0.001), "accuracy": None},
                "lab": {"auc": Drop(mean=0.2, sd=0.0), "nll": Drop(mean=1.5, sd=0.1)},
            },
            "column_contributions": {
                f"column {number}": {"auc": Drop(mean=number / 1000, sd=0.0), "nll": None} for number in range(12)
            },
            "column_movements": {"stains": 0.25, "site": 1.5},
        }
    ),
)
MATCHED = with_matched(auc=0.987, ace=0.02, nll=0.09, accuracy=0.96, rows=91)

PSI = {"protocol": "psi"}
APSI = {"protocol": "apsi", "obfuscation": {"size": 480}}


def regression(*, party: str = "clinic", align: dict[str, Any] = APSI, rows: int | None = 480, **train: Any) -> Report:
    """Logistic regression of clinic and lab, with carol where the flow needs one, as ``party`` reports it."""
    flow = train.get("flow", "two-party")
    parties = {"active": "clinic", "passive": "lab"} | ({} if flow == "two-party" else {"coordinator": "carol"})
    evaluate = {"test_fraction": 0 if train.get("labels") == "passive" else 0.2}
    document = {"name": "trial", "parties": parties, "align": align, "evaluate": evaluate}
    job = Job.model_validate(document | {"train": {"algorithm": "logistic", "iterations": 3, **train}})
    several = job.classes > 2
    told = party == "clinic" and job.label_holder == "active"
    undefined = {"ace": None, "nll": None} if several else {}
    curves: dict[str, Any] = {"curve": []} if several else {}
    known = measured(RESULT, metrics=VALUES | undefined, **curves, alone={"metrics": ALONE | undefined, **curves})
    result = replace(
        known if told else UNTOLD,
        epochs=tuple(replace(epoch, auc=None, loss=epoch.loss if told else None) for epoch in RESULT.epochs),
        steps=3,
        disclosures={name: (Disclosure("rounds", 3, f"how long {name} trained"),) for name in job.parties.all},
        warnings=("480 shared rows are fewer than 20 for each of 40 columns.",) if party == "clinic" else (),
        section=GlmSection(
            flow=flow,
            rows=rows,
            features={"clinic": 8 if party != "lab" else None, "lab": 12},
            rounds=3,
            decryptions={"lab": 36} | ({"clinic": 24} if flow == "coordinator" and party != "lab" else {}),
            decrypted_bits={"lab": 2232} | ({"clinic": 1488} if flow == "coordinator" and party != "lab" else {}),
            dropped=("constant", "empty") if party == "lab" else (),
        ),
    )
    if party == "carol":
        phases = {
            "preflight (clinic)": Traffic(1, 2, 3, 4),
            "train (clinic)": Traffic(5, 6, 7, 8),
            "train (lab)": Traffic(9, 10),
        }
        return build(job, party=party, training=result, alignment=None, align_seconds=None, traffic=phases)
    phases = {"align": Traffic(3000, 4000, 5, 6), "train": Traffic(50_000, 60_000, 7, 8)}
    if flow != "two-party":
        phases["train (coordinator)"] = Traffic(700, 800, 9, 10)
    return build(job, party=party, training=result, traffic=phases)


def numbers(*, party: str = "clinic", **evaluate: Any) -> Report:
    """A regression of prices around 50,000, as ``party`` reports it."""
    document = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}, "align": PSI, "evaluate": evaluate}
    job = Job.model_validate({**document, "train": {"task": "regression", "epochs": 3}})
    told = {"rmse": 4512.25, "mae": 3001.5, "r2": -0.0312, "mse": 4512.25**2}
    errors = measured(
        replace(RESULT, epochs=tuple(replace(epoch, auc=None) for epoch in RESULT.epochs)),
        metrics=told,
        intervals={
            "rmse": {"mean": 4512.25, "sd": 100.0, "low": 4312.0, "high": 4712.0, "method": "bootstrap"},
            "r2": {"mean": -0.0312, "sd": 0.3, "low": -0.62, "high": 0.55, "method": "bootstrap"},
        },
        constant={"rmse": 4444.0, "mse": 4444.0**2},
        curve=[(41_000.0, 40_000.5, 50), (62_500.0, 71_000.0, 53)],
        alone={
            "metrics": told | {"rmse": 9001.0},
            "gains": {"rmse": {"mean": -4488.75, "sd": 90.0, "low": -4670.0, "high": -4300.0, "method": "bootstrap"}},
            "curve": [(50_000.0, 50_000.0, 103)],
        },
    )
    if party == "clinic":
        return build(job, training=errors)
    return build(job, party=party, training=replace(UNTOLD, epochs=errors.epochs, results=Summary(told)))


def aligned(job: Job, party: str) -> Alignment:
    """512 records of clinic, 510 of lab, 453 in common; as ``party`` sees them, and in words of this test."""
    align, active, peer = job.align, party == "clinic", "lab" if party == "clinic" else "clinic"
    ours, theirs = (512, 510) if active else (510, 512)
    pads = align.padding > 0 and not (align.protocol == "apsi" and active)
    announced = 1024 if pads else theirs
    rows = {"psu": ours + announced - 453 + 2 * align.dummies, "psi": 453, "apsi": 480}[align.protocol]
    owned = {"psu": ours, "psi": 453, "apsi": 453 if active else 480}[align.protocol]
    hidden = align.dummies > 0 or (align.protocol == "apsi" and not active)
    padded = align.padding > 0 and (align.protocol != "apsi" or party == "lab")
    return Alignment(
        spec=align.spec,
        group="curve25519",
        rows=np.where(np.arange(rows) < owned, np.arange(rows), NOT_MINE),
        ours=ours,
        peers={
            peer: PeerFacts(
                records=announced,
                intersection=None if hidden else 453,
                missing=None if hidden or (padded and align.protocol == "psu") else owned - 453,
                padded=padded,
                learnt=(
                    Disclosure("set size", ours, f"the number of {party}'s records"),
                    Disclosure("intersection", None, "which"),
                ),
            )
        },
        union=None if hidden or padded else ours + announced - 453,
        learnt=(Disclosure("set size", announced, f"the number of {peer}'s records"),),
    )


def build(job: Job | None = None, *, party: str = "clinic", training: Trained | None = RESULT, **changes: Any) -> Report:
    job = job or a_job()
    if job.train and training and isinstance(training.section, SplitSection) and party in ("clinic", "lab"):
        view = aligned(job, party)
        lacks = {party: view.missing, **{name: facts.missing for name, facts in view.peers.items()}}
        used = strategies_used(job.train.missing, lacks, job.parties)
        protection = changes.get("protection", Protection())
        defences = tuple(params.model_dump(mode="json") for params in protection.defences)
        section = training.section.model_copy(update={"strategies": used, "defences": defences})
        training = replace(training, section=section, warnings=training.warnings or unaudited(protection))
    given: dict[str, Any] = {
        "job": job,
        "job_id": "trial-0a1b2c3d",
        "party": party,
        "alignment": aligned(job, party) if party in ("clinic", "lab") else None,
        "align_seconds": 0.5,
        "records": 512 if party == "clinic" else 510 if party == "lab" else None,
        "protection": Protection(),
        "traffic": {"preflight": Traffic(10, 20, 1, 2), "align": Traffic(3000, 4000, 5, 6)},
        "training": training if job.train else None,
        "started": "2026-03-01T10:00:00+00:00",
        "finished": "2026-03-01T10:00:14+00:00",
        "versions": {"vfl_node": "0"},
    }
    return envelope.build(**(given | changes))


DEFENDED = Protection(tuple(NoiseParams(name="noise", sigma=sigma) for sigma in (0.25, 0.5)), membership=False)


def predicting(rows: str, *, party: str, **changes: Any) -> Report:
    """Predictions for clinic by the model of an earlier job, as ``party`` reports them."""
    document = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}, "align": {"protocol": "psi"}}
    job = Job.model_validate(document | {"predict": {"model": "trial-1", "to": "active", "rows": rows}})
    asks, shared = party == "clinic", np.arange(453 if party == "clinic" else 0)
    exchanged: ServiceCount | Predicted = Predicted(shared, shared / 453, shared=453)
    if rows == "known":
        exchanged = ServiceCount(rows=256, requests=3 if asks else 0, batches=7)
        changes |= {"alignment": None, "align_seconds": None, "traffic": {"predict": Traffic(1, 2, 3, 4)}}
    protection = changes.get("protection", Protection())
    predictions = report_predictions(predictor_of(a_job().train), job, party, exchanged, protection)
    return build(job, party=party, predictions=predictions, **changes)


@pytest.mark.parametrize("party", ["clinic", "lab", "insurer"])
def test_of_three_parties_the_asker_is_named_and_every_party_has_its_entries(party: str) -> None:
    document = {"name": "trial", "parties": {"active": "clinic", "passive": ["lab", "insurer"]}, "align": {"protocol": "psi"}}
    job = Job.model_validate(document | {"predict": {"model": "trial-1", "to": "insurer"}})
    exchanged = ServiceCount(rows=256, requests=3 if party == "insurer" else 0, batches=7, told=1000)
    predictions = report_predictions(predictor_of(a_job().train), job, party, exchanged, Protection())
    nothing = {"alignment": None, "align_seconds": None, "traffic": {"predict": Traffic(1, 2, 3, 4)}}
    report = build(job, party=party, predictions=predictions, **nothing)
    assert report.predictions is not None
    assert (report.predictions.to, report.predictions.requests) == ("insurer", 3 if party == "insurer" else None)
    whats = {name: [entry.what for entry in entries] for name, entries in report.learnt.items()}
    assert whats == {"clinic": ["embeddings", "embeddings", "requests"], "lab": ["requests"], "insurer": ["predictions"]}
    text = " ".join(page_module.render(report).split())
    assert "records that these parties have aligned before" in text
    assert f"{'Other parties were' if party == 'clinic' else 'clinic was'} told about 1,000 different rows" in text
    assert "the two" not in text


UNTOLD_AUDIT = replace(UNTOLD, epochs=AUDITED.epochs, audits=AUDITED.audits)

EMPTY = Alignment(ALIGNMENTS["psu"], "curve25519", np.full(4, NOT_MINE), 0, {"lab": PeerFacts(4, 0, 0)}, 4)

REPORTS = {
    "active": lambda: build(),
    "repeated": lambda: build(a_job(repeats=10), training=REPEATED),
    "one split": lambda: build(a_job(threshold=0.4), training=EACH),
    "compared": lambda: build(training=COMPARED),
    "by aligned rows": lambda: build(training=BY_ALIGNED),
    "no boosted tree": lambda: build(training=measured(EACH, rival_note="No boosted tree was trained: no library.")),
    "on training rows": lambda: build(a_job(test_fraction=0)),
    "without own features": lambda: build(training=replace(RESULT, results=replace(RESULT.results, alone=None))),
    "undefined metrics": lambda: build(
        training=measured(
            replace(RESULT, epochs=tuple(replace(epoch, auc=None) for epoch in RESULT.epochs)),
            metrics=dict.fromkeys(VALUES),
            curve=[],
            alone={"metrics": dict.fromkeys(VALUES), "curve": []},
        )
    ),
    "passive": lambda: build(party="lab", training=UNTOLD),
    "passive, told": lambda: build(
        a_job(share_with_passive=True), party="lab", training=replace(UNTOLD, epochs=RESULT.epochs, results=Summary(VALUES))
    ),
    "intersection": lambda: build(a_job(align=PSI)),
    "asymmetric, active": lambda: build(a_job(align=APSI)),
    "asymmetric, passive": lambda: build(a_job(align=APSI), party="lab", training=UNTOLD),
    "asymmetric, align only": lambda: build(a_job(align=APSI, train=False), party="lab"),
    "padded": lambda: build(a_job(align={"padding": 1})),
    "padded intersection": lambda: build(a_job(align=PSI | {"padding": 1}, train=False)),
    "padded asymmetric, active": lambda: build(a_job(align=APSI | {"padding": 1})),
    "padded asymmetric, passive": lambda: build(a_job(align=APSI | {"padding": 1}), party="lab", training=UNTOLD),
    "dummies": lambda: build(a_job(align={"dummies": 20})),
    "dummies, align only": lambda: build(a_job(align={"dummies": 20, "padding": 1}, train=False)),
    "align only": lambda: build(a_job(train=False)),
    "logistic, active": lambda: regression(),
    "logistic, active, intersection": lambda: regression(align=PSI),
    "logistic, passive": lambda: regression(party="lab"),
    "logistic, several classes": lambda: regression(classes=10),
    "three parties, active": lambda: regression(flow="coordinator", loss="taylor"),
    "three parties, passive": lambda: regression(party="lab", flow="coordinator", loss="taylor"),
    "three parties, coordinator": lambda: regression(party="carol", flow="coordinator", loss="taylor", rows=None),
    "scores in clear, active": lambda: regression(flow="coordinator-open-scores"),
    "scores in clear, coordinator": lambda: regression(party="carol", flow="coordinator-open-scores"),
    "labels at the passive party, active": lambda: regression(flow="coordinator", loss="taylor", labels="passive"),
    "labels at the passive party, passive": lambda: regression(
        party="lab", flow="coordinator", loss="taylor", labels="passive"
    ),
    "audited, active": lambda: build(training=AUDITED, protection=Protection(max_attack_auc=0.85)),
    "audited, passive": lambda: build(party="lab", training=UNTOLD_AUDIT),
    "defended, audit off": lambda: build(protection=DEFENDED),
    "defended, passive": lambda: build(party="lab", training=UNTOLD, protection=DEFENDED),
    "predictions, audit off": lambda: predicting("known", party="lab", protection=DEFENDED),
    "nothing to tell apart": lambda: build(
        training=replace(RESULT, epochs=tuple(replace(epoch, attacks={"spectral": None}) for epoch in RESULT.epochs))
    ),
    "matched": lambda: build(training=MATCHED),
    "validated": lambda: build(a_job(validation_fraction=0.1), training=VALIDATED),
    "validated, passive": lambda: build(
        a_job(validation_fraction=0.1),
        party="lab",
        training=replace(UNTOLD, section=VALIDATED.section, validated=np.arange(57)),
    ),
    "contributions": lambda: build(training=CONTRIBUTIONS),
    "too few matched": lambda: build(training=with_matched(rows=None)),
    "down-sampled": lambda: build(a_job(align={"at_most": 512}), records=12_345),
    "strategies": lambda: build(
        a_job(missing={"labels": "random-pred", "draws": 5, "features": "gaussian", "calibration": "train"})
    ),
    "numbers": lambda: numbers(),
    "numbers, passive, told": lambda: numbers(party="lab", share_with_passive=True),
    "predictions, known, asker": lambda: predicting("known", party="clinic"),
    "predictions, known, asked": lambda: predicting("known", party="lab"),
    "predictions, new, asker": lambda: predicting("new", party="clinic"),
    "predictions, new, asked": lambda: predicting("new", party="lab"),
    "empty set": lambda: build(a_job(train=False), alignment=EMPTY),
}
cases = pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)


def page(of: Report) -> str:
    return page_module.render(of)


def text(html: str) -> str:
    """What a reader sees, drawings and explanations of words left out."""
    html = re.sub(r"<(style|figure|svg|i)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " ").replace("&#39;", "'").split())


def curves(html: str, name: str) -> str:
    """The drawing of the curves of this name."""
    found = re.search(rf'<figure class="chart" id="{name}-curve".*?</figure>', html, flags=re.S)
    assert found
    return found[0]


class Strict(HTMLParser):
    """Checks that tags nest, and gathers them."""

    VOID = {"meta", "br", "line", "rect", "circle", "polyline"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parsed(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Strict()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.tags


@cases
def test_json_round_trip_with_exactly_the_documented_keys(make) -> None:
    built = make()
    assert Report.model_validate_json(built.to_json()) == built
    documented = set(
        re.findall(r"`([^`]+)`", "".join(path.read_text() for path in (ROOT / "docs/reference").glob("report*.md")))
    )
    found = json.loads(built.to_json())
    for key, value in found.items():
        assert any(name.split(".")[0] == key for name in documented), key
        inner = "metrics" if key.endswith("_metrics") else key
        if key == "training" and value:
            value |= {f"{value['algorithm']}.{name}": None for name in value.pop(value["algorithm"])}
        if isinstance(value, dict) and key not in ("learnt", "versions", "parties", "phases") and not key.endswith("gains"):
            missing = {f"{inner}.{name}" for name in value} - {name.removesuffix("[]") for name in documented}
            assert not missing


def test_a_page_does_not_say_that_a_defence_without_effect_changed_what_was_sent() -> None:
    sigmas = (0, 0.5)
    defences = tuple(NoiseParams(name="noise", sigma=sigma) for sigma in sigmas)
    assert "clinic changed what it sent by noise (sigma 0.5), without telling lab" in text(
        page(build(protection=Protection(defences)))
    )
    assert "changed what it sent" not in text(page(build(protection=Protection(defences[:1]))))


@pytest.mark.parametrize("rows", ["known", "new"])
def test_predictions_warn_of_defences_where_no_embedding_is_sent(rows: str) -> None:
    idle = "Of the defences in this node's settings these changed nothing that it sent in predictions: noise, noise."
    report = {party: predicting(rows, party=party, protection=DEFENDED) for party in ("clinic", "lab")}
    assert report["clinic"].predictions.warnings[-1] == idle
    assert idle not in report["lab"].predictions.warnings


@pytest.mark.parametrize("case", ["defended, audit off", "predictions, audit off"])
def test_an_owner_reads_that_nothing_was_attacked_and_what_was_changed(case: str) -> None:
    report = REPORTS[case]()
    read, section = text(page(report)), report.training or report.predictions
    assert section is not None
    assert "No attack was run on what this party sent (audit.membership: false)" in section.warnings[0]
    assert section.warnings[0] in read
    if report.training:
        assert report.training.split.defences == tuple({"name": "noise", "sigma": sigma} for sigma in (0.25, 0.5))
        assert "clinic changed what it sent by noise (sigma 0.25), then noise (sigma 0.5), without telling lab." in read
    assert "product measures" not in read
    audited = text(page(build()))
    assert "No attack was run" not in audited
    assert "changed what it sent" not in audited


def test_models_alone_stand_beside_the_federated_one_and_say_what_they_learnt_from() -> None:
    built = build(training=COMPARED)
    found, read = json.loads(built.to_json()), text(page(built))
    assert found["metrics"]["model"] is found["metrics"]["trained_rows"] is found["boosted_tree_note"] is None
    assert (found["local_metrics"]["model"], found["local_metrics"]["trained_rows"]) == ("a network of the same kind", 4000)
    tree = found["boosted_tree_metrics"]
    assert (tree["model"], tree["trained_rows"], tree["auc"]) == ("a boosted tree (of a library)", 3999, 0.987)
    assert (tree["rows"], tree["constant_nll"]) == (103, 0.6629)
    assert tree["confusion"]["counts"] == [[59, 4], [3, 37]]
    assert tree["calibration"] == [[0.3, 0.2, 50], [0.6, 0.8, 53]]
    assert tree["repeats"]["auc"] == [0.987]
    assert found["boosted_tree_gains"]["auc"]["mean"] == 0.004
    assert "clinic alone: a network of the same kind on 4,000 own labelled rows, none of them held out." in read
    assert "boosted tree of clinic alone: a boosted tree (of a library) on 3,999 own labelled rows" in read
    assert "boosted tree of clinic alone: predicted at threshold 0.5" in read


def test_a_network_by_aligned_rows_stands_beside_the_one_by_all_rows() -> None:
    built = build(training=BY_ALIGNED)
    found, read = json.loads(built.to_json()), text(page(built))
    model = found["local_aligned_metrics"]
    assert (model["model"], model["trained_rows"], model["auc"]) == ("a network of the same kind", 409, 0.811)
    assert found["local_metrics"]["auc"] == ALONE["auc"]
    assert found["local_aligned_gains"]["auc"]["mean"] == 0.18
    assert "0.811" in read
    assert "clinic alone, aligned rows: a network of the same kind on 409 own labelled rows, none of them held out." in read
    assert "aligned rows" not in text(page(build(training=COMPARED)))
    assert json.loads(build(training=COMPARED).to_json())["local_aligned_metrics"] is None


def test_why_there_is_no_boosted_tree_is_said_to_whom_it_concerns() -> None:
    note = "No boosted tree was trained: no library."
    for training, party, told in ((measured(EACH, rival_note=note), "clinic", True), (UNTOLD, "lab", False)):
        built = build(training=training, party=party)
        assert built.boosted_tree_metrics is built.boosted_tree_gains is None
        assert (built.boosted_tree_note == note) == (note in text(page(built))) == told


def test_validation_is_a_second_curve_with_a_key_beside_it() -> None:
    html = page(REPORTS["validated"]())
    seen = text(html)
    assert "Validation rows are judged after each epoch." in seen
    assert seen.count("training rows validation rows") == 2  # the key of each drawing
    assert "epoch 2 of 3 has the smallest validation loss" in seen
    assert "training ends after 5 epochs without a smaller one, or after" in seen
    for name, first, last in (("loss", 0.71, 0.55), ("auc", 0.79, 0.87)):
        drawing = curves(html, name)
        assert drawing.count('class="curve alone"') == 1
        assert f"validation rows from {first} at 1 to {last} at 3." in drawing
    found = json.loads(REPORTS["validated"]().to_json())["training"]
    assert found["rows"] == {"training": 455, "validation": 57, "test": 114}
    assert found["split"]["early_stopping"] == {"best_epochs": [2], "last_epochs": [3]}
    for other in ("active", "validated, passive"):
        assert "validation rows" not in text(page(REPORTS[other]()))


def test_keys_of_the_whole() -> None:
    found = json.loads(build(a_job(repeats=10), training=REPEATED).to_json())
    assert found["alignment"] == {
        "protocol": "psu",
        "group": "curve25519",
        "records": 512,
        "merged": None,
        "ours": 512,
        "theirs": 510,
        "padded": False,
        "rows": 569,
        "union": 569,
        "intersection": 453,
        **dict.fromkeys(
            (
                "candidates",
                "without_candidate",
                "bits",
                "comparison",
                "sigma",
                "tau",
                "tau_min",
                "expected_disclosed",
                "tau_means",
            )
        ),
        "reuse": None,
        "reused": None,
        "warnings": [],
        "seconds": 0.5,
        "bytes_sent": 3000,
        "bytes_received": 4000,
    }
    assert found["training"]["epochs"][0] == {
        "loss": 0.7,
        "auc": 0.8,
        "seconds": 0.1,
        "bytes": 1000,
        "attacks": {},
        "judged": {},
        "validation_loss": None,
        "validation_auc": None,
        "rebuilt": {},
        "labels": {},
        "defence_seconds": 0.0,
        "defences": [],
    }
    assert found["training"]["rows"] == {"training": 455, "validation": 0, "test": 114}
    assert found["metrics"]["auc"] == 0.991
    assert found["metrics"]["population"] == "owned"
    assert found["metrics"]["intervals"]["auc"]["repeats"] == 10
    assert found["metrics"]["calibration"] == [[0.1, 0.0, 50], [0.9, 1.0, 53]]
    assert found["local_metrics"]["auc"] == 0.972
    assert found["local_metrics"]["calibration"] == [[0.2, 0.1, 50], [0.7, 0.9, 53]]
    assert found["gains"]["auc"]["mean"] == pytest.approx(0.019)
    assert found["manifest_digest"] == found["job"]["manifest_digest"] == a_job(repeats=10).digest()
    spec = json.dumps(found["job"]["spec"], sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(spec.encode()).hexdigest() == found["manifest_digest"]  # by the first names of keys
    assert found["phases"]["align"]["messages_received"] == 6


def test_schema_file_is_current_and_closed() -> None:
    written = json.loads((ROOT / "docs/report.schema.json").read_text())
    assert written == envelope.json_schema(), "run: python -m vfl_node.report.envelope > docs/report.schema.json"
    assert {name for name, part in written["$defs"].items() if "properties" not in part} == {"JsonValue"}
    sections = [written, *(part for part in written["$defs"].values() if "properties" in part)]
    assert all(section["additionalProperties"] is False for section in sections)
    assert all(
        set(section["required"]) == set(section["properties"]) for section in sections if "metrics" in section["properties"]
    )


def test_the_schema_describes_the_figures_of_each_trainer() -> None:
    parts = envelope.json_schema()["$defs"]
    for name, figures, section in (
        ("split", "SplitFigures", SplitSection),
        ("logistic", "LogisticFigures", GlmSection),
    ):
        keys = parts[figures]["properties"]
        assert set(keys) == {*CommonFigures.model_fields, name} == set(parts[figures]["required"])
        assert keys["algorithm"]["const"] == name
        assert keys[name] == {"$ref": f"#/$defs/{section.__name__}"}
        assert set(parts[section.__name__]["properties"]) == set(section.model_fields)


def test_figures_have_the_section_of_their_trainer_and_no_other() -> None:
    whole = json.loads(build().to_json())
    training = whole["training"]
    section = training.pop("split")
    for wrong, said in (
        ({}, "split"),
        ({"split": section, "logistic": section}, "logistic"),
        ({"algorithm": "logistic", "split": section}, "logistic"),
        ({"algorithm": "nothing", "split": section}, "algorithm"),
    ):
        with pytest.raises(ValidationError, match=rf"training\.{said}"):
            Report.model_validate(whole | {"training": training | wrong})


def test_a_trainer_that_cannot_be_loaded_concerns_no_other_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRAINERS, "_places", dict(TRAINERS._places) | {"broken": "vfl_node_is_not_here:Config"})
    whole = json.loads(build().to_json())
    assert Report.model_validate(whole) == build()
    assert page(build())
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        Report.model_validate(whole | {"training": whole["training"] | {"algorithm": "broken"}})
    assert caught.value.code == "E_EXTENSION"


def test_unknown_keys_and_numbers_that_are_none_are_refused() -> None:
    whole = json.loads(build().to_json())
    with pytest.raises(ValidationError, match="surprise"):
        Report.model_validate(whole | {"surprise": 1})
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            build(training=measured(RESULT, metrics=VALUES | {"auc": bad}))
        with pytest.raises(ValidationError):
            build(training=replace(RESULT, epochs=(Epoch(bad, 0.9, 0.1, 1),)))
        with pytest.raises(ValidationError):
            build(training=replace(RESULT, epochs=(Epoch(0.5, bad, 0.1, 1),)))


@pytest.mark.parametrize("party", ["clinic", "lab"])
@pytest.mark.parametrize("align", [{}, PSI, APSI, {"padding": 1}, {"dummies": 20}], ids=str)
def test_learnt_is_that_of_alignment_and_training_for_both_parties(party: str, align: dict[str, Any]) -> None:
    job = a_job(align=align)
    built = build(job, party=party, training=RESULT if party == "clinic" else UNTOLD)
    assert list(built.learnt) == [party, "lab" if party == "clinic" else "clinic"]
    view, trained = aligned(job, party), RESULT.disclosures
    for name, entries in ((party, view.learnt), (list(built.learnt)[1], view.peer.learnt)):
        assert [entry.model_dump() for entry in built.learnt[name]] == [asdict(entry) for entry in entries + trained[name]]


def test_learnt_has_every_party_of_the_job() -> None:
    built = regression(flow="coordinator", loss="taylor")
    assert list(built.learnt) == ["clinic", "lab", "carol"]
    assert [entry.what for entry in built.learnt["clinic"]] == ["set size", "rounds"]
    assert [entry.what for entry in built.learnt["lab"]] == ["set size", "intersection", "rounds"]
    assert [entry.what for entry in built.learnt["carol"]] == ["rounds"]
    whole = json.loads(built.to_json())
    for learnt in ({name: [] for name in ("clinic", "lab")}, whole["learnt"] | {"dave": []}):
        with pytest.raises(ValidationError, match="each party of the job"):
            Report.model_validate(whole | {"learnt": learnt})
    with pytest.raises(KeyError, match="lab"):  # a trainer that says nothing of a party is wrong, and not read as "nothing"
        build(training=replace(RESULT, disclosures={"clinic": ()}))


def test_alignment_is_null_at_the_coordinator_and_nowhere_else() -> None:
    coordinator = json.loads(regression(party="carol", flow="coordinator-open-scores").to_json())
    assert (coordinator["role"], coordinator["alignment"], coordinator["metrics"]) == ("coordinator", None, None)
    assert list(coordinator["learnt"]) == ["carol", "clinic", "lab"]
    for party in ("clinic", "lab"):
        other = json.loads(build(party=party).to_json())
        with pytest.raises(ValidationError, match="nowhere else"):
            Report.model_validate(coordinator | {"alignment": other["alignment"]})
        with pytest.raises(ValidationError, match="nowhere else"):
            Report.model_validate(other | {"alignment": None})
        with pytest.raises(ValidationError, match="nowhere else"):
            build(party=party, alignment=None, align_seconds=None)


def test_figures_of_a_logistic_regression() -> None:
    own = {"flow": "two-party", "rows": 480, "rounds": 3, "decryptions": {"lab": 36}, "decrypted_bits": {"lab": 2232}}
    active, passive = (json.loads(regression(party=party).to_json())["training"] for party in ("clinic", "lab"))
    warning = "480 shared rows are fewer than 20 for each of 40 columns."
    for training, features, dropped, warnings in (
        (active, {"clinic": 8, "lab": 12}, [], [warning]),
        (passive, {"clinic": None, "lab": 12}, ["constant", "empty"], []),
    ):
        assert training["logistic"] == own | {"features": features, "dropped": dropped}
        assert (training["algorithm"], training["warnings"]) == ("logistic", warnings)
    assert [epoch["loss"] for epoch in active["epochs"]] == [0.7, 0.5, 0.4]
    assert [epoch["loss"] for epoch in passive["epochs"]] == [None] * 3


def test_a_report_has_the_section_of_its_trainer_only() -> None:
    logistic, split = (json.loads(of.to_json()) for of in (regression(), build()))
    assert "split" not in logistic["training"]
    assert "logistic" not in split["training"]
    section = logistic["training"]["logistic"]
    for whole, change in (
        (logistic, {"logistic": section | {"rounds": None}}),
        (logistic, {"algorithm": "split"}),
        (split, {"logistic": section}),
        (split, {"split": None}),
        (split, {"algorithm": "logistic"}),
        (split, {"algorithm": "forest"}),
        (logistic, {"logistic": section | {"flow": "four-party"}}),
        (logistic, {"logistic": section | {"decryptions": {"lab": -1}}}),
        (logistic, {"logistic": section | {"surprise": 1}}),
        (logistic, {"surprise": 1}),
    ):
        assert Report.model_validate(whole).training
        with pytest.raises(ValidationError, match="training"):
            Report.model_validate(whole | {"training": whole["training"] | change})


def test_every_keyword_of_the_ledger_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "vfl_node").rglob("*.py"))
    ledger = (ROOT / "docs/reference/ledger.md").read_text()
    documented = set(re.findall(r"^\| `([^`]+)` \| [^|`]", ledger, flags=re.M))
    assert set(re.findall(r'Disclosure\(\s*"([^"]+)"', sources)) == documented, (
        "docs/reference/ledger.md: its table must have one row for each keyword of a Disclosure, and no other one"
    )


@cases
def test_page_is_wellformed_and_needs_nothing_from_outside(make) -> None:
    html = page(make())
    tags = parsed(html)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & {tag for tag, _ in tags}
    for tag, attributes in tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style")}, tag
        assert (attributes.get("href") or "#").startswith("#"), tag  # a link stays on the page
    assert "://" not in html
    assert "url(" not in html
    assert "@import" not in html
    for drawing in re.findall(r"<figure\b.*?</figure>", html, flags=re.S):
        ET.fromstring(drawing)
    for drawing in re.findall(r"<svg\b.*?</svg>", re.sub(r"<figure\b.*?</figure>", "", html, flags=re.S), flags=re.S):
        ET.fromstring(drawing)
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    policy = next(
        attributes["content"] for tag, attributes in tags if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    style = re.search(r"<style>(.*?)</style>", html, flags=re.S)[1]
    assert policy == f"default-src 'none'; style-src {page_module.csp_source(style)}; base-uri 'none'; form-action 'none'"


def test_the_purpose_of_a_job_stands_below_its_name() -> None:
    why = a_job().model_copy(update={"purpose": "Does the <lab> help?"})
    assert "<h1>trial</h1>\n<p>Does the &lt;lab&gt; help?</p>" in page(build(job=why))
    assert "<h1>trial</h1>\n<p class" in page(build())


def test_hostile_text_stays_text() -> None:
    learnt = replace(aligned(a_job(), "clinic"), group=HOSTILE, learnt=(Disclosure(HOSTILE, None, HOSTILE),))
    said = dict.fromkeys(("clinic", "lab"), (Disclosure("embeddings", 1, HOSTILE),))
    columns = (replace(RESULT.columns[0], name=HOSTILE),)
    hostile = replace(RESULT, device=HOSTILE, columns=columns, disclosures=said, warnings=(HOSTILE,))
    traffic = {"align": Traffic(), HOSTILE: Traffic(1, 2, 3, 4)}
    html = page(build(alignment=learnt, training=hostile, traffic=traffic, versions={HOSTILE: HOSTILE}))
    tags = parsed(html)
    assert not {"script", "img"} & {tag for tag, _ in tags}
    assert html.count("&lt;img src=x") >= 10


def test_page_lists_what_was_done_with_each_own_column() -> None:
    seen = text(page(build()))
    for row in (
        "age numeric quantile – 3",
        "town categorical – 7, 12 merged 0",
        "opened date standard, month, weekday – 1",
        "visits list – 30, 4 merged, 5 rows cut short 2",
    ):
        assert row in seen
    assert json.loads(build().to_json())["training"]["columns"][1] == {
        "name": "town",
        "kind": "categorical",
        "transform": None,
        "levels": 7,
        "merged": 12,
        "parts": [],
        "missing": 0,
        "cut": 0,
    }
    assert "before training" not in text(page(build(training=replace(RESULT, columns=()))))


def test_page_of_the_active_party_leads_with_both_models_and_their_difference() -> None:
    seen = text(page(build(a_job(repeats=10), training=REPEATED)))
    assert "Yes: better than clinic alone on three of four measures." in seen
    assert "AUC 0.991 clinic alone 0.972 +0.019, better" in seen
    assert "0.991 [0.981, 1.001] 0.972 [0.962, 0.982] +0.019 [0.009, 0.029] better" in seen
    assert "103 held-out rows that clinic owns, in each of 10 repeated splits" in seen
    assert "88 % carry real columns of lab" in seen
    assert seen.count("no clear difference") == 2  # calibration, in the verdict and in the table


def test_page_says_that_the_two_models_were_measured_on_different_rows() -> None:
    common, owned = Population("common", 90, 1.0), Population("owned", 103, None)
    seen = text(page(build(training=measured(RESULT, population=common, alone_population=owned))))
    assert "Measured on about 90 held-out rows that all parties have; clinic alone on 103 that it owns" in seen
    assert "these are other rows, so no difference is shown" in seen
    assert "difference" in text(page(build(training=RESULT)))
    assert "+0." not in seen


def test_page_says_when_the_difference_is_not_established() -> None:
    gains = {"auc": {"mean": 0.019, "sd": 0.02, "low": -0.01, "high": 0.048, "method": "repeats"}}
    close = measured(REPEATED, alone={"gains": gains})
    seen = text(page(build(a_job(repeats=10), training=close)))
    assert "Unclear: no measure shows a difference between the federated model and clinic alone." in seen
    assert "+0.019 [−0.010, 0.048] no clear difference" in seen


def test_page_says_when_rows_were_trained_on() -> None:
    seen = text(page(build(a_job(test_fraction=0))))
    assert "103 training rows" in seen
    assert "flatter" in seen
    assert "flatter" not in text(page(build()))


def test_page_of_a_passive_party_that_was_not_told() -> None:
    html = page(build(party="lab", training=UNTOLD))
    seen = text(html)
    assert "Metrics were not shared with this party" in seen
    assert "The curves were not shared with this party" in seen
    assert "A calibration plot is not shared with the passive party." in seen
    assert "AUC" not in seen
    assert 'class="curve ' not in html


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_page_claims_nothing_of_a_trainer_that_has_neither_epochs_nor_metrics(party: str, shared: bool) -> None:
    bare = Trained((), 1, (300, 100), "cpu", dict.fromkeys(("clinic", "lab"), ()), RESULT.section)
    seen = text(page(build(a_job(share_with_passive=shared), party=party, training=bare)))
    assert "Computed on cpu. There are no figures of single epochs." in seen
    for claim in ("Each epoch", "0 s", "0 B exchanged", "curves", "product measures", "no rows to draw"):
        assert claim not in seen, claim
    assert ("This training measured no metrics." in seen) == (party == "clinic")
    assert ("Metrics were not shared with this party" in seen) == (party == "lab")
    assert ("A job shares them by" in seen) == (party == "lab" and not shared)


def test_page_of_a_passive_party_that_was_told() -> None:
    html = page(
        build(
            a_job(share_with_passive=True), party="lab", training=replace(UNTOLD, epochs=RESULT.epochs, results=Summary(VALUES))
        )
    )
    assert "Done. This report does not show whether federating helped." in text(html)
    assert "AUC 0.991 Accuracy" in text(html)
    assert "alone" not in text(html)
    assert html.count('class="curve joint"') == 2


def test_page_draws_loss_and_auc_and_says_which_rows_the_auc_is_of() -> None:
    html = page(build())
    assert html.count('class="curve joint"') == 2
    assert "Loss by epoch: training rows from 0.7 at 1 to 0.4 at 3." in html
    assert "AUC by epoch: training rows from 0.8 at 1 to 0.95 at 3." in html
    assert "the federated model on the training rows that clinic owns, as they were met" in text(html)
    without = page(REPORTS["undefined metrics"]())
    assert without.count('class="curve joint"') == 1
    assert "AUC" not in without


def test_page_draws_the_calibration_of_both_models() -> None:
    html = page(build())
    assert 'class="curve thin joint"' in html
    assert 'class="curve thin alone"' in html
    assert "dashed: clinic alone" in text(html)
    single = page(REPORTS["without own features"]())
    assert 'class="curve thin joint"' in single
    assert 'class="curve thin alone"' not in single
    assert "dashed" not in text(single)


def test_page_draws_the_loss_of_each_iteration() -> None:
    html = page(regression())
    assert "Loss by iteration: training rows from 0.7 at 1 to 0.4 at 3." in html
    assert "epoch" not in html
    assert "iteration" not in page(build())


def test_the_audit_of_each_epoch_and_its_averages() -> None:
    training = json.loads(REPORTS["audited, active"]().to_json())["training"]
    assert training["epochs"][1]["attacks"] == {
        "longitudinal": 0.52,
        "row_loss": pytest.approx(0.3),
        "same_step_twin": 0.8,
        "spectral": 0.51,
    }
    assert (training["audit"]["row_loss"], training["max_attack_auc"]) == (0.22, 0.85)
    for bad in ({"spectral": 1.1}, {"spectral": float("nan")}):
        with pytest.raises(ValidationError):
            build(training=replace(AUDITED, audits=Audits(bad)))
        with pytest.raises(ValidationError):
            build(training=replace(RESULT, epochs=(Epoch(0.5, 0.9, 0.1, 1, bad),)))


def test_page_draws_the_audit_and_says_what_it_means() -> None:
    html = page(REPORTS["audited, active"]())
    seen = text(html)
    drawn = ET.fromstring(curves(html, "audit"))
    assert drawn.get("aria-label") == (
        "AUC by epoch: longitudinal from 0.52 at 2 to 0.54 at 3; row loss from 0.4 at 1 to 0.2 at 3; "
        "same-step twin from 0.7 at 1 to 0.9 at 3; spectral from 0.51 at 1 to 0.51 at 3."
    )
    found = [path.get("class") for path in drawn.iter("path")]
    assert found == ["grid", "guide", "guide bound", *(f"curve {style}" for style in ("joint", "second", "first", "third"))]
    assert {label.text for label in drawn.iter("text")} >= {"chance", "limit 0.85"}
    assert "What the gradients tell clinic sends lab a gradient for every row, also where the label is made up" in seen
    assert "row loss how large a row's gradient is 0.200 0.220" in seen
    # folded: .22 tells more than .7
    assert "The strongest, row loss, names the made-up row in 78 of 100 pairs" in seen
    assert "a lower bound of what lab can tell" in seen
    assert "The limit of clinic's owner is 0.85." in seen
    passive = text(page(REPORTS["audited, passive"]()))
    assert "What the embeddings tell lab sends clinic an embedding of every row, also where the columns are made up" in passive
    assert "The limit of" not in passive
    for name in ("active", "nothing to tell apart", "intersection"):
        assert "made up" not in text(page(REPORTS[name]()))


def test_page_says_which_partys_columns_help() -> None:
    seen = text(page(REPORTS["contributions"]()))
    table = seen[seen.index("Which party's columns help") : seen.index("How much worse the federated model is")]
    assert "clinic +0.021 ± 0.004 – – −0.012 ± 0.001" in table
    assert "lab +0.200 ± 0.000 – – +1.500 ± 0.100" in table
    assert table.index("clinic: column 11 +0.011") < table.index("clinic: column 2 +0.002")
    assert "column 1 " not in table  # ten are shown
    assert "lie from their mean: site 1.50, stains 0.25. This is movement, not importance" in seen
    assert "columns help" not in text(page(build()))


def test_page_has_the_metrics_of_rows_that_both_own() -> None:
    others = dict.fromkeys(("pr_auc", "ks", "lift", "f1"))
    assert json.loads(build(training=MATCHED).to_json())["training"]["split"]["matched_metrics"] == others | {
        "auc": 0.987,
        "ace": 0.02,
        "nll": 0.09,
        "accuracy": 0.96,
        "rows": 91,
    }
    seen = text(page(build(training=MATCHED)))
    assert "Federated, rows of both" in seen
    assert "0.991 0.987 0.972" in seen
    assert "91 held-out rows that lab owns too" in seen
    few = text(page(REPORTS["too few matched"]()))
    assert "0.991 – 0.972" in few
    assert "too few to be counted without telling of single ones" in few
    assert "rows of both" not in text(page(build()))


def test_what_is_measured_on_one_split() -> None:
    found = json.loads(REPORTS["one split"]().to_json())
    assert found["metrics"]["constant_nll"] == found["local_metrics"]["constant_nll"] == 0.6629
    assert found["metrics"]["confusion"] == {"threshold": 0.4, "counts": [[60, 3], [2, 38]]}
    assert found["local_metrics"]["confusion"]["counts"] == [[58, 5], [4, 36]]
    assert found["metrics"]["repeats"]["nll"] == [0.104]
    assert found["local_metrics"]["repeats"]["nll"] == [0.214]
    assert {name: of["method"] for name, of in found["metrics"]["intervals"].items()} == {
        "auc": "delong",
        "ace": "bootstrap",
        "nll": "bootstrap",
        "accuracy": "bootstrap",
    }
    assert found["metrics"]["intervals"]["auc"]["repeats"] == 1


def test_page_has_the_constant_the_confusion_matrix_and_the_methods_of_intervals() -> None:
    seen = text(page(REPORTS["one split"]()))
    assert "0.104 [0.094, 0.114] the constant 0.663" in seen
    assert "The constant is a model that always says how frequent each class is among the labels trained on." in seen
    assert "Federated: predicted at threshold 0.4 Class as 0 as 1 0 60 3 1 2 38" in seen
    assert "clinic alone: predicted at threshold 0.4 Class as 0 as 1 0 58 5 1 4 36" in seen
    assert "Accuracy at threshold 0.4; higher is better" in seen
    assert (
        "In brackets the 95 % interval , AUC over its rows, by DeLong's variance; "
        "Accuracy, ACE, NLL over its rows, by a bootstrap." in seen
    )
    repeated = text(page(REPORTS["repeated"]()))
    assert "In brackets the 95 % interval , over the repeated splits, corrected for their overlap." in repeated
    for other in (repeated, text(page(build()))):
        assert "the constant" not in other
        assert "Federated: predicted" not in other


@pytest.mark.parametrize(("classes", "shown"), [(3, True), (10, True), (11, False)])
def test_page_has_a_confusion_matrix_of_few_classes(classes: int, shown: bool) -> None:
    counts = [[7] * classes for _ in range(classes)]
    values = {"auc": 0.9, "accuracy": 0.8, "f1": 0.7, "pr_auc": 0.6}
    result = replace(RESULT, results=replace(RESULT.results, metrics=values, alone=None, curve=[], confusion=counts))
    job = Job.model_validate(a_job().model_dump() | {"train": {"epochs": 3, "classes": classes}})
    built = build(job, training=result)
    assert built.metrics.confusion.threshold is None
    seen = text(page(built))
    assert ("Federated: predicted as the likeliest class Class as 0 as 1 as 2" in seen) == shown
    assert "PR AUC average precision, mean over the classes" in seen
    assert "threshold" not in seen.split("Details")[0]


def test_the_passive_party_gets_neither_counts_nor_values_of_repeats() -> None:
    told = json.loads(REPORTS["passive, told"]().to_json())["metrics"]
    assert told["auc"] == 0.991
    assert told["confusion"] is told["repeats"] is told["constant_nll"] is told["intervals"] is None


def test_a_regression_is_in_the_targets_unit() -> None:
    report = numbers()
    found = json.loads(report.to_json())["metrics"]
    assert (found["rmse"], found["constant_rmse"], found["constant_nll"], found["auc"]) == (4512.25, 4444.0, None, None)
    assert (found["calibration"], found["confusion"]) == ([], None)
    assert found["predicted_actual"] == [[41_000.0, 40_000.5, 50], [62_500.0, 71_000.0, 53]]
    html = page(report)
    said = text(html)
    for sentence in (
        "RMSE root of the mean squared error, in the target's unit; lower is better 4,512 [4,312 to 4,712]",
        "−4,489 [−4,670 to −4,300] better",
        "−4,489, better",
        "the constant 4,444",
        "R² share of the target's variance that is explained; 1 is perfect, 0 as good as these rows' own mean −0.031",
        "[−0.620, 0.550]",
        "always says the mean of the targets trained on",
        "Predicted and actual Groups of equal size",
    ):
        assert sentence in said, sentence
    assert "Calibration" not in said
    assert "federated, 53 rows: predicted 62,500, actual 71,000" in html
    told = json.loads(numbers(party="lab", share_with_passive=True).to_json())["metrics"]
    assert (told["rmse"], told["constant_rmse"], told["predicted_actual"]) == (4512.25, None, [])


def test_page_says_that_a_part_of_the_records_took_part() -> None:
    built = REPORTS["down-sampled"]()
    assert (built.alignment.records, built.alignment.ours) == (12_345, 512)
    assert (
        "Of 12,345 records of clinic a random part of 512 took part ( align.at_most ), the same in every job with lab."
        in text(page(built))
    )
    assert "random part" not in text(page(build()))


@pytest.mark.parametrize(
    ("party", "align", "used"),
    [
        ("clinic", {}, ("random-pred", "gaussian")),
        ("lab", {}, ("random-pred", "gaussian")),
        ("clinic", PSI, (None, None)),
        ("lab", PSI, (None, None)),
        ("clinic", APSI, ("random-pred", "gaussian")),  # its own columns of the rows that it lacks
        ("lab", APSI, ("random-pred", "gaussian")),  # as far as it knows
    ],
)
def test_strategies_are_those_that_were_needed(party: str, align: dict[str, Any], used: tuple[str | None, str | None]) -> None:
    missing = {"labels": "random-pred", "draws": 5, "features": "gaussian"}
    built = build(a_job(align=align, missing=missing), party=party, training=RESULT if party == "clinic" else UNTOLD)
    strategies = built.training.split.strategies
    assert (strategies.labels, strategies.features, strategies.calibration) == (*used, "none")
    assert ("Missing labels random-pred : a class drawn anew" in text(page(built))) == (used[0] is not None)
    assert ("the mean of 5 draws" in text(page(built))) == (used[0] is not None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "predictions, known, asker",
            "Predictions 3 requests answered 7 batches exchanged By the model of job trial-1 , for clinic: records that",
        ),
        ("predictions, known, asked", "Predictions 7 batches exchanged By the model of job trial-1 , for clinic: records that"),
        ("predictions, known, asked", "Nothing was aligned for these predictions"),
        ("predictions, new, asker", "Predictions 453 records predicted 453 records in common By the model of job trial-1"),
        (
            "predictions, new, asked",
            "Predictions 453 records in common By the model of job trial-1 , for clinic: new records",
        ),
        ("predictions, new, asked", "predict model trial-1 , to active , rows new"),
    ],
)
def test_page_of_predictions(name: str, words: str) -> None:
    seen = text(page(REPORTS[name]()))
    assert words in seen
    assert "Aligned 5" not in seen
    assert "Calibration" not in seen


def test_what_predictions_tell_is_in_the_ledger() -> None:
    for name, active, passive in (("known", ["embeddings"], ["requests"]), ("new", ["set size", "embeddings"], ["set size"])):
        learnt = predicting(name, party="clinic").learnt
        assert [entry.what for entry in learnt["clinic"]] == active
        assert [entry.what for entry in learnt["lab"]][: len(passive)] == passive
        assert ("not its own, as in training" in learnt["clinic"][-1].text) == (name == "known")
    assert predicting("known", party="clinic").learnt["clinic"][0].count == 7 * 256


def test_every_strategy_and_attack_has_words() -> None:
    for strategies in (LABELS, FEATURES):
        assert len({strategies[name]().words() for name in strategies}) == len(list(strategies))
    for name in ATTACKS:
        assert ATTACKS[name].title.replace("-", " ") == name.replace("_", " ")
        assert ATTACKS[name].reading


def test_page_says_what_the_attacks_on_the_rows_held_out_found() -> None:
    held_out = HeldOut(attacks={"same_step_twin": 0.9, "spectral": None}, judged={"same_step_twin": 120})
    audited = replace(UNTOLD_AUDIT, section=SECTION.model_copy(update={"held_out": held_out}))
    seen = text(page(build(party="lab", training=audited)))
    assert "judged before they were sent: same-step twin 0.90 (120 rows)." in seen
    assert "judged before" not in text(page(REPORTS["audited, passive"]()))


class OtherWords(SplitSection):
    """A section that says other things of itself than split training's."""

    def words(self, of: ReportedTraining) -> TrainingWords:
        """Something in each place but those of the metrics and the audit."""
        return TrainingWords(
            figures=(Figure(1200, f"{several(1200, 'tree')} of {of.passive}"),),
            remarks=(f"{of.party} planted them.",),
            terms=(Term("Depth", ((7, " levels"), (None,), (Code("max"),))),),
            panel=Panel("In the forest", "Where they stand.", ()),
        )


def test_page_shows_what_a_trainer_says_of_itself_and_nothing_else_of_it() -> None:
    html = page(build(party="lab", training=replace(UNTOLD_AUDIT, section=OtherWords(**dict(SECTION)))))
    seen = text(html).split("Details")[0]
    assert "1,200 trees of lab" in seen
    assert "lab planted them." in seen
    assert "Depth 7 levels, hidden, max" in seen
    assert "<code>max</code>" in html
    assert "In the forest Where they stand." in seen
    for other in ("majority", "batches", "Under encryption", "embeddings tell"):
        assert other not in seen


def test_page_warns_before_the_figures() -> None:
    seen = text(page(regression()))
    assert "Warnings 480 shared rows are fewer than 20" in seen
    assert seen.index("Unclear") < seen.index("Warnings") < seen.index("Metrics")
    for without in (regression(party="lab"), build()):
        assert "Warnings" not in text(page(without))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("logistic, active", "clinic has the key: it decrypts lab's gradients, which lab masks, and sees lab's scores."),
        ("logistic, passive", "Columns, encoded clinic hidden, lab 12 Columns left out constant , empty Rounds 3"),
        (
            "logistic, passive",
            "3 iterations 36 values decrypted for lab 480 rows in the obfuscated set Metrics were not shared",
        ),
        ("logistic, several classes", "mean over the classes, each against the rest"),
        ("three parties, active", "clinic, the active party trial with lab and carol · finished"),
        ("three parties, active", "carol has the key: it decrypts gradients, which each party masks."),
        ("scores in clear, active", "it decrypts lab's gradients, which lab masks. clinic sees lab's scores."),
        ("three parties, coordinator", "Report of carol, the coordinator trial with clinic and lab"),
        ("three parties, coordinator", "36 values decrypted for lab 24 values decrypted for clinic carol holds the key"),
        ("three parties, coordinator", "Shared rows hidden Columns, encoded clinic 8, lab 12 Rounds 3"),
        ("three parties, coordinator", "carol took no part in the alignment; what the others learnt by it"),
        ("three parties, coordinator", "clinic (active), lab (passive), carol (coordinator)"),
        ("labels at the passive party, active", "This job measures no metrics: lab has the labels"),
        ("labels at the passive party, active", "453 of them are clinic's too; the other 27 do not count."),
        ("labels at the passive party, passive", "This job measures no metrics: lab has the labels"),
    ],
)
def test_page_of_a_logistic_regression(name: str, words: str) -> None:
    assert words in text(page(REPORTS[name]()))


def test_page_of_the_coordinator_has_no_records() -> None:
    html = page(REPORTS["three parties, coordinator"]())
    assert "Whose records" not in html
    assert 'id="sets-text"' not in html
    assert "train (clinic): 5 B · 6 B; train (lab): 9 B · 10 B." in html
    assert "Whose records" in page(REPORTS["three parties, active"]())


def test_page_reads_several_classes_as_what_they_are() -> None:
    assert "at threshold 0.5" in text(page(regression()))
    several = text(page(regression(classes=10)))
    assert "at threshold 0.5" not in several
    assert "NLL" not in several


def drawn(html: str) -> str:
    """What a screen reader says of the figure of sets."""
    return re.search(r'id="sets-text">(.*?)</desc>', html)[1]


@pytest.mark.parametrize(
    ("name", "figure", "words"),
    [
        ("active", "both together (union): 569; in common (intersection): 453.", "private set union"),
        ("intersection", "both together (union): 569; in common (intersection): 453.", "by private set intersection"),
        (
            "asymmetric, active",
            "lab: 510; shared order (obfuscated set): 480; in common (intersection): 453.",
            "453 of them are clinic's too; the other 27 have no label.",
        ),
        (
            "asymmetric, passive",
            "clinic: 512; shared order (obfuscated set): 480; in common (intersection): hidden.",
            "All 480 rows of the shared order are records of lab. Alignment hides from it how many",
        ),
        ("asymmetric, align only", "in common (intersection): hidden.", "480 rows in the obfuscated set hidden in common"),
        (
            "padded",
            "lab: at most 1,024; both together (union): at most 1,083; in common (intersection): 453.",
            "The shared order has 1,083 rows. Some may stand for no record",
        ),
        (
            "padded intersection",
            "lab: at most 1,024; both together (union): at most 1,083; in common (intersection): 453.",
            "1,024 of lab, at most",
        ),
        ("padded asymmetric, active", "lab: 510; shared order (obfuscated set): 480", "453 of them are clinic's too"),
        ("padded asymmetric, passive", "clinic: at most 1,024; shared order", "size of each party's set; to lab"),
        (
            "dummies",
            "lab: 510; shared order: 609; both together (union): hidden; in common (intersection): hidden.",
            "union, made-up records counted in. Training leaks",
        ),
        ("dummies, align only", "lab: at most 1,024", "1,123 rows in the shared order hidden in common 512 of clinic"),
        ("empty set", "both together (union): 4; in common (intersection): 0.", "4 records in the union 0 in common"),
    ],
)
def test_page_says_what_is_shared_and_what_is_hidden(name: str, figure: str, words: str) -> None:
    html = page(REPORTS[name]())
    assert figure in drawn(html)
    assert words in text(html)
    assert "None" not in text(html) + drawn(html)


def test_page_has_a_ledger_of_each_party() -> None:
    html = page(build(alignment=replace(aligned(a_job(), "clinic"), learnt=(Disclosure("union size", 1234567, "large"),))))
    assert html.count('<table class="ledger">') == 2
    assert "clinic (this party) What How many In words union size 1,234,567 large embeddings 1,479 an" in text(html)
    assert "lab What How many In words set size 512 the number of clinic's records intersection hidden which" in text(html)


@cases
def test_page_has_a_ledger_for_each_party_of_the_job(make) -> None:
    built = make()
    titles = re.findall(r'<h3 class="key[^"]*">(.*?)</h3>', page(built))
    assert titles == [f"{built.party} (this party)", *(name for name in built.parties.all if name != built.party)]


@cases
def test_page_claims_no_more_than_may_be_said(make) -> None:
    built = make()
    seen = text(page(built))
    if built.alignment and built.alignment.protocol == "psu" and built.alignment.union is not None:
        assert "Alignment reveals the size of each party's set and of their union." in seen
    elif built.alignment and built.alignment.protocol == "psi":
        assert "to both which records they share" in seen
    assert ("Training leaks more" in seen) == (built.training is not None)
    measured = built.training is not None and any(
        auc is not None for epoch in built.training.epochs for auc in epoch.attacks.values()
    )
    assert ("the product measures how much" in seen) == measured
    assert ("Predictions leak more." in seen) == (built.predictions is not None)
    assert not re.search(
        r"\b(nothing else|nothing more|only the sizes|private|secure|anonymous|zero leakage)\b", seen.replace("private set", "")
    )


def test_write_leaves_two_whole_files_and_nothing_else(tmp_path: Path) -> None:
    page_module.write(build(), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json"]
    written = (tmp_path / "out/report.json").read_text()
    assert written == build().to_json()
    assert list(json.loads(written)) == sorted(json.loads(written))
    assert (tmp_path / "out/report.html").read_text() == page(build())


def test_the_json_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> str:
        raise RuntimeError

    monkeypatch.setattr(page_module, "render", broken)
    with pytest.raises(RuntimeError):
        page_module.write(build(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_installed_versions_name_what_can_change_a_result() -> None:
    assert {"vfl_node", "python", "torch", "numpy", "grpcio"} <= set(envelope.installed_versions())


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_914_000, "2.91 MB"), (5e9, "5 GB"), (7e12, "7 TB")]
)
def test_bytes_for_people(count: float, shown: str) -> None:
    assert words.human_bytes(count) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.34, "0.34 s"), (14, "14 s"), (130.2, "2 min 10 s"), (7300, "2 h 1 min")])
def test_durations_for_people(seconds: float, shown: str) -> None:
    assert words.human_seconds(seconds) == shown


def test_the_glossary_explains_every_term_as_the_report_does() -> None:
    glossary = " ".join((ROOT / "docs/glossary.md").read_text().split())
    for name, text in TERMS.items():
        assert f"**{name}**: {text}" in glossary, name
    titles = {title for title, *_ in results.METRICS.values()}
    assert titles <= TERMS.keys()


def test_terms_are_explained_without_a_script() -> None:
    html = page(build(training=COMPARED))
    assert f'<a class="term" href="#word-auc">AUC<i role="tooltip">{TERMS["AUC"]}</i></a>' in html
    assert "boosted tree of clinic alone<i" in html


@pytest.mark.parametrize("name", REPORTS)
def test_each_term_links_to_its_words_and_no_others_are_listed(name: str) -> None:
    html = page(REPORTS[name]())
    links = set(re.findall(r'href="#([^"]+)"', html))
    words = re.findall(r'<dt id="([^"]+)">([^<]+)</dt><dd>([^<]+)</dd>', html)
    assert links == {target for target, _, _ in words}
    assert len(words) == len(links) == html.count(' id="word-')
    assert all(unescape(text) == TERMS[unescape(word)] for _, word, text in words)
    assert ("Words on this page" in html) == bool(words) == ('class="term"' in html)


def test_a_list_of_words_is_folded_on_screens_only_and_opens_by_a_link() -> None:
    """What hides it is one rule, which neither print nor a target within it meets: so no browser needs to open it."""
    html = page(build())
    assert "<details><summary>Words on this page</summary></details>\n<dl>" in html
    hiding = "@media screen { .words > details:not([open]) + dl:not(:has(:target)) { display: none; } }"
    assert hiding in html
    assert ".words" not in html.partition("@media print")[2]


def test_the_joint_attack_changes_the_card_of_membership_with_its_meter(tmp_path: Path) -> None:
    job, built = a_job(), REPORTS["audited, active"]()
    page_module.write(built, tmp_path)
    joint._add(job, tmp_path, JointAttack(value=0.99, estimate=False, judged=300))
    after = Report.model_validate_json((tmp_path / "report.json").read_text())
    assert built.meters
    assert built.meters.membership
    assert built.meters.membership.attack != "joint"
    assert after.meters
    assert after.meters.membership
    assert after.verdict
    leak = after.verdict.leaks["membership"]
    assert (after.meters.membership.attack, after.meters.membership.level, leak.level) == ("joint", "high", "high")
    assert leak.words == "lab can infer which rows are records of clinic."
