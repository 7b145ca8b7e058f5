from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from vfl_node.configuration.models import leaves
from vfl_node.errors import UsageError
from vfl_node.job import Job, Parties
from vfl_node.process.machine import count_cores
from vfl_node.settings.connection import HttpTls, Webhook
from vfl_node.settings.consistent import is_loopback
from vfl_node.settings.defences import DEFENCES
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Data, Settings, Tls, role_in
from vfl_node.settings.policy import PRESETS, Asked, Preset
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.settings.reading import load_settings
from vfl_node.settings.resources import Share
from vfl_node.settings.retention import Retention

BASE = "name: clinic\nrole: active\ninsecure_loopback: true\n"
PASSIVE = BASE.replace("active", "passive")

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def settings(folder: Path, text: str):
    path = folder / "node.yaml"
    path.write_text(text)
    return load_settings(path)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = "name: a\nrole: active\ndata: {path: d.csv}\ntls: {ca: ca.crt, certificate: c.crt, key: /keys/k}\n"
    loaded = settings(tmp_path, text)
    assert loaded.data
    assert loaded.data.path == tmp_path / "d.csv"
    assert loaded.tls
    assert loaded.tls.ca == tmp_path / "ca.crt"
    assert loaded.tls.key == Path("/keys/k")
    assert loaded.state_dir == tmp_path / "state"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: clinic\nrole: active\n", "set tls"),
        (BASE + "listen: 0.0.0.0:7443\n", "plaintext is for loopback only"),
        (BASE + "http_tls: {certificate: a, key: b}\nhttp_plain: true\n", "leave one of the two out"),
        (BASE + "peers: {lab: {address: lab.example:1}}\n", "plaintext is for loopback only"),
        (BASE + "peers: {lab: {}}\n", "must be able to dial in"),
        (BASE + "peers: {clinic: {address: '127.0.0.1:1'}}\n", "own name"),
        (BASE + "policy: {partners: {lab: {tables: any}}}\n", "policy.partners names 'lab', which is not among peers"),
        (BASE + "listen: nonsense\n", "'listen'"),
        (BASE + "peers: {lab: {adress: '127.0.0.1:1'}}\n", "unknown key 'peers.lab.adress'"),
        (BASE + "data: {path: d.csv, id: [a]}\n", "'data.id' has 1 entry, and must have at least 2"),
        (BASE + "data: {path: d.csv, id: [a, b, a]}\n", "'data.id': a column may identify a record once only"),
        (BASE + "data: {path: d.csv, id: 3}\n", "'data.id': 3 is not text"),
        (BASE + "group_threads: 0\n", "'group_threads'"),
        (BASE + "policy: {everyone: {min_own_rows: 0}}\n", "'policy.everyone.min_own_rows'"),
        (
            BASE + "policy: {everyone: {min_peer_rows: 9, size: {rows: 8}}}\n",
            "everyone.min_peer_rows is above everyone.size.rows",
        ),
        (BASE + "policy: {everyone: {budgets: {alignmants: 9}}}\n", "unknown key 'policy.everyone.budgets.alignmants'"),
        (BASE + "defences: [{sigma: 1}]\n", "'defences.0': a defence has a name, such as {name: noise, sigma: 0.1}"),
        (BASE + "defences: [{name: nose, sigma: 1}]\n", "'defences.0': there is no defence 'nose'; known ones: noise"),
        (BASE + "defences: [{name: noise}]\n", "'defences.0': noise: 'sigma' is missing"),
        (
            BASE + "defences: [{name: noise, sigma: -1}]\n",
            "'defences.0': noise: 'sigma': -1 is not 0",
        ),
        (BASE + "defences: [{name: noise, sigma: .inf}]\n", "'defences.0': noise: 'sigma'"),
        (
            BASE + "defences: [{name: noise, sigma: 1, sgima: 2}]\n",
            "noise: unknown key 'sgima' ('sgima': did you mean",
        ),
        (
            BASE.replace("active", "coordinator") + "defences: [{name: noise, sigma: 1}]\n",
            "changes nothing that this node",
        ),
        (
            BASE + "audit: {membership: false}\npolicy: {everyone: {attacks: {rows: 0.6}}}\n",
            "policy.everyone.attacks.rows needs audit.membership",
        ),
        (BASE + "audit: {features: {columns: [x]}}\n", "node.yaml:4:9: audit.features is for a passive node"),
        (PASSIVE + "audit: {features: {columns: some}}\n", "'audit.features.columns'"),
        (PASSIVE + "audit: {features: {columns: []}}\n", "'audit.features.columns'"),
        (PASSIVE + "audit: {features: {columns: all, known_share: 0}}\n", "4:47: 'audit.features.known_share'"),
        (PASSIVE + "audit: {features: {columns: all, known_share: 0.6}}\n", "'audit.features.known_share'"),
        (PASSIVE + "audit: {features: {colunms: [x]}}\n", "unknown key 'audit.features.colunms'"),
        (
            BASE.replace("active", "coordinator") + "audit: {linkage: {list: names.csv}}\n",
            "audit.linkage is for a node with a table",
        ),
        (PASSIVE + "audit: {linkage: {keys: {name: who}}}\n", "'audit.linkage.list'"),
        (PASSIVE + "audit: {linkage: {list: a.csv, keys: {home: [a, b, c]}}}\n", "'audit.linkage.keys.home'"),
        (
            PASSIVE + "audit: {membership: true}\npolicy: {everyone: {attacks: {columns: 0.1}}}\n",
            "node.yaml:5:31: policy.everyone.attacks.columns needs audit.features",
        ),
        (
            PASSIVE + "audit: {features: {columns: all}}\npolicy: {everyone: {attacks: {columns: -0.1}}}\n",
            "node.yaml:5:40: 'policy.everyone.attacks.columns'",
        ),
        (
            BASE + "defences:\n  - {name: noise, sigma: 1}\n  - {name: fbs, columns: [x]}\n",
            "node.yaml:6:5: defences.1: 'fbs' changes nothing that this node sends: its role is active",
        ),
        (
            PASSIVE + "defences:\n  - {name: noise, sigma: 1}\n  - {name: fbs, columns: [x], round: 5}\n",
            "node.yaml:6:5: 'defences.1': fbs: unknown key 'round' ('round': did you mean 'rounds'?)",
        ),
        (PASSIVE + "defences: [{name: fbs}]\n", "node.yaml:4:12: 'defences.0': fbs: 'columns' is missing"),
        (PASSIVE + "defences: [{name: fbs, columns: []}]\n", "fbs: 'columns'"),
        (PASSIVE + "defences: [{name: fbs, columns: [x], rounds: 0}]\n", "fbs: 'rounds'"),
        (PASSIVE + "defences: [{name: fbs-fixed, columns: [x], tau1: 0}]\n", "fbs-fixed: 'tau1': 0 is not more than 0"),
        (PASSIVE + "defences: [{name: fbs-fixed, columns: [x], tau2: -1}]\n", "fbs-fixed: 'tau2': -1 is not more than 0"),
        (PASSIVE + "defences: [{name: naive, columns: [x], strength: 0}]\n", "naive: 'strength': 0 is not more than 0"),
        (BASE + "obfuscation: {security_number: 1.5}\n", "'obfuscation.security_number'"),
        (BASE + "obfuscation: {security_number: .nan}\n", "'obfuscation.security_number'"),
        (BASE.replace("active", "passive") + "obfuscation: {security_number: 0.5}\n", "obfuscation is for an active node"),
        (BASE.replace("active", "coordinator") + "obfuscation: {security_number: 0.5}\n", "obfuscation is for an active node"),
        (BASE.replace("active", "coordinator") + "data: {path: d.csv}\n", "a coordinator has no data"),
        (BASE.replace("active", "third"), "'role'"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert said in caught.value.message


def test_the_role_of_a_name_in_a_job() -> None:
    parties = Parties(active="clinic", passive=("lab",), coordinator="notary")
    roles = {"clinic": "active", "lab": "passive", "notary": "coordinator", "bank": None}
    assert {name: role_in(parties, name) for name in roles} == roles
    assert role_in(Parties(active="clinic", passive=("lab",)), "notary") is None


def test_nobody_may_start_jobs_unasked_by_default(tmp_path: Path) -> None:
    job = Job(name="trial", parties=Parties(active="clinic", passive=("lab",)))
    assert settings(tmp_path, BASE).rules.decide(Asked(job, "clinic", "lab")).by == "one"


def test_several_columns_may_identify_a_record(tmp_path: Path) -> None:
    loaded = settings(tmp_path, BASE + "data: {path: d.csv, id: [name, born]}\n")
    assert loaded.data
    assert loaded.data.id == ("name", "born")


def test_defences_are_read_in_their_order_and_kept_private_to_the_node(tmp_path: Path) -> None:
    loaded = settings(
        tmp_path, BASE + "defences: [{name: noise, sigma: 0.5}, {name: noise, sigma: 0}]\naudit: {membership: false}\n"
    )
    assert [defence.model_dump() for defence in loaded.defences] == [{"name": "noise", "sigma": sigma} for sigma in (0.5, 0)]
    assert loaded.protection == Protection(loaded.defences, membership=False, max_attack_auc=None)
    assert settings(tmp_path, BASE + "policy: {everyone: {attacks: {rows: 0.6}}}\n").protection == Protection(
        max_attack_auc=0.6
    )


def test_group_operations_use_every_core_unless_told(tmp_path: Path) -> None:
    assert settings(tmp_path, BASE).group_workers == count_cores()
    assert settings(tmp_path, BASE + "group_threads: 3\n").group_workers == 3
    assert settings(tmp_path, BASE + "threads: 3\n").group_workers == count_cores()


def test_small_sets_are_refused_by_default_for_the_reason_given() -> None:
    limits = Limits()
    for least in (limits.min_own_rows, limits.min_peer_rows):
        assert 0.9**least < 1 / 190  # "once in 200 jobs"
    assert 0.9**10 > 1 / 3  # "every third"


def test_every_setting_is_documented_with_its_default() -> None:
    page = "".join((REFERENCE / f"{name}.md").read_text() for name in ("node-settings", "defences"))
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    bare = Settings(name="a", role="active", insecure_loopback=True)
    paths = (
        Tls(ca=Path(), certificate=Path(), key=Path()),
        HttpTls(certificate=Path(), key=Path()),
        Data(path=Path()),
        Webhook(url="https://a", secret_file=Path()),
    )
    nested: dict[str, BaseModel] = dict(zip(("tls", "http_tls", "data", "webhook"), paths, strict=True))
    keys = {key: value for key, value in leaves(bare.model_copy(update=nested)) if not key.startswith("policy.")}
    undocumented = {key for key in keys if f"`{key}`" not in page and f"`.{key.rpartition('.')[2]}`" not in page}
    assert undocumented == set()
    counts = [key for key, value in keys.items() if type(value) in (int, float) and not key.startswith("data.")]
    keys |= (shares := {f"queue.partners.*.{key}": value for key, value in Share().model_dump().items()})
    assert [key for key in shares if f"`{key}`" not in page] == []
    counts.append("queue.partners.*.stored")
    assert {"queue.max_running", "stall_s"} <= set(counts)
    for key in counts:
        row = next(row for row in rows if f"`{key}`" in row)
        assert float(row.split("|")[2].replace(",", "")) == keys[key]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_limit_is_documented_with_its_value_in_each_preset(preset: Preset) -> None:
    lines = (REFERENCE / "policy.md").read_text().splitlines()
    rows = {row[1]: row for row in ([cell.strip() for cell in line.split("|")] for line in lines) if len(row) == 7}
    for key, value in leaves(PRESETS[preset]):
        shown = rows[f"`{key}`"][rows["key"].index(preset)]
        said = "no bound" if value is None else value or "none"
        if isinstance(value, bool):
            assert shown == str(value).lower(), key
        elif isinstance(value, int | float):
            assert float(shown.replace(",", "")) == value, key
        elif isinstance(said, str):
            assert shown == said, key


def test_what_passive_nodes_alone_have_is_documented_with_its_default() -> None:
    page = (REFERENCE / "defences.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    audited = {row[0]: row[1] for row in rows}
    for key, field in FeatureAuditSettings.model_fields.items():
        assert audited[f"`audit.features.{key}`"] == ("–" if field.is_required() else str(field.default))
    section = page.partition("## Defences\n")[2].partition("\n## ")[0]
    own, shared, name = {}, {}, ""
    for line in section.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4:
            name = cells[0] or name
            own[name, cells[1]] = cells[2]
        elif line.startswith("|"):
            shared[cells[0]] = cells[1]
    for defence in DEFENCES:
        for key, field in DEFENCES[defence].params.model_fields.items():
            if key != "name":
                default = list(field.default) if isinstance(field.default, tuple) else field.default
                said = own.get((defence, key), shared.get(key))
                assert said == ("–" if field.is_required() else str(default)), (defence, key)


def test_how_many_jobs_run_is_read_by_its_name_of_the_release_before_or_goes_by_the_machine(tmp_path: Path) -> None:
    given = "name: a\nrole: active\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"
    with pytest.warns(FutureWarning, match=r"queue\.max_running"):
        read = settings(tmp_path, f"{given}jobs_at_once: 3\nqueue: {{partners: {{'*': {{stored: 7}}}}}}\n")
    assert (read.queue.max_running, read.queue.places, read.queue.share_of("lab").stored) == (3, 3, 7)
    with pytest.raises(UsageError, match="leave it out"):
        settings(tmp_path, f"{given}jobs_at_once: 3\nqueue: {{max_running: 4}}\n")
    assert settings(tmp_path, f"{given}queue: {{max_running: auto}}\n").queue.places == min(64, count_cores())
    for wrong in ("0", "65", "all"):
        with pytest.raises(UsageError, match=r"queue\.max_running"):
            settings(tmp_path, f"{given}queue: {{max_running: {wrong}}}\n")


def test_how_long_jobs_are_kept_is_read_by_its_names_of_the_release_before(tmp_path: Path) -> None:
    given = "name: a\nrole: active\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"
    with pytest.warns(FutureWarning, match="retention.jobs_days and retention.jobs_keep"):
        read = settings(tmp_path, f"{given}keep_days: 3\nkeep_jobs: 7\n")
    assert read.retention == Retention(jobs_days=3, jobs_keep=7)
    assert settings(tmp_path, f"{given}retention: {{models_days: 400}}\n").retention == Retention(models_days=400)
    with pytest.raises(UsageError, match="leave it out"):
        settings(tmp_path, f"{given}keep_days: 3\nretention: {{jobs_keep: 7}}\n")
    for wrong in ("retention: {jobs_days: -1}", "retention: {ledger_days: 400}"):
        with pytest.raises(UsageError):
            settings(tmp_path, f"{given}{wrong}\n")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("10.0.0.1:1", False), ("127.evil.example:1", False)],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback
