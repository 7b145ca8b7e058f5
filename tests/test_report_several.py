"""The report of a job with several passive parties: who has how many records, and whom this party talks to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.report import envelope, page
from vfl_node.settings.protection import Protection
from vfl_node.transport.pipe import Traffic

pytestmark = pytest.mark.usefixtures("invented_facts")

SIZES = {"clinic": 120, "lab": 90, "insurer": 100}
MOMENT = "2026-11-23T07:00:00+00:00"


def report(party: str = "clinic", protocol: str = "psu", **changes: Any) -> envelope.Report:
    """120, 90 and 100 records, of which 80 are common to all, 150 in all; a passive party of a union does not know 80."""
    job = parse(
        f"name: three\nparties: {{active: clinic, passive: [lab, insurer]}}\nalign: {{protocol: {protocol}}}", Job, source="job"
    )
    rows = {"psu": 150, "psi": 80}[protocol]
    peers = {name: PeerFacts(records=count) for name, count in SIZES.items() if name != party}
    known = protocol == "psi" or party == "clinic"
    alignment = Alignment(
        spec=ALIGNMENTS[protocol],
        group="curve25519",
        rows=np.arange(rows) % SIZES[party],
        ours=SIZES[party],
        peers=peers | changes.pop("peers", {}),
        union=150,
        common=80 if known else None,
    )
    return envelope.build(
        job=job,
        job_id="three-1",
        party=party,
        alignment=alignment,
        align_seconds=1.0,
        records=SIZES[party],
        protection=Protection(),
        traffic={"align": Traffic(10, 20, 1, 2)},
        training=None,
        started=MOMENT,
        finished=MOMENT,
        versions={},
    )


def test_sizes_of_several_parties_are_mappings() -> None:
    sizes = json.loads(report().to_json())["alignment"]
    assert sizes["theirs"] == {"lab": 90, "insurer": 100}
    assert sizes["padded"] == {"lab": False, "insurer": False}
    assert (sizes["union"], sizes["intersection"]) == (150, 80)
    assert json.loads(report("lab").to_json())["alignment"]["intersection"] is None
    hidden = report("lab", "psi", peers={"insurer": PeerFacts(records=None)})
    assert json.loads(hidden.to_json())["alignment"]["theirs"] == {"clinic": 120, "insurer": None}


@pytest.mark.parametrize(
    ("party", "protocol", "expected"),
    [
        ("clinic", "psu", "clinic: 120; lab: 90; insurer: 100; all together (union): 150; in common (intersection): 80."),
        ("lab", "psu", "lab: 90; clinic: 120; insurer: 100; all together (union): 150; in common (intersection): hidden."),
    ],
)
def test_the_page_draws_each_set(party: str, protocol: str, expected: str) -> None:
    html = page.render(report(party, protocol))
    assert expected in html
    for name in SIZES.keys() - {party}:
        assert f"<span>of {name}</span>" in html


def test_hidden_and_padded_sizes_are_said() -> None:
    peers = {"clinic": PeerFacts(records=128, padded=True), "insurer": PeerFacts(records=None)}
    html = page.render(report("lab", "psi", peers=peers))
    assert "lab: 90; clinic: at most 128; insurer: hidden; " in html


@pytest.mark.parametrize(
    ("party", "title"), [("clinic", "Report of clinic, the active party"), ("insurer", "Report of insurer, a passive party")]
)
def test_one_of_several_is_not_called_the_passive_party(party: str, title: str) -> None:
    html = page.render(report(party))
    assert f'<p class="over">{title}</p>' in html
    assert "the passive party" not in html
    assert "<dd>clinic (active), lab and insurer (passive)</dd>" in html
