"""Networks of split training as nodes of a graph, built by hand from their modules; no code of theirs is traced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from vfl_node.halves.columns import EncodedInputs
from vfl_node.halves.graph import Graph, export_error
from vfl_node.models.classifier import Classifier
from vfl_node.models.layers import BatchNorm, Dropout
from vfl_node.models.networks import Concat, MlpBottom, MlpTop


def embed(graph: Graph, bottom: nn.Module, inputs: EncodedInputs) -> str:
    """The embedding of a bottom, float[n, d].

    Raises:
        UsageError: it is none of dense layers over numbers and categories (``E_EXPORT``).
    """
    if type(bottom) is not MlpBottom:
        raise _refusal(bottom)
    read = [*([inputs.numeric] if inputs.numeric else []), *_look_up(graph, bottom.categories, inputs)]
    deep = _layers(graph, bottom.layers, graph.join(read))
    if not bottom.wide:
        return deep
    wide = _look_up(graph, bottom.wide_categories, inputs)
    if bottom.wide_numeric is not None:
        assert inputs.numeric is not None
        wide.append(_linear(graph, bottom.wide_numeric, inputs.numeric))
    return graph.join([deep, _sum(graph, wide)])


def logits(graph: Graph, model: Classifier, inputs: EncodedInputs, received: Sequence[str], width: int) -> str:
    """The logits of the label holder's half, float[n, K]; likewise.

    Args:
        graph: the graph.
        model: the half.
        inputs: its own columns.
        received: the others' embeddings, in the job's order.
        width: of each of these, wide coordinates included.
    """
    own = [] if model.bottom is None else [embed(graph, model.bottom, inputs)]
    if type(model.fusion) is not Concat or type(model.top) is not MlpTop:
        raise _refusal(model.top if type(model.fusion) is Concat else model.fusion)
    parts, widths = [*own, *received], [*(_width(model.bottom) for _ in own), *(width for _ in received)]
    if model.wide:
        wide = [_slice(graph, part, end - model.wide, end) for part, end in zip(parts, widths, strict=True)]
        parts = [_slice(graph, part, 0, end - model.wide) for part, end in zip(parts, widths, strict=True)]
    found = _linear(graph, model.top.output, _layers(graph, model.top.layers, graph.join(parts)))
    return graph.apply("Add", found, _sum(graph, wide)) if model.wide else found


def _width(bottom: nn.Module | None) -> int:
    assert isinstance(bottom, MlpBottom)
    (last,) = [layer.out_features for layer in bottom.layers if isinstance(layer, nn.Linear)][-1:]
    return last + bottom.wide


def _layers(graph: Graph, layers: nn.Sequential, value: str) -> str:
    for layer in layers:
        if type(layer) is nn.Linear:
            value = _linear(graph, layer, value)
        elif type(layer) is nn.ReLU:
            value = graph.apply("Relu", value)
        elif type(layer) is BatchNorm:
            learnt = [_keep(graph, part) for part in (layer.weight, layer.bias, layer.running_mean, layer.running_var)]
            value = graph.apply("BatchNormalization", value, *learnt, epsilon=layer.eps)
        elif type(layer) is nn.LayerNorm:
            learnt = [_keep(graph, part) for part in (layer.weight, layer.bias)]
            value = graph.apply("LayerNormalization", value, *learnt, axis=-1, epsilon=layer.eps)
        elif type(layer) is not Dropout:  # which does nothing in a prediction
            raise _refusal(layer)
    return value


def _look_up(graph: Graph, tables: nn.ModuleList, inputs: EncodedInputs) -> list[str]:
    """float[n, width] of each column of categories."""
    found = []
    for table, codes in zip(tables, inputs.codes, strict=False):  # a half without wide coordinates has no wide tables
        assert isinstance(table, nn.Embedding)
        flat = graph.apply("Reshape", codes, graph.keep([-1], np.int64))
        found.append(graph.apply("Gather", _keep(graph, table.weight), flat))
    return found


def _linear(graph: Graph, layer: nn.Linear, value: str) -> str:
    bias = [] if layer.bias is None else [_keep(graph, layer.bias)]
    return graph.apply("Gemm", value, _keep(graph, layer.weight), *bias, transB=1)


def _slice(graph: Graph, value: str, start: int, end: int) -> str:
    """Columns ``start`` to ``end`` of [n, k]."""
    return graph.apply("Slice", value, *(graph.keep([number], np.int64) for number in (start, end, 1)))


def _sum(graph: Graph, values: Sequence[str]) -> str:
    total = values[0]
    for value in values[1:]:
        total = graph.apply("Add", total, value)
    return total


def _keep(graph: Graph, weights: Tensor | None) -> str:
    assert weights is not None
    return graph.keep(weights.detach().cpu().numpy(), np.float32)


def _refusal(module: nn.Module) -> Exception:
    return export_error(
        f"a half with a layer {type(module).__name__} cannot be written as ONNX",
        "networks of dense layers can (mlp, wide_deep); predict with this one between nodes, or train another one",
    )
