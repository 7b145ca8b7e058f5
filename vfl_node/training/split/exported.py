"""A half of split training: a bottom, or the label holder's bottom, top and calibration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.data.features import Encoder
from vfl_node.data.tables import Table
from vfl_node.halves import networks
from vfl_node.halves.columns import EncodedInputs, RawColumns, encode
from vfl_node.halves.graph import Graph, Kind, export_error
from vfl_node.halves.half import About, Emitted, Floats, OwnHalf
from vfl_node.models import architecture_of, check_version, cut_width
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.tasks import MOST_LOG
from vfl_node.training.predictor import StoredModel
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import AtTest, AtTraining, Calibration, Identity
from vfl_node.training.split.missing.number_calibration import AsPredicted, NumberShift, ShiftedAtTest
from vfl_node.training.split.prediction.sides import load_weights
from vfl_node.training.split.tasks import LOCAL_RATE_MARGIN, ScaledRates, ScaledTargets, stored_task
from vfl_node.training.targets import TargetScale

CPU = torch.device("cpu")


@dataclass(frozen=True)
class SplitNetworks:
    """What a party has: a bottom; or at the party with the labels the joint model, and its own one if q needs it."""

    bottom: torch.nn.Module | None = None
    joint: Classifier | None = None
    local: Classifier | None = None


class SplitHalf(OwnHalf):
    """One party's half of a split network.

    Args:
        about: what a file says of it.
        model: what it has stored; its ``state`` is :attr:`vfl_node.training.trainer.Trained.scoring`.

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``), or of another version of the network (``E_STATE_VERSION``).
        UsageError: this node no longer has the network (``E_EXTENSION``), or an earlier version stored it
            (``E_EXPORT``).
    """

    part_kind: ClassVar[Kind] = "float"

    def __init__(self, about: About, model: StoredModel) -> None:
        if not model.state:
            raise export_error("an earlier vfl-node stored this half, without what an export needs", "train again")
        train, encoder, weights = Train.section_of(model.job), Encoder.from_json(model.encoder), model.weights
        super().__init__(replace(about, width=cut_width(train)))
        stored = json.loads(model.state)
        self._train, self._encoder = train, encoder
        self._architecture = architecture_of(train.model, model.models)
        check_version(train.model, self._architecture.version, stored["model_version"])
        self._weights = weights
        self._networks: SplitNetworks | None = None
        if not about.predicts:
            return
        if stored.get("offset"):
            raise export_error("a model with an offset (data.offset, data.exposure) is not exported", "train without it")
        target = stored.get("target")
        self._task = stored_task(train, stored["positive_rate"], TargetScale(**target) if target else None)
        self.unit = max(abs(target["mean"]), target["deviation"]) if target else 1.0
        self._calibration = Calibration.from_json(stored["calibration"], self._task.calibration)

    @override
    def part(self, table: Table) -> NDArray[np.float32]:
        rows, own = self._rows(table)
        assert own.bottom is not None
        with torch.no_grad():
            embedding: NDArray[np.float32] = own.bottom(rows).numpy()
        return embedding

    @override
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        rows, own = self._rows(table)
        assert own.joint is not None
        with torch.no_grad():
            logits = own.joint(rows, [torch.from_numpy(part) for part in parts])
            rate = self._task.base_rate(own.local(rows)) if own.local else torch.full((len(table),), self._task.rate)
        return self._task.prediction(self._calibration.probability(logits, rate))

    @override
    def encoded(self, table: Table) -> dict[str, NDArray[Any]]:
        features = self._encoder.transform(table)
        found: dict[str, NDArray[Any]] = {"numeric": features.numeric, "codes": features.categorical}
        return {name: each for name, each in found.items() if each.shape[1]}

    @property
    @override
    def encodings(self) -> tuple[object, ...]:
        return self._encoder.columns

    @override
    def emit(self, graph: Graph, raw: RawColumns) -> Emitted:
        inputs = encode(graph, raw, self._encoder)
        encoded: dict[str, tuple[str, Kind]] = {"numeric": (inputs.numeric, "float")} if inputs.numeric else {}
        encoded |= {"codes": (graph.join(list(inputs.codes)), "int64")} if inputs.codes else {}
        own = self._open(self._inputs(self.probes()).schema)
        if own.bottom is not None:
            return Emitted(networks.embed(graph, own.bottom, inputs), (), encoded)
        assert own.joint is not None
        received = self.read_parts(graph)
        logits = networks.logits(graph, own.joint, inputs, received, self.about.width)
        return Emitted(self._predictions(graph, own, logits, inputs), received, encoded, 1 + (self._train.outputs > 1))

    def _rows(self, table: Table) -> tuple[ModelInput, SplitNetworks]:
        """All rows of a table, and the networks that read them."""
        inputs = self._inputs(table)
        return inputs.take(np.arange(len(table))), self._open(inputs.schema)

    def _open(self, schema: InputSchema) -> SplitNetworks:
        """The networks, which read rows of this ``schema``; they are built once."""
        if self._networks is None:
            self._networks = self._build(schema)
        return self._networks

    def _build(self, schema: InputSchema) -> SplitNetworks:
        kind, train, weights = self._architecture, self._train, self._weights
        if not self.about.predicts:
            return SplitNetworks(bottom=load_weights(build_bottom(kind, train, schema, train.bottom), "bottom", weights, CPU))
        received, local = [self.about.width] * len(self.about.others), None
        joint = load_weights(build_classifier(kind, train, schema, received), "", weights, CPU)
        if train.missing.calibration != "none" and not schema.empty:
            local = load_weights(build_classifier(kind, train, schema, []), "local", weights, CPU)
        return SplitNetworks(joint=joint, local=local)

    def _inputs(self, table: Table) -> PositionedInput:
        images, features = self._architecture.reads_images(), self._encoder.transform(table)
        return PositionedInput.from_features(features, np.arange(len(table)), CPU, images=images)

    def _predictions(self, graph: Graph, own: SplitNetworks, logits: str, inputs: EncodedInputs) -> str:
        """double[n], or [n, K]: as :meth:`predicted`."""
        exact = graph.cast(logits, "double")
        if self._train.outputs > 1:
            return graph.apply("Softmax", exact, axis=1)
        flat, number = graph.keep([-1], np.int64), isinstance(self._task, ScaledTargets)
        seen = graph.apply("Reshape", exact if number else graph.apply("Sigmoid", exact), flat)
        seen = self._undo(graph, seen, lambda: self._base_rate(graph, own.local, inputs, flat))
        if isinstance(self._task, ScaledRates):
            seen = graph.apply("Exp", graph.apply("Clip", seen, graph.keep(-MOST_LOG), graph.keep(MOST_LOG)))
        if isinstance(self._task, ScaledTargets):
            scale = self._task.scale
            return graph.calculate("Add", graph.calculate("Mul", seen, scale.deviation), scale.mean)
        return graph.apply("Clip", seen, graph.keep(0.0), graph.keep(1.0))

    def _undo(self, graph: Graph, seen: str, base_rate: Any) -> str:
        """What is wanted of what the network says: calibrations are straight lines, but for the vote of neighbours."""
        calibration = self._calibration
        if isinstance(calibration, ShiftedAtTest) or type(calibration) is AtTest:
            mix, rate = calibration.composition, calibration.rate
            if rate == "vote":
                raise export_error("calibration: test with labels: neighbors is not exported", "train with another strategy")
            if not isinstance(rate, str):
                seen = graph.calculate("Div", graph.calculate("Sub", seen, mix.w01 * rate), mix.labelled)
            real = graph.apply("Sub", graph.calculate("Mul", seen, mix.labelled), graph.calculate("Mul", base_rate(), mix.w10))
            return graph.calculate("Div", real, mix.w11)
        if isinstance(calibration, Identity | AtTraining | AsPredicted | NumberShift):
            return seen
        raise export_error(f"a calibration {type(calibration).__name__} is not exported", "train without it")

    def _base_rate(self, graph: Graph, local: Classifier | None, inputs: EncodedInputs, flat: str) -> str:
        """q of each row, double[n] or a constant."""
        if local is None:
            return graph.keep(float(np.float32(self._task.rate)))
        found = graph.apply("Reshape", networks.logits(graph, local, inputs, [], self.about.width), flat)
        if not isinstance(self._task, ScaledTargets):
            margins = graph.keep(LOCAL_RATE_MARGIN, np.float32), graph.keep(1 - LOCAL_RATE_MARGIN, np.float32)
            found = graph.apply("Clip", graph.apply("Sigmoid", found), *margins)
        return graph.cast(found, "double")
