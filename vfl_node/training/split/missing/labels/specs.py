"""Keys and words of the strategies for missing labels; light."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from typing_extensions import override

from vfl_node.roles import Task
from vfl_node.training.split.missing.strategies import LabelStrategy


class Majority(LabelStrategy):
    """The most frequent class."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:majority"
    redrawn: ClassVar[bool] = False

    @override
    def words(self) -> str:
        return "the more frequent class"

    @override
    def learnt(self, peer: str) -> str:
        return (
            f"a row whose label is not the synthetic class is surely a record that {peer} holds; which of the others {peer} "
            "lacks can be inferred for some"
        )


class MeanLabel(LabelStrategy):
    """The mean of the targets."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:mean"
    redrawn: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("regression",)

    @override
    def words(self) -> str:
        return "the mean of the targets"

    @override
    def learnt(self, peer: str) -> str:
        return (
            f"which records {peer} lacks can be inferred for most, by whoever can read targets from gradients: made-up targets "
            "are all the same, and hardly any real one is equal to them"
        )


class Minority(LabelStrategy):
    """The least frequent class."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:minority"
    redrawn: ClassVar[bool] = False

    @override
    def words(self) -> str:
        return "the rarer class"

    @override
    def learnt(self, peer: str) -> str:
        return (
            f"a row whose label is not the synthetic class is surely a record that {peer} holds; which of the others {peer} "
            "lacks can be inferred for some"
        )


class Neighbors(LabelStrategy):
    """The class, or the mean target, of the nearest rows of the batch whose label is real."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.neighbors:neighbors"
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    exported: ClassVar[bool] = False

    @override
    def words(self) -> str:
        return "the class, or mean target, of the nearest rows of the batch"

    @override
    def learnt(self, peer: str) -> str:
        return f"which records {peer} lacks can be inferred over epochs, for most: their labels change"


class NoLabels(LabelStrategy):
    """No synthetic labels: for an alignment whose rows the active party owns."""

    fills: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression", "poisson")

    @override
    def words(self) -> str:
        return "nothing"


class RandomPos(LabelStrategy):
    """A class as frequent as it is among the real labels."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:random_pos"
    fixed: ClassVar[bool] = True

    @override
    def words(self) -> str:
        return "a class drawn once for each row, as often as it is among the real labels"

    @override
    def learnt(self, peer: str) -> str:
        return f"which records {peer} lacks can be inferred for some: their labels fit worse"


class RandomPred(LabelStrategy):
    """A class drawn anew in each step, as the model itself predicts."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:PredictedLabels"

    draws: int = Field(default=1, ge=1, le=100, description="labels drawn for each row and step; their mean is used")

    @override
    def words(self) -> str:
        return "a class drawn anew in each step, as the model predicts" + f"; the mean of {self.draws} draws" * (self.draws > 1)

    @override
    def learnt(self, peer: str) -> str:
        if self.draws > 1:
            return f"which records {peer} lacks can be inferred for most: their gradients are short"
        return f"which records {peer} lacks can be inferred over epochs, for most: their labels change"


class SampledLabels(LabelStrategy):
    """A target drawn from the distribution of the real ones."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.made_up:sampled"
    fixed: ClassVar[bool] = True
    tasks: ClassVar[tuple[Task, ...]] = ("regression", "poisson")

    @override
    def words(self) -> str:
        return "a target drawn once for each row from the distribution of the real ones"

    @override
    def learnt(self, peer: str) -> str:
        return f"which records {peer} lacks can be inferred for some: their targets fit worse"
