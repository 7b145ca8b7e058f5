"""Nodes with defences and audits of their own, killed (-9) inside them: every party ends with the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.revealing import COLUMNS, FLAG, KIND, NUMBER, make_revealing

PASSIVE = ("lab", "insurer")
ROLES = {"clinic": "active"} | dict.fromkeys(PASSIVE, "passive")
SMALL = {"decoder": [8], "warm_up": 5}
SETTINGS = {
    "lab": {
        "defences": [{"name": "fbs", "columns": [FLAG, KIND], "rounds": 2, **SMALL}, {"name": "noise", "sigma": 0.01}],
        "audit": {"features": {"columns": [FLAG, KIND], "known_share": 0.2}},
        "everyone": {"attacks": {"columns": 0.9}},
    },
    "insurer": {
        "defences": [{"name": "fbs-fixed", "columns": [NUMBER], "rounds": 1, "every": 2, "distance": "features", **SMALL}],
        "audit": {"features": {"columns": "all", "known_share": 0.2}},
    },
}
TRAIN = """\
align: {protocol: psi}
train: {bottom: [8], active_bottom: [4], top: [4], epochs: 2, batch_size: 40, patience: 2}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2}
"""
SOME = [("insurer", "settled", 1.0)]
PLACES = [
    ("lab", "minimax", 0.7),
    *((name, "minimax", share) for name in PASSIVE for share in (0.0, 0.3, 0.5, 1.0)),
    *((name, "settled", share) for name in PASSIVE for share in (0.0, 0.5)),
    *((name, "rebuilt", share) for name in PASSIVE for share in (0.0, 0.5, 1.0)),
    ("clinic", "updated", 0.75),
]


@pytest.fixture(scope="module")
def nodes(federations: Callable[..., Any], forked: Any, tmp_path_factory: pytest.TempPathFactory) -> KilledJobs:
    tables = make_revealing(tmp_path_factory.mktemp("revealing"), PASSIVE)
    return KilledJobs(federations(tmp_path_factory.mktemp("defended"), ROLES, tables), forked, SETTINGS)


@pytest.mark.parametrize(("victim", "place", "share"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in PLACES)])
def test_killed(nodes: KilledJobs, victim: str, place: str, share: float) -> None:
    """At the passing of ``place`` that this share of all of them comes before."""
    passed = [number for number, name in enumerate(nodes.clean(TRAIN)[1][victim], 1) if name == place]
    nodes.killed(TRAIN, victim, passed[round(share * (len(passed) - 1))])


def test_each_passive_party_has_its_own_defences_and_audit_and_no_other_party_hears_of_them(nodes: KilledJobs) -> None:
    left, places = nodes.clean(TRAIN)
    reports = {name: report for name, (report, _) in left.items()}
    audits = {name: reports[name]["training"]["feature_audit"] for name in ROLES}
    assert audits["clinic"] is None
    assert audits["lab"].keys() == {FLAG, KIND}
    assert audits["insurer"].keys() == set(COLUMNS)
    assert {name: [of["name"] for of in reports[name]["training"]["split"]["defences"]] for name in ROLES} == {
        "clinic": [],
        "lab": ["fbs", "noise"],
        "insurer": ["fbs-fixed"],
    }
    assert {name: "minimax" in places[name] for name in ROLES} == {"clinic": False, "lab": True, "insurer": True}
    told = json.dumps(reports["clinic"]) + nodes.federation.log("clinic")
    assert not any(word in told for word in (*COLUMNS, "fbs", "minimax", "decoder"))
    for name, other in (PASSIVE, PASSIVE[::-1]):
        assert nodes.federation.client(name).health()["peers"][other]["online"] is None  # relayed: there is no connection
        theirs = SETTINGS[other]["defences"][0]["name"]
        assert f'"{theirs}"' not in json.dumps(reports[name])


def test_the_ledger_of_a_defended_party_names_what_it_did_and_what_left_besides(nodes: KilledJobs) -> None:
    reports = {name: report for name, (report, _) in nodes.clean(TRAIN)[0].items()}
    own = {name: _embeddings(reports[name], name) for name in PASSIVE}
    assert f"rebuilds {FLAG}, {KIND} from (fbs)" in own["lab"]
    assert "normal noise" in own["lab"]
    assert f"rebuilds {NUMBER} from (fbs-fixed)" in own["insurer"]
    for name, text in own.items():
        assert "each row set apart for validation after each epoch" in text, name
        assert "epoch 2 the last" in json.dumps(reports[name]["learnt"]["clinic"])
        for other in ROLES.keys() - {name}:
            assert "simulated decoder" not in _embeddings(reports[other], name)
        stopping = reports[name]["training"]["split"]["early_stopping"]
        assert stopping["last_epochs"] == [2]


def _embeddings(report: dict[str, Any], sender: str) -> str:
    """What a report says of the embeddings that ``sender`` sent."""
    entries = report["learnt"]["clinic"]
    return " ".join(of["text"] for of in entries if of["what"] == "embeddings" and of["text"].startswith(f"from {sender} "))
