"""Where the policy wants two persons, one alone lets no job run, nor does anybody twice, nor somebody who may not any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.test_approvals import JOB, Lab, manifest
from vfl_node.errors import PolicyError, UsageError
from vfl_node.node.work import Work
from vfl_node.trust.tokens import Tokens

TWO = {"approve": [{"name": "both", "by": "two"}]}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    monkeypatch.setattr(Work, "start", lambda work: lab.begun.append(work.record.id))
    tokens = Tokens(lab.store.folder)
    for name, role in (("anna", "approver"), ("bert", "admin"), ("eve", "viewer")):
        tokens.create(name, [role], 30)
    lab.configure(policy=TWO)
    yield lab
    lab.store.close()


def approve(lab: Lab, person: str | None, note: str = "") -> str | None:
    lab.approvals.approve("weekly-1", manifest_digits(lab), note, person)
    return lab.state()


def manifest_digits(lab: Lab) -> str:
    return str(lab.approvals.show("weekly-1")["digits"])


def refused(lab: Lab, person: str | None) -> str:
    with pytest.raises(UsageError) as raised:
        approve(lab, person)
    assert lab.state() == "asked"
    assert lab.begun == []
    return raised.value.code


def test_two_persons_say_yes_and_the_consent_names_neither(lab: Lab) -> None:
    lab.offered(manifest())
    assert approve(lab, "anna", "as agreed") == "asked"
    (ask,) = lab.approvals.asks()
    assert (ask["by"], ask["yes"], lab.begun) == ("two", ["anna"], [])
    assert approve(lab, "bert") == "waiting"
    assert lab.begun == ["weekly-1"]
    shown = lab.approvals.show("weekly-1")
    assert shown["decision"]["note"] == "anna: as agreed"
    assert (shown["decision"]["by"], shown["decision"]["persons"]) == ("persons", ["anna", "bert"])
    consent = lab.documents()["consent lab"]
    assert len(set(consent["persons"])) == 2
    assert not {"anna", "bert"} & set(str(consent).replace("'", " ").split())


def test_no_person_counts_twice_and_nobody_without_a_name(lab: Lab) -> None:
    lab.offered(manifest())
    assert refused(lab, None) == "E_PERSON"  # the owner's socket
    assert refused(lab, "nobody-here") == "E_PERSON"
    assert refused(lab, "eve") == "E_PERSON"  # who may only look
    approve(lab, "anna")
    assert refused(lab, "anna") == "E_PERSON"
    assert refused(lab, None) == "E_PERSON"


def test_a_yes_ends_with_the_token_of_its_person(lab: Lab) -> None:
    tokens = Tokens(lab.store.folder)
    lab.offered(manifest())
    approve(lab, "anna")
    tokens.revoke("anna")
    assert approve(lab, "bert") == "asked"
    assert lab.approvals.asks()[0]["yes"] == ["bert"]
    tokens.create("anna", ["approver"], 30)  # another token: she says yes once more
    assert lab.approvals.asks()[0]["yes"] == ["bert"]
    assert approve(lab, "anna") == "waiting"


def test_a_first_yes_survives_a_restart(lab: Lab) -> None:
    lab.offered(manifest())
    approve(lab, "anna")
    lab.configure(policy=TWO)
    assert lab.approvals.asks()[0]["yes"] == ["anna"]
    assert approve(lab, "bert") == "waiting"


def test_the_policy_of_the_moment_counts(lab: Lab) -> None:
    lab.offered(manifest())
    approve(lab, "anna")
    lab.configure(policy={"never": [{"name": "not any more", "when": {}}]})
    with pytest.raises(PolicyError, match="never: not any more"):
        approve(lab, "bert")
    assert (lab.approvals.asks()[0]["by"], lab.state()) == ("nobody", "asked")
    lab.configure(policy={})
    assert approve(lab, None) == "waiting"  # one is enough now, also the owner
    assert lab.approvals.show("weekly-1")["decision"]["persons"] == ["owner"]


def test_one_person_refuses_alone(lab: Lab) -> None:
    lab.offered(manifest())
    approve(lab, "anna")
    lab.approvals.refuse("weekly-1", "purpose", "not now", "bert")
    assert lab.state() == "cancelled"
    assert lab.approvals.show("weekly-1")["decision"]["persons"] == ["bert"]


def test_a_job_as_a_person_approved_it_runs_by_rule(lab: Lab) -> None:
    again = {"approve": [{"name": "as before", "when": {"submitters": ["clinic"], "same_as_approved": True}, "by": "rule"}]}
    lab.configure(policy=again)
    lab.offered(manifest())
    assert lab.state() == "asked"
    approve(lab, "anna")
    lab.offered(manifest(job_id="weekly-2"))
    assert lab.state("weekly-2") == "waiting"
    assert lab.documents("weekly-2")["consent lab"]["by"] == "rule"
    assert JOB.train
    changed = JOB.model_copy(update={"train": JOB.train.model_copy(update={"epochs": 4})})
    lab.offered(manifest(changed, "weekly-4"), job=changed)
    assert lab.state("weekly-4") == "asked"


def test_the_newest_decision_on_the_same_job_counts(lab: Lab) -> None:
    again = {"approve": [{"name": "as before", "when": {"same_as_approved": True}, "by": "rule"}]}
    lab.offered(manifest())
    lab.configure(policy={})
    approve(lab, None)
    lab.offered(manifest(job_id="weekly-2"))
    lab.approvals.refuse("weekly-2", "purpose")
    lab.configure(policy=again)
    lab.offered(manifest(job_id="weekly-3"))
    assert lab.state("weekly-3") == "asked"


def test_an_own_job_approves_none_of_a_partner(lab: Lab) -> None:
    again = {"approve": [{"name": "as before", "when": {"same_as_approved": True}, "by": "rule"}]}
    lab.configure(policy=again)
    lab.jobs.submit(JOB, person="sam")
    lab.offered(manifest())
    assert lab.state() == "asked"
