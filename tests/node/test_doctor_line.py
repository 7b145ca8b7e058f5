"""vfl-node doctor on the line to a peer: each check where all is well and where it is not, on loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.node.test_doctor import is_, numbers
from tests.transport.conftest import Certificates, Node
from tests.transport.conftest import serve as serve
from vfl_node.errors import PeerLost, PolicyError
from vfl_node.node.doctor import examine as whole
from vfl_node.node.doctor import line, probe
from vfl_node.node.doctor.answer import check_admission, check_answer, check_releases
from vfl_node.node.doctor.finding import Finding
from vfl_node.node.doctor.judge import check_big_messages, check_clock, check_idle, check_rate, check_way_back
from vfl_node.node.doctor.line import check_name, check_port, check_proxy
from vfl_node.node.doctor.need import JobNeed, need_of_rows
from vfl_node.node.doctor.probe import SIZES, Echoed, ProbeResult, measure
from vfl_node.node.doctor.route import PeerRoute, route_to
from vfl_node.node.peer_state import greeting
from vfl_node.node.probed import Probed
from vfl_node.settings.connection import Peer
from vfl_node.settings.node import Settings
from vfl_node.transport import probes
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Hello
from vfl_node.transport.server import NodeServer
from vfl_node.version import PROTOCOL_VERSION, VERSION

WAIT_S = 60.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def lab_settings(credentials: Credentials, address: str, folder: Path, **changes: Any) -> Settings:
    """A lab that dials a clinic."""
    own = {"name": "lab", "role": "passive", "tls": credentials.files, "http": None, "state_dir": folder / "state"}
    return Settings(**own, peers={"clinic": Peer(address=address)}, **changes)


@contextmanager
def server(talk: Callable[[socket.socket], None], host: str = "127.0.0.1") -> Iterator[PeerRoute]:
    """Something that listens and talks in this way with whoever connects."""
    with socket.create_server((host, 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                with plain:
                    plain.settimeout(WAIT_S)
                    try:
                        talk(plain)
                    except OSError:
                        continue

        threading.Thread(target=accept, daemon=True).start()
        yield PeerRoute(host, listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


# 4: DNS.


def test_a_name_is_shown_with_each_of_its_addresses() -> None:
    found = [(family, 1, 6, "", place) for family, place in ((2, ("192.0.2.1", 7443)), (10, ("2001:db8::1", 7443, 0, 0)))]
    addresses, finding = check_name(PeerRoute("clinic.example", 7443), lambda *_, **__: found * 2)
    is_(finding, "ok", "clinic.example is 192.0.2.1, 2001:db8::1")
    assert [place for _, place in addresses] == [each[4] for each in found]
    is_(check_name(PeerRoute("127.0.0.1", 7443))[1], "ok", "is an address")


def test_a_name_that_is_not_known_or_slow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    addresses, finding = check_name(PeerRoute("clinic.exmaple", 7443), unknown)
    is_(finding, "FAIL", "clinic.exmaple is not known")
    assert addresses == []
    monkeypatch.setattr(line, "SLOW_NAME_S", -1.0)
    is_(check_name(PeerRoute("127.0.0.1", 7443))[1], "warn", "the answer took")


# 5: port.


def test_a_port_is_open_partly_open_or_closed() -> None:
    with server(lambda plain: None) as route:
        here = (socket.AF_INET, ("127.0.0.1", route.port))
        is_(check_port(route, [here]), "ok", "is open")
        other = (socket.AF_INET, ("127.0.0.2", route.port))
        is_(check_port(route, [here, other]), "warn", "and not at 127.0.0.2 (IPv4; refused")
        is_(check_port(route, [other]), "FAIL", "127.0.0.2: refused")


@pytest.mark.parametrize("number", [111, 110, 101, 113, 1])
def test_reasons_are_told_apart(number: int) -> None:
    texts = [line.reason(each) for each in (111, 110, 101, 113, 1)]
    assert len(set(texts)) == 5
    assert line.reason(number) in texts


# 6: HTTP proxy.


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, ""),
        ({"http_proxy": "http://proxy.example:3128"}, "proxy.example:3128"),
        ({"https_proxy": "proxy.example", "http_proxy": "http://other:1"}, "proxy.example:80"),
        ({"grpc_proxy": "http://a:1", "https_proxy": "http://b:2"}, "a:1"),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, ""),
        ({"http_proxy": "http://proxy.example:3128", "no_proxy": ".example, other"}, ""),
        ({"http_proxy": "http://proxy:1", "no_grpc_proxy": "none", "no_proxy": ".example"}, "proxy:1"),
        ({"http_proxy": "http://[2001:db8::1]:3128"}, "[2001:db8::1]:3128"),
    ],
)
def test_a_proxy_is_read_as_grpc_reads_it(environment: Mapping[str, str], proxy: str) -> None:
    route = route_to("clinic.example:7443", environment)
    assert (route.host, route.port, route.proxy) == ("clinic.example", 7443, proxy)
    assert route_to("127.0.0.1:7443", environment).proxy == ""


def test_a_proxy_may_be_spared_by_network_and_be_told_who_asks() -> None:
    environment = {"https_proxy": "http://user:pass%20word@proxy:3128", "no_proxy": "192.0.2.0/24"}
    assert route_to("192.0.2.7:1", environment).proxy == ""
    route = route_to("198.51.100.7:1", environment)
    assert (route.first, route.login) == (("proxy", 3128), "dXNlcjpwYXNzIHdvcmQ=")


@pytest.mark.parametrize(("answer", "status", "text"), [("200 OK", "warn", "lets"), ("403 No", "FAIL", "403 No")])
def test_a_proxy_lets_through_or_says_why_not(answer: str, status: str, text: str) -> None:
    asked: list[bytes] = []

    def talk(plain: socket.socket) -> None:
        asked.append(plain.recv(4096))
        plain.sendall(f"HTTP/1.1 {answer}\r\nServer: x\r\n\r\n".encode())

    with server(talk) as proxy:
        route = PeerRoute("clinic.example", 7443, f"127.0.0.1:{proxy.port}", "https_proxy", "bG9naW4=")
        is_(check_proxy(route), status, text)
    assert asked[0].startswith(b"CONNECT clinic.example:7443 HTTP/1.0\r\n")
    assert b"Proxy-Authorization: Basic bG9naW4=\r\n" in asked[0]
    is_(check_proxy(PeerRoute("clinic.example", 7443)), "ok", "no proxy")
    is_(check_proxy(PeerRoute("clinic.example", 7443, f"127.0.0.1:{closed_port()}", "https_proxy")), "FAIL", "does not answer")


# 7: who answers.


def tls_server(shows: Credentials, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, h2: bool = True) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shows.files.certificate, shows.files.key)
    context.maximum_version = newest
    context.set_alpn_protocols(["h2"] if h2 else ["http/1.1"])

    def talk(plain: socket.socket) -> None:
        with context.wrap_socket(plain, server_side=True) as secure:
            secure.recv(1)

    return server(talk)


def test_the_peer_itself_answers(certificates: Certificates, tmp_path: Path) -> None:
    lab = certificates.good("lab")
    with tls_server(certificates.good("clinic")) as route:
        settings = lab_settings(lab, f"127.0.0.1:{route.port}", tmp_path)
        is_(check_answer(settings, "clinic", route, lab), "ok", "clinic answers with TLSv1.3 and HTTP/2")
        is_(check_answer(settings, "clinic", route, None), "skipped", "plaintext")


NOW = datetime.now(timezone.utc)


def renamed(rogue: Credentials) -> Credentials:
    """The same names of a party, signed by an authority of another name, as a device that inspects makes them."""
    leaf = x509.load_pem_x509_certificate(rogue.certificate)
    key = serialization.load_pem_private_key(rogue.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Inspecting Proxy")]),
        subject_name=leaf.subject,
        public_key=leaf.public_key(),
        serial_number=7,
        not_valid_before=leaf.not_valid_before_utc,
        not_valid_after=leaf.not_valid_after_utc,
    )
    for extension in leaf.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    rogue.files.certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return rogue


@pytest.mark.parametrize(
    ("shows", "how", "text"),
    [
        (lambda made: renamed(made.rogue("clinic")), {}, "a device between opens the encryption (issuer Inspecting Proxy)"),
        (lambda made: made.rogue("clinic"), {}, "by another authority that is also called vfl-node authority"),
        (lambda made: made.rogue("clinic"), {"newest": ssl.TLSVersion.TLSv1_2}, "TLSv1.2 is spoken there, not TLSv1.3"),
        (lambda made: made.good("clinic"), {"h2": False}, "does not speak HTTP/2"),
        (lambda made: made.good("bank"), {}, "another party answers there: expected spiffe://trial/party/clinic"),
        (lambda made: made.dated("clinic", signed=NOW - timedelta(9), days=5), {}, "has expired on"),
    ],
)
def test_whoever_else_answers_is_named(
    certificates: Certificates, tmp_path: Path, shows: Callable[[Certificates], Credentials], how: Any, text: str
) -> None:
    lab = certificates.good("lab")
    with tls_server(shows(certificates), **how) as route:
        is_(check_answer(lab_settings(lab, "127.0.0.1:1", tmp_path), "clinic", route, lab), "FAIL", text)


def test_what_speaks_no_tls_is_named(certificates: Certificates, tmp_path: Path) -> None:
    lab = certificates.good("lab")
    settings = lab_settings(lab, "127.0.0.1:1", tmp_path)
    for talk, text in (
        (lambda plain: plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "speaks no TLS"),
        (lambda plain: None, "no handshake comes of it"),
    ):
        with server(talk) as route:
            found = check_answer(settings, "clinic", route, lab)
            assert found.status == "FAIL", found
            assert text in found.text or "speaks no TLS" in found.text


# 8: admission, and 14: releases.


def test_a_peer_is_let_in_and_greeted(serve: Callable[..., Node], certificates: Certificates, tmp_path: Path) -> None:
    clinic, lab = certificates.good("clinic"), certificates.good("lab")
    node = serve(clinic)
    answering = threading.Thread(
        target=lambda: node.links.get(timeout=WAIT_S).send(greeting(lab_settings(lab, "h:1", tmp_path)))
    )
    answering.start()
    hello, found = check_admission(node.dialer(lab), "clinic")
    answering.join()
    is_(found, "ok", "lets this node in")
    assert hello
    is_(check_releases("clinic", hello, "avx2"), "ok", f"{VERSION} at clinic, protocol {PROTOCOL_VERSION}; kernels")


@pytest.mark.parametrize(
    ("code", "status"),
    [("E_FENCED", "ok"), ("E_CALL_BACK", "ok"), ("E_BUSY", "warn"), ("E_REVOKED", "FAIL"), ("E_CRL", "FAIL")],
)
def test_a_refusal_is_shown_with_its_code(
    serve: Callable[..., Node], certificates: Certificates, code: str, status: str
) -> None:
    node = serve(certificates.good("clinic"))
    node.refuse = [PolicyError("", code=code, for_peer="for this reason")]
    hello, found = check_admission(node.dialer(certificates.good("lab")), "clinic")
    is_(found, status, "" if status == "ok" else "for this reason")
    assert found.figures["code"] == code
    assert hello is None


def test_a_stranger_is_told_that_it_is_one(serve: Callable[..., Node], certificates: Certificates) -> None:
    node = serve(certificates.good("clinic"))
    is_(check_admission(node.dialer(certificates.good("eve")), "clinic")[1], "FAIL", "E_IDENTITY")


def test_releases_without_a_common_protocol_are_named() -> None:
    hello = Hello(
        protocol_version=PROTOCOL_VERSION + 3, oldest_protocol_version=PROTOCOL_VERSION + 2, software_version="9.9\x1b"
    )
    found = check_releases("clinic", hello, "")
    is_(found, "FAIL", "no version of the protocol in common")
    assert "\x1b" not in found.text
    is_(check_releases("clinic", None, ""), "skipped", "has not said")


# 9 to 13: what a probe measures.


def measured(offset_s: float = 0, took_ms: float = 20, count: int = 20, **found: Any) -> ProbeResult:
    begun = int(NOW.timestamp() * 1e6)
    there = begun + int((offset_s + took_ms / 2e3) * 1e6)
    echoes = [Echoed(begun, there, there, begun + int(took_ms * 1e3), took_ms / 1e3) for _ in range(count)]
    return ProbeResult(echoes=echoes, **found)


@pytest.mark.parametrize(
    ("offset_s", "status"),
    [(0.2, "ok"), (-29, "ok"), (31, "warn"), (-299, "warn"), (301, "FAIL"), (-86400, "FAIL"), (1e13, "FAIL")],
)
def test_clocks_that_differ_are_both_printed(offset_s: float, status: str) -> None:
    found = check_clock("clinic", measured(offset_s))
    assert found.status == status
    assert found.figures["offset_s"] == pytest.approx(offset_s, abs=1e-3)
    if status != "ok" and offset_s < 1e9:
        assert f"this node's says {NOW:%Y-%m-%d %H:%M}" in found.text
    is_(check_clock("clinic", ProbeResult()), "skipped", "broke off")


def all_sizes(mbit_s: float) -> dict[int, float]:
    return {size: size * 8 / mbit_s / 1e6 for size in SIZES}


def test_a_rate_is_shown_and_what_a_job_takes_on_it(certificates: Certificates, tmp_path: Path) -> None:
    settings = lab_settings(certificates.good("lab"), "127.0.0.1:1", tmp_path)
    quick = measured(up=all_sizes(80), down=all_sizes(40))
    found = check_rate("clinic", quick, JobNeed(settings))
    is_(found, "ok", "round trip 20.0 ms (95 % within 20.0 ms), 80 Mbit/s there, 40 Mbit/s back")
    need = need_of_rows(settings, "clinic", 10**6, 10**6, 0)
    slow = check_rate("clinic", measured(up=all_sizes(0.2), down=all_sizes(40)), need)
    is_(slow, "warn", "the line is slow")
    assert "the alignment takes about" in slow.text
    assert slow.figures["alignment_s"] > check_rate("clinic", quick, need).figures["alignment_s"]  # type: ignore[operator]
    lossy = measured(up=all_sizes(80), down=all_sizes(80))
    lossy.echoes += measured(took_ms=300, count=3).echoes
    is_(check_rate("clinic", lossy, JobNeed(settings)), "warn", "some take much longer")
    is_(check_rate("clinic", ProbeResult(broke=PeerLost("gone")), JobNeed(settings)), "FAIL", "broke off at once (gone)")


def test_big_messages_arrive_are_cut_changed_or_left_out() -> None:
    most = dict.fromkeys(SIZES, 0.1)
    few = {size: 0.1 for size in SIZES if size < 1 << 20}
    is_(check_big_messages("clinic", ProbeResult(up=most, down=most)), "ok", "up to 16 MiB")
    some = {size: 0.1 for size in SIZES if size < 1 << 24}
    is_(check_big_messages("clinic", ProbeResult(up=some, down=most)), "ok", "16 MiB was left out")
    is_(check_big_messages("clinic", ProbeResult(up=few, down=few)), "skipped", "no time or memory")
    cut = ProbeResult(up=few, tried=1 << 20, broke=PeerLost("gone"))
    is_(check_big_messages("clinic", cut), "FAIL", "cut in a message of 1 MiB to clinic, after 336 KiB had passed")
    cut.upwards = False
    is_(check_big_messages("clinic", cut), "FAIL", "from clinic")
    cut.late = True
    is_(check_big_messages("clinic", cut), "skipped", "no time or memory")
    is_(check_big_messages("clinic", ProbeResult(up=most, down=most, damaged=1 << 14)), "FAIL", "otherwise than it was sent")


def test_no_message_is_sent_for_which_this_machine_has_no_room(answering: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "free_bytes", lambda: 8.0 * SIZES[1])
    found = measure(lab_dialer(answering))
    assert max(found.up) == max(found.down) <= SIZES[1]
    assert (found.broke, found.held_s) == (None, None)


def test_silence_is_kept_cut_or_not_asked_for() -> None:
    is_(check_idle("clinic", ProbeResult(), 0), "skipped", "not asked for")
    is_(check_idle("clinic", ProbeResult(held_s=60.2), 60), "ok", "stays open for 60 s")
    is_(check_idle("clinic", ProbeResult(cut_s=30.1), 60), "FAIL", "cut after 30 s")
    is_(check_idle("clinic", ProbeResult(), 60), "skipped", "broke off before")


def test_the_way_back_is_open_closed_or_not_needed() -> None:
    def check(dialled: int, *, listens: bool = True, runs: bool = True) -> Finding:
        return check_way_back("clinic", ProbeResult(dialled=dialled), listens=listens, runs=runs)

    is_(check(probes.REACHED), "ok", "reaches this node")
    is_(check(probes.NO_ADDRESS, listens=False), "ok", "fine")
    is_(check(probes.NOT_REACHED, listens=False), "ok", "fine, this node needs no listen")
    is_(check(probes.NOT_REACHED), "warn", "clinic cannot call this node")
    is_(check(probes.NOT_REACHED, runs=False), "skipped", "does not run")
    is_(check(0), "skipped", "broke off")


# All of them, with a clinic that answers and one that does not.


@pytest.fixture
def answering(certificates: Certificates, tmp_path: Path) -> Iterator[Settings]:
    """A lab beside a clinic that answers links and probes."""
    clinic, lab = certificates.good("clinic"), certificates.good("lab")
    settings = Settings(name="clinic", role="active", listen="127.0.0.1:0", tls=clinic.files, peers={"lab": Peer()})
    started = NodeServer(
        "127.0.0.1:0",
        own="clinic",
        federation="trial",
        credentials=clinic,
        peers={"lab"},
        on_converse=lambda *_: None,
        on_link=lambda party, link: link.send(greeting(settings)),
        on_probe=Probed(settings, lambda peer: None).answer,
    )
    yield lab_settings(lab, started.start(), tmp_path)
    started.stop(0)


def lab_dialer(settings: Settings) -> Dialer:
    address = settings.peers["clinic"].address
    assert address
    assert settings.tls
    own = load_credentials(settings.tls, name="lab", federation="trial")
    return Dialer(address, own="lab", peer="clinic", federation="trial", credentials=own)


def found_by(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setattr(whole, "check_settings", lambda path: (settings, Finding(1, "ok", "")))
    return list(whole.examine(Path("node.yaml")))


def test_a_line_without_a_fault_has_none(answering: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = found_by(answering, monkeypatch)
    assert numbers(findings, "FAIL") == []
    assert set(numbers(findings, "ok")) >= set(range(4, 10)) | {13, 14}  # 10 and 11 depend on how busy this machine is
    assert {found.peer for found in findings if found.number in range(4, 15)} == {"clinic"}
    again = [found for found in found_by(answering, monkeypatch) if found.number in (9, 10, 11, 13)]
    assert {found.status for found in again} == {"skipped"}  # once a minute
    assert "try again in" in again[0].text


def test_what_follows_a_fault_is_skipped(answering: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{closed_port()}"
    closed = answering.model_copy(update={"peers": {"clinic": Peer(address=address)}})
    findings = [found for found in found_by(closed, monkeypatch) if found.peer]
    assert (numbers(findings, "FAIL"), numbers(findings, "skipped")) == ([5], list(range(6, 15)))
    monkeypatch.setenv("https_proxy", f"http://{address}")
    beyond = answering.model_copy(update={"peers": {"clinic": Peer(address="clinic.example:7443")}})
    findings = [found for found in found_by(beyond, monkeypatch) if found.peer]
    assert numbers(findings, "FAIL") == [5]
    assert "the proxy's port" in next(found for found in findings if found.number == 5).text
    monkeypatch.setenv("https_proxy", "http://proxy:port")
    findings = [found for found in found_by(beyond, monkeypatch) if found.peer]
    assert numbers(findings, "FAIL") == [6]
    assert sorted(found.number for found in findings) == list(range(4, 15))


def test_a_probe_measures_a_line_that_is_then_left_silent(answering: Settings) -> None:
    found = measure(lab_dialer(answering), idle_s=1)
    assert found.broke is None
    assert found.echoes
    assert min(found.up) == min(found.down) == SIZES[0]
    assert (found.dialled, found.damaged, found.cut_s) == (probes.NO_ADDRESS, 0, None)
    assert found.held_s is not None
    assert abs(found.best.offset_s) < 1  # type: ignore[union-attr]
