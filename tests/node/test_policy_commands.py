"""The commands of a policy, at a node that does not run, over 20 jobs that it has stored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.node.store import Store
from vfl_node.trust.audit_log import AuditLog

PASSIVE = {"name": "lab", "role": "passive", "insecure_loopback": True, "listen": "127.0.0.1:0", "data": {"path": "lab.csv"}}

SPLIT = {"epochs": 1, "bottom": [2], "active_bottom": [2], "top": [2]}

HIDDEN = {"algorithm": "hidden"}

KINDS: dict[str, dict[str, Any]] = {
    "split-psu": {"train": SPLIT},
    "split-psi": {"align": {"protocol": "psi"}, "train": SPLIT},
    "align": {"align": {"protocol": "psi"}},
    "pairs": {"align": {"protocol": "psi-pairs"}},
    "hidden": {"parties": {"coordinator": "notary"}, "train": HIDDEN},
    "taylor": {"parties": {"coordinator": "notary"}, "train": HIDDEN | {"loss": "taylor", "epsilon": None}},
    "logistic": {
        "parties": {"coordinator": "notary"},
        "align": {"protocol": "psi"},
        "train": {"algorithm": "logistic", "flow": "coordinator-open-scores"},
    },
    "churn": {"purpose": "churn", "train": SPLIT},
    "matched": {"train": SPLIT, "evaluate": {"matched": True}},
    "long": {"train": SPLIT | {"epochs": 40}},
}
"""Ten kinds of jobs; each is stored twice, of the clinic and of the shop."""

SUNDAY = "2026-03-01T10:00:00+00:00"

EXPECTED = {
    "trial": dict.fromkeys(KINDS, "rule"),
    "careful": dict.fromkeys(KINDS, "one") | dict.fromkeys(("pairs", "hidden", "taylor", "logistic", "matched"), "nobody"),
    "strict": dict.fromkeys(KINDS, "nobody") | dict.fromkeys(("split-psu", "churn", "long"), "two"),
}
"""Preset → kind → who says yes."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    peers = {name: {} for name in ("clinic", "shop", "notary")}
    audit = {"features": {"columns": "all"}}
    settings = PASSIVE | {"peers": peers, "policy": "policy.yaml", "audit": audit, "state_dir": str(tmp_path / "state")}
    path.write_text(yaml.safe_dump(settings))
    (tmp_path / "policy.yaml").write_text("preset: trial\n")
    store = Store(tmp_path / "state")
    for active in ("clinic", "shop"):
        for name, keys in KINDS.items():
            parties = {"active": active, "passive": "lab"} | keys.get("parties", {})
            job = Job.model_validate({**keys, "name": name, "parties": parties})
            store.update(store.add(job, submitter=active, job_id=f"{name}-{active}"), attempt=1, submitted=SUNDAY)
    store.close()
    return path


def policy(config: Path, text: str) -> str:
    path = config.with_name("other.yaml")
    path.write_text(text)
    return str(path)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["policy", *words])


@pytest.mark.parametrize("preset", EXPECTED)
def test_20_past_jobs_are_decided_anew(config: Path, preset: str) -> None:
    ended = run("check", policy(config, f"preset: {preset}"), "--config", str(config), "--against-past", "--json")
    found = json.loads(ended.stdout)
    assert len(found) == 20
    assert {(job["name"], job["by"]) for job in found} == set(EXPECTED[preset].items())
    assert ended.exit_code == (0 if preset == "trial" else 1)


def test_a_partner_of_its_own_is_decided_by_its_own_limits(config: Path) -> None:
    text = "partners: {shop: {coordinators: [notary], unbounded_models: any, reveal: any}}\npreset: careful"
    ended = run("check", policy(config, text), "--config", str(config), "--against-past", "--json")
    by = {job["id"]: job["by"] for job in json.loads(ended.stdout)}
    assert (by["hidden-shop"], by["taylor-shop"], by["matched-shop"]) == ("one", "one", "one")
    assert (by["hidden-clinic"], by["taylor-clinic"], by["pairs-shop"]) == ("nobody", "nobody", "nobody")


def test_a_job_file_is_decided_and_an_own_job_asks_nobody(config: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: weekly\nparties: {active: clinic, passive: lab}\n")
    never = policy(config, "never: [{name: 'no [red]x[/b] y', when: {}}]")
    refused = run("check", never, "--config", str(config), "--job", str(job))
    assert (refused.exit_code, "never: no [red]x[/b] y" in refused.stdout) == (1, True)
    own = run("check", never, "--config", str(config), "--job", str(job), "--submitter", "lab", "--json")
    assert (own.exit_code, json.loads(own.stdout)[0]["by"]) == (0, "rule")


def test_past_jobs_are_held_against_never_and_hours(config: Path) -> None:
    shop = "{name: not the shop, when: {partners: [shop], protocols: [psi]}}"
    never = f"never: [{{name: no churn, when: {{purposes: [churn]}}}}, {shop}]"
    closed = "everyone: {hours: [mon-fri 08:00-18:00]}\npartners: {shop: {hours: any}}"
    text = f"preset: trial\n{never}\n{closed}"
    ended = run("check", policy(config, text), "--config", str(config), "--against-past", "--json")
    found = {job["id"]: job for job in json.loads(ended.stdout)}
    refused = {job_id for job_id, job in found.items() if job["by"] == "nobody"}
    assert refused == {"churn-clinic", "churn-shop", "split-psi-shop", "align-shop", "logistic-shop"}
    assert "never: not the shop" in found["align-shop"]["why"]
    assert {job["note"] for job_id, job in found.items() if job_id.endswith("shop")} == {""}
    assert {job["note"] for job_id, job in found.items() if job_id.endswith("clinic")} == {"outside hours"}
    table = run("check", policy(config, text), "--config", str(config), "--against-past").stdout
    assert table.count("outside hours") == len(KINDS)


def test_a_mistyped_name_is_said(config: Path) -> None:
    ended = run("check", policy(config, "never: [{name: x, when: {partners: [clinc]}}]"), "--config", str(config))
    assert ended.exit_code == 0
    assert "clinc is no peer of lab" in ended.output


def test_a_week_is_shown_in_words(config: Path) -> None:
    other = policy(config, "preset: trial\npartners: {shop: {budgets: {trainings: [{most: 2, per: week}, {most: 20}]}}}")
    assert "shop.budgets.trainings: no bound → 2 per week, 20" in run("diff", other, "--config", str(config)).output
    assert run("apply", other, "--config", str(config)).exit_code == 0
    assert "2 per week, 20" in run("show", "--config", str(config)).stdout
    assert run("diff", other, "--config", str(config)).output == "nothing differs\n"


def test_what_holds_and_what_would_change_is_shown(config: Path) -> None:
    other = policy(config, "preset: trial\npartners: {shop: {budgets: {trainings: 3}}}\nnever: [{name: x, when: {}}]")
    changes = run("diff", other, "--config", str(config))
    assert "shop.budgets.trainings: no bound → 3" in changes.output
    assert "never: none → " in changes.output
    assert "clinic" not in changes.output
    run("apply", policy(config, "preset: trial\npartners: {shop: {budgets: {trainings: 3}}}"), "--config", str(config))
    wider = policy(config, "preset: trial\neveryone: {budgets: {trainings: 9}}\npartners: {shop: {budgets: {trainings: 3}}}")
    assert "shop.budgets.trainings: 3 stays, this partner's own" in run("diff", wider, "--config", str(config)).output
    other = policy(config, "preset: trial\npartners: {shop: {budgets: {trainings: 3}}}\nnever: [{name: x, when: {}}]")
    assert run("apply", other, "--config", str(config)).exit_code == 0
    assert config.with_name("policy.yaml").read_text() == Path(other).read_text()
    (deed, *_) = AuditLog(config.parent / "state").newest(1)
    assert (deed["how"], deed["object"]) == ("files", hashlib.sha256(Path(other).read_bytes()).hexdigest())
    shown = run("show", "--config", str(config))
    assert "never: x" in shown.output
    assert "all other jobs: this policy says yes" in shown.output
    assert "nothing differs" in run("diff", other, "--config", str(config)).output
    document = json.loads(run("show", "--config", str(config), "--json").stdout)
    assert (document["limits"]["shop"]["budgets.trainings"], document["limits"]["clinic"]["budgets.trainings"]) == (3, None)


def test_an_invalid_policy_changes_nothing(config: Path) -> None:
    for text in ("preset: lax", "partners: {nobody-here: {}}", "everyone: {attacks: {labels: 0.6}}"):
        ended = run("apply", policy(config, text), "--config", str(config))
        assert isinstance(ended.exception, UsageError)
        assert config.with_name("policy.yaml").read_text() == "preset: trial\n"
