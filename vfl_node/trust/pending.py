"""Parties that this node has met by a code, and whose words its owner has not compared yet; and what is written when he has.

::

    state/pending/NAME       met, with the words to compare; a checked file, which nothing else reads
    peers/NAME.crt, .card    the authority that may vouch for NAME, and the card on which it stands
    peers/NAME.yaml          from then on NAME is a peer of this node

The last file is written last, so that a crash leaves a peer or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.job import Name
from vfl_node.process.files import locked_folder, private_folder, read_checked, remove, write_checked, write_whole
from vfl_node.roles import Role
from vfl_node.settings.connection import Address, Peer
from vfl_node.settings.node import Settings
from vfl_node.trust.cards import SignedCard, read_card

FOLDER = "pending"

KEPT = timedelta(days=1)
"""How long words wait to be compared."""


class Pending(BaseModel):
    """A party that was met.

    Attributes:
        name: of the party.
        role: of its node.
        address: where it can be dialled; None: it dials in.
        card: its envelope, as it came.
        words: those that its owner must see as well.
        at: when it was met.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    role: Role
    address: Address | None
    card: str
    words: tuple[str, ...]
    at: AwareDatetime


def check_new(settings: Settings, name: str) -> None:
    """Raise PolicyError (``E_EXISTS``) if a party of this ``name`` cannot become a peer."""
    if name == settings.name or name in settings.peers:
        what = "this node's own name" if name == settings.name else "a peer of this node already"
        raise PolicyError(
            f"{name} is {what}",
            code="E_EXISTS",
            hint=f"if it has new keys, first: vfl-node revoke {name}",
            for_peer=f"the name {name} is taken there",
        )


@contextmanager
def writing() -> Iterator[None]:
    """A context in which a refusal of the disk becomes a UsageError (``E_FILE``)."""
    try:
        yield
    except OSError as error:
        text = f"cannot write {error.filename or 'a file'}: {error.strerror or error}"
        hint = "is the folder there, has the disk room, and may this user write there?"
        raise UsageError(text, code="E_FILE", hint=hint, for_peer="it cannot store what it learnt") from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A context in which nobody else writes into the ``folder`` of paired peers, which is made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked_folder(folder):
        yield


def keep(settings: Settings, card: SignedCard, address: str | None, role: Role, words: tuple[str, ...]) -> Pending:
    """Write down a party that was met, in the place of an earlier one of that name.

    Raises:
        PolicyError: its name is taken (``E_EXISTS``).
        UsageError: the disk refuses (``E_FILE``).
    """
    check_new(settings, card.card.name)
    at = datetime.now(timezone.utc)
    met = Pending(
        name=card.card.name, role=role, address=address, card=card.envelope.decode(), words=words, at=at.replace(microsecond=0)
    )
    with writing():
        private_folder(settings.state_dir)
        private_folder(settings.state_dir / FOLDER)
        write_checked(settings.state_dir / FOLDER / met.name, met.model_dump_json().encode())
    return met


def read(settings: Settings, name: str) -> Pending:
    """The party of this ``name`` that was met.

    Raises:
        UsageError: none was, or a day ago and more (``E_INVITE``).
        StateError: the file is damaged (``E_STATE_CORRUPT``).
    """
    path, hint = settings.state_dir / FOLDER / name, "pair again: vfl-node invite"
    try:
        met = Pending.model_validate_json(read_checked(path, hint=hint))
    except FileNotFoundError:
        raise UsageError(f"this node has met no {name} whose words are to be compared", code="E_INVITE", hint=hint) from None
    except ValidationError:
        raise StateError(f"{path} was written by another version", code="E_STATE_VERSION", hint=hint) from None
    if datetime.now(timezone.utc) - met.at > KEPT:
        drop(settings, name)
        raise UsageError(f"{name} was met on {met.at:%Y-%m-%d}, too long ago", code="E_INVITE", hint=hint)
    return met


def drop(settings: Settings, name: str) -> None:
    """Forget a party that was met. Idempotent."""
    path = settings.state_dir / FOLDER / name
    with writing():
        if path.exists():
            remove(path)


def accept(settings: Settings, met: Pending) -> Path:
    """Make a party that was met a peer, since both owners see the same words; returns the file that says so.

    Raises:
        PolicyError: its name is taken by now (``E_EXISTS``), or its card cannot be used any more.
        UsageError: another party of this name was met meanwhile, or too much time has passed (``E_INVITE``); or the disk
            refuses (``E_FILE``).
    """
    check_new(settings, met.name)
    if read(settings, met.name) != met:
        hint = f"compare the newer words: vfl-node confirm {met.name}"
        raise UsageError(f"another {met.name} was met meanwhile", code="E_INVITE", hint=hint)
    card = read_card(met.card.encode(), federation=settings.federation)
    folder = settings.peers_dir
    said: dict[str, object] = {"address": met.address} if met.address else {}
    said |= {"authority": f"{met.name}.crt", "card": f"{met.name}.card"}
    paired = datetime.now(timezone.utc).isoformat(timespec="seconds")
    path = folder / f"{met.name}.yaml"
    with writing(), alone(folder):
        if path.exists():  # written since the settings were read
            check_new(settings.model_copy(update={"peers": {met.name: Peer()}}), met.name)
        write_whole(folder / f"{met.name}.crt", card.card.authority_pem)
        write_whole(folder / f"{met.name}.card", card.envelope)
        write_whole(path, peer_file(met.name, said | {"paired": paired, "words_compared": True}))
    drop(settings, met.name)
    return path


def peer_file(name: str, document: Mapping[str, object]) -> bytes:
    """The file that makes ``name`` a peer."""
    head = f"# Written by vfl-node when this node was paired with {name}. To end that: vfl-node revoke {name}\n"
    return (head + yaml.safe_dump(dict(document), sort_keys=False)).encode()


def check_paired(settings: Settings, name: str) -> None:
    """Raise UsageError (``E_UNKNOWN_PEER``) unless this node was paired with ``name``, by its files or as long as it runs."""
    known = settings.peers.get(name)
    if (settings.peers_dir / f"{name}.yaml").exists() or (known and known.paired):
        return
    hint = f"its peers: {', '.join(sorted(settings.peers)) or 'none yet'}"
    if known:
        hint = "it stands in the configuration: remove it there, and start the node again"
    raise UsageError(f"this node was not paired with {name}", code="E_UNKNOWN_PEER", hint=hint)


def forget(settings: Settings, name: str) -> None:
    """Remove a peer that this node was paired with, and whatever else was met under its name.

    Raises:
        UsageError: as :func:`check_paired`; or the disk refuses (``E_FILE``).
    """
    check_paired(settings, name)
    drop(settings, name)
    with writing(), alone(settings.peers_dir):
        remove(settings.peers_dir / f"{name}.yaml")
        for path in settings.peers_dir.glob(f"{name}.*"):  # no name has a dot
            remove(path)
        for path in (settings.state_dir / "partners" / name).glob(
            "extension-*"
        ):  # whoever has this name next has asked nothing
            remove(path)


def card_of(settings: Settings, name: str) -> SignedCard:
    """The card of a peer that this node was paired with.

    Raises:
        UsageError: it has none here (``E_UNKNOWN_PEER``).
        PolicyError: it is not what was signed, or the pinned authority is not the one on it (``E_CARD``).
    """
    peer = settings.peers.get(name)
    if peer is None or peer.card is None or peer.authority is None:
        raise UsageError(f"this node has no card of {name}", code="E_UNKNOWN_PEER", hint="pair with it: vfl-node invite")
    try:
        envelope, pinned = peer.card.read_bytes(), peer.authority.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}", code="E_FILE") from None
    signed = read_card(envelope, federation=settings.federation, stored=True)
    if signed.card.name != name or signed.card.authority_pem != pinned:
        raise PolicyError(
            f"{peer.card} and {peer.authority} do not belong together",
            code="E_CARD",
            hint=f"vfl-node revoke {name}, pair again",
        )
    return signed
