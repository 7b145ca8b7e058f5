"""With which parties a node takes part: those that its owner has listed, in the way in which they meet."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError, UsageError
from vfl_node.execution.allowed import check_allowed
from vfl_node.job import Job
from vfl_node.settings.node import Settings, peers_in

JOB = parse("name: t\nparties: {active: clinic, passive: [lab, insurer]}\nalign: {protocol: psi}", Job, source="job")
LINKS = """\
name: t
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: linkage, keys: {u: {kind: number, low: 0, high: 1, reach: 0.1}}, noise: {sigma: 0.4}}
"""
CLINIC = {"address": "127.0.0.1:1"}
RELAYED = {"relayed": True}
KIND = "its policy does not allow the job (kind)"


def settings(name: str, peers: dict[str, Any], **everyone: Any) -> Settings:
    """Of a node whose policy has the limits ``everyone``."""
    role = {"clinic": "active", "notary": "coordinator"}.get(name, "passive")
    own = {"name": name, "role": role, "peers": peers, "policy": {"everyone": everyone}}
    return Settings.model_validate(own | {"insecure_loopback": True})


@pytest.mark.parametrize("insurer", [RELAYED, {"address": "127.0.0.1:2"}])
def test_a_party_that_is_listed_may_take_part_whether_or_not_there_is_a_link(insurer: dict[str, Any]) -> None:
    check_allowed(settings("lab", {"clinic": CLINIC, "insurer": insurer}), JOB)
    check_allowed(settings("clinic", {"lab": CLINIC, "insurer": CLINIC}), JOB)


@pytest.mark.parametrize(
    ("name", "peers", "message", "hint"),
    [
        ("lab", {"clinic": CLINIC}, "'insurer', which is not among", "insurer: {relayed: true}"),
        ("lab", {"insurer": CLINIC}, "'clinic', which is not among", "add it under peers (known: insurer)"),
        ("lab", {"insurer": CLINIC, "clinic": RELAYED}, "'clinic' as active, and this node", "give clinic an address"),
        ("clinic", {"lab": CLINIC}, "'insurer', which is not among", "add it under peers (known: lab)"),
    ],
)
def test_any_other_party_is_refused(name: str, peers: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_allowed(settings(name, peers), JOB)
    assert caught.value.code == "E_UNKNOWN_PEER"
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "insurer" not in caught.value.for_peer


@pytest.mark.parametrize(
    ("name", "peers", "message"),
    [
        ("lab", {"insurer": RELAYED | CLINIC}, "leave its address out"),
        ("clinic", {"insurer": RELAYED}, "meet all parties themselves"),
        ("lab", {"clinic": {}, "insurer": RELAYED}, "set listen"),
    ],
)
def test_settings_that_contradict_a_relay_are_refused(name: str, peers: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(name, peers)


def test_a_node_with_relayed_peers_alone_besides_one_that_it_dials_needs_no_port() -> None:
    made = settings("lab", {"clinic": CLINIC, "insurer": RELAYED})
    assert made.listen is None
    assert list(made.connected) == ["clinic"]


def test_a_trial_knows_each_party_in_the_way_in_which_they_meet() -> None:
    relayed = {name: [peer for peer, of in peers_in(JOB.parties, name).items() if of.relayed] for name in JOB.parties.all}
    assert relayed == {"clinic": [], "lab": ["insurer"], "insurer": ["lab"]}


@pytest.mark.parametrize("reveals", [True, False])
def test_an_active_owner_can_refuse_to_have_its_records_located(reveals: bool) -> None:
    """Before anything is encoded, so nothing has left; tests/privacy/linkage/test_cells.py shows what it is against."""
    job = parse(LINKS, Job, source="job")
    everyone = {"protocols": ["linkage"], "reveal": ["candidates"] if reveals else ["matched"]}
    peers = {"lab": CLINIC, "notary": CLINIC}
    if reveals:
        check_allowed(settings("clinic", peers, **everyone), job)
    else:
        with pytest.raises(PolicyError) as caught:
            check_allowed(settings("clinic", peers, **everyone), job)
        assert "reveal: [candidates]" in caught.value.hint
        assert caught.value.for_peer == KIND
    check_allowed(settings("lab", {"clinic": CLINIC, "notary": CLINIC}, **everyone), job)  # it has no records to hide


def trains(text: str) -> Job:
    document = f"name: t\nparties: {{active: clinic, passive: lab, coordinator: notary}}\ntrain: {{algorithm: hidden, {text}}}"
    return parse(document, Job, source="job")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("epsilon: null", "exact"), ("epsilon: null, layers: [4]", "networks"), ("epsilon: null, loss: taylor", "taylor")],
)
def test_a_model_without_a_bound_needs_its_owners_word(text: str, kind: str) -> None:
    peers = {"lab": CLINIC, "notary": CLINIC}
    others = sorted({"exact", "networks", "taylor"} - {kind})
    for allowed in ([], others):
        with pytest.raises(PolicyError) as caught:
            check_allowed(settings("clinic", peers, unbounded_models=allowed), trains(text))
        assert f"({kind})" in caught.value.message
        assert f"unbounded_models: [{kind}]" in caught.value.hint
        assert caught.value.for_peer == KIND
    check_allowed(settings("clinic", peers, unbounded_models=[kind]), trains(text))
    check_allowed(settings("clinic", peers), trains("epsilon: 1"))
    check_allowed(settings("notary", {"clinic": CLINIC, "lab": CLINIC}), trains(text))  # which gets no model


@pytest.mark.parametrize("job", [trains("epsilon: 1"), parse(LINKS, Job, source="job")])
def test_a_peer_chooses_its_coordinator_among_those_that_the_owner_has_listed(job: Job) -> None:
    lab = {"clinic": CLINIC, "notary": CLINIC}
    allowed = {"protocols": ["psi", "psu", "linkage"]}
    check_allowed(settings("lab", lab, **allowed), job)  # a job of its own
    for listed in ([], ["bank"], ["clinic"]):
        with pytest.raises(PolicyError) as caught:
            check_allowed(settings("lab", lab, **allowed, coordinators=listed), job, by_peer=True)
        assert "coordinators: [notary]" in caught.value.hint
        assert caught.value.for_peer == "its policy does not allow the job (partner)"
    check_allowed(settings("lab", lab, **allowed, coordinators=["notary"]), job, by_peer=True)
    notary = {"clinic": CLINIC, "lab": CLINIC}
    check_allowed(settings("notary", notary, **allowed), job, by_peer=True)  # it is the coordinator itself
