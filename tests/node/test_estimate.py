"""What alignment would cost: by hand where everything is known, as a range where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.cli import app
from vfl_node.configuration import parse
from vfl_node.crypto.groups import Curve25519
from vfl_node.errors import UsageError, VflError
from vfl_node.estimate import estimate as estimates
from vfl_node.estimate.estimate import Machine, Plan, estimate, measure, notes, table
from vfl_node.job import Job
from vfl_node.node.client import Client
from vfl_node.settings import Obfuscation, Settings

ONLY_POWERS = Machine(cores=4, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)


def job(align: str = "protocol: psu") -> Job:
    return parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\nalign: {{{align}}}", Job, source="job")


def plan(align: str = "protocol: psu", **changes: Any) -> Plan:
    known: dict[str, Any] = {
        "job": job(align),
        "role": "active",
        "records": {"active": 100, "passive": 1000},
        "shared": (30, 30),
        "machine": ONLY_POWERS,
        "rate_mbit_s": 1e9,
        "rtt_ms": 0,
        "obfuscation": Obfuscation(),
    }
    return Plan(**(known | changes))


def exact(found: dict[str, tuple[float, float]], name: str) -> float:
    least, most = found[name]
    assert least == most
    return least


def test_rows_to_train_on() -> None:
    found = estimate(plan("protocol: apsi, obfuscation: {size: 200}"))
    assert {name: (exact(cost, "rows"), exact(cost, "extra_rows")) for name, cost in found.items()} == {
        "psu": (1070, 1040),
        "psi": (30, 0),
        "apsi": (200, 170),
    }


TRAIN = "\ntrain: {bottom: [10], batch_size: 50, epochs: 4}\nevaluate: {test_fraction: 0.2}"


def training(align: str = "protocol: psu", rest: str = TRAIN) -> Job:
    text = f"name: trial\nparties: {{active: clinic, passive: lab}}\nalign: {{{align}}}{rest}"
    return parse(text, Job, source="job")


def test_training_in_rows_batches_and_bytes_of_each_protocol() -> None:
    found = estimate(plan(job=training("protocol: apsi, obfuscation: {size: 200}"), rate_mbit_s=1e-3, rtt_ms=100))
    assert {name: [exact(cost, part) for part in ("epoch_rows", "batches")] for name, cost in found.items()} == {
        "psu": [856, 18],  # 1070 rows, 214 held out
        "psi": [24, 1],
        "apsi": [160, 4],
    }
    sent = exact(found["psi"], "train_bytes")
    assert sent == 2 * 4 * (24 * 40 + 74) + 6 * 40 + 74
    assert exact(found["psi"], "train_wire_s") == pytest.approx(sent * 8 / 1e3 + 4 * 0.1)
    open_ended = estimate(plan(job=training(), shared=(0, 100)))
    assert open_ended["psi"]["epoch_rows"] == (0, 80)
    assert open_ended["psu"]["epoch_rows"] == (800, 880)
    assert "train_bytes" not in estimate(plan())["psu"]
    logistic = training("protocol: psi", "\ntrain: {algorithm: logistic}")
    assert "train_bytes" not in estimate(plan(job=logistic))["psi"]


def test_the_table_has_lines_of_training_where_there_is_one() -> None:
    titles = [line[0] for line in table(plan(job=training()), estimate(plan(job=training())))]
    assert titles[-4:] == ["training, rows an epoch", "  in batches", "  sent by both, in all", "  at 1e+09 Mbit/s and 0 ms"]
    assert [line[0] for line in table(plan(), estimate(plan()))] == titles[:-4]


def test_a_part_of_the_records() -> None:
    some = plan("protocol: psu, at_most: 500")
    found = estimate(some)
    assert exact(found["psi"], "rows") == 15  # 30 · 500/1000
    assert exact(found["psu"], "rows") == 100 + 500 - 15
    assert exact(found["psi"], "sent_bytes") == (100 + 500) * 32
    assert any("a fixed random part of so many (align.at_most)" in note for note in notes(some))
    assert any("lab has 1,000 records" in note for note in notes(some))
    whole = plan("protocol: psu, at_most: 1000")
    assert estimate(whole) == estimate(plan())
    assert not any("at_most" in note for note in notes(whole))
    both = plan("protocol: psu, at_most: 50")
    assert exact(estimate(both)["psi"], "rows") == round(30 * 0.5 * 0.05)


def test_two_lines_before_the_start() -> None:
    known = estimates.before_start(training(), {"active": 100, "passive": 1000}, (30, 30))
    assert known == [
        "this job trains on the union: 856 rows an epoch, 18 batches, 286.6 KiB in all",
        "the intersection would take 24 rows an epoch, 1 batch, 8.4 KiB in all",
    ]
    other_way = estimates.before_start(training("protocol: psi"), {"active": 100, "passive": 1000}, (30, 30))
    assert other_way[0].startswith("this job trains on the intersection: 24 rows")
    assert other_way[1].startswith("the union would take 856 rows")
    any_number = estimates.before_start(training(), {"active": 100, "passive": 1000})
    assert any_number[1].startswith("the intersection would take 0 – 80 rows an epoch, 0 – 2 batches")
    asymmetric = estimates.before_start(
        training("protocol: apsi, obfuscation: {size: 200}"), {"active": 100, "passive": 1000}, (30, 30)
    )
    assert [line.split(" rows")[0] for line in asymmetric] == [
        "this job trains on the obfuscated set: 160",
        "the intersection would take 24",
    ]
    assert estimates.before_start(job(), {"active": 100, "passive": 1000}, (30, 30)) == []


def test_a_node_that_knows_its_own_records_only() -> None:
    union, common = estimates.before_start(training(), {"active": 100})
    assert union.startswith("this job trains on the union: at least 80 rows an epoch, at least 2 batches, at least")
    assert common.startswith("the intersection would take 0 – 80 rows an epoch")
    bounded, common = estimates.before_start(training("protocol: psu, at_most: 50"), {"passive": 1000})
    assert bounded.startswith("this job trains on the union: 40 – 80 rows an epoch")
    assert common.startswith("the intersection would take 0 – 40 rows")
    hidden = estimates.before_start(training("protocol: apsi, obfuscation: {size: 200}"), {"active": 100})
    assert [line.split(":")[0].split(" 0")[0] for line in hidden] == ["the intersection would take"]


def aligned(protocol: str, rows: int, **changes: Any) -> Alignment:
    return Alignment(
        **{
            "protocol": protocol,
            "group": "curve25519",
            "rows": np.arange(rows),
            "ours": 100,
            "peers": {"lab": PeerFacts(1000, intersection=30)},
            "union": 1070,
        }
        | changes
    )


HIDDEN = {"peers": {"lab": PeerFacts(1000)}, "union": None}


@pytest.mark.parametrize(
    ("alignment", "said"),
    [
        (
            aligned("psu", 1070),
            "training on the union: 856 rows an epoch, 18 batches, 286.6 KiB in all; "
            "the intersection would take 24 rows an epoch, 1 batch, 8.4 KiB in all",
        ),
        (aligned("psu", 1090, **HIDDEN), "; how many the intersection would take is hidden"),
        (aligned("psi", 30), "training on the intersection: 24 rows an epoch"),
        (aligned("psi", 30), "; the union would take 856 rows an epoch"),
        (aligned("psi", 30, union=None), "; how many the union would take is hidden"),
        (aligned("apsi", 200), "training on the obfuscated set: 160 rows an epoch"),
        (aligned("apsi", 200), "; the intersection would take 24 rows"),
        (aligned("apsi", 200, **HIDDEN), "; how many the intersection would take is hidden"),
    ],
)
def test_one_line_after_the_alignment(alignment: Alignment, said: str) -> None:
    assert said in estimates.after_alignment(training(), alignment)
    assert estimates.after_alignment(job(), alignment) == ""


def test_an_owner_of_all_files_has_them_counted(trial: Any, tmp_path: Path) -> None:
    union, common = estimates.of_files(trial.job(), trial.files, "id")
    assert union.startswith("this job trains on the union: 140 rows an epoch")  # 200, 60 held out
    assert common.startswith("the intersection would take 84 rows")  # 120
    assert not any(item in union + common for item in trial.ids)
    broken = tmp_path / "broken.csv"
    broken.write_text("id,x\n1\n")
    for files, column in (({**trial.files, "lab": broken}, "id"), (trial.files, "patient")):
        assert estimates.of_files(trial.job(), files, column) == []
    assert estimates.of_files(job(), trial.files, "id") == []


def test_a_node_counts_its_own_file(trial: Any, tmp_path: Path) -> None:
    def settings(**changes: Any) -> Settings:
        known: dict[str, Any] = {"name": "lab", "role": "passive", "insecure_loopback": True, "listen": "127.0.0.1:0"}
        return Settings(**(known | {"data": {"path": trial.lab}} | changes))

    union, common = estimates.of_node(trial.job(), settings())
    assert union.startswith("this job trains on the union: at least 112 rows")  # 160
    assert common.startswith("the intersection would take 0 – 112 rows")
    for others in ({"name": "bank"}, {"role": "active"}, {"data": None}, {"data": {"path": tmp_path / "none.csv"}}):
        assert estimates.of_node(trial.job(), settings(**others)) == []
    assert estimates.of_node(job(), settings()) == []


def test_in_each_stage_the_slower_party_counts_and_cores_share_the_powers() -> None:
    found = estimate(plan())
    assert exact(found["psi"], "computing_s") == pytest.approx((1000 + 1000) / 4, rel=1e-6)
    assert exact(found["psu"], "computing_s") == pytest.approx((5 * 1000 + 1070) / 4, rel=1e-6)
    assert exact(found["psu"], "cpu_s") == pytest.approx(3 * 100 + 2 * 1000 + 1070, rel=1e-6)
    passive = estimate(plan(role="passive"))
    assert exact(passive["psu"], "cpu_s") == pytest.approx(3 * 1000 + 2 * 100 + 1070, rel=1e-6)
    assert passive["psu"]["wall_s"] == found["psu"]["wall_s"]
    assert passive["psu"]["sent_bytes"] == found["psu"]["received_bytes"]


def test_what_holds_pythons_lock_gains_nothing_from_cores() -> None:
    hashing = Machine(cores=64, hash_s=1, power_s=0, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)
    assert exact(estimate(plan(machine=hashing))["psi"], "computing_s") == pytest.approx(1000, rel=1e-6)


def test_the_slowest_of_computing_wire_and_disk_is_the_time() -> None:
    bits = (100 + 1000 + 100 + 1000) * 32 * 8  # all lists of PSI, both ways
    wire = estimate(plan(rate_mbit_s=1e-6, rtt_ms=500))["psi"]
    assert exact(wire, "wall_s") == exact(wire, "wire_s") == bits + 4 * 0.5
    slow = Machine(cores=4, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1)
    disk = estimate(plan(machine=slow))["psi"]
    assert exact(disk, "wall_s") == exact(disk, "disk_s") == exact(disk, "active_disk_bytes") == (2 * 100 + 2 * 1000) * 32
    neither = estimate(plan())["psi"]
    assert exact(neither, "wall_s") == exact(neither, "computing_s")


def test_an_unknown_number_shared_makes_ranges() -> None:
    found = estimate(plan(shared=(0, 100)))
    assert found["psi"]["rows"] == (0, 100)
    assert found["psu"]["rows"] == (1000, 1100)
    assert found["psu"]["extra_rows"] == (900, 1100)
    assert found["apsi"]["rows"] == (1, 1000)  # nothing fixes the obfuscated set of a job that is not for apsi
    assert found["psi"]["sent_bytes"][0] == found["psi"]["sent_bytes"][1]
    assert found["psu"]["sent_bytes"][0] < found["psu"]["sent_bytes"][1]


@pytest.mark.parametrize(
    ("align", "wish", "rows"),
    [
        ("obfuscation: {size: 200}", Obfuscation(), (200, 200)),
        ("obfuscation: {fraction: 0.25}", Obfuscation(), (250, 250)),
        ("obfuscation: {size: 5000}", Obfuscation(), (1000, 1000)),
        ("obfuscation: {size: 20}", Obfuscation(), (32, 32)),  # 30 are shared
        ("obfuscation: private", Obfuscation(), (30, 1000)),
        ("obfuscation: private", Obfuscation(security_number=1), (1000, 1000)),
        ("obfuscation: private", Obfuscation(security_number=0.5), (256, 256)),  # √30·√1000 = 173.2…
    ],
)
def test_the_obfuscated_set(align: str, wish: Obfuscation, rows: tuple[int, int]) -> None:
    asked = plan(f"protocol: apsi, {align}", obfuscation=wish)
    assert estimate(asked)["apsi"]["rows"] == rows
    assert any("nothing here fixes" in note for note in notes(asked)) == (rows[0] < rows[1])


def test_made_up_ids_are_counted_in() -> None:
    padded = estimate(plan("protocol: psi, padding: 1"))
    assert exact(padded["psi"], "sent_bytes") == (128 + 1024) * 32
    assert exact(padded["psi"], "rows") == 30
    assert padded["apsi"]["rows"] == (30, 1000)  # the passive party does not pad
    dummies = estimate(plan("protocol: psu, dummies: 10"))
    assert dummies["psu"]["rows"] == (120 + 1020 - 30 - 20, 120 + 1020 - 30)
    assert exact(dummies["psi"], "sent_bytes") == (100 + 1000) * 32  # only psu has any


def test_the_wider_group_sends_more() -> None:
    narrow, wide = estimate(plan())["psi"], estimate(plan("protocol: psu, group: modp3072"))["psi"]
    assert exact(wide, "sent_bytes") == exact(narrow, "sent_bytes") * 384 / 32


def test_the_table_marks_the_job_and_fits() -> None:
    large = plan("protocol: psi", records={"active": 90_000_000, "passive": 100_000_000}, shared=(0, 90_000_000))
    lines = table(large, estimate(large))
    assert lines[0] == ("", "PSU", "PSI (this job)", "APSI")
    assert all(len(line) == 4 for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    assert sum(widths) + 2 * 3 <= 100


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(0.01, 0.01, "0.1 s"), (3, 3, "3.0 s"), (3, 90, "3.0 – 90.0 s"), (90, 150, "90.0 s – 2.5 min"), (1e6, 1e6, "11.6 days")],
)
def test_ranges_in_words(least: float, most: float, text: str) -> None:
    assert estimates._between(least, most, estimates._duration) == text


def test_this_machine_is_measured(tmp_path: Path) -> None:
    machine = measure(Curve25519(), 3, tmp_path / "not" / "yet")
    assert machine.cores == 3
    for name in ("hash_s", "power_s", "decode_s", "find_s", "sha256_s", "disk_bytes_per_s"):
        assert getattr(machine, name) > 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="cannot write in /proc") as caught:
        measure(Curve25519(), 1, Path("/proc/none"))
    assert caught.value.code == "E_FILE"


class TestCommand:
    """``vfl-node estimate``."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def known(group: object, cores: int, folder: Path) -> Machine:
            return Machine(cores, 5e-6, 30e-6, 2e-6, 1e-6, 5e-10, 2e8)

        monkeypatch.setattr(estimates, "measure", known)

    @pytest.fixture
    def files(self, tmp_path: Path, trial: Any) -> dict[str, Path]:
        """A job, and the configurations of a node that is in it and of one that is not."""
        (tmp_path / "job.yaml").write_text("name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}")
        for name in ("lab", "bank"):
            (tmp_path / f"{name}.yaml").write_text(
                f"{{name: {name}, role: passive, group_threads: 3, insecure_loopback: true, http: null,"
                f" listen: '127.0.0.1:0', data: {{path: {trial.lab}}}}}"
            )
        return {file.stem: file for file in tmp_path.glob("*.yaml")}

    @staticmethod
    def said(*words: object) -> str:
        result = CliRunner().invoke(app, ["estimate", *map(str, words)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def test_a_table_and_notes(self, files: dict[str, Path]) -> None:
        text = self.said(files["job"], "--active", 1000000, "--passive", 2000000, "--shared", 300000)
        assert "PSI (this job)" in text
        assert "300,000 are shared" in text
        assert "2,700,000" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_for_a_program_and_with_the_nodes_own_count(self, files: dict[str, Path], trial: Any) -> None:
        text = self.said(files["job"], "--config", files["lab"], "--active", 500, "--json")
        assert not any(item in text for item in trial.ids)
        found = json.loads(text)
        assert found["records"] == {"active": 500, "passive": 160}
        assert (found["role"], found["protocol"], found["machine"]["cores"]) == ("passive", "psi", 3)
        assert found["shared"] == found["costs"]["psi"]["rows"] == [0, 160]

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            ([], "E_USAGE", "how many records has clinic, the active party"),
            (["--active", "9"], "E_USAGE", "how many records has lab, the passive party"),
            (["--config", "lab"], "E_USAGE", "how many records has clinic, the active party"),
            (["--active", "9", "--passive", "5", "--shared", "6"], "E_USAGE", "more than the smaller"),
            (["--config", "bank", "--active", "9"], "E_ROLE", "passive party of this job is lab"),
        ],
    )
    def test_what_is_not_known_is_asked_for(self, files: dict[str, Path], words: list[str], code: str, message: str) -> None:
        with pytest.raises(VflError, match=message) as caught:
            self.said(files["job"], *(files.get(word, word) for word in words))
        assert caught.value.code == code
        assert caught.value.exit_status == 2

    def test_submitting_tells_what_training_takes_and_prints_the_id_alone(
        self, files: dict[str, Path], trial: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Node:
            def submit(self, text: str) -> dict[str, str]:
                return {"id": "trial-1"}

        monkeypatch.setattr(Client, "of", lambda settings: Node())
        files["job"].write_text(trial.job().canonical())
        submitted = CliRunner().invoke(
            app, ["submit", str(files["job"]), "--config", str(files["lab"])], catch_exceptions=False
        )
        assert submitted.stdout == "trial-1\n"
        assert submitted.stderr.splitlines()[0].startswith("this job trains on the union: at least 112 rows")
        assert len(submitted.stderr.splitlines()) == 2
