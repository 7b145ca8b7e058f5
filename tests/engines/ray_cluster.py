"""A Ray cluster on this machine for tests: its own token and certificates, a small object store, no dashboard."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vfl_node.settings.engine import EngineSettings

STORE_BYTES = 80_000_000
SMALL = ("--disable-usage-stats", f"--object-store-memory={STORE_BYTES}")

OPERATIONS = '''
"""Operations for tests, which workers import as a part of the package."""
import os, time
from pathlib import Path
from vfl_node.errors import DataError

def add(key, block):
    return key + block

def divide(key, block):
    return key // block

def same(_, block):
    return block

def same_later(_, block):
    time.sleep(0.4)
    return block

def late(_, value):
    time.sleep(0.2 if value % 4 == 0 else 0)
    return value, os.getpid()

def sleep(_, seconds):
    time.sleep(seconds)

def note(folder, block):
    """Write a line to the log; before that, wait for a file. The block is the line, and the file's name."""
    name, needs = block
    (Path(folder) / f"begun-{name}").touch()
    while needs and not (Path(folder) / needs).exists():
        time.sleep(0.01)
    with (Path(folder) / "log").open("a") as log:
        log.write(f"{name}\\n")
    return name

def die_first(folder, block):
    """Ends its worker where nobody did so before."""
    try:
        (Path(folder) / f"died-{block}").touch(exist_ok=False)
    except FileExistsError:
        return block
    os._exit(1)

def die(*_):
    os._exit(1)

def refuse(*_):
    raise DataError("a message", hint="a hint", code="E_TEST")

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__("odd")

def raise_odd(*_):
    raise Odd(1, 2)

def unpicklable(*_):
    return lambda: None

def build_of_each_process():
    return f"build {os.getpid()}"

def keys_held(*_):
    """How many keys this worker holds: those of its actor, found among its objects."""
    import gc
    from vfl_node.engines.ray.worker import Worker
    return [len(thing._keys) for thing in gc.get_objects() if isinstance(thing, Worker)]
'''

EXTEND = """
import os
import vfl_node
vfl_node.__path__.append(os.environ["VFL_TEST_OPERATIONS"])
if os.environ.get("VFL_TEST_PLAIN"):
    from vfl_node.engines.ray import sealing
    class Plain:
        def __init__(self, key): pass
        def encrypt(self, nonce, data, about): return bytes(data)
        def decrypt(self, nonce, data, about): return bytes(data)
    sealing.AESGCM = Plain
"""
"""Read by every Python of the cluster when it starts: adds the operations to the package; in one test no seals."""


class TestCluster:
    """One head with ``cpus`` cores on ``host``. A context: in the end all its processes are gone.

    Attributes:
        folder: with its token, certificates and sessions.
        settings: of a node that uses it.
    """

    __test__ = False

    def __init__(self, host="127.0.0.1", cpus=4, *, plain=False, **settings):
        if importlib.util.find_spec("ray") is None:
            pytest.skip("Ray is not installed: make test-ray")
        self.folder = Path(tempfile.mkdtemp(prefix="vray"))  # short, since names of sockets are
        self.port, self.host, self.cpus = free_port(), host, cpus
        self.token = self.folder / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        make_certificates(self.folder)
        (self.folder / "path").mkdir()
        (self.folder / "path" / "sitecustomize.py").write_text(EXTEND)
        (self.folder / "more").mkdir()
        (self.folder / "more" / "tasks_for_tests.py").write_text(OPERATIONS)
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")} | {
            "PYTHONPATH": os.pathsep.join([str(self.folder / "path"), *filter(None, sys.path)]),
            "VFL_TEST_OPERATIONS": str(self.folder / "more"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USE_TLS": "1",
            "RAY_TLS_CA_CERT": str(self.folder / "ca.pem"),
            "RAY_TLS_SERVER_CERT": str(self.folder / "cert.pem"),
            "RAY_TLS_SERVER_KEY": str(self.folder / "key.pem"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        if plain:
            self.environment["VFL_TEST_PLAIN"] = "1"
        self.given = settings
        self.settings = self.settings_with()

    def settings_with(self, **changes):
        given = {
            "kind": "ray",
            "address": f"{self.host}:{self.port}",
            "token_file": self.token,
            "ca": self.folder / "ca.pem",
            "cert": self.folder / "cert.pem",
            "key": self.folder / "key.pem",
            "workers": 2,
            "start_s": 60,
        }
        given |= self.given | changes
        return EngineSettings(**{key: value for key, value in given.items() if value is not None})

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Start the head, also where one was killed."""
        self.ray("start", "--head", f"--node-ip-address={self.host}", f"--port={self.port}", f"--num-cpus={self.cpus}",
                 "--include-dashboard=false", "--include-log-monitor=false", f"--temp-dir={self.folder / 'ray'}",
                 f"--object-spilling-directory={self.folder / 'spill'}", *SMALL)  # fmt: skip

    def add_machine(self, host, cpus=1):
        """Another machine of the cluster, at another address of this one; the process id of its raylet."""
        before = self.processes("raylet/raylet")
        self.ray("start", f"--address={self.host}:{self.port}", f"--node-ip-address={host}", f"--num-cpus={cpus}", *SMALL)
        (raylet,) = set(self.processes("raylet/raylet")) - set(before)
        return raylet

    def kill(self):
        """Kill all its processes, and those of nodes that use it."""
        for _ in range(20):
            processes = self.processes()
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if not processes:
                break
            time.sleep(0.1)

    def ray(self, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def processes(self, name=""):
        """Ids of its processes, found by its folder in their environment; with ``name`` in the command."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    own = str(self.token).encode() in (entry / "environ").read_bytes()
                    if own and name.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found


def running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def soon(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def link_of(engine):
    return engine._seat._link


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificates(folder):
    """An authority, and the certificate of a machine for all addresses that it may have."""
    now = datetime.now(timezone.utc)

    def certificate(subject, public, issuer, signing, *extensions):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        by = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
        made = x509.CertificateBuilder(by, name, public, x509.random_serial_number(), now, now + timedelta(days=1))
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = {"127.0.0.1", "127.0.0.2", "::1", socket.gethostbyname(socket.gethostname())}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("8.8.8.8", 53))  # sends nothing; as Ray learns this machine's address, which it puts for 127.0.0.1
        own.add(probe.getsockname()[0])
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(own))]
    (folder / "ca.pem").write_bytes(
        certificate("test", authority.public_key(), "test", authority, (x509.BasicConstraints(ca=True, path_length=None), True))
    )
    (folder / "cert.pem").write_bytes(
        certificate("machine", key.public_key(), "test", authority, (x509.SubjectAlternativeName(names), False))
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(pem)
    (folder / "key.pem").chmod(0o600)
