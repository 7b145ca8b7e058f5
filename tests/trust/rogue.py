"""A clinic's partner that means harm: what it signs with its authority, and what it says over its link."""

from __future__ import annotations

from copy import copy
from pathlib import Path

from tests.node.nodes import GENEROUS_S
from tests.trust.parties import FEDERATION, Party
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.settings.node import Tls
from vfl_node.transport.authority import request_for, sign
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Echo, Hello, Notice, Offer
from vfl_node.trust.cards import read_card
from vfl_node.trust.consents import make_consent, sign_consent
from vfl_node.trust.manifest import make_manifest
from vfl_node.version import PROTOCOL_VERSION

WITH_A_COORDINATOR = """\
name: rogue
parties: {active: clinic, passive: %s, coordinator: %s}
train: {algorithm: hidden, epsilon: 1}
"""


def show(party: Party, name: str, folder: Path, clinic: Path) -> Party:
    """The party as it shows a certificate of this ``name``, by its own authority and for its own key.

    Args:
        party: that signs.
        name: on the certificate.
        folder: for the certificate.
        clinic: folder of the clinic, whose authority the party knows.
    """
    made, own = copy(party), party.credentials
    files = Tls(ca=own.files.ca, certificate=folder / f"{name}-of-{party.name}.crt", key=own.files.key)
    files.certificate.write_bytes(sign(own.authority, party.authority_key, request_for(name, FEDERATION, own.key)))
    known = {"clinic": clinic / "keys" / "authority.crt"}
    made.name, made.credentials = name, load_credentials(files, name=name, federation=FEDERATION, peers=known)
    return made


def dial(party: Party, address: str) -> Dialer:
    """With which a party calls the clinic."""
    return Dialer(address, own=party.name, peer="clinic", federation=FEDERATION, credentials=party.credentials)


def offer(party: Party, job_id: str, clinic: Path, coordinator: Party) -> Notice:
    """A job of the party with the clinic of this folder; its manifest has the card of this ``coordinator``, and is approved."""
    job = parse(WITH_A_COORDINATOR % (party.name, coordinator.name), Job, source="job")
    met = read_card((clinic / "keys" / "card.json").read_bytes(), federation=FEDERATION)
    cards = {each.card.name: each.card.digest for each in (met, party.card, coordinator.card)}
    manifest = make_manifest(job, job_id, federation=FEDERATION, submitter=party.name, cards=cards, trained=None)
    consent = sign_consent(make_consent(manifest, party.name, "approve", "persons"), party.signing)
    said = {"job_id": job_id, "submitter": party.name, "job_json": job.canonical(), "ready": True}
    return Notice(offer=Offer(**said, manifest=manifest.to_bytes(), consents=[consent]))


class Talk:
    """A party's link with the clinic at ``address``. Raises VflError if the clinic refuses it."""

    def __init__(self, party: Party, address: str) -> None:
        self._link, self._asked = dial(party, address).link(), 0
        self._link.send(Notice(hello=Hello(party=party.name, role="passive", protocol_version=PROTOCOL_VERSION)))
        self.hear()

    def hear(self, *said: Notice) -> list[Notice]:
        """All that the clinic says from now on, until it has answered what is ``said``; without its heartbeat."""
        self._asked += 1
        for notice in (*said, Notice(echo=Echo(number=self._asked))):
            self._link.send(notice)
        heard: list[Notice] = []
        while True:
            answer = self._link.receive(GENEROUS_S)
            assert answer, "the clinic says nothing"
            if answer.echo.answer and answer.echo.number == self._asked:
                return heard
            if answer.WhichOneof("body") not in ("beat", "echo"):
                heard.append(answer)

    def close(self) -> None:
        self._link.close()
