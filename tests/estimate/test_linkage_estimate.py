"""A linkage is estimated by the pairs of filters that are compared and the bytes of these filters."""

from __future__ import annotations

from typing import Any

from tests.estimate.plans import exact
from vfl_node.configuration.models import parse
from vfl_node.estimate import totals, words
from vfl_node.estimate.linkage import COMPARE_S, ENCODE_S, PAIR_S
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.plan import Plan
from vfl_node.job import Job
from vfl_node.job.keys import filter_bits
from vfl_node.settings.node import Obfuscation

MACHINE = Machine(cores=4, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)
JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: linkage, keys: {u: {kind: number, low: 0, high: 1, reach: 0.1}}, candidates: 20, noise: {sigma: 0.4}}
"""


def plan(**changes: Any) -> Plan:
    job = parse(JOB, Job, source="job")
    given = {"party": "clinic", "records": {"clinic": 1000, "lab": 4000}, "rate_mbit_s": 1e9} | changes
    return Plan(job=job, shared=(0, 1000), rtt_ms=0, obfuscation=Obfuscation(), **given)


def test_time_is_that_of_all_pairs_on_all_cores() -> None:
    costs = totals.estimate(plan(), MACHINE)
    assert list(costs) == ["linkage"]
    align = plan().job.align
    bits = filter_bits(align.keys or {}, align.encoding)
    seconds = 4000 * bits * ENCODE_S + 1000 * 4000 * bits / 8 * COMPARE_S / 4 + 2 * 1000 * 20 * PAIR_S
    assert abs(exact(costs["linkage"], "computing_s") - seconds) < 1e-12
    assert "extra_rows" not in costs["linkage"]
    for party, filters in (("clinic", 1000), ("lab", 4000)):
        cost = totals.estimate(plan(party=party), MACHINE)["linkage"]
        assert exact(cost, "sent_bytes") == filters * bits // 8
        assert exact(cost, "received_bytes") == 4 * 20 * 1000
    on_wire = 8 * (5000 * bits // 8 + 2 * 4 * 20 * 1000) / 1e6
    assert abs(exact(totals.estimate(plan(rate_mbit_s=1), MACHINE)["linkage"], "wire_s") - on_wire) < 1e-9


def test_words() -> None:
    some = plan()
    said = " ".join(words.notes(some, MACHINE))
    assert "notary compares 4,000,000 pairs" in said
    assert "in their policy (protocols)" in said
    assert "hash" not in said
    assert ("shared rows", "1,000") in words.table(some, totals.estimate(some, MACHINE))
