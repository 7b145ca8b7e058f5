"""The counts of an alignment with several passive parties are those of real runs, element by element."""

from __future__ import annotations

import pytest

from tests.alignment.several.parties import NAMES, run_several
from tests.alignment.test_costs import CountingGroup, ids
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.several.costs import counts_of_several
from vfl_node.job.alignment import ALIGNMENTS

CASES = {
    "three": [ids(range(17)), ids(range(10, 41)), ids(range(5, 14))],
    "three, nothing shared": [ids(range(7)), ids(range(50, 55)), ids(range(60, 61))],
    "four": [ids(range(17)), ids(range(10, 41)), ids(range(5, 14)), ids(range(3, 33))],
    "five, one empty": [ids(range(4)), ids(range(2, 9)), ids(), ids(range(3, 7)), ids(range(1, 3))],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_counts_are_those_of_a_run(tmp_path, protocol, case):
    sets = CASES[case]
    groups, folders = [CountingGroup() for _ in sets], [tmp_path / name for name in NAMES[: len(sets)]]
    run = run_several(protocol, sets, groups=groups, folders=folders)
    sizes, m = list(map(len, sets)), len(run["clinic"])
    expected, most = counts_of_several(sizes, m), plan_of(ALIGNMENTS[protocol]).most_of_several(sizes)
    for name, group, folder, counts, bound, progress in zip(
        run.names, groups, folders, expected, most, run.progress, strict=True
    ):
        assert group.hashes == counts.hashes
        assert group.powered == counts.powers
        assert group.decoded == counts.received == sum(map(len, run.received(name).values()))
        assert sum(len(rows) for (me, _), lists in run.sent.items() if me == name for rows in lists.values()) == counts.sent
        assert sum(file.stat().st_size for file in folder.glob("*.rows")) == counts.spilled * group.width
        assert progress.total == bound.powers >= group.powered
        assert counts.spilled <= bound.spilled


@pytest.mark.parametrize("k", range(1, 9))
def test_formulas(k):
    sizes, m = [10**i for i in range(k + 1)], 7  # so far apart that no two formulas agree
    active, *passive = counts = counts_of_several(sizes, m)
    for own, party in zip(sizes, counts, strict=True):
        assert party.powers == 3 * own + 2 * (sum(sizes) - own) + m
        assert party.hashes == 2 * own
    assert active.sent + active.received == (4 * k - 1) * sum(sizes[1:]) + 4 * k * sizes[0] + (3 * k - 1) * m
    assert active.sent == sum(party.received for party in passive)
    assert active.received == sum(party.sent for party in passive)


def test_with_one_passive_party_it_costs_as_much_as_between_two():
    between_two = plan_of(ALIGNMENTS["psu"]).counts(1000, 100, 7)
    for role, party in zip(("active", "passive"), counts_of_several([1000, 100], 7), strict=True):
        for kind in ("hashes", "powers", "sent", "received", "spilled"):
            assert getattr(party, kind) == getattr(between_two, kind)[role]
