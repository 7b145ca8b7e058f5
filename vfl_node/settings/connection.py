"""Whom a node talks with, and with which keys: its peers, those that it has been paired with, and its TLS files."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from vfl_node.configuration.models import Frozen, load, text_like
from vfl_node.errors import UsageError
from vfl_node.job import Name

Address = Annotated[str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}$")]

TlsMode = Literal["own", "shared", "outside"]

MOST_PAIRED = 1000
"""Files of paired peers that are read."""


class Peer(Frozen):
    """Another party. Without an address this node waits until it connects, unless it is a relayed one."""

    address: Address | None = None
    authority: Path | None = Field(
        default=None,
        description="PEM file of the peer's own authority: only a certificate that it has signed is this peer's. Without it, "
        "any authority in tls.ca can name this peer",
    )
    relayed: bool = Field(
        default=False,
        description="for a passive node: another passive party that it meets only through the active party of a job, which "
        "relays; there is no connection with it",
    )
    card: Path | None = Field(default=None, description="the peer's card, as pairing has written it")
    paired: str | None = Field(default=None, max_length=40, description="when this node was paired with it")
    words_compared: bool = Field(default=False, description="whether both owners have compared the words of that pairing")

    @model_validator(mode="after")
    def _check_address(self) -> Peer:
        if self.relayed and self.address is not None:
            raise ValueError("a relayed peer is met through the active party only: leave its address out")
        if self.relayed and self.authority is not None:
            raise ValueError("a relayed peer shows this node no certificate: leave its authority out")
        return self

    def relative_to(self, base: Path) -> Peer:
        """The same with its relative paths resolved against the folder ``base``."""
        paths = {"authority": self.authority, "card": self.card}
        return self.model_copy(update={key: base / path for key, path in paths.items() if path})


class Tls(Frozen):
    """PEM files of this node. The key must not be readable by others."""

    mode: TlsMode = Field(
        default="shared",
        description="who signs certificates: own, an authority of this party alone, as vfl-node init makes it; outside, an "
        "authority of this party's organisation; shared, one authority for the parties of the federation",
    )
    ca: Path
    certificate: Path
    key: Path
    crl: Path | None = Field(
        default=None,
        description="PEM file with lists of certificates that peers' authorities have revoked, where these are not their own",
    )

    @model_validator(mode="after")
    def _check_lists(self) -> Tls:
        if self.crl is not None and self.mode == "own":
            raise ValueError("crl is for authorities outside: a party that is its own authority is revoked by vfl-node revoke")
        return self

    @property
    def authority_key(self) -> Path:
        """Where the key of this party's own authority lies, unless its owner keeps it elsewhere."""
        return self.ca.with_name("authority.key")

    @property
    def signing_key(self) -> Path:
        """Where the key lies with which this party signs documents."""
        return self.key.with_name("signing.key")

    @property
    def card(self) -> Path:
        """Where this party's card lies."""
        return self.key.with_name("card.json")

    @property
    def next_certificate(self) -> Path:
        """Where the certificate lies that a new authority has signed, until peers have had time to learn of that authority."""
        return self.key.with_name("next.crt")

    @property
    def staged(self) -> Path:
        """Where a renewal of the authority lies that is decided on, and not yet in its files."""
        return self.key.with_name("renewal.json")

    def relative_to(self, base: Path) -> Tls:
        """The same with its relative paths resolved against the folder ``base``."""
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key, "crl": self.crl}
        return self.model_copy(update={key: base / path for key, path in files.items() if path})


class HttpTls(Frozen):
    """PEM files of the HTTP port. The key must not be readable by others."""

    certificate: Path
    key: Path

    def relative_to(self, base: Path) -> HttpTls:
        """The same with its relative paths resolved against the folder ``base``."""
        return HttpTls(certificate=base / self.certificate, key=base / self.key)


WebhookEvent = Literal["asked", "approved", "ended"]
"""What a webhook is told: a job of a peer waits for an answer; it was approved; a job has ended."""


_TOLD_AT = r"^(https://[^\s?#@]+|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/[^\s?#@]*)?)$"


class Webhook(Frozen):
    """A program of this owner that is told about jobs; it cannot answer for the owner."""

    url: Annotated[str, text_like(_TOLD_AT, "an https address, or one of http on this machine")] = Field(
        description="where events are posted: https, or http on this machine"
    )
    secret_file: Path = Field(description="file of the secret with which each event is signed (HMAC with SHA-256)")
    events: tuple[WebhookEvent, ...] = Field(default=("asked",), min_length=1, description="what is told")


class Roster(Mapping[str, Peer]):
    """The peers of a node that runs: one that it is paired with is added, one that is revoked goes.

    Whoever iterates sees the peers of the moment when it began. Safe to use from several threads.
    """

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = dict(peers)
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Peer:
        return self._peers[name]

    def items(self) -> ItemsView[str, Peer]:
        """Those of the moment."""
        return self._peers.items()

    def values(self) -> ValuesView[Peer]:
        """Those of the moment."""
        return self._peers.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)

    def admit(self, name: str, peer: Peer) -> None:
        """Add a peer, or change what is known of it."""
        with self._lock:
            self._peers = self._peers | {name: peer}

    def dismiss(self, name: str) -> None:
        """Remove a peer. Idempotent."""
        with self._lock:
            self._peers = {other: peer for other, peer in self._peers.items() if other != name}


class Authorities(Mapping[str, Path | None]):
    """Peer with which a node has a link → the file of its own authority, None: it has none; as ``peers`` are now."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers

    def __getitem__(self, name: str) -> Path | None:
        peer = self._peers[name]
        if peer.relayed:
            raise KeyError(name)
        return peer.authority

    def items(self) -> ItemsView[str, Path | None]:
        """Those of the moment."""
        return {name: peer.authority for name, peer in self._peers.items() if not peer.relayed}.items()

    def __iter__(self) -> Iterator[str]:
        return (name for name, peer in list(self._peers.items()) if not peer.relayed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_paired(folder: Path) -> dict[str, Peer]:
    """The peers whose files pairing has written into ``folder``, by name, with their paths resolved.

    Raises:
        UsageError: a file cannot be read, or its name is none of a party (``E_CONFIG``, ``E_FILE``).
    """
    paired = {}
    for file in sorted(folder.glob("*.yaml"))[:MOST_PAIRED]:
        try:
            name = TypeAdapter(Name).validate_python(file.stem)
        except ValidationError:
            raise UsageError(f"{file} has no party's name: move it away", code="E_CONFIG") from None
        paired[name] = load(file, Peer).relative_to(file.parent)
    return paired


def add_paired(document: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """The settings ``document`` with the paired peers, which lie in a folder beside it, among its peers.

    Raises:
        UsageError: a peer stands in both (``E_CONFIG``); or as :func:`read_paired`.
    """
    given, folder = document.get("peers"), document.get("peers_dir", PEERS_DIR)
    if not isinstance(given, Mapping | None) or not isinstance(folder, str):
        return document  # which is wrong by itself
    paired = read_paired(base / folder)
    if both := sorted(paired.keys() & (given or {}).keys()):
        raise UsageError(
            f"peers.{both[0]} stands in the configuration, and pairing wrote {base / folder / f'{both[0]}.yaml'}",
            code="E_CONFIG",
            hint="remove one of the two",
        )
    return {**document, "peers": {**(given or {}), **paired}} if paired else document


PEERS_DIR = "peers"
"""Folder of the paired peers, beside the settings."""
