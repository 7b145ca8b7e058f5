from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PaillierKey(_message.Message):
    __slots__ = ("n", "proof")
    N_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    n: bytes
    proof: bytes
    def __init__(self, n: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class DecryptionPlan(_message.Message):
    __slots__ = ("tensors", "first_step", "theirs")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    THEIRS_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[MaskedTensor]
    first_step: int
    theirs: _containers.RepeatedCompositeFieldContainer[MaskedTensor]
    def __init__(self, tensors: _Optional[_Iterable[_Union[MaskedTensor, _Mapping]]] = ..., first_step: _Optional[int] = ..., theirs: _Optional[_Iterable[_Union[MaskedTensor, _Mapping]]] = ...) -> None: ...

class MaskedTensor(_message.Message):
    __slots__ = ("name", "units", "slots", "slot_bits", "party")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOT_BITS_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    name: str
    units: int
    slots: int
    slot_bits: int
    party: str
    def __init__(self, name: _Optional[str] = ..., units: _Optional[int] = ..., slots: _Optional[int] = ..., slot_bits: _Optional[int] = ..., party: _Optional[str] = ...) -> None: ...

class DecryptionRequest(_message.Message):
    __slots__ = ("step", "tensor", "done")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: str
    done: bool
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[str] = ..., done: bool = ...) -> None: ...

class Decrypted(_message.Message):
    __slots__ = ("step", "tensor")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    tensor: str
    def __init__(self, step: _Optional[int] = ..., tensor: _Optional[str] = ...) -> None: ...
