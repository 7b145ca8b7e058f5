"""Estimates of jobs with several passive parties: exact counts of a run, ranges by hand, words, and the command."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.alignment.worlds import World
from tests.estimate.plans import ONLY_POWERS, TRAIN, estimate, exact
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.several.costs import PartyCounts, counts_of_several
from vfl_node.alignment.several.stages import sum_stages
from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.estimate import machine
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.memory import need
from vfl_node.estimate.plan import Plan
from vfl_node.estimate.totals import to_json
from vfl_node.estimate.words import describe_alignment, describe_start, notes, table
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import TableShape
from vfl_node.settings.node import Obfuscation
from vfl_node.transport.generated.vfl.v1 import session_pb2

SIZES = {"clinic": 100, "lab": 1000, "insurer": 400}
SETS = {
    "clinic": [b"%d" % i for i in range(20)],
    "lab": [b"%d" % i for i in range(5, 30)],
    "insurer": [b"%d" % i for i in range(0, 40, 3)],
    "bank": [b"%d" % i for i in range(2, 18)],
}


def job(align: str = "protocol: psu", rest: str = "") -> Job:
    return parse(f"name: t\nparties: {{active: clinic, passive: [lab, insurer]}}\nalign: {{{align}}}{rest}", Job, source="job")


def plan(align: str = "protocol: psu", rest: str = "", **changes: Any) -> Plan:
    known: dict[str, Any] = {
        "job": job(align, rest),
        "party": "clinic",
        "records": SIZES,
        "shared": (30, 30),
        "rate_mbit_s": 1e9,
        "rtt_ms": 0,
        "obfuscation": Obfuscation(),
    }
    return Plan(**(known | changes))


@pytest.mark.parametrize(("protocol", "parties"), [("psu", 3), ("psi", 3), ("psi-pairs", 3), ("psi-pairs", 4)])
def test_the_counts_are_those_of_a_run(tmp_path: Path, protocol: str, parties: int) -> None:
    """For each party, element by element and file by file."""
    sets = dict(itertools.islice(SETS.items(), parties))
    world = World(tmp_path, sets, protocol)
    results = world.attempt()
    m = len(results["clinic"])
    assert m == len(set.union(*map(set, sets.values())) if protocol == "psu" else set.intersection(*map(set, sets.values())))
    plan = plan_of(ALIGNMENTS[protocol])
    counts = sum_stages(plan.stages_of_several([len(ids) for ids in sets.values()], m))
    for (name, group), expected in zip(world.groups.items(), counts, strict=True):
        sent = [message for (sender, _), messages in world.sent.items() if sender == name for message in messages]
        elements = sum(len(message.rows) for message in sent if isinstance(message, session_pb2.Chunk))
        told = plan.bytes_a_row * m * (parties - 1) if name == "clinic" else 0
        stored = sum(path.stat().st_size for path in (tmp_path / name).rglob("*.rows"))
        assert group.hashes == expected.hashes
        assert group.powered == expected.powers
        assert group.decoded == expected.received
        assert elements == expected.sent * group.width + told
        assert stored == expected.spilled * group.width


def test_the_formulas_of_the_documentation() -> None:
    """The table of docs/reference/estimate.md for several parties, cell by cell."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "estimate.md").read_text()
    lines = re.findall(r"^\| ([A-Z, -]+): (active|passive j) \| (.*) \|$", text, re.MULTILINE)
    assert len(lines) == 4
    sizes, m, k = [100, 1000, 400, 70], 7, 3
    for protocols, party, cells in lines:
        number = 0 if party == "active" else 1
        symbols = {"k": k, "m": m, "n_0": sizes[0], "n_j": sizes[number], "S": sum(sizes)}
        for protocol in protocols.lower().split(", "):
            counts = sum_stages(plan_of(ALIGNMENTS[protocol]).stages_of_several(sizes, m))[number]
            for kind, cell in zip(("hashes", "powers", "sent", "received"), cells.split(" | "), strict=True):
                formula = re.split("[;,]", cell)[0].replace("Σ", "S").replace("·", "*").replace("−", "-")
                assert eval(re.sub(r"(\d)k", r"\1*k", formula), {}, symbols) == getattr(counts, kind), (protocol, kind)


@pytest.mark.parametrize("sizes", [[5, 7, 11], [100, 3, 50, 7], list(range(1, 10))], ids=len)
def test_stages_add_up_to_the_formula(sizes: list[int]) -> None:
    stages = plan_of(ALIGNMENTS["psu"]).stages_of_several(sizes, 13)
    assert sum_stages(stages) == counts_of_several(sizes, 13)
    assert plan_of(ALIGNMENTS["psi"]).stages_of_several(sizes, 13) == stages
    k = len(sizes) - 1
    active, *_ = sum_stages(stages)
    assert len(stages) == 3 * (k + 1)
    assert active.sent + active.received == (4 * k - 1) * sum(sizes[1:]) + 4 * k * sizes[0] + (3 * k - 1) * 13


def test_in_a_stage_all_parties_work_at_the_same_time() -> None:
    """With equal sets a stage takes what one list takes, but for the active party's last turn of a round."""
    slowest = [max(each.powers for each in stage) for stage in plan_of(ALIGNMENTS["psu"]).stages_of_several([10, 10, 10], 100)]
    assert slowest == [10, 20, 20, 100, 100, 100, 20, 20, 10]


def test_pairs_take_their_turns() -> None:
    """What two parties do is what PSI of the two costs, and the others do nothing meanwhile."""
    plan = plan_of(ALIGNMENTS["psi-pairs"])
    stages = plan.stages_of_several([100, 1000, 400], 30)
    assert [tuple(each.powers for each in stage) for stage in stages] == [
        (1100, 1100, 0),
        (0, 0, 0),
        (500, 0, 500),
        (0, 0, 0),
    ]
    assert sum_stages(stages)[0] == PartyCounts(hashes=200, powers=1600, sent=1600, received=1600, spilled=3200)
    assert sum_stages(stages) == plan.most_of_several([100, 1000, 400])


def test_rows_of_each_protocol() -> None:
    """The union of three sets of which 30 records are in all lies between one bound and the other."""
    found = estimate(plan())
    assert {name: cost["rows"] for name, cost in found.items()} == {"psu": (1000, 1440), "psi": (30, 30), "psi-pairs": (30, 30)}
    open_ended = estimate(plan(shared=(0, 100)))
    assert open_ended["psi"]["rows"] == (0, 100)
    assert open_ended["psu"]["rows"] == (1000, 1500)
    assert open_ended["psu"]["extra_rows"] == (900, 1500)


def subsets(universe: int) -> list[frozenset[int]]:
    items = range(universe)
    return [frozenset(some) for count in range(universe + 1) for some in itertools.combinations(items, count)]


@pytest.mark.parametrize("parties", [2, 3])
def test_the_bounds_of_a_union_are_the_extremes_of_all_sets(parties: int) -> None:
    """Every choice of sets among few records; each bound is met, and none lies outside."""
    met: dict[tuple[tuple[int, ...], int], set[int]] = {}
    for sets in itertools.product(subsets(4), repeat=parties):
        key = tuple(map(len, sets)), len(frozenset.intersection(*sets))
        met.setdefault(key, set()).add(len(frozenset.union(*sets)))
    psu, align = plan_of(ALIGNMENTS["psu"]), job().align
    for (sizes, common), unions in met.items():
        bounds = list(psu.lengths(align, sizes, common, Obfuscation()))
        assert min(bounds) == min(unions)
        assert max(unions) <= max(bounds)
        if max(bounds) <= 4:  # as many records as there are
            assert max(bounds) == max(unions)


def test_a_part_of_the_records() -> None:
    found = estimate(plan("protocol: psu, at_most: 500"))
    assert exact(found["psi"], "rows") == 15  # 30 · 500/1000; the others bring all of theirs


def test_all_goes_over_the_active_partys_wire() -> None:
    found = estimate(plan(rate_mbit_s=1e-6, rtt_ms=500))
    elements = 7 * 1400 + 8 * 100 + 5 * 30  # (4k − 1)·Σ n_j + 4k·n_0 + (3k − 1)·m
    assert exact(found["psi"], "wire_s") == elements * 32 * 8 + (9 + 2) * 0.5
    assert exact(found["psi-pairs"], "wire_s") == (2 * (1000 + 400) * 32 + 2 * 30 * 4) * 8 + (4 + 2) * 0.5
    assert exact(found["psi-pairs"], "sent_bytes") == 1600 * 32 + 2 * 30 * 4
    lab = estimate(plan(party="lab", rate_mbit_s=1e-6, rtt_ms=500))
    assert lab["psi"]["wire_s"] == found["psi"]["wire_s"]
    assert exact(lab["psi-pairs"], "received_bytes") == 1100 * 32 + 30 * 4
    assert exact(lab["psi"], "sent_bytes") == (2 * 1500 + 30) * 32


def test_of_several_disks_the_one_with_the_most() -> None:
    costs = estimate(plan("protocol: psi-pairs"))["psi-pairs"]
    assert exact(costs, "active_disk_bytes") == (2 * 1100 + 2 * 500) * 32 + 2 * 1500 * 36
    assert exact(costs, "passive_disk_bytes") == 2 * 1100 * 32 + 2 * 1500 * 36


def test_what_does_not_run_with_several_is_said_with_the_reason() -> None:
    said = notes(plan(), ONLY_POWERS)
    assert "apsi" not in estimate(plan())
    (reason,) = [note for note in said if note.startswith("not available: APSI")]
    assert reason.startswith("not available: APSI runs with one passive party at most, because each pair would get")
    assert any(note.startswith("PSI-PAIRS runs only at nodes whose owners have named it") for note in said)
    assert "clinic has 100 records, lab has 1,000 records, insurer has 400 records; 30 are shared by all" in said
    assert not any("nothing here fixes" in note for note in said)  # of the obfuscated set
    assert not any(re.search(r"\bboth\b", note) for note in said)


def test_what_no_owner_allows_by_default_is_compared_where_it_is_named() -> None:
    two = parse("name: t\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi-pairs}", Job, source="job")
    pair = {"records": {"clinic": 100, "lab": 1000}}
    assert "psi-pairs" in estimate(plan(job=two, **pair))
    other = two.model_copy(update={"align": job("protocol: psi").align})
    assert "psi-pairs" not in estimate(plan(job=other, **pair))


def test_the_table_names_the_party_and_fits() -> None:
    large = plan(records={"clinic": 90_000_000, "lab": 100_000_000, "insurer": 80_000_000}, shared=(0, 80_000_000), party="lab")
    lines = table(large, estimate(large))
    assert lines[0] == ("", "PSU (this job)", "PSI", "PSI-PAIRS")
    titles = [line[0] for line in lines]
    assert titles[titles.index("CPU time, lab") + 1] == "  more, to begin and read the table"  # no part of it
    assert "disk, each passive party at most" in titles
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    assert sum(widths) + 2 * 3 <= 100
    assert "CPU time, active party" in [line[0] for line in table(plan(), estimate(plan()))]


def test_for_a_program() -> None:
    found = to_json(plan(party="insurer"), ONLY_POWERS, estimate(plan(party="insurer")))
    assert (found["role"], found["party"], found["records"]) == ("passive", "insurer", SIZES)
    json.dumps(found)


def test_before_the_start_all_know_what_they_know() -> None:
    trains = job(rest=TRAIN)
    known = describe_start(trains, SIZES, (30, 30))
    assert known[0].startswith("this job trains on the union: 800 – 1,152 rows per epoch")
    assert known[1].startswith("the intersection would take 24 rows per epoch, 1 batch")
    own = describe_start(trains, {"lab": 1000})
    assert own[0].startswith("this job trains on the union: at least 800 rows per epoch")
    bounded = describe_start(job("protocol: psu, at_most: 50", TRAIN), {"lab": 1000})
    assert bounded[0].startswith("this job trains on the union: 40 – 120 rows per epoch")


@pytest.mark.parametrize(
    ("common", "union", "said"),
    [
        (30, 480, "training on the union: 384 rows per epoch, 8 batches"),
        (30, 480, "; the intersection would take 24 rows per epoch, 1 batch"),
        (None, 480, "; how many the intersection would take is hidden"),
    ],
)
def test_one_line_after_the_alignment(common: int | None, union: int, said: str) -> None:
    peers = {"lab": PeerFacts(400), "insurer": PeerFacts(200)}
    aligned = Alignment(ALIGNMENTS["psu"], "curve25519", np.arange(480), 100, peers, union=union, common=common)
    assert said in describe_alignment(job(rest=TRAIN), aligned)


def test_training_costs_what_all_conversations_take() -> None:
    rest = TRAIN
    found, pair = (
        estimate(plan(rest=rest))["psi"],
        parse(f"name: t\nparties: {{active: clinic, passive: lab}}\nalign: {{protocol: psi}}{rest}", Job, source="job"),
    )
    one = pair.train.make_plan().cost(pair.evaluate, 30, "psi")
    assert exact(found, "train_bytes") == 2 * one.bytes
    assert exact(found, "batches") == one.batches


def test_the_active_node_has_every_partys_embeddings_and_messages() -> None:
    several, shape = job(rest=TRAIN), TableShape(rows=100, numeric=4)
    two = several.model_copy(update={"parties": several.parties.model_copy(update={"passive": ("lab",)})})
    more, less = need(several, "active", shape), need(two, "active", shape)
    assert more.messages == 2 * less.messages
    batch = 16 * 50 * 2 * 10  # bytes a value, rows, embedding and gradient, width
    assert more.batch - less.batch == batch + 2 * 84 * 100  # two audits more: of the other peer, and of both together
    assert more.model > less.model  # the top network reads one embedding more
    assert need(several, "passive", shape) == need(two, "passive", shape)


class TestCommand:
    """``vfl-node estimate`` with several passive parties."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measured = 5e-6, 30e-6, 2e-6, 1e-6, 5e-10, 2e8
        monkeypatch.setattr(machine, "measure", lambda group, cores, folder: Machine(cores, *measured))

    @pytest.fixture
    def path(self, tmp_path: Path, trial: Any) -> Path:
        parties = "{active: clinic, passive: [lab, insurer]}"
        (tmp_path / "job.yaml").write_text(f"name: t\nparties: {parties}\nalign: {{protocol: psi}}")
        (tmp_path / "lab.yaml").write_text(
            "{name: lab, role: passive, insecure_loopback: true, http: null, listen: '127.0.0.1:0', "
            f"data: {{path: {trial.lab}}}}}"
        )
        return tmp_path

    @staticmethod
    def said(path: Path, *words: object) -> str:
        result = CliRunner().invoke(app, ["estimate", str(path / "job.yaml"), *map(str, words)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def test_a_table_and_notes(self, path: Path) -> None:
        text = self.said(path, "--active", 1000, "--records", "lab=2000", "--records", "insurer=500", "--shared", 300)
        assert "PSI (this job)" in text
        assert "insurer has 500 records; 300 are shared by all" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_a_node_counts_its_own(self, path: Path) -> None:
        words = ["--config", path / "lab.yaml", "--records", "clinic=1000", "--records", "insurer=500", "--json"]
        found = json.loads(self.said(path, *words))
        assert (found["party"], found["records"]) == ("lab", {"clinic": 1000, "insurer": 500, "lab": 160})

    @pytest.mark.parametrize(
        ("words", "message", "hint"),
        [
            ("--active 9 --passive 5", "--passive: this job has 2 passive parties", "--records lab=N --records insurer=N"),
            ("--active 9", "how many records has lab, a passive party", "--records lab=N"),
            ("--records lab=9 --records insurer=9", "how many records has clinic, the active party", "--active N"),
            ("--records bank=9", "--records names 'bank', which is no party", "parties: clinic, lab, insurer"),
            ("--records lab=many", "--records lab=many is not PARTY=NUMBER", "--records clinic=2000"),
            ("--records lab=9 --records lab=8", "the records of lab are given twice", ""),
            (
                "--active 9 --records lab=5 --records insurer=7 --shared 6",
                "--shared 6 is more than the smallest party's 5 records",
                "",
            ),
        ],
    )
    def test_what_is_not_known_is_asked_for(self, path: Path, words: str, message: str, hint: str) -> None:
        with pytest.raises(VflError) as caught:
            self.said(path, *words.split())
        assert message in caught.value.message
        assert hint in (caught.value.hint or "")

    def test_the_configuration_of_a_stranger(self, path: Path) -> None:
        (path / "lab.yaml").write_text((path / "lab.yaml").read_text().replace("name: lab", "name: bank"))
        with pytest.raises(VflError, match="parties of this job are lab and insurer, and the configuration is bank's"):
            self.said(path, "--config", path / "lab.yaml", "--active", 9)


def test_party_counts_add_up_by_kind() -> None:
    assert [field.name for field in fields(PartyCounts)] == ["hashes", "powers", "sent", "received", "spilled"]
    assert astuple(sum_stages([(PartyCounts(1, 2, 3, 4, 5),), (PartyCounts(5, 4, 3, 2, 1),)])[0]) == (6, 6, 6, 6, 6)
