from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Notice(_message.Message):
    __slots__ = ("hello", "offer", "offer_reply", "cancel", "beat", "echo", "card", "extension", "parting", "parting_code")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    OFFER_REPLY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_FIELD_NUMBER: _ClassVar[int]
    PARTING_FIELD_NUMBER: _ClassVar[int]
    PARTING_CODE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    offer: Offer
    offer_reply: OfferReply
    cancel: Cancel
    beat: Beat
    echo: Echo
    card: CardShown
    extension: ExtensionSaid
    parting: str
    parting_code: str
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., offer_reply: _Optional[_Union[OfferReply, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., echo: _Optional[_Union[Echo, _Mapping]] = ..., card: _Optional[_Union[CardShown, _Mapping]] = ..., extension: _Optional[_Union[ExtensionSaid, _Mapping]] = ..., parting: _Optional[str] = ..., parting_code: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("party", "role", "protocol_version", "software_version", "oldest_protocol_version", "clock_s")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_S_FIELD_NUMBER: _ClassVar[int]
    party: str
    role: str
    protocol_version: int
    software_version: str
    oldest_protocol_version: int
    clock_s: int
    def __init__(self, party: _Optional[str] = ..., role: _Optional[str] = ..., protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., oldest_protocol_version: _Optional[int] = ..., clock_s: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("job_id", "submitter", "job_json", "ready", "manifest", "consents", "cards")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    JOB_JSON_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CONSENTS_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    submitter: str
    job_json: str
    ready: bool
    manifest: bytes
    consents: _containers.RepeatedScalarFieldContainer[bytes]
    cards: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, job_id: _Optional[str] = ..., submitter: _Optional[str] = ..., job_json: _Optional[str] = ..., ready: bool = ..., manifest: _Optional[bytes] = ..., consents: _Optional[_Iterable[bytes]] = ..., cards: _Optional[_Iterable[bytes]] = ...) -> None: ...

class OfferReply(_message.Message):
    __slots__ = ("job_id", "accepted", "code", "reason", "waits", "awaits", "asked", "consents", "cards", "draining")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    CONSENTS_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    accepted: bool
    code: str
    reason: str
    waits: bool
    awaits: _containers.RepeatedScalarFieldContainer[str]
    asked: _containers.RepeatedScalarFieldContainer[str]
    consents: _containers.RepeatedScalarFieldContainer[bytes]
    cards: _containers.RepeatedScalarFieldContainer[bytes]
    draining: bool
    def __init__(self, job_id: _Optional[str] = ..., accepted: bool = ..., code: _Optional[str] = ..., reason: _Optional[str] = ..., waits: bool = ..., awaits: _Optional[_Iterable[str]] = ..., asked: _Optional[_Iterable[str]] = ..., consents: _Optional[_Iterable[bytes]] = ..., cards: _Optional[_Iterable[bytes]] = ..., draining: bool = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("job_id", "failed", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    failed: bool
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., failed: bool = ..., reason: _Optional[str] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("progressed",)
    PROGRESSED_FIELD_NUMBER: _ClassVar[int]
    progressed: bool
    def __init__(self, progressed: bool = ...) -> None: ...

class CardShown(_message.Message):
    __slots__ = ("envelope", "code", "reason")
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    envelope: bytes
    code: str
    reason: str
    def __init__(self, envelope: _Optional[bytes] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ExtensionSaid(_message.Message):
    __slots__ = ("id", "request", "approval", "code", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    request: bytes
    approval: bytes
    code: str
    reason: str
    def __init__(self, id: _Optional[str] = ..., request: _Optional[bytes] = ..., approval: _Optional[bytes] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Echo(_message.Message):
    __slots__ = ("number", "answer")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    number: int
    answer: bool
    def __init__(self, number: _Optional[int] = ..., answer: bool = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("job_id", "attempt", "phase", "sequence", "type", "body")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: int
    phase: str
    sequence: int
    type: str
    body: bytes
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., phase: _Optional[str] = ..., sequence: _Optional[int] = ..., type: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Preflight(_message.Message):
    __slots__ = ("party", "protocol_version", "software_version", "fields", "attempt", "checkpoints", "input_digest", "oldest_protocol_version", "manifest_sha256", "consents_sha256", "seen", "given_up")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    CONSENTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    party: str
    protocol_version: int
    software_version: str
    fields: _containers.RepeatedCompositeFieldContainer[FieldDigest]
    attempt: int
    checkpoints: _containers.RepeatedScalarFieldContainer[str]
    input_digest: bytes
    oldest_protocol_version: int
    manifest_sha256: bytes
    consents_sha256: bytes
    seen: LedgerHead
    given_up: LedgerHead
    def __init__(self, party: _Optional[str] = ..., protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[FieldDigest, _Mapping]]] = ..., attempt: _Optional[int] = ..., checkpoints: _Optional[_Iterable[str]] = ..., input_digest: _Optional[bytes] = ..., oldest_protocol_version: _Optional[int] = ..., manifest_sha256: _Optional[bytes] = ..., consents_sha256: _Optional[bytes] = ..., seen: _Optional[_Union[LedgerHead, _Mapping]] = ..., given_up: _Optional[_Union[LedgerHead, _Mapping]] = ...) -> None: ...

class LedgerHead(_message.Message):
    __slots__ = ("entries", "link", "signature")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    entries: int
    link: bytes
    signature: bytes
    def __init__(self, entries: _Optional[int] = ..., link: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class HeadProof(_message.Message):
    __slots__ = ("head", "commits")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    head: LedgerHead
    commits: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, head: _Optional[_Union[LedgerHead, _Mapping]] = ..., commits: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeadSigned(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class FieldDigest(_message.Message):
    __slots__ = ("field", "sha256")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    field: str
    sha256: bytes
    def __init__(self, field: _Optional[str] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("count", "width", "start", "prefix")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    count: int
    width: int
    start: int
    prefix: bytes
    def __init__(self, count: _Optional[int] = ..., width: _Optional[int] = ..., start: _Optional[int] = ..., prefix: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "rows")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    rows: bytes
    def __init__(self, offset: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class RowsEnd(_message.Message):
    __slots__ = ("count", "sha256")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    count: int
    sha256: bytes
    def __init__(self, count: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class PhaseEnd(_message.Message):
    __slots__ = ("messages", "sha256")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    messages: int
    sha256: bytes
    def __init__(self, messages: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("code", "reason", "resumable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    resumable: bool
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ..., resumable: bool = ...) -> None: ...

class PairMessage(_message.Message):
    __slots__ = ("element", "card_sha256", "commitment", "box")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    CARD_SHA256_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    element: bytes
    card_sha256: bytes
    commitment: bytes
    box: bytes
    def __init__(self, element: _Optional[bytes] = ..., card_sha256: _Optional[bytes] = ..., commitment: _Optional[bytes] = ..., box: _Optional[bytes] = ...) -> None: ...

class ProbeMessage(_message.Message):
    __slots__ = ("number", "hello", "kernel", "heard_us", "answered_us", "wanted_bytes", "dial_back", "dialled", "hold_s", "sha256", "random")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    HEARD_US_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_US_FIELD_NUMBER: _ClassVar[int]
    WANTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIAL_BACK_FIELD_NUMBER: _ClassVar[int]
    DIALLED_FIELD_NUMBER: _ClassVar[int]
    HOLD_S_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    number: int
    hello: Hello
    kernel: str
    heard_us: int
    answered_us: int
    wanted_bytes: int
    dial_back: bool
    dialled: int
    hold_s: int
    sha256: bytes
    random: bytes
    def __init__(self, number: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., kernel: _Optional[str] = ..., heard_us: _Optional[int] = ..., answered_us: _Optional[int] = ..., wanted_bytes: _Optional[int] = ..., dial_back: bool = ..., dialled: _Optional[int] = ..., hold_s: _Optional[int] = ..., sha256: _Optional[bytes] = ..., random: _Optional[bytes] = ...) -> None: ...
