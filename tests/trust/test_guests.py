"""Pairing over real servers: who gets in while an invite is open, and as what."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.transport.conftest import METHODS, Certificates, open_stream
from tests.trust.nodes import Host, failure, guess_at_once, join
from tests.trust.parties import FEDERATION, Party
from tests.trust.test_kept import Own
from vfl_node.errors import PeerError, PolicyError, VflError
from vfl_node.node.pairing import Pairing
from vfl_node.node.pairing import join as join_as_owner
from vfl_node.transport import bounds, calls
from vfl_node.transport.authority import make_key_and_request, sign
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.guests import GUEST, GUEST_KEY, GuestCall
from vfl_node.transport.server import STRANGERS, NodeServer
from vfl_node.trust.invites import TRIES
from vfl_node.trust.pairing import Joiner


@pytest.fixture
def host(clinic: Party) -> Iterator[Host]:
    started = Host(clinic)
    yield started
    started.stop()


def guest(party: Party, roots: bytes) -> Credentials:
    """The guest's certificate in the place of a party's own, as an attacker has it."""
    return Credentials(roots, GUEST, GUEST_KEY, party.credentials.files, "lab", FEDERATION, peers={"clinic": None})


def outcome(credentials: Credentials, address: str, method: str = "converse") -> str:
    """The code with which a call of ``lab`` at the clinic ends."""
    dialer = Dialer(address, own="lab", peer="clinic", federation=FEDERATION, credentials=_Fixed(credentials))  # type: ignore[arg-type]
    try:
        open_stream(dialer, method).close()
    except VflError as error:
        return error.code
    return ""


class _Fixed:
    """Credentials that no file changes."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.files, self.name, self.federation = credentials.files, credentials.name, credentials.federation

    def current(self) -> Credentials:
        return self._credentials


def test_the_right_code_pairs_and_the_words_are_equal(host: Host, lab: Party) -> None:
    met = join(lab, host.address, host.invite())
    assert (met.card.card.name, host.met[0].card.card.name) == ("clinic", "lab")
    assert met.words == host.met[0].words
    assert not host.open


def test_a_used_code_pairs_nobody(host: Host, lab: Party, bank: Party) -> None:
    code = host.invite()
    join(lab, host.address, code)
    assert failure(bank, host.address, code) == "E_INVITE"
    assert len(host.met) == 1


def test_a_wrong_code_is_refused_and_the_right_one_still_pairs(host: Host, lab: Party) -> None:
    code = host.invite()
    assert failure(lab, host.address, secrets.token_bytes(5)) == "E_INVITE"
    assert (host.ended, host.invites.left) == (["E_INVITE"], TRIES - 1)
    assert failure(lab, host.address, code) == ""


@pytest.mark.parametrize("guesses", [5, 12])
def test_of_guesses_at_once_five_are_answered_and_the_invite_ends(host: Host, lab: Party, bank: Party, guesses: int) -> None:
    code = host.invite()
    outcomes = guess_at_once(bank, host.address, [secrets.token_bytes(5) for _ in range(guesses)])
    assert set(outcomes) == {"E_INVITE"}
    assert len(outcomes) == guesses
    assert host.answered == TRIES
    assert not host.open
    assert failure(lab, host.address, code) == "E_INVITE"
    assert host.met == []


def test_a_guest_may_pair_only_and_only_while_an_invite_is_open(host: Host, clinic: Party, lab: Party) -> None:
    caller = guest(lab, clinic.credentials.authority)
    assert outcome(caller, host.address) == "E_UNREACHABLE"  # the handshake fails
    assert failure(lab, host.address, b"12345") == "E_INVITE"
    host.invite()
    assert [outcome(caller, host.address, method) for method in METHODS] == ["E_IDENTITY"] * len(METHODS)
    host.invites.close()
    assert outcome(caller, host.address) == "E_UNREACHABLE"
    assert host.took == []


def test_a_certificate_that_the_guests_key_signed_is_refused(host: Host, clinic: Party, lab: Party) -> None:
    """The guest's certificate is no authority, so nothing that it signs is anybody's."""
    key, request = make_key_and_request("lab", FEDERATION)
    issuer = x509.load_pem_x509_certificate(GUEST)
    signer = serialization.load_pem_private_key(GUEST_KEY, None)
    wanted = x509.load_pem_x509_csr(request)
    made = sign(clinic.credentials.authority, clinic.authority_key, request)
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject,
        subject_name=wanted.subject,
        public_key=wanted.public_key(),
        serial_number=7,
        not_valid_before=x509.load_pem_x509_certificate(made).not_valid_before_utc,
        not_valid_after=x509.load_pem_x509_certificate(made).not_valid_after_utc,
    )
    for extension in x509.load_pem_x509_certificate(made).extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    forged = builder.sign(signer, x509.load_pem_x509_certificate(made).signature_hash_algorithm)  # type: ignore[arg-type]
    pem = forged.public_bytes(serialization.Encoding.PEM)
    host.invite()

    def shows(chain: bytes) -> Credentials:
        return Credentials(
            clinic.credentials.authority, chain, key, lab.credentials.files, "lab", FEDERATION, peers={"clinic": None}
        )

    for chain in (pem, pem + GUEST):
        assert outcome(shows(chain), host.address) in ("E_UNREACHABLE", "E_IDENTITY")
    assert host.took == []
    outcome(shows(made), host.address)
    assert host.took == ["lab"]  # by the same certificate of an authority


def test_who_is_known_pairs_no_more(host: Host, clinic: Party) -> None:
    made = Certificates(clinic.folder)
    made.authority, made.authority_key = clinic.credentials.authority, clinic.authority_key
    known = made.good("lab")
    host.invite()
    credentials = grpc.ssl_channel_credentials(known.authority, known.key, known.certificate)
    options = [("grpc.ssl_target_name_override", f"clinic.{FEDERATION}.vfl"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(host.address, credentials, options=options) as channel:
        call = channel.stream_stream(f"/{calls.SERVICE}/Pair")(iter([PairMessage().SerializeToString()]), timeout=20)
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    assert calls.metadata(caught.value.trailing_metadata())[calls.CODE] == "E_IDENTITY"


def test_a_message_that_is_too_large_or_none_is_refused_before_it_is_read(host: Host, lab: Party) -> None:
    for message in (PairMessage(box=b"x" * bounds.MOST_PAIR_BYTES), PairMessage(element=b"x")):
        host.invite()
        with GuestCall(host.address) as call, pytest.raises(PeerError) as caught:
            call.ask(message)
        assert caught.value.code in ("E_SIZE", "E_ELEMENT")
    assert host.invites.left == TRIES - 1  # a guess, by who says something like an element


def test_a_guest_that_says_nothing_is_let_go(host: Host, lab: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    """And meanwhile no other one is let in."""
    monkeypatch.setattr(bounds, "PAIR_S", 3.0)
    code = host.invite()
    began = time.monotonic()
    with GuestCall(host.address) as silent:
        silent.ask(Joiner(code, lab.own, leaf=b"").begin())
        assert failure(lab, host.address, code) == "E_BUSY"
        while (outcome := failure(lab, host.address, code)) == "E_BUSY":
            assert time.monotonic() - began < 60
            time.sleep(0.05)
    assert outcome == ""


def test_guests_that_say_nothing_keep_nobody_out_and_take_no_try(host: Host, lab: Party) -> None:
    """Control: one that has said something does, for a while, and that costs a try."""
    code = host.invite()
    with ExitStack() as silent:
        for _ in range(8):
            silent.enter_context(GuestCall(host.address))
        while host.server._streams[STRANGERS] < 8:
            time.sleep(0.01)
        assert failure(lab, host.address, code) == ""
    assert host.answered == 1
    code = host.invite()
    with GuestCall(host.address) as talking:
        talking.ask(Joiner(code, lab.own, leaf=b"").begin())
        assert failure(lab, host.address, code) == "E_BUSY"
        assert host.invites.left == TRIES - 1


def test_only_the_party_that_an_invite_is_for_may_join(tmp_path: Path) -> None:
    clinic, lab, bank = (Own(name, tmp_path / name) for name in ("clinic", "lab", "bank"))
    settings = clinic.settings.model_copy(update={"listen": "127.0.0.1:0"})
    pairing = Pairing(settings, clinic.credentials)
    server = NodeServer(
        "127.0.0.1:0",
        own="clinic",
        federation=FEDERATION,
        credentials=clinic.credentials,
        peers=set(),
        on_converse=lambda *_: None,
        on_link=lambda *_: None,
        guests=pairing,
    )
    address = server.start()
    try:
        for only, met in (("lab", "lab"), ("", "bank")):
            code = pairing.invite(5, address, only=only)["code"]
            if only:
                with pytest.raises(PeerError, match="this invite is for another party") as caught:
                    join_as_owner(bank.settings, bank.credentials, f"{address}/{code}")
                assert caught.value.code == "E_INVITE"
                assert pairing.status() == {"left": TRIES - 1, "met": ""}
            joining = {"lab": lab, "bank": bank}[met]
            assert join_as_owner(joining.settings, joining.credentials, f"{address}/{code}").name == "clinic"
            assert pairing.status() == {"left": 0, "met": met}
        with pytest.raises(PolicyError, match="own name"):
            pairing.invite(5, address, only="clinic")
    finally:
        server.stop(0)
    assert sorted(path.name for path in (settings.state_dir / "pending").iterdir()) == ["bank", "lab"]


def test_openssl_verifies_a_certificate_that_init_made(lab: Party) -> None:
    files = lab.credentials.files
    done = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-CAfile", files.ca, files.certificate],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"{files.certificate}: OK"), done.stderr
    assert load_credentials(files, name="lab", federation=FEDERATION).validity
