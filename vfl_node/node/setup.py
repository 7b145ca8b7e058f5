"""Write what a new node needs: configuration, keys, certificate or a request for one; and a trial federation's certificates."""

from __future__ import annotations

import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from vfl_node.errors import UsageError
from vfl_node.roles import Role
from vfl_node.settings.connection import Tls, TlsMode
from vfl_node.transport.authority import describe, make_authority, make_key_and_request, sign
from vfl_node.transport.credentials import write_private
from vfl_node.trust.keys import make_own, make_signing_key

CONFIG = """\
# Settings of one node. Nothing in this file is ever sent to another party.
# Relative paths are relative to this file.
name: {name}              # as in the job file and in this node's certificate
role: {role}            # {meaning}
federation: {federation}         # trust domain in every certificate
{data}
listen: {listen}    # gRPC port for peers; leave it out if this node only dials
http: 127.0.0.1:{http}    # health, metrics, jobs; keep it on loopback

{peers}{relayed}
policy: policy.yaml       # what this node allows whom, and who says yes to a job

{tls}
state_dir: state          # jobs, their keys while they run, reports; private to this user
device: auto              # CUDA where there is one; cpu or cuda:0 to choose
threads: 1                # for tensors; group operations use every core unless group_threads says otherwise
peer_wait_s: 3600         # how long a job waits for a lost or absent peer
"""

POLICY = """\
# What {name} allows whom, and who says yes to a job (docs/reference/policy.md).
version: 1
preset: careful           # trial: all is allowed; careful: one person says yes to each job; strict: two do, limits are tight
#                         # (strict at a passive node needs audit.features in node.yaml)
zone: UTC                 # of hours, such as Europe/Zurich
# everyone:               # limits for every partner, where others are wanted than those of the preset
#   min_peer_rows: 100
# partners:
#   {other}:
#     coordinators: [notary]       # third parties that its jobs may name; nobody by default
#     hours: ["mon-fri 18:00-06:00"]
# approve:                # the first line that covers a job says who says yes: rule, one, two or nobody
#   - name: as a person here approved it before
#     when: {{submitters: [{other}], same_as_approved: true}}
#     by: rule
"""

LISTED = """\
peers: {{}}                 # who takes part besides this node, for example
#  {other}:
#    address: {other}.example:7443   # without an address it is waited for
"""

PAIRED = """\
peers: {{}}                 # pairing adds those in peers/: vfl-node invite, vfl-node join
"""

TLS: dict[TlsMode, str] = {
    "own": """\
tls:
  mode: own               # this party is its own authority; peers come to know it by pairing
  ca: keys/authority.crt  # its key, keys/authority.key, renews certificates; it may lie offline
  certificate: keys/node.crt
  key: keys/node.key      # stays here; mode 0600
""",
    "outside": """\
tls:
  mode: outside           # an authority of this organisation signs; peers come to know it by pairing
  ca: keys/ca.crt         # that authority
  certificate: keys/node.crt   # from keys/node.csr, signed by it
  key: keys/node.key      # stays here; mode 0600
""",
    "shared": """\
tls:
  mode: shared            # one authority for all parties: its holder can pose as each of them
  ca: ca.crt              # the federation's authority
  certificate: node.crt   # from node.csr, signed by the authority
  key: node.key           # stays here; mode 0600
""",
}

DATA = """
data:
  path: {name}.csv        # CSV with a header line, Parquet or Arrow
  id: id                  # column that identifies a record; compared in the form the job names
{label}  # columns:              # kinds are detected; declare them to be sure
  #   age: numeric
  #   ward: categorical
  #   remark: ignore
"""

RELAYED = """\
#  insurer:
#    relayed: true           # another passive party: it may take part, and is met through the active party only
"""

LABEL = "  label: label            # column of labels; or {column: diagnosis, positive: malignant}\n"

OF_ROLE: dict[Role, tuple[str, int, int, str]] = {
    "active": ("active holds the labels, passive holds features only", 7443, 8080, "lab"),
    "passive": ("active holds the labels, passive holds features only", 7444, 8081, "clinic"),
    "coordinator": (
        "it has no data; it holds a key, or compares encoded records, where a job wants a third party to",
        7445,
        8082,
        "clinic",
    ),
}
"""What its settings say of a role: its meaning, the first choice of its two ports, and a peer."""

PORTS_TRIED = 1000


@dataclass(frozen=True)
class Written:
    """A file that was written, and what it is in a few words."""

    path: Path
    what: str


def init(name: str, role: Role, folder: Path, *, federation: str = "trial", mode: TlsMode = "own") -> list[Path]:
    """Write ``node.yaml`` and the keys of a party into ``folder``; returns the files. All secrets are 0600.

    Each port is the first from its role's on that is free on this machine and that no ``node.yaml`` beside ``folder`` has, so
    that nodes of several parties can run on one machine.

    Args:
        name: of the party.
        role: of its node.
        folder: where to write.
        federation: trust domain in its certificates.
        mode: as ``tls.mode``: own: an authority, a certificate, a signing key and a card. outside: a key, a request for a
            certificate, and a signing key. shared: a key and a request.

    Raises:
        UsageError: one of them exists already (nothing is overwritten).
    """
    config, policy, keys = folder / "node.yaml", folder / "policy.yaml", folder if mode == "shared" else folder / "keys"
    files = Tls(mode=mode, ca=keys / "authority.crt", certificate=keys / "node.crt", key=keys / "node.key")
    for path in (config, policy, files.key, keys / "node.csr", files.authority_key, files.signing_key):
        if path.exists():
            raise UsageError(f"{path} exists already", code="E_EXISTS", hint="choose another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    keys.mkdir(mode=0o700, exist_ok=True)
    config.write_text(_configuration(name, role, folder, federation, mode))
    policy.write_text(POLICY.format(name=name, other=OF_ROLE[role][3]))
    if mode == "own":
        return [config, policy, *make_own(name, federation, files)]
    key, request = make_key_and_request(name, federation)
    write_private(files.key, key)
    (keys / "node.csr").write_bytes(request)
    if mode == "shared":
        return [config, policy, files.key, keys / "node.csr"]
    make_signing_key(files)
    return [config, policy, files.key, keys / "node.csr", files.signing_key]


def _configuration(name: str, role: Role, folder: Path, federation: str, mode: TlsMode) -> str:
    """The text of ``node.yaml``."""
    meaning, port, http, other = OF_ROLE[role]
    taken = _ports_beside(folder)
    port = _free_port("0.0.0.0", port, taken)  # noqa: S104 - as the settings say
    http = _free_port("127.0.0.1", http, taken | {port})
    return CONFIG.format(
        name=name,
        role=role,
        meaning=meaning,
        federation=federation,
        data=DATA.format(name=name, label=LABEL if role == "active" else "") if role != "coordinator" else "",
        listen=f"0.0.0.0:{port}",
        http=http,
        peers=LISTED.format(other=other) if mode == "shared" else PAIRED.format(),
        relayed=RELAYED if role == "passive" else "",
        tls=TLS[mode],
    )


def certify(folders: list[Path], authority: Path) -> list[Written]:
    """Sign each folder's ``node.csr`` with a trial authority, made in ``authority`` where absent; returns what was written.

    For trials: one machine that holds the authority's key can impersonate every party.

    Raises:
        UsageError: a request is missing or not of this federation.
    """
    certificate, key = authority / "ca.crt", authority / "ca.key"
    written = []
    for folder in folders:
        request = folder / "node.csr"
        if not request.exists():
            raise UsageError(
                f"no {request}", code="E_FILE", hint=f"write it first: vfl-node init NAME --role ROLE --shared {folder}"
            )
        if not certificate.exists():
            authority.mkdir(parents=True, exist_ok=True)
            issued, secret = make_authority(_federation(folder))
            certificate.write_bytes(issued)
            write_private(key, secret)
            written += [
                Written(certificate, describe(issued)),
                Written(key, "its key: whoever has it can pose as every party"),
            ]
        signed = sign(certificate.read_bytes(), key.read_bytes(), request.read_bytes())
        (folder / "node.crt").write_bytes(signed)
        written.append(Written(folder / "node.crt", describe(signed)))
        if not ((folder / "ca.crt").exists() and certificate.samefile(folder / "ca.crt")):
            shutil.copyfile(certificate, folder / "ca.crt")
            written.append(Written(folder / "ca.crt", "a copy of the authority's certificate"))
    return written


def _federation(folder: Path) -> str:
    config = folder / "node.yaml"
    return str(yaml.safe_load(config.read_text()).get("federation", "trial")) if config.exists() else "trial"


def _ports_beside(folder: Path) -> set[int]:
    """Ports that the nodes with settings beside ``folder`` have."""
    ports = set()
    for config in folder.absolute().parent.glob("*/node.yaml"):
        with suppress(OSError, ValueError, yaml.YAMLError):  # somebody else's file
            settings = yaml.safe_load(config.read_text())
            for address in (settings.get("listen"), settings.get("http")) if isinstance(settings, dict) else ():
                ports.add(int(str(address).rpartition(":")[2]))
    return ports


def _free_port(host: str, first: int, taken: set[int]) -> int:
    """The first port from ``first`` on that is not ``taken`` and can be bound; ``first`` itself if there is none."""
    for port in range(first, first + PORTS_TRIED):
        with suppress(OSError), socket.socket() as bound:
            if port not in taken:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((host, port))
                return port
    return first
