"""The first exchange of a conversation: same version, same job, same inputs as before."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

from vfl_node.errors import PeerError, ProtocolError, peer_text
from vfl_node.job import Job, differing_fields
from vfl_node.process import failpoints
from vfl_node.session.heads import Heads, exchange_heads
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.version import OLDEST_SENT, PROTOCOL_VERSION, VERSION, common_version

SAME_VERSION = "install the same version on both nodes; a job that had begun then goes on: vfl-node resume JOB"


class InputCommitments(Protocol):
    """Where commitments to the parties' inputs are kept between attempts."""

    def check_input(self, owner: str, digest: bytes) -> None:
        """Store the first digest of ``owner``; refuse another. Raises StateError (``E_INPUT_CHANGED``)."""


@dataclass(frozen=True)
class ConsentMarks:
    """What the parties must have in common about their owners' consent.

    Attributes:
        manifest: SHA-256 of the job's manifest; empty for a job without one.
        consents: SHA-256 of the signed consents of all parties; empty if nobody signs.
    """

    manifest: bytes = b""
    consents: bytes = b""


NO_MARKS = ConsentMarks()


@dataclass(frozen=True)
class Agreement:
    """What two parties have in common.

    Attributes:
        attempt: number of this attempt, the later one of both.
        common: names of the points that both can resume from, oldest first.
    """

    attempt: int
    common: tuple[str, ...]

    @property
    def checkpoint(self) -> str | None:
        """The newest of them; None where there is none."""
        return self.common[-1] if self.common else None


async def preflight(
    channel: Channel,
    job: Job,
    *,
    own: str,
    attempt: int,
    checkpoints: list[str],
    input_digest: bytes,
    salt: bytes,
    inputs: InputCommitments,
    marks: ConsentMarks = NO_MARKS,
    heads: Heads | None = None,
) -> Agreement:
    """Compare version, job fields, inputs and ledgers with the peer; agree on attempt and checkpoint.

    Args:
        channel: a new conversation.
        job: the job as this party holds it.
        own: this party's name.
        attempt: how often this party has begun this job.
        checkpoints: names this party can resume from, oldest first.
        input_digest: digest of this party's table (stays here).
        salt: secret of this job; what the peer gets is an HMAC under it.
        inputs: where commitments are kept.
        marks: of the job's manifest, and of the consents to it.
        heads: of the ledger about the peer; None where none is kept.

    Raises:
        PeerError: another protocol version (``E_VERSION``), another job (``E_MANIFEST``,
            naming the fields), or as :func:`_check_marks`.
        StateError: an input has changed since the job began; or as :func:`vfl_node.session.heads.exchange_heads`.
        ProtocolError: the peer shows no ledger (``E_LEDGER``); or likewise.

    Leaks: that this party's input is (or is not) the one of an earlier attempt; how many entries its ledger has.
    """
    inputs.check_input(own, input_digest)
    ours = job.field_digests()
    async with channel.phase("preflight"):
        failpoints.reach("preflight")
        await channel.send(
            session_pb2.Preflight(
                party=own,
                protocol_version=PROTOCOL_VERSION,
                oldest_protocol_version=OLDEST_SENT,
                software_version=VERSION,
                fields=[session_pb2.FieldDigest(field=name, sha256=digest) for name, digest in ours.items()],
                attempt=attempt,
                checkpoints=checkpoints,
                input_digest=hmac.digest(salt, input_digest, hashlib.sha256),
                manifest_sha256=marks.manifest,
                consents_sha256=marks.consents,
                seen=heads.seen if heads else None,
                given_up=heads.given_up if heads else None,
            )
        )
        theirs = await channel.receive(session_pb2.Preflight)
        if common_version(theirs.protocol_version, theirs.oldest_protocol_version) is None:
            raise version_error(channel.peer, theirs.protocol_version, theirs.software_version)
        if theirs.party != channel.peer:
            raise ProtocolError(f"{channel.peer} presents itself as another party", code="E_IDENTITY")
        differing = differing_fields(ours, {field.field: field.sha256 for field in theirs.fields})
        if differing:
            named = ", ".join(peer_text(name, 60) for name in differing[:8])
            raise PeerError(
                f"{channel.peer} holds another job {job.name!r}: {named} differ{'s' if len(differing) == 1 else ''}",
                code="E_MANIFEST",
                hint="agree on one job file and submit it again",
                for_peer=f"its job differs in {named}",
            )
        _check_marks(channel.peer, marks, ConsentMarks(theirs.manifest_sha256, theirs.consents_sha256))
        inputs.check_input(channel.peer, theirs.input_digest)
        if heads:
            if not theirs.HasField("seen"):
                raise ProtocolError(
                    f"{channel.peer} does not show how the ledgers stand, which every node of this version does",
                    code="E_LEDGER",
                    hint=f"ask the owner of {channel.peer} which software answers there",
                    for_peer="it shows no ledger",
                )
            await exchange_heads(channel, heads, theirs.seen, theirs.given_up if theirs.HasField("given_up") else None)
    common = tuple(name for name in checkpoints if name in set(theirs.checkpoints))
    agreed = max(attempt, theirs.attempt)
    channel.attempt = agreed
    failpoints.reach("agreed")
    return Agreement(agreed, common)


def _check_marks(peer: str, ours: ConsentMarks, theirs: ConsentMarks) -> None:
    """Refuse a peer whose job was approved by other words, or by other consents.

    Raises:
        PeerError: another manifest (``E_MANIFEST``), or other consents (``E_CONSENT``).
    """
    for code, what, same in (
        ("E_MANIFEST", "manifest", ours.manifest == theirs.manifest),
        ("E_CONSENT", "set of consents", ours.consents == theirs.consents),
    ):
        if not same:
            text = f"{peer} has another {what} of this job"
            raise PeerError(text, code=code, hint="submit the job again", for_peer=f"it has another {what} of this job")


def version_error(peer: str, protocol: int, software: str) -> PeerError:
    """The error of a node whose ``peer`` says that it speaks version ``protocol``, in release ``software``."""
    return PeerError(
        f"{peer} speaks protocol version {protocol} (vfl-node {peer_text(software, 20)}), "
        f"this node {PROTOCOL_VERSION} (vfl-node {VERSION})",
        code="E_VERSION",
        hint=SAME_VERSION,
        for_peer=f"it speaks protocol version {PROTOCOL_VERSION}, not {protocol}",
    )
