"""The job's ``train`` section for logistic regression under encryption (see docs/guides/train-a-logistic-regression.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from vfl_node.job.names import ColumnTransform
from vfl_node.training.class_weight import ClassWeight, check_class_weight
from vfl_node.training.glm.config import GeneralisedLinear


class Logistic(GeneralisedLinear):
    """Logistic regression under encryption, with dummies (see docs/guides/train-a-logistic-regression.md)."""

    ways: ClassVar[tuple[Mapping[str, Any], ...]] = tuple(
        {**way, "loss": "taylor"} if way.get("flow") == "coordinator" else way for way in GeneralisedLinear.ways
    )
    title: ClassVar[str] = "logistic regression"

    algorithm: Literal["logistic"]
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, one model for each class")
    loss: Literal["exact", "taylor"] = Field(default="exact", description="logistic loss, or its second-order polynomial at 0")
    transform: ColumnTransform = Field(
        default="none",
        description="woe: each party replaces each column by the weights of evidence of its bins, which an earlier job with "
        "statistics has counted over the alignment that is used again (align.reuse)",
    )
    class_weight: ClassWeight = None

    @property
    @override
    def reads_evidence(self) -> bool:
        return self.transform == "woe"

    @property
    def objective(self) -> str:
        """As the job says."""
        return self.loss

    @property
    def weights(self) -> str | tuple[float, ...] | None:
        """As the job says."""
        return self.class_weight

    @model_validator(mode="after")
    def _possible(self) -> Logistic:
        if self.flow == "coordinator" and self.loss == "exact":
            raise ValueError(
                "flow: coordinator computes residuals under encryption, where the exact loss's sigmoid cannot be computed: "
                "say loss: taylor, or flow: coordinator-open-scores, in which the active party sees scores"
            )
        check_class_weight(self.class_weight, self.classes)
        if self.class_weight is not None and self.flow == "coordinator":
            raise ValueError(
                "class_weight needs flow: two-party or coordinator-open-scores: in flow: coordinator residuals are computed "
                "under encryption, where the rows that count are told apart by the factors 0 and 1 alone"
            )
        if self.classes > 2 and self.labels == "passive":
            raise ValueError("labels: passive is for two classes")
        if self.classes > 2 and self.mask == "multiplicative":
            raise ValueError(
                "mask: multiplicative is for two classes: with more their residuals share a ciphertext, and one factor would "
                "show the ratios of their gradients"
            )
        if self.classes > 2 and self.flow == "coordinator" and self.tolerance > 0:
            raise ValueError("tolerance must be 0 with flow: coordinator and several classes: their losses are not computed")
        return self
