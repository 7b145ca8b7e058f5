from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PivotSeed(_message.Message):
    __slots__ = ("mark", "seed")
    MARK_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    mark: bytes
    seed: bytes
    def __init__(self, mark: _Optional[bytes] = ..., seed: _Optional[bytes] = ...) -> None: ...

class EncodingTerms(_message.Message):
    __slots__ = ("bits", "count", "commitment", "held", "seed_mark", "salt")
    BITS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SEED_MARK_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    bits: int
    count: int
    commitment: bytes
    held: int
    seed_mark: bytes
    salt: bytes
    def __init__(self, bits: _Optional[int] = ..., count: _Optional[int] = ..., commitment: _Optional[bytes] = ..., held: _Optional[int] = ..., seed_mark: _Optional[bytes] = ..., salt: _Optional[bytes] = ...) -> None: ...

class Reuse(_message.Message):
    __slots__ = ("max", "median", "deviation", "sigma")
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    DEVIATION_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    max: int
    median: float
    deviation: float
    sigma: float
    def __init__(self, max: _Optional[int] = ..., median: _Optional[float] = ..., deviation: _Optional[float] = ..., sigma: _Optional[float] = ...) -> None: ...

class LinkageAccepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Scale(_message.Message):
    __slots__ = ("mean", "deviation", "sigma", "without_candidate")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    DEVIATION_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    mean: float
    deviation: float
    sigma: float
    without_candidate: int
    def __init__(self, mean: _Optional[float] = ..., deviation: _Optional[float] = ..., sigma: _Optional[float] = ..., without_candidate: _Optional[int] = ...) -> None: ...
