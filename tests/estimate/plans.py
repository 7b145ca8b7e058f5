"""A job of two parties with known numbers of records, and a machine that only computes powers."""

from __future__ import annotations

from typing import Any

from vfl_node.configuration.models import parse
from vfl_node.estimate import totals
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.plan import Plan
from vfl_node.estimate.totals import Range
from vfl_node.job import Job
from vfl_node.settings.node import Obfuscation

ONLY_POWERS = Machine(cores=4, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)

TRAIN = "\ntrain: {bottom: [10], batch_size: 50, epochs: 4}\nevaluate: {test_fraction: 0.2}"


def job(align: str = "protocol: psu") -> Job:
    return parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\nalign: {{{align}}}", Job, source="job")


def training(align: str = "protocol: psu", rest: str = TRAIN) -> Job:
    text = f"name: trial\nparties: {{active: clinic, passive: lab}}\nalign: {{{align}}}{rest}"
    return parse(text, Job, source="job")


def plan(align: str = "protocol: psu", **changes: Any) -> Plan:
    known: dict[str, Any] = {
        "job": job(align),
        "party": "clinic",
        "records": {"clinic": 100, "lab": 1000},
        "shared": (30, 30),
        "rate_mbit_s": 1e9,
        "rtt_ms": 0,
        "obfuscation": Obfuscation(),
    }
    return Plan(**(known | changes))


def estimate(plan: Plan, machine: Machine = ONLY_POWERS) -> dict[str, Range]:
    return totals.estimate(plan, machine)


def exact(cost: Range, name: str) -> float:
    least, most = cost[name]
    assert least == most
    return least
