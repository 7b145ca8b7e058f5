"""How large each message may be, checked on its bytes before they are parsed.

A parser may take more memory than a message has bytes: two bytes make an empty submessage of some tens of bytes, and a
packed number of one byte becomes eight. So bytes from a peer are scanned first, without taking any memory. The scan checks
that no message is larger than its type allows, and that no field comes more often than allowed, also in submessages. Fields
that this version does not know are skipped, within limits. Groups, which no message uses, are refused; so nothing can be
nested without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from vfl_node.errors import ProtocolError
from vfl_node.transport.fields import Buffer, read_varint
from vfl_node.transport.generated.vfl.v1 import (
    alignment_pb2,
    decryption_pb2,
    linkage_pb2,
    matched_pb2,
    prediction_pb2,
    session_pb2,
    shares_pb2,
    training_pb2,
)

MAX_FRAME_BYTES = 64 << 20
"""Largest frame of any conversation."""

MOST_JOB_BYTES = 1 << 16
"""Largest job a peer may offer."""

MOST_MANIFEST_BYTES = 256 << 10
"""Largest manifest of a job."""

MOST_CONSENTS, MOST_CONSENT_BYTES = 16, 2 << 10
"""Consents of one job, and the size of one."""

MOST_CARDS, MOST_CARD_BYTES = 8, 12 << 10
"""Cards that are told with one job, and the size of one."""

_MOST_SIGNED_BYTES = MOST_CONSENTS * MOST_CONSENT_BYTES + MOST_CARDS * MOST_CARD_BYTES

MOST_OFFER_BYTES = 2 * MOST_JOB_BYTES + MOST_MANIFEST_BYTES + _MOST_SIGNED_BYTES
"""So that a job a little too large is refused with a text."""

MOST_UNKNOWN = 16
"""Number of unknown fields that a message may have, so that a later version can add some."""


@dataclass(frozen=True)
class FieldBound:
    """The bounds of a message of one type.

    Attributes:
        most_bytes: size of the whole message.
        repeated: repeated field → largest number of its elements.
    """

    most_bytes: int
    repeated: Mapping[str, int] = field(default_factory=dict)


BULK = FieldBound(MAX_FRAME_BYTES)

MOST_HALF_BYTES, MOST_HALF_CARD_BYTES, MOST_HALF_SQL_BYTES = 128 << 20, 4 << 20, 16 << 20
"""Largest file of a half that a party gives to another one, and of its card and its SQL; they travel in chunks."""

MOST_PAIR_BYTES = 16 << 10
"""Largest message of a pairing."""

PAIR_S = 10.0
"""How long a whole pairing may take, from its first message to its last; a node has one at a time."""

GUEST_S = 3.0
"""How long a guest may take until its first message; until then it keeps no other one out."""

MOST_PROBE_BYTES = 16 << 20
"""Random bytes of one message of a probe."""

BOUNDS: dict[type[Message], FieldBound] = {
    # Before two nodes know each other.
    session_pb2.PairMessage: FieldBound(MOST_PAIR_BYTES),
    # The standing link.
    session_pb2.Notice: FieldBound(MOST_OFFER_BYTES + 64),
    session_pb2.Hello: FieldBound(512),
    session_pb2.Offer: FieldBound(MOST_OFFER_BYTES, {"consents": MOST_CONSENTS, "cards": MOST_CARDS}),
    session_pb2.OfferReply: FieldBound(
        (4 << 10) + _MOST_SIGNED_BYTES, {"awaits": 16, "asked": 16, "consents": MOST_CONSENTS, "cards": MOST_CARDS}
    ),
    session_pb2.Cancel: FieldBound(4 << 10),
    session_pb2.Beat: FieldBound(64),
    session_pb2.Echo: FieldBound(64),
    session_pb2.CardShown: FieldBound(MOST_PAIR_BYTES),
    session_pb2.ExtensionSaid: FieldBound(MOST_PAIR_BYTES),
    # A probe of the line.
    session_pb2.ProbeMessage: FieldBound(MOST_PROBE_BYTES + 1024),
    # Any conversation.
    session_pb2.Frame: BULK,
    session_pb2.Preflight: FieldBound(64 << 10, {"fields": 512, "checkpoints": 64}),
    session_pb2.FieldDigest: FieldBound(256),
    session_pb2.LedgerHead: FieldBound(128),
    session_pb2.HeadProof: FieldBound(160 << 10, {"commits": 4096}),
    session_pb2.HeadSigned: FieldBound(128),
    session_pb2.Rows: FieldBound(128),
    session_pb2.Chunk: FieldBound(1 << 20),
    session_pb2.RowsEnd: FieldBound(128),
    session_pb2.PhaseEnd: FieldBound(128),
    session_pb2.Abort: FieldBound(4 << 10),
    # Alignment.
    alignment_pb2.Remembered: FieldBound(128),
    alignment_pb2.KeptAlignments: FieldBound(1 << 10, {"sha256": 16}),
    alignment_pb2.Reused: FieldBound(64),
    alignment_pb2.SetSize: FieldBound(4 << 10, {"held": 32}),
    alignment_pb2.Held: FieldBound(128),
    alignment_pb2.OtherMarks: FieldBound(512, {"marks": 7}),
    alignment_pb2.OtherMark: FieldBound(128),
    alignment_pb2.OtherSizes: FieldBound(128, {"counts": 7}),
    alignment_pb2.Obfuscation: FieldBound(64),
    alignment_pb2.TagsOffered: FieldBound(128),
    alignment_pb2.TagsWanted: FieldBound(64),
    linkage_pb2.PivotSeed: FieldBound(128),
    linkage_pb2.EncodingTerms: FieldBound(256),
    linkage_pb2.Reuse: FieldBound(64),
    linkage_pb2.LinkageAccepted: FieldBound(16),
    linkage_pb2.Scale: FieldBound(64),
    # Training.
    training_pb2.TossCommit: FieldBound(128),
    training_pb2.TossShare: FieldBound(128),
    training_pb2.HeldOutRows: FieldBound(64),
    training_pb2.Tensor: FieldBound(MAX_FRAME_BYTES, {"shape": 8}),
    training_pb2.Embedding: BULK,
    training_pb2.Gradient: BULK,
    training_pb2.Projection: BULK,
    training_pb2.LinkedEmbeddings: BULK,
    training_pb2.Scores: BULK,
    training_pb2.EpochEnd: FieldBound(64),
    training_pb2.TrialEnd: FieldBound(128, {"kept": 64}),
    training_pb2.Shared: FieldBound(16 << 20),
    training_pb2.Features: FieldBound(256),
    training_pb2.Encrypted: FieldBound(128),
    training_pb2.IterationEnd: FieldBound(64),
    # Training in shares.
    shares_pb2.MaskedShares: FieldBound(1 << 20),
    shares_pb2.SectionSeed: FieldBound(128),
    shares_pb2.ShareInputs: FieldBound(128),
    shares_pb2.ShareContext: FieldBound(1 << 10, {"widths": 16, "digests": 16}),
    shares_pb2.DealingTerms: FieldBound(512, {"widths": 16}),
    shares_pb2.ColumnStatistics: FieldBound(1 << 19, {"values": 7 << 13}),
    shares_pb2.KeptAhead: FieldBound(64),
    shares_pb2.DealerSeed: FieldBound(128),
    shares_pb2.Corrections: FieldBound(1 << 20),
    shares_pb2.CorrectionsUsed: FieldBound(64),
    shares_pb2.ShareCommitments: FieldBound(1 << 10, {"commitments": 16}),
    shares_pb2.AnswerInputs: FieldBound(1 << 20),
    shares_pb2.AnswerContext: FieldBound(1 << 20, {"digests": 16}),
    shares_pb2.AnswerTerms: FieldBound(512, {"widths": 16}),
    # Decryption.
    decryption_pb2.PaillierKey: FieldBound(64 << 10),
    decryption_pb2.DecryptionPlan: FieldBound(4 << 10, {"tensors": 16, "theirs": 16}),
    decryption_pb2.MaskedTensor: FieldBound(128),
    decryption_pb2.DecryptionRequest: FieldBound(128),
    decryption_pb2.Decrypted: FieldBound(128),
    matched_pb2.MaskedCounts: FieldBound(64 << 10, {"values": 4096}),
    # Predictions.
    prediction_pb2.PredictionTerms: FieldBound(256),
    prediction_pb2.PredictionAsk: FieldBound(512, {"batches": 64}),
    prediction_pb2.Probabilities: BULK,
}
"""Every message type that may arrive, and its bounds; other types cannot be received."""

_LABELS = {kind.DESCRIPTOR.full_name: kind.DESCRIPTOR.name for kind in BOUNDS}


def type_label(full_name: str) -> str:
    """The name of a type of messages without its package; ``other`` where this version has no such type."""
    return _LABELS.get(full_name, "other")


def bound(kind: type[Message]) -> FieldBound:
    """The bounds of a message type. Raises TypeError if it has none."""
    try:
        return BOUNDS[kind]
    except KeyError:
        raise TypeError(f"{kind.DESCRIPTOR.full_name} has no bounds: give it some in {__name__}") from None


def check(data: Buffer, kind: type[Message]) -> None:
    """Refuse bytes that are not a message of type ``kind`` within its bounds.

    Cost: about one microsecond, and half a microsecond for each field.

    Raises:
        ProtocolError: they exceed the bounds (``E_SIZE``; raised before any memory is taken), or are no message at all.
    """
    if missing(data, kind):
        raise _no_message(_layout(kind.DESCRIPTOR))


def missing(data: Buffer, kind: type[Message], most_bytes: int | None = None) -> int:
    """As :func:`check`, for bytes that may be only the beginning of a message, cut within its last field.

    Args:
        data: the whole message, or its beginning.
        kind: its type.
        most_bytes: size of the whole message, if smaller than the bound of the type.

    Returns:
        How many bytes must follow; 0 if the message is whole.
    """
    layout = _layout(kind.DESCRIPTOR)
    end = _scan(data, 0, len(data), layout)
    most = layout.most_bytes if most_bytes is None else min(most_bytes, layout.most_bytes)
    if end > most:
        raise _size_error(layout, f"{end} bytes, at most {most} are allowed")
    return end - len(data)


_Field = tuple[str, int, "int | None", "_Layout | None"]


@dataclass(frozen=True)
class _Layout:
    """What :func:`_scan` needs to know about a message type.

    Attributes:
        fields: number → name, how often it may come, the bytes of an element of a packed field (0: of variable length;
            None: the field is not packed), and the layout of a submessage.
    """

    name: str
    most_bytes: int
    fields: Mapping[int, _Field]


_FIXED = {
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_DOUBLE: 8,
}
_NOT_PACKED = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


@cache
def _layout(message: Descriptor) -> _Layout:
    own, fields = bound(GetMessageClass(message)), dict[int, _Field]()
    for each in message.fields:
        most = own.repeated[each.name] if each.is_repeated else 1
        packed = _FIXED.get(each.type, 0) if each.is_repeated and each.type not in _NOT_PACKED else None
        fields[each.number] = (each.name, most, packed, _layout(each.message_type) if each.message_type else None)
    return _Layout(message.name, own.most_bytes, fields)


def _scan(data: Buffer, at: int, end: int, layout: _Layout) -> int:
    """Where a message that begins at ``at`` ends: at ``end``, or after it if its last field says so."""
    outermost, fields, counts = at == 0, layout.fields, dict[int, int]()
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = read_varint(data, at - 1)
            number, wire = tag >> 3, tag & 7
            if number in fields:
                name, most, packed, inner = fields[number]
            else:
                number, (name, most, packed, inner) = 0, _UNKNOWN
            count = 1
            if wire == 2:
                size = data[at]
                at += 1
                if size > 0x7F:
                    size, at = read_varint(data, at - 1)
                if packed is not None:
                    count = _count_packed(data[at : at + min(size, 10 * most)], size, packed)
                elif inner is not None:
                    if at + size > end:
                        raise _no_message(layout)
                    if size > inner.most_bytes:
                        raise _size_error(inner, f"{size} bytes, at most {inner.most_bytes} are allowed")
                    _scan(data, at, at + size, inner)
                at += size
            elif inner is not None:
                raise _no_message(layout)
            elif wire == 0:
                last = at + 9
                while data[at] > 0x7F:
                    at += 1
                    if at > last:
                        raise _no_message(layout)
                at += 1
            elif wire == 5:
                at += 4
            elif wire == 1:
                at += 8
            else:
                raise _no_message(layout)
            if number in counts or count > most:
                count += counts.get(number, 0)
                if count > most:
                    raise _size_error(layout, f"{name} {count} times, at most {most} are allowed")
            counts[number] = count
    except IndexError:
        raise _no_message(layout) from None
    if at > end and not outermost:  # only the outermost message may be cut
        raise _no_message(layout)
    return at


def _count_packed(some: Buffer, size: int, width: int) -> int:
    """How many numbers a packed field of ``size`` bytes has, if only the bytes ``some`` are given."""
    if width:
        return size // width
    return sum(byte < 0x80 for byte in some) if len(some) == size else size


_UNKNOWN: _Field = ("fields that this version does not know", MOST_UNKNOWN, None, None)


def _size_error(layout: _Layout, what: str) -> ProtocolError:
    return ProtocolError(f"a message {layout.name} has {what}", code="E_SIZE")


def _no_message(layout: _Layout) -> ProtocolError:
    return ProtocolError(f"bytes that are no {layout.name}")
