"""The counts are those of real runs, list by list, element by element."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from vfl_node.alignment.lists.cover import add_cover
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.groups import SafePrimeGroup
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun

ROLES = ("active", "passive")


class CountingGroup(SafePrimeGroup):
    """The toy group, which counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__("toy", 2**80 - 5837)
        self.chunk_rows = 4
        self.hashes = self.powered = self.decoded = 0
        self._lock = threading.Lock()

    def hash_texts(self, text, offsets, domain):
        with self._lock:  # workers hash
            self.hashes += len(offsets) - 1
        return super().hash_texts(text, offsets, domain)

    def blinded(self, ids, domain, scalar, workers):
        self.powered += len(ids)
        return super().blinded(ids, domain, scalar, workers)

    def powers(self, rows, scalar, workers, **checked):
        self.powered += len(rows)
        return super().powers(rows, scalar, workers, **checked)

    def decode(self, rows):
        with self._lock:  # workers decode too
            self.decoded += len(rows)
        return super().decode(rows)


def ids(*ranges: range) -> list[bytes]:
    return [b"%d" % i for numbers in ranges for i in numbers]


CASES = {  # protocol, terms, active ids, passive ids
    "psu": ("psu", {}, ids(range(17)), ids(range(10, 41))),
    "psu, nothing shared": ("psu", {}, ids(range(7)), ids(range(50, 55))),
    "psu, one in the other": ("psu", {}, ids(range(9)), ids(range(23))),
    "psu, padded": ("psu", {"padding": 2}, ids(range(13)), ids(range(10, 31))),
    "psu, dummies": ("psu", {"dummies": 3}, ids(range(13)), ids(range(10, 31))),
    "psu, both": ("psu", {"padding": 1, "dummies": 3}, ids(range(13)), ids(range(10, 31))),
    "psi": ("psi", {}, ids(range(17)), ids(range(10, 41))),
    "psi, padded": ("psi", {"padding": 1}, ids(range(17)), ids(range(10, 41))),
    "apsi": ("apsi", {"obfuscation": {"size": 20}}, ids(range(17)), ids(range(10, 41))),
    "apsi, padded": ("apsi", {"obfuscation": {"fraction": 0.9}, "padding": 3}, ids(range(17)), ids(range(10, 41))),
    "apsi, nothing shared": ("apsi", {"obfuscation": {"size": 4}}, ids(range(7)), ids(range(50, 55))),
    "apsi, raised": ("apsi", {"obfuscation": {"size": 1}}, ids(range(9)), ids(range(23))),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_a_run(run_alignment, tmp_path: Path, case: str) -> None:
    protocol, terms, ours, theirs = CASES[case]
    groups, folders = [CountingGroup(), CountingGroup()], [tmp_path / role for role in ROLES]
    made = run_alignment(protocol, ours, theirs, groups=groups, folders=folders, **terms)
    align = Align(protocol=protocol, **({"obfuscation": {"fraction": 0.6}} if protocol == "apsi" else {}) | terms)
    n = [announced_count(len(own), align, role) for own, role in zip((ours, theirs), ROLES, strict=True)]
    m = len(made.active)
    expected = plan_of(ALIGNMENTS[protocol]).counts(*n, m)
    most = plan_of(ALIGNMENTS[protocol]).most(*n)
    for role, group, folder, spy, progress in zip(ROLES, groups, folders, made.spies, made.progress, strict=True):
        assert group.hashes == expected.hashes[role]
        assert group.powered == expected.powers[role]
        assert group.decoded == expected.received[role]
        assert sum(map(len, spy.lists.values())) == expected.sent[role]
        assert sum(file.stat().st_size for file in folder.glob("*.rows")) == expected.spilled[role] * group.width
        assert progress.total == most.powers[role]
        assert progress.total >= group.powered
        assert expected.spilled[role] <= most.spilled[role]


def test_elements_are_nearly_all_that_is_sent(run_alignment, groups) -> None:
    group = groups["curve25519"]
    made = run_alignment("psi", ids(range(2000)), ids(range(1000, 3000)), group=group)
    for role, spy in zip(ROLES, made.spies, strict=True):
        share = plan_of(ALIGNMENTS["psi"]).counts(2000, 2000, 1000).sent[role] * group.width / spy.traffic["align"].bytes_sent
        assert 0.97 < share < 1


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
def test_formulas_of_the_papers_symbols(protocol: str) -> None:
    a, p, m = 1000, 100, 7  # so far apart that no two formulas agree
    counts = plan_of(ALIGNMENTS[protocol]).counts(a, p, m)
    assert (
        counts.powers
        == {
            "psu": {"active": 3 * a + 2 * p + m, "passive": 3 * p + 2 * a + m},
            "psi": {"active": a + p, "passive": a + p},
            "apsi": {"active": a + p + 3 * m, "passive": a + p + 2 * m},
        }[protocol]
    )
    assert counts.hashes == ({"active": 2 * a, "passive": 2 * p} if protocol == "psu" else {"active": a, "passive": p})
    assert counts.sent["active"] == counts.received["passive"]
    assert counts.sent["passive"] == counts.received["active"]


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
def test_stages_add_up_to_the_whole(protocol: str) -> None:
    whole, stages = plan_of(ALIGNMENTS[protocol]).counts(1000, 100, 7), plan_of(ALIGNMENTS[protocol]).stages(1000, 100, 7)
    for kind in ("hashes", "powers", "sent", "received", "spilled"):
        for role in ROLES:
            assert sum(getattr(stage, kind)[role] for stage in stages) == getattr(whole, kind)[role]


def test_in_a_stage_both_parties_work_at_the_same_time() -> None:
    """Whatever the sizes: a party whose own list is short computes more powers of the other's meanwhile."""

    def waited(n_a: int, n_p: int) -> int:
        slower = sum(max(stage.powers.values()) for stage in plan_of(ALIGNMENTS["psu"]).stages(n_a, n_p, n_a + n_p))
        return slower - max(plan_of(ALIGNMENTS["psu"]).counts(n_a, n_p, n_a + n_p).powers.values())

    assert waited(100, 100) == 0
    assert waited(100, 1000) == 0


@pytest.mark.parametrize("terms", [{}, {"padding": 1}, {"padding": 5}, {"dummies": 4}, {"padding": 3, "dummies": 4}])
@pytest.mark.parametrize("role", ROLES)
def test_announced_is_what_a_party_announces(terms: dict[str, int], role: str) -> None:
    align = Align(protocol="psu", **terms)
    for count in (1, 2, 13, 100):
        own = Identifiers.from_items(ids(range(count)))
        made_up = add_cover(own, bytes(32), align, role, Randomness(bytes(32)), MemoryOfOneRun(Randomness(bytes(32))))
        assert announced_count(count, align, role) == len(made_up)


def test_only_the_active_party_pads_in_apsi() -> None:
    align = Align(protocol="apsi", obfuscation={"size": 5}, padding=1)
    assert [announced_count(100, align, role) for role in ROLES] == [128, 100]


def test_the_formulas_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "estimate.md").read_text()
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if re.match(r"\| (PSU|PSI|APSI)? *\| ", line)
    ]
    assert len(lines) == 6
    a, p, m = 1000, 100, 7
    for number, (protocol, role, *cells) in enumerate(lines):
        counts = plan_of(ALIGNMENTS[(protocol or lines[number - 1][0]).lower()]).counts(a, p, m)
        for kind, cell in zip(("hashes", "powers", "sent", "received", "spilled"), cells, strict=True):
            terms = re.findall(r"(?:(\d)·)?(n_a|n_p|m)", cell)
            assert (
                sum(int(factor or 1) * {"n_a": a, "n_p": p, "m": m}[symbol] for factor, symbol in terms)
                == getattr(counts, kind)[role]
            ), (kind, cell)
