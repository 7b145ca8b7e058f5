"""Settings of the release before mean the same today, and the command writes them in the form of today."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.errors import UsageError
from vfl_node.node.migration import plan_migration
from vfl_node.settings.earlier import ELSEWHERE, PLACES
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import Policy
from vfl_node.settings.reading import load_settings

BEFORE = """\
# my node
name: clinic
role: active   # labels
data:
  path: a.csv
  peers: [lab]   # only lab
  label: y
peers: {lab: {}, shop: {}}
accept_jobs_from:
  - lab
limits:
  # small
  min_set_size: 10
  allow_matched: true

  jobs_per_peer: 5
  max_memory_mib: 100
# the end
listen: 127.0.0.1:7000
insecure_loopback: true
"""

NODE: dict[str, Any] = {
    "name": "clinic",
    "role": "active",
    "insecure_loopback": True,
    "listen": "127.0.0.1:0",
    "peers": {"lab": {}, "shop": {}},
}

VALUES: dict[str, Any] = {
    "protocols": ["psi"],
    "methods": ["heuristic"],
    "unbounded_models": ["exact"],
    "coordinators": ["notary"],
    "min_sigma": 0.25,
    "max_attack_auc": 0.7,
    "max_feature_gain": 0.2,
    "max_label_auc": 0.8,
    "epsilon_per_partner": 2.5,
}


def read(document: dict[str, Any]) -> Settings:
    with pytest.warns(FutureWarning, match="vfl-node migrate"):
        return Settings.model_validate(NODE | document)


@pytest.mark.parametrize("key", PLACES)
def test_every_limit_of_before_is_read_into_its_place(key: str) -> None:
    value = VALUES.get(key, 61)
    passive = {"role": "passive", "audit": {"features": {"columns": "all"}}} if key == "max_feature_gain" else {}
    place: Any = read({"limits": {key: value}} | passive).policy.limits_of("lab")
    for name in PLACES[key]:
        place = getattr(place, name)
    assert place == (tuple(value) if isinstance(value, list) else value)


def test_limits_of_before_that_are_none_of_a_policy_are_settings_of_their_own() -> None:
    settings = read({"limits": {"jobs_per_peer": 7, "running_per_peer": 2, "max_memory_mib": 300}})
    assert settings.queue.share_of("lab").model_dump(exclude_none=True) == {"stored": 7, "running": 2}
    assert settings.resources.memory_mib == 300
    assert set(ELSEWHERE) == {"jobs_per_peer", "running_per_peer", "max_memory_mib"}


def test_the_share_of_other_partners_is_read_where_an_earlier_version_had_it() -> None:
    bare: dict[str, Any] = {"name": "lab", "role": "passive", "insecure_loopback": True}
    with pytest.warns(FutureWarning, match="queue.others"):
        settings = Settings(**bare, queue={"others": {"running": 2}, "partners": {"bank": {"running": 3}}})
    assert [settings.running_of(name) for name in ("shop", "bank")] == [2, 3]
    with pytest.raises(ValidationError, match="leave it out"):
        Settings(**bare, queue={"others": {"running": 2}, "partners": {"*": {"running": 3}}})


def test_what_nobody_wrote_stays_as_it_was() -> None:
    limits = read({"accept_jobs_from": ["lab"]}).policy.limits_of("lab")
    assert limits.model_copy(update={"reveal": (), "tables": ("default",)}) == Limits()
    assert (limits.reveal, limits.tables) == (("candidates",), "any")
    told = read({"limits": {"allow_matched": True, "reveal_candidates": False}}).policy.limits_of("lab")
    assert told.reveal == ("matched",)
    assert read({"limits": {"min_set_size": 7}}).policy.limits_of("lab").min_peer_rows == 7


def test_jobs_that_an_accepted_peer_passes_on_stay_accepted() -> None:
    document = {
        "name": "lab",
        "role": "passive",
        "peers": {"clinic": {}, "insurer": {"relayed": True}},
        "accept_jobs_from": ["clinic"],
    }
    (line,) = read(document).policy.approve
    assert line.when.submitters == ("clinic", "insurer")


def test_tables_of_one_peer_stay_its_own() -> None:
    data = {"a": {"path": "a.csv", "peers": ["lab"]}, "b": {"path": "b.csv"}}
    policy = read({"data": data}).policy
    assert policy.limits_of("lab").tables == ("a", "b")
    assert policy.limits_of("shop").tables == ("b",)
    assert policy.limits_of("a peer of later").tables == ("b",)
    nobody = read({"data": {"path": "a.csv", "peers": []}}).policy
    assert nobody.limits_of("lab").tables == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"limits": {"min_set_size": 1}, "policy": {}}, "limits is of an earlier version"),
        ({"accept_jobs_from": ["lab"], "policy": {}}, "accept_jobs_from is of an earlier version"),
        ({"limits": {"min_set": 1}}, "limits.min_set is no key"),
        ({"limits": [1]}, "limits are keys and values"),
        ({"limits": {"protocols": "any"}}, "protocols: a list"),
        ({"limits": {"inputs_per_peer": None}}, "limits.inputs_per_peer has no value"),
        ({"limits": {"jobs_per_peer": 5}, "queue": 5}, "queue are keys and values"),
        ({"accept_jobs_from": "lab"}, "accept_jobs_from: a list"),
        ({"accept_jobs_from": 5}, "accept_jobs_from: a list"),
        ({"data": {"path": "a.csv", "peers": "lab-2"}}, "peers: a list"),
    ],
)
def test_both_forms_together_and_unknown_keys_are_refused(document: dict[str, Any], said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(ValueError, match=said):
            Settings.model_validate(NODE | document)


def test_the_command_writes_the_same_in_todays_form(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(BEFORE)
    shown = CliRunner().invoke(app, ["migrate", str(config)])
    assert (shown.exit_code, config.read_text()) == (0, BEFORE)
    with pytest.warns(FutureWarning):
        before = load_settings(config)
    assert CliRunner().invoke(app, ["migrate", str(config), "--write"]).exit_code == 0
    after = load_settings(config)
    assert (after.policy, after.queue, after.resources) == (before.policy, before.queue, before.resources)
    assert after.model_dump(exclude={"policy"}) == before.model_dump(exclude={"policy"})
    assert after.in_force.file == tmp_path / "policy.yaml"
    assert after.policy.limits_of("shop").tables == ()
    for kept in ("# my node", "role: active   # labels", "# the end"):
        assert kept in config.read_text()
    assert (tmp_path / "node.before.yaml").read_text() == BEFORE
    again = CliRunner().invoke(app, ["migrate", str(config), "--write"])
    assert again.exit_code == 0
    assert "has the form of today" in again.output


def test_a_file_in_one_line_is_left_alone(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("{name: clinic, role: active, insecure_loopback: true, limits: {min_set_size: 3}}\n")
    with pytest.raises(UsageError, match="cannot be taken out of the file"):
        plan_migration(config)
    assert [path.name for path in tmp_path.iterdir()] == ["node.yaml"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(BEFORE)
    (tmp_path / "policy.yaml").write_text("preset: strict\n")
    ended = CliRunner().invoke(app, ["migrate", str(config), "--write"])
    assert isinstance(ended.exception, UsageError)
    assert (config.read_text(), yaml.safe_load((tmp_path / "policy.yaml").read_text())) == (BEFORE, {"preset": "strict"})


def test_a_policy_that_is_written_says_only_what_was_said(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(BEFORE)
    plan = plan_migration(config)
    assert plan
    assert Policy.model_validate(yaml.safe_load(plan.policy)).everyone.model_fields_set == {
        "min_own_rows",
        "min_peer_rows",
        "reveal",
        "tables",
    }


def test_a_paired_node_is_moved_with_its_peers(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(BEFORE.replace("peers: {lab: {}, shop: {}}\n", "peers: {shop: {}}\n"))
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "lab.yaml").write_text("address: 127.0.0.1:1\n")
    plan = plan_migration(config)
    assert plan
    config.chmod(0o644)
    plan.write()
    assert load_settings(config).policy.limits_of("lab").tables == ("default",)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.yaml")} == {0o644}
