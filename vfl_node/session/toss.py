"""A seed that all data parties make together, and none of them alone.

::

    parties in their order: the active one, then the passive ones
    everyone but the last commits to a share     c_j = SHA-256(share_j)
    the last sends its share; then all others open theirs
    seed = SHA-256(all shares in order)

Passive parties have no conversation with each other: the active party passes on what they send. It cannot profit from that,
since a share that was committed to cannot be another one. With one passive party there is nothing to pass on.

Source: Blum 1983 (coin flipping by telephone).
"""

from __future__ import annotations

import hashlib
import hmac

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import ProtocolError
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

SHARE_BYTES = 32


async def toss(session: Session, randomness: Randomness) -> bytes:
    """A joint 32-byte seed that no party chose.

    A party that has committed could still stop once it has seen the other shares, as in every toss; it cannot steer the
    seed and go on. Nor can a party in a later attempt of the job, when it knows the other shares: each is held to
    the first thing that it ever sent.

    Args:
        session: this party's; one message or two for each party, to or from the active one.
        randomness: this party's own; a restart with the same repeats the same share.

    Raises:
        ProtocolError: a commitment was opened to another share (``E_TOSS``).
        StateError: a peer came with another share or commitment than in an earlier attempt (``E_REPLAY``).

    Leaks: nothing but the uniform shares.
    """
    own = randomness.bytes(SHARE_BYTES)
    failpoints.reach("toss")
    shares = await (_active if session.role == "active" else _passive)(session, own)
    return hashlib.sha256(b"vfl-node toss seed" + b"".join(shares)).digest()


async def _active(session: Session, own: bytes) -> list[bytes]:
    """All shares in the order of the parties."""
    channels = [session.peers[name] for name in session.job.parties.passive]
    *earlier, last = range(len(channels))
    commitments = [_commitment(own), *[await _receive_commitment(session, channels[number], number) for number in earlier]]
    for number, channel in enumerate(channels):
        for owner, commitment in enumerate(commitments):
            if owner != number + 1:  # its own
                await channel.send(training_pb2.TossCommit(sha256=commitment))
    shares = [own, *[b""] * len(channels)]
    shares[last + 1] = await _receive_share(session, channels[last], last)
    for number in earlier:
        await channels[number].send(training_pb2.TossShare(share=shares[-1]))
    for number in earlier:
        shares[number + 1] = await _receive_share(session, channels[number], number)
        _check(channels[number].peer, commitments[number + 1], shares[number + 1])
    for number, channel in enumerate(channels):
        for owner, share in enumerate(shares[:-1]):
            if owner != number + 1:
                await channel.send(training_pb2.TossShare(share=share))
    return shares


async def _passive(session: Session, own: bytes) -> list[bytes]:
    """All shares in the order of the parties."""
    names = session.job.parties.data
    place, last = names.index(session.name), len(names) - 1
    channel = session.peers[session.job.parties.active]
    others = [number for number in range(last) if number != place]
    if place != last:
        await channel.send(training_pb2.TossCommit(sha256=_commitment(own)))
    # pinned now, not when they are opened: an attempt cut off in between has already shown the peers our share
    commitments = {number: await _receive_commitment(session, channel, number) for number in others}
    shares = {place: own}
    if place != last:
        shares[last] = await _receive_share(session, channel, last)
    await channel.send(training_pb2.TossShare(share=own))
    for number in others:
        shares[number] = await _receive_share(session, channel, None)
        _check(names[number], commitments[number], shares[number])
    return [shares[number] for number in range(len(names))]


async def _receive_commitment(session: Session, channel: Channel, number: int) -> bytes:
    commitment = (await channel.receive(training_pb2.TossCommit)).sha256
    session.attempt.pins.check(_pin("toss commitment", number), hashlib.sha256(commitment).digest())
    return commitment


async def _receive_share(session: Session, channel: Channel, number: int | None) -> bytes:
    """A share; ``number``: of whom, where no commitment binds it."""
    share = (await channel.receive(training_pb2.TossShare)).share
    if len(share) != SHARE_BYTES:
        raise ProtocolError(f"{channel.peer} sent a share of {len(share)} bytes in the coin toss", code="E_TOSS")
    if number is not None:
        session.attempt.pins.check(_pin("toss share", number), hashlib.sha256(share).digest())
    return share


def _pin(what: str, number: int) -> str:
    return f"{what} {number}" if number else what


def _check(owner: str, commitment: bytes, share: bytes) -> None:
    if not hmac.compare_digest(commitment, _commitment(share)):
        raise ProtocolError(f"{owner} opened its commitment of the coin toss to another share", code="E_TOSS")


def _commitment(share: bytes) -> bytes:
    return hashlib.sha256(b"vfl-node toss commitment" + share).digest()
