"""Five real nodes and eight kinds of jobs, killed (-9) at places drawn: each job ends as if nothing had been."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.nodes import at_least
from tests.node.several import PASSIVE, SeveralTrial

ROLES = {"clinic": "active"} | dict.fromkeys(PASSIVE, "passive") | {"notary": "coordinator"}
SPLIT = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 64}\nevaluate: {test_fraction: 0.3}\n"
UNALIGNED = SPLIT.replace("batch_size: 64", "batch_size: 64, unaligned: {method: ssl, pretrain_epochs: 2}")
HIDDEN = "train: {algorithm: hidden, epochs: 2}\nevaluate: {test_fraction: 0.3, metrics: [auc, nll, accuracy]}\n"
LOGISTIC = "train: {{algorithm: logistic, iterations: 2, key_bits: 2048, flow: {flow}{more}}}\n"

KINDS = {
    "align": (PASSIVE, "", "align: {protocol: psu}\n"),
    "split of two": (("lab",), "", "align: {protocol: psu}\n" + SPLIT),
    "split of four": (PASSIVE, "", "align: {protocol: psi}\n" + SPLIT),
    "unaligned": (("insurer",), "", "align: {protocol: psi}\n" + UNALIGNED),
    "logistic of two": (
        ("lab",),
        "",
        "align: {protocol: psi}\n" + LOGISTIC.format(flow="two-party", more=""),
    ),
    "logistic of four": (
        ("lab", "shop"),
        "notary",
        "align: {protocol: psi}\n" + LOGISTIC.format(flow="coordinator", more=", loss: taylor"),
    ),
    "hidden of three": (("lab",), "notary", "align: {protocol: psu}\n" + HIDDEN),
    "hidden of five": (PASSIVE, "notary", "align: {protocol: psi}\n" + HIDDEN),
}
REPEATED = ("rounds", "dealer_bytes", "decryptions", "decrypted_bits", "repeated")
"""Of a report's section: what repeated attempts add to."""


class FiveNodes(KilledJobs):
    """As its base, over jobs that not all of the nodes take part in."""

    def choose(self, kind: str) -> str:
        """Only the parties of this kind are looked at from now on; the job's text."""
        passive, coordinator, text = KINDS[kind]
        self.names = ("clinic", *passive, *([coordinator] if coordinator else []))
        helped = f", coordinator: {coordinator}" if coordinator else ""
        return f"parties: {{active: clinic, passive: [{', '.join(passive)}]{helped}}}\n{text}"

    def outcome(self, job_id: str) -> dict[str, Any]:
        """With the ledger's amounts, and without what depends on attempts."""
        left = super().outcome(job_id)
        for report, _ in left.values():
            report["learnt"] = {
                name: [(of["what"], of["count"]) for of in entries] for name, entries in report["learnt"].items()
            }
            for section in (report["training"] or {}).values():
                if isinstance(section, dict):
                    for key in REPEATED:
                        section.pop(key, None)
        return left


@pytest.fixture(scope="module")
def five(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> FiveNodes:
    limits = {"everyone": at_least(1) | {"budgets": {"alignments": 1000, "trainings": 1000}}}
    return FiveNodes(federations(tmp_path_factory.mktemp("five"), ROLES, several), forked, dict.fromkeys(ROLES, limits))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(64))
def test_killed_at_a_place_drawn(five: FiveNodes, number: int) -> None:
    chance = random.Random(number)
    text = five.choose(list(KINDS)[number % len(KINDS)])
    victim = chance.choice(five.names)
    places = five.clean(text)[1][victim]
    five.killed(text, victim, chance.randint(1, len(places)))
