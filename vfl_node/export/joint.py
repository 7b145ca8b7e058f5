"""Halves that a job hands over (``export.joint``): each other party sends its own as files, and one party gets all of them.

::

    others  ── ONNX, card, SQL, in chunks ──►  receiver      phase export of the conversation of each of them

A half is made of the weights that training has left, without a clock and without new randomness: a party that was killed makes
and sends the same bytes again. The receiver stores nothing before it has looked through all of them
(:mod:`vfl_node.export.received`). Their files lie among the artefacts of its job, under names of their own.

Leaks: what :class:`vfl_node.job.export.Export` declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from vfl_node.data.tables import Table
from vfl_node.errors import UsageError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.export import card
from vfl_node.export.checks import check_runs
from vfl_node.export.exporting import list_files, make_files
from vfl_node.export.folders import describe_half, make_half
from vfl_node.export.loaded import CARD, LoadedHalf
from vfl_node.export.received import check_card, check_model, check_sql
from vfl_node.halves.half import OwnHalf
from vfl_node.process import failpoints
from vfl_node.process.files import private_folder, write_whole
from vfl_node.session.session import Session
from vfl_node.training.trainer import Trained
from vfl_node.transport.bounds import MOST_HALF_BYTES, MOST_HALF_CARD_BYTES, MOST_HALF_SQL_BYTES
from vfl_node.transport.channel import Channel

PHASE = "export"

BOUNDS = {"onnx": MOST_HALF_BYTES, "json": MOST_HALF_CARD_BYTES, "sql": MOST_HALF_SQL_BYTES}
"""File of a half, by its ending, in the order in which they are sent → its largest size. Where there is no SQL it is empty."""


def name_file(party: str, ending: str) -> str:
    """What the receiver calls a file of another party's half among the artefacts of its job."""
    return f"half-{party}.{ending}"


async def exchange(session: Session, table: Table, trained: Trained) -> dict[str, bytes]:
    """Send the own half, or at the receiver get those of all others: name of an artefact → its content.

    Args:
        session: this data party's, of a job that hands halves over.
        table: its own records that took part.
        trained: what it has after training.

    Raises:
        UsageError: the own half cannot be written, or is too large (``E_EXPORT``).
        ProtocolError: another half is too large (``E_COUNT``), or is not as this version writes one (``E_EXPORT``).

    Cost: the receiver keeps the files of one party in memory, and then those of all.
    """
    job = session.job
    own = make_half(
        job, session.attempt.job_id, session.name, trained.weights, trained.head(table.classes), session.policy.models
    )
    if session.name != job.receiver:
        files = make_sent(own, table)
        failpoints.reach("half")
        channel = session.data_peers[str(job.receiver)]
        async with channel.phase(PHASE):
            for content in files.values():
                await _send(channel, content)
        return {}
    found: dict[str, bytes] = {}
    for name, channel in session.data_peers.items():
        async with channel.phase(PHASE):
            files = {ending: await _receive(channel, most) for ending, most in BOUNDS.items()}
        failpoints.reach("halves")
        check_received(session, own, name, files)
        found |= {name_file(name, ending): content for ending, content in files.items() if content}
    return found


def make_sent(half: OwnHalf, table: Table) -> dict[str, bytes]:
    """What is sent of a half, by the endings of :data:`BOUNDS`. Raises UsageError (``E_EXPORT``, ``E_EXTENSION``)."""
    party = half.about.party
    made, _ = make_files(half, ("onnx", "sql"), table, ("id",), strict=False)
    files = {
        "onnx": made[f"{party}.onnx"],
        "json": card.to_json(card.describe_to(half, list_files(made))),
        "sql": made.get(f"{party}.sql", b""),
    }
    if large := [ending for ending, content in files.items() if len(content) > BOUNDS[ending]]:
        size, most = len(files[large[0]]), BOUNDS[large[0]]
        raise UsageError(
            f"{party}.{large[0]} has {size:,} bytes, and {most:,} may be sent",
            code="E_EXPORT",
            hint="train fewer or smaller layers, or columns with fewer levels; or leave export out of the job",
            for_peer="its half is too large to be sent",
        )
    return files


def check_received(session: Session, own: OwnHalf, party: str, files: Mapping[str, bytes]) -> None:
    """Refuse files that are not what ``party`` must have sent; ``own`` half. Raises ProtocolError (``E_EXPORT``)."""
    due = describe_half(session.job, session.attempt.job_id, party)
    gives = due.gives if due.predicts or own.part_kind == "float" else "partial_scores"
    form = check_model(files["onnx"], replace(due, width=own.about.width, gives=gives))
    named = {f"{party}.{ending}": files[ending] for ending in ("onnx", "sql") if files[ending]}
    check_card(files["json"], party, named)
    if files["sql"]:
        check_sql(files["sql"], form)


def write_received(outcome: JobOutcome, party: str, target: Path) -> list[Path]:
    """Write the half that ``party`` has given to this node into a folder, as its own export would.

    It runs here for the first time, on made-up rows, in the process of whoever asks.

    Raises:
        UsageError: what it gives is no finite number, or of another shape (``E_EXPORT``); a package is not installed
            (``E_EXTENSION``), or the folder cannot be written (``E_FILE``).
        StateError: what was stored is damaged, or gone (``E_STATE_CORRUPT``, ``E_STATE_LOST``).
    """
    names = {f"{party}.onnx": "onnx", CARD: "json", f"{party}.sql": "sql"}
    stored = {name: name_file(party, ending) for name, ending in names.items()}
    files = {
        name: outcome.artefact(place).read_bytes()
        for name, place in stored.items()
        if name != f"{party}.sql" or (outcome.artefacts / place).exists()
    }
    check_runs(LoadedHalf(files[f"{party}.onnx"], stored[f"{party}.onnx"]))
    try:
        private_folder(target)
        for name, content in files.items():
            write_whole(target / name, content)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", code="E_FILE", hint="name another folder") from None
    return [target / name for name in files]


async def _send(channel: Channel, content: bytes) -> None:
    await channel.send_rows(np.frombuffer(content, dtype=np.uint8)[:, None], count=len(content), width=1)


async def _receive(channel: Channel, most: int) -> bytes:
    return (await channel.receive_rows(width=1, max_count=most)).tobytes()
