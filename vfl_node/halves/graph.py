"""An ONNX graph under way: inputs, constants and nodes by name. The package ``onnx`` is loaded when it becomes bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vfl_node.errors import UsageError
from vfl_node.version import VERSION

Kind = Literal["double", "float", "string", "int64"]

OPSET, ML_OPSET, IR_VERSION = 17, 3, 9

ML = "ai.onnx.ml"

_PLAIN = (
    "Abs Add BatchNormalization Cast Clip Concat Div Equal Exp Floor Gather Gemm GreaterOrEqual Identity IsNaN "
    "LayerNormalization Less Log MatMul Max Min Mod Mul Neg ReduceSum Relu Reshape Round Sigmoid Sign Sin Slice "
    "Softmax Sqrt Sub Where"
)

OPERATORS = frozenset({("LabelEncoder", ML), *((kind, "") for kind in _PLAIN.split())})
"""(Operator, domain) of all nodes that a half may have: no other one is written, and none is taken from another party."""

TYPE_BYTES: Mapping[int, int] = {1: 4, 7: 8, 11: 8}
"""Type of a constant, as its number in ONNX → bytes of an element: float, int64 and double."""

ABOUT = "vfl-node"
"""Key of the metadata that say what a half is."""


def export_error(what: str, hint: str) -> UsageError:
    """What is raised of a half that cannot leave in this form."""
    return UsageError(what, code="E_EXPORT", hint=hint)


def check_installed(*packages: str) -> None:
    """Raises UsageError (``E_EXTENSION``) if a package that ONNX files need is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise UsageError(f"{package} is not installed", code="E_EXTENSION", hint="pip install 'vfl-node[onnx]'")


@dataclass(frozen=True)
class GraphNode:
    """One node: what it is called, what it reads, the one value that it gives, its attributes and its domain."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    domain: str


@dataclass
class Graph:
    """A graph under way.

    Attributes:
        taken: names that inputs have, which no other value gets.
    """

    taken: set[str]
    inputs: list[tuple[str, Kind, int]] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    operations: list[GraphNode] = field(default_factory=list)

    @classmethod
    def from_columns(cls, columns: Collection[str]) -> Graph:
        """A graph whose inputs will be these columns."""
        return cls(set(columns))

    def name(self, wanted: str) -> str:
        """A name like ``wanted`` that nothing has yet."""
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted

    def read(self, name: str, kind: Kind, width: int) -> str:
        """An input of n rows: [n] for width 0, else [n, width]."""
        self.inputs.append((name, kind, width))
        return name

    def keep(self, value: ArrayLike, dtype: type[Any] = np.float64) -> str:
        """A constant."""
        name = self.name(f"constant_{len(self.constants)}")
        self.constants[name] = np.array(value, dtype=dtype, order="C")
        return name

    def apply(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node of one output, by its name."""
        assert (kind, domain) in OPERATORS, kind
        output = self.name(f"value_{len(self.operations)}")
        self.operations.append(GraphNode(kind, inputs, output, attributes, domain))
        return output

    def calculate(self, kind: str, left: str, right: ArrayLike, dtype: type[Any] = np.float64) -> str:
        """A node of a value and a constant."""
        return self.apply(kind, left, self.keep(right, dtype))

    def cast(self, value: str, kind: Kind) -> str:
        """``value`` as another type."""
        return self.apply("Cast", value, to=_TYPES[kind])

    def join(self, values: list[str]) -> str:
        """Values [n, k] side by side; at least one."""
        return values[0] if len(values) == 1 else self.apply("Concat", *values, axis=1)

    def to_bytes(self, outputs: Mapping[str, tuple[str, Kind, int]], about: str) -> bytes:
        """The model as a file.

        Args:
            outputs: name → value, its type, and 1 for one number a row, [n], else 2 for [n, k].
            about: what the metadata say of it, under :data:`ABOUT`.
        """
        from onnx import checker, helper, numpy_helper

        nodes = [
            helper.make_node(each.kind, list(each.inputs), [each.output], domain=each.domain, **each.attributes)
            for each in self.operations
        ]
        nodes += [helper.make_node("Identity", [value], [name]) for name, (value, _, _) in outputs.items()]
        graph = helper.make_graph(
            nodes,
            "half",
            [helper.make_tensor_value_info(name, _TYPES[kind], ["n", *[width][:width]]) for name, kind, width in self.inputs],
            [
                helper.make_tensor_value_info(name, _TYPES[kind], ["n", f"{name}_width"][:axes])
                for name, (_, kind, axes) in outputs.items()
            ],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION)
        model.producer_name, model.producer_version = ABOUT, VERSION
        helper.set_model_props(model, {ABOUT: about})
        checker.check_model(model)
        written: bytes = model.SerializeToString(deterministic=True)
        return written


_TYPES: Mapping[Kind, int] = {"float": 1, "int64": 7, "string": 8, "double": 11}
"""Type → its number in ONNX (TensorProto.DataType)."""
