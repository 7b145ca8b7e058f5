"""Protocols are an extension point: what a spec says is what its protocol does, and an installed package adds another one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from vfl_node.alignment.lists import promises
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.protocols import side_of
from vfl_node.alignment.words import words_of
from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Align, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.roles import DATA_ROLES, OTHER_ROLE
from vfl_node.settings.limits import Limits

BY_ID = [name for name, spec in ALIGNMENTS.usable() if not spec.by_similarity]
"""Those that compare identifiers; tests/alignment/linkage has the other."""

EVERY = pytest.mark.parametrize("protocol", BY_ID)
IDS_A, IDS_P = [b"%d" % i for i in range(17)], [b"%d" % i for i in range(9, 33)]


@EVERY
def test_the_spec_says_what_a_run_does(run_alignment, protocol):
    spec, run = ALIGNMENTS[protocol], run_alignment(protocol, IDS_A, IDS_P)
    assert spec.name == protocol
    assert tuple(spec.sides) == DATA_ROLES
    assert plan_of(spec).compared_with in ALIGNMENTS
    assert words_of(spec).title
    for role in DATA_ROLES:
        view = getattr(run, role)
        assert (view.missing > 0) == (role in spec.synthetic_rows_at)
        assert (view.peer.intersection is None) == (role in spec.intersection_hidden_from)
        if spec.shows_shared_records_to(role):
            ids, others = (IDS_A, IDS_P) if role == "active" else (IDS_P, IDS_A)
            assert sorted(ids[row] for row in view.rows[view.owned]) == sorted({*ids} & {*others})
        assert list(view.peers) == [run.spies[DATA_ROLES.index(role)].peer]


@EVERY
@pytest.mark.parametrize("role", DATA_ROLES)
def test_only_roles_that_pad_announce_more(run_alignment, protocol, role):
    run = run_alignment(protocol, IDS_A, IDS_P, padding=1)
    announced = getattr(run, OTHER_ROLE[role]).peer
    records = {"active": len(IDS_A), "passive": len(IDS_P)}[role]
    assert (announced.records > records) == announced.padded == (role in ALIGNMENTS[protocol].padded_roles)


def test_the_three_shared_orders_by_their_properties():
    facts = {name: ALIGNMENTS[name] for name in ALIGNMENTS}
    assert [name for name, of in facts.items() if of.every_row_is_shared] == ["psi", "psi-pairs", "upsi"]
    assert [name for name, of in facts.items() if of.can_count_matched_rows] == ["psu"]
    assert [name for name, of in facts.items() if of.is_within_one_set] == ["apsi"]
    shown = {role: [name for name, of in facts.items() if of.shows_shared_records_to(role)] for role in DATA_ROLES}
    assert shown == {"active": ["psi", "apsi", "psi-pairs", "upsi"], "passive": ["psi", "psi-pairs", "upsi"]}


def test_options_are_those_of_one_protocol():
    for protocol in BY_ID:
        assert Align(protocol=protocol, obfuscation="private" if protocol == "apsi" else None).spec is ALIGNMENTS[protocol]
    for wrong in ({"protocol": "psi", "dummies": 1}, {"protocol": "psu", "obfuscation": "private"}, {"protocol": "apsi"}):
        with pytest.raises(ValueError, match="align\\."):
            Align(**wrong)


def test_promises_name_the_protocols_that_keep_them():
    assert [promises._padding_protocols(role) for role in DATA_ROLES] == ["psu or psi or apsi", "psu or psi"]
    assert [promises._hiding_protocols(role) for role in DATA_ROLES] == ["psu with dummies, or apsi", "psu with dummies"]


def test_a_name_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(UsageError) as caught:
        parse("name: t\nparties: {active: a, passive: b}\nalign: {protocol: pzi}", Job, source="job")
    assert "it is one of psu, psi, apsi, psi-pairs, upsi, linkage" in caught.value.message
    assert "did you mean 'psi'?" in caught.value.hint
    with pytest.raises(UsageError, match=r"'protocols\.1' cannot be '3'"):
        parse("protocols: [psu, 3]", Limits, source="limits")
    assert Limits().protocols == ("psu", "psi", "apsi")


def test_specs_are_light_and_a_job_loads_no_implementation():
    """Importing all of them loads no library for numbers or for the network, and no protocol."""
    program = (
        "import sys, vfl_node.job, vfl_node.settings.node\n"
        "from vfl_node.job.alignment import ALIGNMENTS\n"
        "assert all(ALIGNMENTS[name].shared_rows for name in ALIGNMENTS)\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'numpy', 'torch', 'grpc', 'google'})\n"
        "late = ('.protocol', '.plan', '.words')\n"
        "print(*(name for name in sys.modules if name.endswith(late) or 'alignment.lists' in name))"
    )
    assert output(program).split() == []


PACKAGE = """
from dataclasses import replace
from vfl_node.alignment.psi.spec import PSI

PAIRS = replace(PSI, name="pairs", shared_rows="pairs of records")
"""

PROGRAM = """
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.protocols import side_of
from vfl_node.alignment.psi import protocol
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job import Align
from vfl_node.settings.limits import Limits

align = Align(protocol="pairs")
assert side_of(align.spec, "active") is protocol.active
assert plan_of(align.spec).counts(3, 4, 2).sent == {"active": 7, "passive": 7}
print(*ALIGNMENTS, *Limits().protocols, align.spec.shared_rows, sep=",")
"""


def test_an_installed_package_adds_a_protocol(tmp_path):
    (tmp_path / "pairs.py").write_text(PACKAGE)
    about = tmp_path / "pairs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pairs\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[vfl_node.alignments]\npairs = pairs:PAIRS\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    every, allowed = "psu,psi,apsi,psi-pairs,upsi,linkage,pairs", "psu,psi,apsi,pairs"
    assert output(PROGRAM, PYTHONPATH=path).strip() == f"{every},{allowed},pairs of records"


def output(program, **environment):
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ | environment
    )
    return ended.stdout


def test_a_side_that_cannot_be_loaded_is_an_error_of_the_extension():
    broken = replace(ALIGNMENTS["psi"], sides={"active": "vfl_node_is_not_here:active"})
    with pytest.raises(UsageError, match=r"the active side of align\.protocol psi") as caught:
        side_of(broken, "active")
    assert caught.value.code == "E_EXTENSION"
