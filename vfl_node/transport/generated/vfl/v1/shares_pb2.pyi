from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MaskedShares(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    def __init__(self, values: _Optional[bytes] = ...) -> None: ...

class SectionSeed(_message.Message):
    __slots__ = ("seed",)
    SEED_FIELD_NUMBER: _ClassVar[int]
    seed: bytes
    def __init__(self, seed: _Optional[bytes] = ...) -> None: ...

class ShareInputs(_message.Message):
    __slots__ = ("width", "digest")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    width: int
    digest: bytes
    def __init__(self, width: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class ShareContext(_message.Message):
    __slots__ = ("widths", "context", "divisor", "batch_rows", "digests")
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DIVISOR_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    widths: _containers.RepeatedScalarFieldContainer[int]
    context: bytes
    divisor: float
    batch_rows: int
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, widths: _Optional[_Iterable[int]] = ..., context: _Optional[bytes] = ..., divisor: _Optional[float] = ..., batch_rows: _Optional[int] = ..., digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DealingTerms(_message.Message):
    __slots__ = ("rows", "widths", "context", "schedule", "batch_rows", "divisor", "epoch", "program", "split")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    DIVISOR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    widths: _containers.RepeatedScalarFieldContainer[int]
    context: bytes
    schedule: bytes
    batch_rows: int
    divisor: float
    epoch: int
    program: bytes
    split: bytes
    def __init__(self, rows: _Optional[int] = ..., widths: _Optional[_Iterable[int]] = ..., context: _Optional[bytes] = ..., schedule: _Optional[bytes] = ..., batch_rows: _Optional[int] = ..., divisor: _Optional[float] = ..., epoch: _Optional[int] = ..., program: _Optional[bytes] = ..., split: _Optional[bytes] = ...) -> None: ...

class ColumnStatistics(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class KeptAhead(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: int
    def __init__(self, groups: _Optional[int] = ...) -> None: ...

class DealerSeed(_message.Message):
    __slots__ = ("seed",)
    SEED_FIELD_NUMBER: _ClassVar[int]
    seed: bytes
    def __init__(self, seed: _Optional[bytes] = ...) -> None: ...

class Corrections(_message.Message):
    __slots__ = ("values", "last")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    last: bool
    def __init__(self, values: _Optional[bytes] = ..., last: bool = ...) -> None: ...

class CorrectionsUsed(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ShareCommitments(_message.Message):
    __slots__ = ("commitments",)
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    commitments: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, commitments: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AnswerInputs(_message.Message):
    __slots__ = ("digest", "marks")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    marks: bytes
    def __init__(self, digest: _Optional[bytes] = ..., marks: _Optional[bytes] = ...) -> None: ...

class AnswerContext(_message.Message):
    __slots__ = ("digests", "marks")
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    marks: bytes
    def __init__(self, digests: _Optional[_Iterable[bytes]] = ..., marks: _Optional[bytes] = ...) -> None: ...

class AnswerTerms(_message.Message):
    __slots__ = ("rows", "widths", "context")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    widths: _containers.RepeatedScalarFieldContainer[int]
    context: bytes
    def __init__(self, rows: _Optional[int] = ..., widths: _Optional[_Iterable[int]] = ..., context: _Optional[bytes] = ...) -> None: ...
