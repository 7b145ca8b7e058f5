"""What alignment would cost: by hand where everything is known, as a range where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.configuration import parse
from vfl_node.crypto.groups import Curve25519
from vfl_node.errors import UsageError, VflError
from vfl_node.job import Job
from vfl_node.node import estimate as estimates
from vfl_node.node.estimate import Machine, Plan, estimate, measure, notes, table
from vfl_node.settings import Obfuscation

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
