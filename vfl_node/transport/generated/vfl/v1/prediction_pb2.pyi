from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PredictionTerms(_message.Message):
    __slots__ = ("batches", "unnamed")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    batches: bytes
    unnamed: bool
    def __init__(self, batches: _Optional[bytes] = ..., unnamed: bool = ...) -> None: ...

class PredictionAsk(_message.Message):
    __slots__ = ("batches", "unnamed", "done")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedScalarFieldContainer[int]
    unnamed: int
    done: bool
    def __init__(self, batches: _Optional[_Iterable[int]] = ..., unnamed: _Optional[int] = ..., done: bool = ...) -> None: ...

class Probabilities(_message.Message):
    __slots__ = ("step", "values")
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    step: int
    values: bytes
    def __init__(self, step: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...
