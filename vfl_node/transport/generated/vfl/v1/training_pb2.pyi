from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TossCommit(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ...) -> None: ...

class TossShare(_message.Message):
    __slots__ = ("share",)
    SHARE_FIELD_NUMBER: _ClassVar[int]
    share: bytes
    def __init__(self, share: _Optional[bytes] = ...) -> None: ...

class HeldOutRows(_message.Message):
    __slots__ = ("rows", "held_out", "validation")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    rows: int
    held_out: int
    validation: int
    def __init__(self, rows: _Optional[int] = ..., held_out: _Optional[int] = ..., validation: _Optional[int] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Embedding(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: Tensor
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Gradient(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: Tensor
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class LinkedEmbeddings(_message.Message):
    __slots__ = ("step", "embeddings", "index")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    step: int
    embeddings: Tensor
    index: Tensor
    def __init__(self, step: _Optional[int] = ..., embeddings: _Optional[_Union[Tensor, _Mapping]] = ..., index: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Projection(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: Tensor
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("epoch", "improved", "last")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IMPROVED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    improved: bool
    last: bool
    def __init__(self, epoch: _Optional[int] = ..., improved: bool = ..., last: bool = ...) -> None: ...

class TrialEnd(_message.Message):
    __slots__ = ("trial", "kept")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    trial: int
    kept: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, trial: _Optional[int] = ..., kept: _Optional[_Iterable[int]] = ...) -> None: ...

class Shared(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ("columns", "key")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    columns: int
    key: bytes
    def __init__(self, columns: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class Scores(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: Tensor
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Encrypted(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: str
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[str] = ...) -> None: ...

class IterationEnd(_message.Message):
    __slots__ = ("step", "last")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    step: int
    last: bool
    def __init__(self, step: _Optional[int] = ..., last: bool = ...) -> None: ...
