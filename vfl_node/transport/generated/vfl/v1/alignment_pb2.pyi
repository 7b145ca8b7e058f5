from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Remembered(_message.Message):
    __slots__ = ("mark", "min_overlap")
    MARK_FIELD_NUMBER: _ClassVar[int]
    MIN_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    mark: bytes
    min_overlap: int
    def __init__(self, mark: _Optional[bytes] = ..., min_overlap: _Optional[int] = ...) -> None: ...

class SetSize(_message.Message):
    __slots__ = ("count", "held")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    count: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, count: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

class KeptAlignments(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Reused(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ...) -> None: ...

class OtherMarks(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[OtherMark]
    def __init__(self, marks: _Optional[_Iterable[_Union[OtherMark, _Mapping]]] = ...) -> None: ...

class OtherMark(_message.Message):
    __slots__ = ("mark", "min_overlap")
    MARK_FIELD_NUMBER: _ClassVar[int]
    MIN_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    mark: bytes
    min_overlap: int
    def __init__(self, mark: _Optional[bytes] = ..., min_overlap: _Optional[int] = ...) -> None: ...

class OtherSizes(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("list", "rows")
    LIST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    list: str
    rows: int
    def __init__(self, list: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class Obfuscation(_message.Message):
    __slots__ = ("again", "same_size", "draw")
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    SAME_SIZE_FIELD_NUMBER: _ClassVar[int]
    DRAW_FIELD_NUMBER: _ClassVar[int]
    again: bool
    same_size: bool
    draw: int
    def __init__(self, again: bool = ..., same_size: bool = ..., draw: _Optional[int] = ...) -> None: ...

class TagsOffered(_message.Message):
    __slots__ = ("epoch", "name", "rest_bytes", "sha256")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REST_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    name: bytes
    rest_bytes: int
    sha256: bytes
    def __init__(self, epoch: _Optional[int] = ..., name: _Optional[bytes] = ..., rest_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class TagsWanted(_message.Message):
    __slots__ = ("cached", "held", "sha256")
    CACHED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    cached: bool
    held: int
    sha256: bytes
    def __init__(self, cached: bool = ..., held: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...
