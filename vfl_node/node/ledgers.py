"""The ledgers of a node with all its partners, for its owner and for an auditor: shown, verified, and exported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from vfl_node.errors import StateError, UsageError, VflError, peer_text
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.spending import counts_with, list_uses
from vfl_node.session.questions import KIND as QUESTIONS
from vfl_node.settings.bounds import Use
from vfl_node.settings.node import Settings
from vfl_node.trust.lane_check import LaneVerdict, verify_lane
from vfl_node.trust.lanes import FILE, LaneEntry, entry_text, seen_text
from vfl_node.trust.signers import Signers

WHO = "ledgers.json"
"""In an exported folder: whose ledgers they are, and about whom."""

_LINES = {
    "inputs": "sets aligned",
    "changes": "changed sets",
    "trainings": "trainings",
    "clear": "trainings in the clear",
    "models": "models that answered",
    "linkages": "linkages",
    "spent": "ε spent",
    "forgotten": "ε not counted any more",
    "answers": "answers about labels",
    QUESTIONS: "lists of ids asked about",
}
"""Kind of lines → what they are, for people."""


def partners_met(settings: Settings) -> list[str]:
    """The partners with which this node has a ledger, by name; also those that are no peers any more."""
    return sorted(path.parent.name for path in (settings.state_dir / "partners").glob(f"*/{FILE}"))


def describe_all(settings: Settings, partners: list[str], since: str = "") -> list[dict[str, Any]]:
    """The ledgers with ``partners`` for people and programs; entries before ``since``, as ISO 8601, are left out.

    Returns:
        Of each: partner, error (what is wrong with it, or None) and, without one, entries (number), head; seen: {entry, at} of
        the newest that the partner has signed, None without one; budgets: name → {used, allowed, …}; listed: entries, each with
        n, at, kind, text.
    """
    found = []
    for name in partners:
        try:
            found.append(_describe_lane(counts_with(settings, name), list_uses(settings, name), since))
        except StateError as error:
            found.append({"partner": name, "error": str(error)})
    return found


def describe_heads(settings: Settings, partners: list[str]) -> dict[str, dict[str, Any]]:
    """Partner → ``entries``, and ``head_age_s``: seconds since it last signed what it has seen.

    Both are None of a ledger that is damaged, and ``head_age_s`` where it has never signed.
    """
    found = {}
    for name in partners:
        try:
            lane = counts_with(settings, name).lane
            signed = _newest_signed(lane.list("head"))
            age = (datetime.now(timezone.utc) - datetime.fromisoformat(signed.at)).total_seconds() if signed else None
            found[name] = {"entries": len(lane.entries), "head_age_s": age}
        except StateError:
            found[name] = {"entries": None, "head_age_s": None}
    return found


def _newest_signed(entries: Sequence[LaneEntry]) -> LaneEntry | None:
    return next((entry for entry in reversed(entries) if entry.body.get("ours", {}).get("signature")), None)


def _describe_lane(counts: PartnerCounts, uses: Mapping[str, Use], since: str) -> dict[str, Any]:
    entries = counts.lane.entries
    signed = _newest_signed(entries)
    return {
        "partner": counts.peer,
        "error": None,
        "entries": len(entries),
        "head": entries[-1].link.hex() if entries else None,
        "seen": {"entry": signed.body["ours"]["entries"], "at": signed.at} if signed else None,
        "budgets": {budget: use.describe() for budget, use in uses.items()},
        "listed": [
            {"n": entry.number, "at": entry.at, "kind": entry.kind, "text": describe(entry, counts.peer)}
            for entry in entries
            if entry.at >= since
        ],
    }


def describe(entry: LaneEntry, peer: str) -> str:
    """What an entry says, in one line."""
    body, job = entry.body, entry.body.get("job", "")
    lines = {_LINES.get(kind, kind): len(each) for kind, each in body.get("lines", {}).items()}
    amounts = ", ".join(f"{what}: {count}" for what, count in lines.items())
    match entry.kind:
        case "begin":
            consent = f", consents {body['consents'][:8]}" if body.get("consents") else ""
            return f"job {job} began" + (f", manifest {body['manifest'][:8]}" if body.get("manifest") else "") + consent
        case "question":
            (line,) = body["lines"][QUESTIONS]
            count, job, way = line.split()[:3]
            return f"job {job} {'asks' if way == 'asks' else f'answers {peer}'} about {int(count):,} ids"
        case "reserve":
            return f"job {job} has set aside {amounts}"
        case "release":
            return f"job {job} has ended without {amounts}"
        case "learnt":
            told = {name: ", ".join(sorted({each["what"] for each in known})) for name, known in body["learnt"].items()}
            return f"job {job}: " + "; ".join(f"{name} learnt {what}" for name, what in told.items() if what)
        case "head":
            return f"{peer} has seen entry {body['ours']['entries']}; its own ledger has {body['theirs']['entries']} entries"
        case "extend":
            agreed = f"{body['more']:g} more of {body['budget']} until {body['until']}"
            return f"{body['by']} has asked for {agreed}, and {body['to']} has agreed: {peer_text(body['reason'], 200)}"
        case "loss":
            return f"the owner has accepted that entries up to {body['entries']} are lost"
        case "peer-loss":
            return f"the owner has accepted that the ledger of {peer} begins anew, after {body['entries']} entries"
        case "import":
            return f"counted by an earlier version: {amounts}"
        case "restore":
            counted = f"; jobs under way had set aside, and now count: {amounts}" if amounts else ""
            return f"this node was restored from a backup of {body['backup'][:16]}{counted}"
        case "forget":
            return "the owner has begun a new count of ε"
        case "key":
            return f"signed from here on by key {body['key'][:8]}"
        case _:
            return amounts


def verify_own(settings: Settings, partner: str) -> LaneVerdict:
    """Verify the ledger with a partner by the keys on both cards, as far as they are here. Raises OSError, UsageError."""
    signers = Signers(settings)
    return verify_lane(
        settings.state_dir / "partners" / partner / FILE,
        settings.name,
        partner,
        _key_of(signers, settings.name),
        _key_of(signers, partner),
    )


def export(settings: Settings, partners: list[str], folder: Path) -> None:
    """Copy ledgers into a new folder for an auditor, with the public keys, and what ``openssl`` needs to verify the heads.

    Raises:
        UsageError: the folder is there already (``E_EXISTS``), or cannot be written (``E_FILE``).
    """
    signers = Signers(settings)
    try:
        folder.mkdir(parents=True)
        (folder / WHO).write_text(json.dumps({"of": settings.name, "about": partners}) + "\n")
        for name in (settings.name, *partners):
            if key := _key_of(signers, name):
                (folder / f"{name}.pem").write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        for name in partners:
            counts = counts_with(settings, name)
            with counts.lane.held():
                shutil.copyfile(counts.lane.path, folder / f"{name}.log")
                _export_heads(settings.name, name, counts.lane.entries, folder)
        (folder / "README.txt").write_text(_readme(settings.name, partners, folder))
    except FileExistsError:
        raise UsageError(f"{folder} is there already", code="E_EXISTS", hint="name a folder that is to be made") from None
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", code="E_FILE") from None


def verify_exported(folder: Path) -> Iterator[tuple[str, LaneVerdict]]:
    """Verify the ledgers in a folder that :func:`export` has written: partner, and what was found.

    Raises:
        UsageError: it is no such folder (``E_FILE``).
    """
    try:
        who = json.loads((folder / WHO).read_text())
        own, partners = str(who["of"]), [str(name) for name in who["about"]]
        read = {path.stem: load_pem_public_key(path.read_bytes()) for path in folder.glob("*.pem")}
        keys = {name: key for name, key in read.items() if isinstance(key, Ed25519PublicKey)}
        for name in partners:
            yield name, verify_lane(folder / f"{Path(name).name}.log", own, name, keys.get(own), keys.get(name))
    except (OSError, ValueError, KeyError, TypeError):
        hint = "name a folder that vfl-node ledger --export has written"
        raise UsageError(f"{folder} has no ledgers that can be read", code="E_FILE", hint=hint) from None


def _key_of(signers: Signers, name: str) -> Ed25519PublicKey | None:
    """The key of a party's signatures; None if its card is not here, or cannot be used."""
    try:
        card = signers.card(name)
    except VflError:
        return None
    return card.verifying_key if card else None


def _export_heads(own: str, peer: str, entries: list[LaneEntry], folder: Path) -> None:
    """The text of the newest entry, and of the newest head that the partner has signed, each with its signature."""
    if entries and entries[-1].signature:
        (folder / f"{peer}-head.txt").write_bytes(entry_text(own, peer, entries[-1].number, entries[-1].link))
        (folder / f"{peer}-head.sig").write_bytes(entries[-1].signature)
    ours = next((entry.body["ours"] for entry in reversed(entries) if entry.body.get("ours", {}).get("signature")), None)
    if ours:
        (folder / f"{peer}-seen.txt").write_bytes(seen_text(own, peer, ours["entries"], bytes.fromhex(ours["link"])))
        (folder / f"{peer}-seen.sig").write_bytes(bytes.fromhex(ours["signature"]))


def _readme(own: str, partners: list[str], folder: Path) -> str:
    lines = [f"Ledgers of {own} about {', '.join(partners)}.", "", "All entries, links and signatures:", ""]
    lines += ["    vfl-node ledger --verify --folder .", "", "The newest entry and what the partner has seen, by OpenSSL:", ""]
    for name in partners:
        for what, key in (("head", own), ("seen", name)):
            if not (folder / f"{name}-{what}.sig").exists():
                continue  # of a node without keys
            verify = f"openssl pkeyutl -verify -pubin -inkey {key}.pem -rawin"
            lines.append(f"    {verify} -in {name}-{what}.txt -sigfile {name}-{what}.sig")
    lines += ["", "Compare the keys with the cards (vfl-node card), and the digest in *-seen.txt with the partner's own.", ""]
    return "\n".join(lines)
