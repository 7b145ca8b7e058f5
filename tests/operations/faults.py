"""Faults that `vfl-node doctor` must name by its number, and none besides: between two network namespaces, or on one side.

    python tests/operations/faults.py                  as root; about five minutes
    python tests/operations/faults.py --only 5 --only clean

Exit status 0: each fault was named by the check with its number, no other check failed, and the clean run has no failure.
Needs root, iproute2, util-linux, openssl and faketime. Each namespace has names of its own (/etc/netns), removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from vfl_node.node.setup import init  # noqa: E402
from vfl_node.settings.reading import load_settings  # noqa: E402
from vfl_node.transport.credentials import load_credentials  # noqa: E402
from vfl_node.trust import pending  # noqa: E402
from vfl_node.trust.keys import own_card  # noqa: E402

LAB, CLINIC = "vfl-doctor-lab", "vfl-doctor-clinic"
LAB_IP, CLINIC_IP, DEVICE_IP = "10.99.0.1", "10.99.0.2", "10.99.0.3"
PORT, CLOSED_PORT, PROXY_PORT = 7443, 7444, 3128
WORDS = ("a", "b", "c", "d")
NETNS = Path("/etc/netns")
GROUPS = Path("/sys/fs/cgroup")
GROUP = GROUPS / ("vfl-doctor" if (GROUPS / "cgroup.controllers").exists() else "memory/vfl-doctor")
START_S = 60.0
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def sh(*words: str, check: bool = True) -> str:
    return subprocess.run(words, check=check, capture_output=True, text=True).stdout


class Bench:
    """A clinic that runs in one namespace and a lab that does not run in another; both are paired."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clinic = folder, None
        for name, role in (("clinic", "active"), ("lab", "passive")):
            init(name, role, folder / name)  # type: ignore[arg-type]
            lines = "".join(f"{number},{number % 50},{number % 2}\n" for number in range(2000))
            (folder / f"{name}.csv").write_text(("id,age,label\n" if name == "clinic" else "id,height,weight\n") + lines)
            config = self.config(name)
            listen = {"listen": f"{CLINIC_IP}:{PORT}" if name == "clinic" else None}
            written = (
                yaml.safe_load(config.read_text()) | {"data": {"path": str(folder / f"{name}.csv")}, "http": None} | listen
            )
            config.write_text(yaml.safe_dump(written))
        settings = {name: load_settings(self.config(name)) for name in ("clinic", "lab")}
        cards = {}
        for name, each in settings.items():
            assert each.tls
            cards[name] = own_card(load_credentials(each.tls, name=name, federation=each.federation))
        pending.accept(settings["clinic"], pending.keep(settings["clinic"], cards["lab"], None, "passive", WORDS))
        kept = pending.keep(settings["lab"], cards["clinic"], f"clinic.test:{PORT}", "active", WORDS)
        pending.accept(settings["lab"], kept)
        (folder / "lab" / "state").mkdir(mode=0o700, exist_ok=True)

    def config(self, name: str) -> Path:
        return self.folder / name / "node.yaml"

    def __enter__(self) -> Bench:
        self._remove()
        for name in (LAB, CLINIC):
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
            (NETNS / name).mkdir(parents=True)
            (NETNS / name / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        sh("ip", "link", "add", "vfld0", "netns", LAB, "type", "veth", "peer", "name", "vfld1", "netns", CLINIC)
        for name, device, addresses in ((LAB, "vfld0", [LAB_IP]), (CLINIC, "vfld1", [CLINIC_IP, DEVICE_IP])):
            for address in addresses:
                sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            sh("ip", "-n", name, "link", "set", device, "up")
        self.point_to(CLINIC_IP)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._remove()

    @staticmethod
    def _remove() -> None:
        for name in (LAB, CLINIC):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(NETNS / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            NETNS.rmdir()

    def point_to(self, address: str) -> None:
        """Where the lab finds the clinic's name."""
        for name in (LAB, CLINIC):
            (NETNS / name / "hosts").write_text(f"127.0.0.1 localhost\n{address} clinic.test\n")

    def start(self) -> None:
        """The clinic's node, begun anew: a peer may probe it once a minute."""
        self.stop()
        words = ["ip", "netns", "exec", CLINIC, sys.executable, "-m", "vfl_node", "--role", "active"]
        with (self.folder / "clinic.log").open("ab") as log:
            self.clinic = subprocess.Popen(
                [*words, "--config", str(self.config("clinic"))], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        limit = time.monotonic() + START_S
        while not (self.folder / "clinic" / "state" / "running.json").exists():
            if self.clinic.poll() is not None or time.monotonic() > limit:
                raise SystemExit((self.folder / "clinic.log").read_text())
            time.sleep(0.1)

    def stop(self) -> None:
        if self.clinic is not None:
            self.clinic.send_signal(signal.SIGTERM)
            self.clinic.wait(START_S)
            self.clinic = None

    def doctor(self, fault: Fault) -> list[dict[str, Any]]:
        """What the lab's owner is told, by number."""
        before = f"{fault.before}; " if fault.before else ""
        words = [*fault.prefix, sys.executable, "-m", "vfl_node", "doctor", "--config", str(self.config("lab")), "--json"]
        quoted = " ".join(f"'{word}'" for word in [*words, *fault.words])
        ended = subprocess.run(
            [*fault.enter, "sh", "-c", f"{before}exec {quoted}"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | fault.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        try:
            found: list[dict[str, Any]] = json.loads(ended.stdout)["checks"]
        except ValueError:
            raise SystemExit(f"{fault.name}: no document (status {ended.returncode})\n{ended.stdout}{ended.stderr}") from None
        failed = any(each["status"] == "FAIL" for each in found)
        if ended.returncode != failed:
            raise SystemExit(f"{fault.name}: exit status {ended.returncode}")
        return found


@dataclass
class Fault:
    """One fault.

    Attributes:
        name: as ``--only`` has it.
        number: of the check that names it; 0: none does.
        status: of that check.
        says: what its text has.
        setup: makes the fault, while the context lasts.
        enter: how the lab's namespace is entered; by ``nsenter`` it sees control groups, and no names of its own.
        before: shell before the command, in the lab's namespace.
        prefix: words before the command.
        words: its options.
        environment: its variables.
    """

    name: str
    number: int
    status: str = "FAIL"
    says: str = ""
    setup: Callable[[Bench], contextlib.AbstractContextManager[object]] = lambda bench: contextlib.nullcontext()
    enter: tuple[str, ...] = ("ip", "netns", "exec", LAB)
    before: str = ""
    prefix: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


# What stands between.


@contextlib.contextmanager
def listening(address: str, port: int, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server in the clinic's namespace, each connection on a thread of its own."""
    listener = in_namespace(CLINIC, lambda: socket.create_server((address, port)))

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=quietly, args=(serve, plain), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def quietly(serve: Callable[[socket.socket], None], plain: socket.socket) -> None:
    with plain, contextlib.suppress(OSError):
        serve(plain)


def in_namespace(name: str, make: Callable[[], socket.socket]) -> socket.socket:
    """A socket of another namespace: it stays there, whatever its thread does later."""
    made: list[socket.socket] = []

    def enter() -> None:
        with Path(f"/run/netns/{name}").open() as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError("setns")
        made.append(make())

    thread = threading.Thread(target=enter)  # a thread has a namespace of its own
    thread.start()
    thread.join()
    return made[0]


@contextlib.contextmanager
def device(bench: Bench, relay: Callable[[socket.socket, socket.socket], None]) -> Iterator[None]:
    """A device in the clinic's place, which relays connections in its way."""

    def serve(near: socket.socket) -> None:
        far = in_namespace(CLINIC, lambda: socket.create_connection((CLINIC_IP, PORT)))
        with far:
            relay(near, far)

    bench.point_to(DEVICE_IP)
    try:
        with listening(DEVICE_IP, PORT, serve):
            yield
    finally:
        bench.point_to(CLINIC_IP)


def pump(
    near: socket.socket, far: socket.socket, *, idle_s: float = float("inf"), most_up: float = float("inf"), rate: float = 0
) -> None:
    """Relay both ways until one side ends, nothing comes for so long, or so many bytes went up; ``rate``: bytes a second."""
    over = threading.Event()
    heard = [time.monotonic()]

    def one_way(source: socket.socket, sink: socket.socket, most: float) -> None:
        passed, begun = 0, time.monotonic()
        with contextlib.suppress(OSError):
            while not over.is_set() and (data := source.recv(4096 if rate else 65536)):
                heard[0] = time.monotonic()
                passed += len(data)
                if passed > most:
                    break
                if rate and (ahead := passed / rate - (time.monotonic() - begun)) > 0:
                    time.sleep(ahead)
                elif rate:
                    begun, passed = time.monotonic(), 0
                sink.sendall(data)
        over.set()

    for source, sink, most in ((near, far, most_up), (far, near, float("inf"))):
        threading.Thread(target=one_way, args=(source, sink, most), daemon=True).start()
    while not over.wait(0.1):
        if time.monotonic() - heard[0] > idle_s:
            break
    over.set()
    for each in (near, far):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def opens_encryption(bench: Bench, newest: ssl.TLSVersion) -> contextlib.AbstractContextManager[None]:
    """A device that shows a certificate of its own authority, and speaks TLS up to ``newest``."""
    files = bench.folder / "device.crt", bench.folder / "device.key"
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=Inspecting Proxy")
    names = ("-addext", "subjectAltName=DNS:clinic.trial.vfl,URI:spiffe://trial/party/clinic")  # as such devices copy them
    sh("openssl", "req", "-x509", "-days", "9", *made, *names, "-out", str(files[0]), "-keyout", str(files[1]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    context.maximum_version = newest
    context.set_alpn_protocols(["h2"])

    def relay(near: socket.socket, far: socket.socket) -> None:
        with context.wrap_socket(near, server_side=True) as secure:
            secure.recv(1)

    return device(bench, relay)


@contextlib.contextmanager
def refusing_proxy(bench: Bench) -> Iterator[None]:
    def serve(plain: socket.socket) -> None:
        plain.recv(4096)
        plain.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with listening(DEVICE_IP, PROXY_PORT, serve):
        yield


@contextlib.contextmanager
def addressed(bench: Bench, address: str) -> Iterator[None]:
    """The lab has another address of the clinic."""
    peer = bench.folder / "lab" / "peers" / "clinic.yaml"
    before = peer.read_text()
    peer.write_text(yaml.safe_dump(yaml.safe_load(before) | {"address": address}))
    try:
        yield
    finally:
        peer.write_text(before)


@contextlib.contextmanager
def blackhole(bench: Bench) -> Iterator[None]:
    """What the clinic's machine sends to the lab is lost."""
    sh("ip", "-n", CLINIC, "route", "add", "blackhole", f"{LAB_IP}/32")
    try:
        yield
    finally:
        sh("ip", "-n", CLINIC, "route", "del", "blackhole", f"{LAB_IP}/32")


@contextlib.contextmanager
def control_group(bench: Bench) -> Iterator[None]:
    """A control group of 128 MiB, as ``docker run -m 128m`` makes one."""
    GROUP.mkdir(exist_ok=True)
    (GROUP / ("memory.max" if GROUP.parent == GROUPS else "memory.limit_in_bytes")).write_text(str(128 << 20))
    try:
        with addressed(bench, f"{CLINIC_IP}:{PORT}"):
            yield
    finally:
        with contextlib.suppress(OSError):
            GROUP.rmdir()


def faked(shift: str) -> tuple[str, ...]:
    return ("env", "DONT_FAKE_MONOTONIC=1", "faketime", "-f", shift)


FAULTS = (
    Fault("clean", 0),
    Fault("wrong name", 4, says="about clinic.wrong", setup=lambda bench: addressed(bench, f"clinic.wrong:{PORT}")),
    Fault("closed port", 5, says="refused", setup=lambda bench: addressed(bench, f"clinic.test:{CLOSED_PORT}")),
    Fault("blackhole route", 5, says="no answer", setup=blackhole),
    Fault(
        "proxy 403",
        6,
        says="403 Forbidden",
        setup=refusing_proxy,
        environment={"https_proxy": f"http://{DEVICE_IP}:{PROXY_PORT}"},
    ),
    Fault(
        "device with its own authority",
        7,
        says="a device between opens the encryption (issuer Inspecting Proxy)",
        setup=lambda bench: opens_encryption(bench, ssl.TLSVersion.TLSv1_3),
    ),
    Fault("TLS 1.2 device", 7, says="TLSv1.2", setup=lambda bench: opens_encryption(bench, ssl.TLSVersion.TLSv1_2)),
    Fault(
        "idle cut after 5 s",
        12,
        says="is cut after",
        setup=lambda bench: device(bench, lambda near, far: pump(near, far, idle_s=5)),
        words=("--idle", "20"),
    ),
    Fault(
        "idle cut after 30 s, which pings prevent",
        0,
        setup=lambda bench: device(bench, lambda near, far: pump(near, far, idle_s=30)),
        words=("--idle", "40"),
    ),
    Fault(
        "1 MiB cut",
        11,
        says="is cut in a message of 1 MiB",
        setup=lambda bench: device(bench, lambda near, far: pump(near, far, most_up=1 << 20)),
    ),
    Fault(
        "200 kbit/s",
        10,
        status="warn",
        says="the line is slow",
        setup=lambda bench: device(bench, lambda near, far: pump(near, far, rate=25_000)),
        words=("--rows", "100000", "100000"),
    ),
    Fault("clock +10 min", 9, says="10 min", prefix=faked("+10m")),
    Fault("expired leaf", 3, says="expired", prefix=faked("+100d")),
    Fault("tmpfs of 8 MiB", 16, says="8 MiB free", before="mount -t tmpfs -o size=8m,mode=700 tmpfs {state}"),
    Fault("ulimit -n 64", 18, says="may open 64 files", before="ulimit -n 64"),
    Fault(
        "memory of 128 MiB",
        17,
        says="of memory free",
        setup=control_group,
        enter=("nsenter", f"--net=/run/netns/{LAB}"),
        before=f"echo $$ > {GROUP}/cgroup.procs",
    ),
)


def run(bench: Bench, fault: Fault) -> str:
    """What is wrong with what the doctor says of a fault; empty if nothing is."""
    fault.before = fault.before.replace("{state}", str(bench.folder / "lab" / "state"))
    bench.start()
    with fault.setup(bench):
        found = bench.doctor(fault)
    failed = [each["number"] for each in found if each["status"] == "FAIL"]
    named = [each for each in found if each["number"] == fault.number]
    expected = [fault.number] if fault.number and fault.status == "FAIL" else []
    for each in found:
        if each["number"] == fault.number or each["status"] in ("FAIL", "warn"):
            print(f"    {each['number']:>2} {each['status']:<7} {each['text']}")
    if failed != expected:
        return f"failed: {failed}, expected: {expected}"
    if named and (named[0]["status"] != fault.status or fault.says not in named[0]["text"]):
        return f"check {fault.number} says: {named[0]['text']}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a name or number of a check; repeat for several")
    only = parser.parse_args().only
    if os.geteuid() or not shutil.which("ip") or not shutil.which("faketime"):
        print("skipped: this needs root, iproute2 and faketime")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="vfl-doctor-") as folder, Bench(Path(folder)) as bench:
        for fault in FAULTS:
            if only and fault.name not in only and str(fault.number) not in only:
                continue
            began = time.monotonic()
            print(f"{fault.name}:", flush=True)
            if said := run(bench, fault):
                wrong += 1
                print(f"  WRONG: {said}")
            else:
                print(f"  as expected ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
