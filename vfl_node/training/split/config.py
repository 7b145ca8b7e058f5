"""The job's ``train`` section for split training (see docs/explanations/training/split.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import override

from vfl_node.configuration.models import ReadBy
from vfl_node.job.names import JobId
from vfl_node.job.training import TrainerParts, TrainingJob, Traits
from vfl_node.job.unaligned import Unaligned, unaligned_of
from vfl_node.models import architecture_of
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.roles import NUMBER_TASKS
from vfl_node.settings.table import ROW_NUMBERS
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.split.missing.section import Missing, hidden_intersection_words, missing_of
from vfl_node.training.split.missing.strategies import LABELS
from vfl_node.training.unaligned.specs import NoUnaligned

SERVED_FEATURES = "smoothed"
"""``train.missing.features`` of a job with ``serve`` that says nothing of it: ``sampling`` elsewhere.

All predictions meet the same weights, under which a copied row is equal to its source. Predictions cannot use
another strategy than training did: a row that changes where real ones stay is told by that (docs/guides/give-predictions.md).
"""


REGRESSION_LABELS = "sampling"
"""``train.missing.labels`` of a regression that says nothing of it. By a label that is the same for all synthetic rows, and for
hardly any real one, the passive party could tell them (docs/explanations/training/split.md)."""


EXPORTED_MODELS = ("mlp", "wide_deep")
"""``train.model`` of halves that can be written to files (:mod:`vfl_node.halves.networks`)."""


class Train(NetworkConfig):
    """A split network and how it is trained. Sizes are layer widths; the last bottom width is the cut layer."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.split.trainer:SplitTrainer",
        report_section="vfl_node.training.split.section:SplitSection",
        plan="vfl_node.training.split.costs:SplitPlan",
        table="vfl_node.training.split.table_use:SplitTableUse",
        serving="vfl_node.training.split.prediction.predictor:SplitPredictor",
        joined="vfl_node.training.split.prediction.kept:predict",
        exported="vfl_node.training.split.exported:SplitHalf",
        embedded="vfl_node.training.split.prediction.kept:KeptEmbeddings",
        estimated="vfl_node.training.split.joint_estimate:estimate",
        reveals="vfl_node.training.split.reveals:declare",
        serving_reveals="vfl_node.training.prediction.reveals:declare_embeddings",
    )
    traits: ClassVar[Traits] = Traits(
        tasks=("classification", "regression", "poisson"),
        max_passive_parties=8,
        synthetic_rows=True,
        measures=frozenset({"validation_fraction", "hold_out", "matched", "contributions"}),
        defended=frozenset({"embeddings", "gradients"}),
        recorded=True,
        sweeps=True,
        row_numbers=frozenset(ROW_NUMBERS),
        unmetered="",
    )

    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **NetworkConfig.called_elsewhere,
        "missing": ("imputation", "synthetic"),
    }

    algorithm: Literal["split"] = "split"
    missing: Annotated[Missing, ReadBy(missing_of)] = Missing()
    unaligned: Annotated[Unaligned, ReadBy(unaligned_of)] = NoUnaligned()
    start_from: JobId | None = Field(
        default=None, description="id of the job of align.reuse: training goes on from the model of it, of the same widths"
    )

    @model_serializer(mode="wrap")
    def _serialise(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a ``start_from`` that is not said, so that jobs from before there was the key are the same."""
        fields: dict[str, Any] = written(self)
        if self.start_from is None:
            fields.pop("start_from", None)
        return fields

    @model_validator(mode="after")
    def _check_calibration(self) -> Train:
        if self.task == "poisson" and (self.missing.calibration != "none" or self.unaligned.fills):
            key = "missing.calibration" if self.missing.calibration != "none" else "unaligned"
            raise ValueError(f"{key} is not for task: poisson: leave it out")
        if self.classes > 2 and self.missing.calibration != "none":
            raise ValueError("missing.calibration is for two classes: set it to none")
        if self.class_weight is not None and self.missing.calibration != "none":
            raise ValueError(
                "class_weight shifts the model's probabilities, and missing.calibration computes with them as shares of rows: "
                "leave one out. To predict a rare class more often, evaluate.threshold shifts nothing"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _set_regression_labels(cls, section: Any) -> Any:
        """A regression has labels of :data:`REGRESSION_LABELS` unless it says otherwise."""
        if not isinstance(section, Mapping) or section.get("task") not in NUMBER_TASKS:
            return section
        missing = section.get("missing", {})
        named = not isinstance(missing, Mapping) or "labels" in missing
        return section if named else {**section, "missing": {**missing, "labels": REGRESSION_LABELS}}

    @model_validator(mode="after")
    def _check_label_strategy(self) -> Train:
        strategy = self.missing.label_strategy
        if self.task not in strategy.tasks:
            usable = [name for name, other in LABELS.usable() if self.task in other.tasks and other.fills]
            choose = " or ".join(filter(None, (", ".join(usable[:-1]), usable[-1])))
            makes = "classes" if "classification" in strategy.tasks else "numbers"
            raise ValueError(
                f"missing.labels: {self.missing.labels} makes up {makes}, and this is a {self.task}: choose {choose}"
            )
        return self

    @property
    def exchanged_before(self) -> int:
        """As the base: those of ``unaligned``."""
        return self.unaligned.epochs_before if self.unaligned.exchanges != "nothing" else 0

    @classmethod
    def complete(cls, section: Mapping[str, Any], job: Mapping[str, Any]) -> Mapping[str, Any]:
        """A job that serves has rows of :data:`SERVED_FEATURES` unless it says otherwise."""
        missing = section.get("missing", {})
        if not job.get("serve") or not isinstance(missing, Mapping) or "features" in missing:
            return section
        return {**section, "missing": {**missing, "features": SERVED_FEATURES}}

    def check(self, job: TrainingJob) -> None:
        """As the base: strategies for missing rows, calibration and matched metrics must suit the alignment."""
        super().check(job)
        if self.start_from and self.start_from != job.align.reuse:
            raise ValueError(
                f"train.start_from goes on from a model over the same rows: say align.reuse: {self.start_from}, too, so that "
                "the rows that were held out stay held out"
            )
        if self.start_from and (job.evaluate.repeats > 1 or job.evaluate.hold_out):
            told = (
                "evaluate.repeats: each holds out other rows"
                if job.evaluate.repeats > 1
                else ("evaluate.hold_out: which rows are the last may have changed since")
            )
            raise ValueError(
                f"train.start_from goes on from a model that has learnt all rows but those held out then. So leave out {told}"
            )
        missing, protocol, spec = self.missing, job.align.protocol, job.align.spec
        labels_fill, features_fill = missing.label_strategy.fills, missing.feature_strategy.fills
        active_lacks = "active" in spec.synthetic_rows_at
        if "passive" in spec.synthetic_rows_at and not (features_fill and (labels_fill or not active_lacks)):
            raise ValueError(
                f"{protocol} trains on {spec.shared_rows}: train.missing.labels and train.missing.features must say "
                "how synthetic labels and rows are made for rows that a party does not own (majority, sampling)"
            )
        if active_lacks and not labels_fill:
            raise ValueError(
                f"{protocol} trains on {spec.shared_rows}, and the active party has no labels for the rows that are not its "
                "own: train.missing.labels must say how synthetic labels are made (majority)"
            )
        hidden = hidden_intersection_words(job)
        if missing.shares and not job.align.dummies:
            raise ValueError(
                "train.missing.shares is for align.dummies: without them both parties know how many rows are whose"
            )
        if missing.calibration != "none" and hidden and not missing.shares:
            way_out = ", or state train.missing.shares" if job.align.dummies else ""
            raise ValueError(f"train.missing.calibration needs the size of the intersection, {hidden}: set it to none{way_out}")
        if len(job.parties.passive) > 1 and missing.calibration != "none" and missing.calibration_for != "labels":
            raise ValueError(
                "with several passive parties train.missing.calibration can correct for synthetic labels only: a row may be "
                "real at some of them, and how often its label is positive then does not follow from the numbers of rows. Set "
                "train.missing.calibration_for: labels, or train.missing.calibration: none"
            )
        if job.evaluate.matched:
            self._check_matched(job)
        self.unaligned.check(job, self.epochs)

    def _check_matched(self, job: TrainingJob) -> None:
        """Refuse matched metrics where there is nothing to match, or they would tell too much."""
        if not job.align.spec.can_count_matched_rows:
            raise ValueError(
                "evaluate.matched is for split training over psu: with psi every row is matched, and apsi keeps from the "
                "passive party which are"
            )
        if len(job.parties.passive) > 1:
            raise ValueError(
                "evaluate.matched counts rows under one passive party's key, and no key is for rows that several of them own: "
                "leave it out"
            )
        if self.classes > 2:
            raise ValueError("evaluate.matched is for two classes")
        if job.align.dummies:
            raise ValueError("evaluate.matched counts shared rows, and align.dummies hide how many there are: leave one out")

    def check_export(self) -> None:
        """As the base: a network of dense layers, and no calibration by a vote of neighbours."""
        super().check_export()
        if self.model not in EXPORTED_MODELS:
            raise ValueError(
                f"export: a half of train.model: {self.model} cannot be exported: say {' or '.join(EXPORTED_MODELS)}, or leave "
                "export out"
            )
        if self.missing.calibration == "test" and not self.missing.label_strategy.exported:
            raise ValueError(
                f"export: a half with missing.calibration: test and missing.labels: {self.missing.labels} cannot be exported: "
                "say another strategy for labels, or leave export out"
            )

    def check_here(self, models: Mapping[str, str]) -> None:
        """As the base: the job's model must be registered, or one that this node has declared; every attack must load.

        The audit runs all attacks, and would otherwise fail after the alignment.
        """
        super().check_here(models)
        architecture_of(self.model, models)
        for error in ATTACKS.unusable():
            raise error

    @property
    @override
    def learns_unaligned_by(self) -> str:
        return self.unaligned.method
