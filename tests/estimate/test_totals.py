"""What alignment would cost: by hand where everything is known, as a range where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.estimate.plans import ONLY_POWERS, estimate, exact, plan, training
from vfl_node.alignment import costs
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.totals import PROCESS_BYTES
from vfl_node.estimate.words import notes
from vfl_node.job import Job
from vfl_node.settings.node import Obfuscation


def test_rows_to_train_on() -> None:
    found = estimate(plan("protocol: apsi, obfuscation: {size: 200}"))
    assert {name: (exact(cost, "rows"), exact(cost, "extra_rows")) for name, cost in found.items()} == {
        "psu": (1070, 1040),
        "psi": (30, 0),
        "apsi": (200, 170),
    }


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


def test_a_part_of_the_records() -> None:
    some = plan("protocol: psu, at_most: 500")
    found = estimate(some)
    assert exact(found["psi"], "rows") == 15  # 30 · 500/1000
    assert exact(found["psu"], "rows") == 100 + 500 - 15
    assert exact(found["psi"], "sent_bytes") == (100 + 500) * 32
    assert any("a fixed random part of so many (align.at_most)" in note for note in notes(some, ONLY_POWERS))
    assert any("lab has 1,000 records" in note for note in notes(some, ONLY_POWERS))
    whole = plan("protocol: psu, at_most: 1000")
    assert estimate(whole) == estimate(plan())
    assert not any("at_most" in note for note in notes(whole, ONLY_POWERS))
    both = plan("protocol: psu, at_most: 50")
    assert exact(estimate(both)["psi"], "rows") == round(30 * 0.5 * 0.05)


def test_in_each_stage_the_slower_party_counts_and_cores_share_the_powers() -> None:
    found = estimate(plan())
    assert exact(found["psi"], "computing_s") == pytest.approx((1000 + 100) / 4, rel=1e-6)
    assert exact(found["psu"], "computing_s") == pytest.approx((3 * 1000 + 2 * 100 + 1070) / 4, rel=1e-6)
    assert exact(found["psu"], "cpu_s") == pytest.approx(3 * 100 + 2 * 1000 + 1070, rel=1e-6)
    passive = estimate(plan(party="lab"))
    assert exact(passive["psu"], "cpu_s") == pytest.approx(3 * 1000 + 2 * 100 + 1070, rel=1e-6)
    assert passive["psu"]["wall_s"] == found["psu"]["wall_s"]
    assert passive["psu"]["sent_bytes"] == found["psu"]["received_bytes"]


def test_what_holds_pythons_lock_gains_nothing_from_cores() -> None:
    hashing = Machine(cores=64, hash_s=1, power_s=0, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)
    assert exact(estimate(plan(), hashing)["psi"], "computing_s") == pytest.approx(1000, rel=1e-6)


def test_the_slowest_of_computing_wire_and_disk_is_the_time() -> None:
    bits = (1000 + 1000) * 32 * 8  # of PSI the longer list of each stage
    wire = estimate(plan(rate_mbit_s=1e-6, rtt_ms=500))["psi"]
    assert exact(wire, "wall_s") == exact(wire, "wire_s") == bits + 4 * 0.5
    slow = Machine(cores=4, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1)
    disk = estimate(plan(), slow)["psi"]
    assert exact(disk, "wall_s") == exact(disk, "disk_s") == (2 * 100 + 2 * 1000) * 32
    assert exact(disk, "active_disk_bytes") == (2 * 100 + 2 * 1000) * 32 + 2 * 1100 * 36
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
    assert any("nothing here fixes" in note for note in notes(asked, ONLY_POWERS)) == (rows[0] < rows[1])


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


def test_a_trainer_that_does_not_run_over_a_protocols_rows_costs_nothing_there() -> None:
    """Logistic regression over a union: no column has figures that nobody could get."""
    costs = estimate(plan(job=training("protocol: psi", "\ntrain: {algorithm: logistic}")))
    assert {protocol: "train_bytes" in cost for protocol, cost in costs.items()} == {"psu": False, "psi": True, "apsi": True}
    assert exact(costs["psi"], "train_bytes") == 30 * 24 * (768 + 8) + 6 * 8  # iterations, rows, a ciphertext and a score


@pytest.mark.parametrize("protocol", ["psi", "psu"])
def test_memory_is_what_the_node_asks_for_when_sizes_are_known(protocol: str) -> None:
    for party, own in (("clinic", 100), ("lab", 1000)):
        cost = estimate(plan(party=party))[protocol]
        asked = costs.memory_bytes(own, 1100, 32, ONLY_POWERS.cores)
        assert exact(cost, "memory_bytes") == PROCESS_BYTES + costs.ID_BYTES * own + asked


def test_cores_share_hashes_and_checks_where_no_lock_is_held() -> None:
    hashing = replace(ONLY_POWERS, hash_s=1, power_s=0, decode_s=1)
    locked, beside = (
        exact(estimate(plan(), of)["psi"], "computing_s") for of in (hashing, replace(hashing, hashes_beside=True))
    )
    assert locked == pytest.approx(4 * beside, rel=1e-6)
    searching = replace(ONLY_POWERS, power_s=0, find_s=1)
    assert exact(estimate(plan(), searching)["psi"], "computing_s") == pytest.approx((1000 + 1000) / 4, rel=1e-6)


def test_an_alignment_used_again_costs_nothing_and_a_sweep_all_its_trials() -> None:
    found = estimate(plan("protocol: psi, reuse: earlier"))
    assert {exact(found["psi"], part) for part in ("wall_s", "sent_bytes", "active_disk_bytes")} == {0}
    assert exact(found["psu"], "sent_bytes") > 0
    once = training("protocol: psi")
    swept = Job.model_validate(
        {
            **once.model_dump(),
            "evaluate": {**once.evaluate.model_dump(), "validation_fraction": 0.1},
            "sweep": {"over": {"epochs": [1, 2]}},
        }
    )
    each = [estimate(plan(job=trial))["psi"] for trial in swept.trials]
    whole = estimate(plan(job=swept))["psi"]
    assert exact(whole, "train_bytes") == sum(exact(trial, "train_bytes") for trial in each)
    assert exact(whole, "train_wire_s") == pytest.approx(sum(exact(trial, "train_wire_s") for trial in each))
