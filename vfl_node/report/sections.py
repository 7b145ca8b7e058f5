"""The parts of ``report.json``: what one party keeps of a job, as models that *are* the format.

Keys are stable, unknown ones are refused, and no value is NaN or infinite. docs/reference/report.md explains each key.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, create_model

from vfl_node.configuration.models import Frozen, ReadBy, name_in
from vfl_node.configuration.registry import load
from vfl_node.job import Name
from vfl_node.job.training import TRAINERS
from vfl_node.report.columns import ColumnAudit, ColumnFigures
from vfl_node.training.section import Attacks, Count, JointAttack, MetricValues, Section, Share, TrainerSection


class JobRun(Section):
    """Which job this was."""

    id: str = Field(description="id of this run: the job's name and a random part")
    name: Name
    manifest_digest: str = Field(description="SHA-256 of spec in canonical JSON, hexadecimal")
    spec: dict[str, JsonValue] = Field(description="the job as all parties agreed on it, defaults included")


class RowsMerged(Section):
    """How the rows of this party's table became its records (``data.aggregate`` of its settings)."""

    rows: Count = Field(description="of the table")
    records: Count = Field(description="that they became")
    fewest: Count = Field(description="rows of one record")
    most: Count = Field(description="likewise")
    median: float = Field(description="likewise")
    dropped: Count = Field(description="rows of later days than as_of, which were not read")
    as_of: str | None = Field(description="that day; null: all rows were read")


class AlignmentSizes(Section):
    """What the alignment found, in numbers of records."""

    protocol: str = Field(description="its name in a job's align.protocol")
    group: str
    records: Count = Field(description="number of records in this party's table")
    merged: RowsMerged | None = Field(
        default=None, description="how the rows of its table became these records; null: each row is one"
    )
    ours: Count = Field(description="this party's records that took part; not all if align.at_most applies")
    theirs: Count | dict[Name, Count | None] = Field(
        description="the peer's records, as announced; with several other parties that have data, party → number, or null "
        "if it is hidden from this party"
    )
    padded: bool | dict[Name, bool] = Field(
        description="whether the peer rounds its number up, so that theirs is an upper bound; likewise"
    )
    rows: Count = Field(description="length of the shared order, including rows that belong to no record")
    union: Count | None = Field(description="null if it is hidden by the protocol, padding or dummies")
    intersection: Count | None = Field(description="records that all these parties have; null if it is hidden from this party")
    candidates: Count | None = Field(default=None, description="linkage: how many records of the passive party each row gets")
    without_candidate: Count | None = Field(default=None, description="linkage: rows without any candidate")
    bits: Count | None = Field(default=None, description="linkage: of the filter of a record")
    comparison: str | None = Field(default=None, description="linkage: filters, compared by the coordinator, or shares")
    sigma: float | None = Field(default=None, ge=0, description="linkage: standard deviation of the noise on similarities")
    tau: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="linkage: share of filters that the greedy attack guesses from one similarity; null if equal_only",
    )
    tau_min: float | None = Field(
        default=None, ge=0, le=1, description="linkage: what no noise gets tau below, with these filters; likewise"
    )
    tau_means: str | None = Field(default=None, description="linkage: what tau says, and what it does not; likewise")
    expected_disclosed: float | None = Field(
        default=None, ge=0, description="linkage: tau times the passive party's records; likewise"
    )
    reuse: Count | None = Field(
        default=None,
        description="linkage: of how many different records of the active party one of this party's is a candidate at most; "
        "null at the active party",
    )
    reused: str | None = Field(default=None, description="job whose alignment was used again (align.reuse); null: none")
    warnings: tuple[str, ...] = Field(
        default=(),
        description="whole sentences for this party's owner: that so few records are shared that ids may not meet; after a "
        "linkage how exactly the other party can locate this party's records",
    )
    seconds: float = Field(ge=0, description="wall time, including waiting for the peer")
    bytes_sent: Count
    bytes_received: Count


class EpochFigures(Section):
    """One epoch of the first repeat, or one iteration of a logistic regression."""

    loss: float | None = Field(
        description="mean over the epoch's rows, with synthetic labels taken as true (for a logistic regression over those "
        "rows that the active party owns); in a regression the squared error of the target in standard deviations; null if not "
        "known to this party"
    )
    auc: float | None = Field(
        description="of the federated model on the training rows that the active party owns, each scored when it was trained "
        "on; null if not in evaluate.metrics, not defined or not known to this party"
    )
    seconds: float = Field(ge=0)
    bytes: Count = Field(description="sent and received")
    attacks: Attacks = Field(description="on what this party sent in the epoch")
    judged: dict[str, Count] = Field(description="attack → number of rows behind its AUC")
    validation_loss: float | None = Field(
        default=None,
        description="of the federated model after the epoch on the validation rows that the active party owns: NLL, with the "
        "class weights of the job; in a regression as loss. Null without such rows, or if not known to this party",
    )
    validation_auc: float | None = Field(
        default=None, description="AUC on the same rows; null too if not in evaluate.metrics or not defined"
    )
    rebuilt: dict[str, dict[str, float | None]] = Field(
        default={},
        description="column of this party → attack of its own feature audit, or constant → success; empty without one",
    )
    labels: Attacks = Field(
        default={},
        description="attack on this party's labels → AUC, folded (.5 is chance), with what a passive party has after the "
        "epoch; null: not defined. Empty at a party without labels of two classes",
    )
    defence_seconds: float = Field(
        default=0, ge=0, description="of the seconds, those in which this party's defences moved its bottom; 0 without such"
    )
    defences: tuple[dict[str, float], ...] = Field(
        default=(),
        description="what each of this party's defences says of the epoch, in their order: tau1 and tau2, the means of the "
        "weights of fbs; empty without defences",
    )


class TrainingRows(Section):
    """Shared rows of each repeat, whoever owns them."""

    training: Count = Field(description="trained on")
    validation: Count = Field(description="measured on after each epoch, to stop in time; not trained on")
    test: Count = Field(description="measured on at the end; those trained on where none are held out")


class TrialFigures(Section):
    """One trial of a sweep."""

    setting: dict[str, JsonValue] = Field(description="key of train → what this trial said")
    epochs: Count = Field(description="that were trained")
    best: Count = Field(description="the epoch whose weights counted, from 1")
    loss: float | None = Field(default=None, description="of the validation rows; null at a party that does not know it")
    auc: float | None = Field(default=None, description="likewise")
    chosen: bool


class CommonFigures(Section):
    """How training went, whatever was trained; what one trainer alone has stands under its name."""

    algorithm: str
    epochs: tuple[EpochFigures, ...]
    rows: TrainingRows | None = Field(default=None, description="null at the coordinator")
    steps: Count = Field(description="batches trained on, all repeats together")
    repeats: int = Field(ge=1, description="independent splits, each trained from new weights")
    split_digest: str | None = Field(
        default=None,
        description="names the seed by which rows were held out, and does not tell it. Jobs over one alignment with the same "
        "one held out the same rows, if evaluate says the same. null where rows were held out otherwise",
    )
    classes: tuple[str, ...] | None = Field(
        default=None,
        description="names of the classes of labels, in their order: of two the last is the positive one. null where the table "
        "has their numbers, and at a party without labels",
    )
    device: str
    audit: Attacks = Field(
        description="moving averages over epochs, at the end of the last repeat; twins are those of all repeats together"
    )
    max_attack_auc: float | None = Field(description="the limit in this party's settings, if there is one")
    joint: JointAttack | None = Field(
        default=None,
        description="the joint attack on this party's synthetic rows; null where there are none, or it did not run",
    )
    feature_audit: dict[str, ColumnAudit] | None = Field(
        default=None,
        description="column of this party → how well its own attacks rebuilt it from what it sent; null where none ran",
    )
    max_feature_gain: float | None = Field(default=None, description="the limit in this party's settings, if there is one")
    label_audit: Attacks = Field(
        default={},
        description="the largest figure of each attack that ran on this party's labels, in all repeats: AUC, folded; of more "
        "than two classes the mean over them, of numbers how often the larger of two is told",
    )
    max_label_auc: float | None = Field(default=None, description="the limit in this party's settings, if there is one")
    columns: tuple[ColumnFigures, ...] = Field(
        default=(), description="this party's own columns, in the order of its table; empty at a coordinator"
    )
    warnings: tuple[str, ...] = Field(default=(), description="whole sentences for this party's owner")
    trials: tuple[TrialFigures, ...] = Field(
        default=(), description="of a sweep, in their order; all else is of the chosen one, and of all in label_audit"
    )

    @property
    def section(self) -> TrainerSection:
        """What the trainer alone has."""
        section: TrainerSection = getattr(self, self.algorithm)
        return section


@cache
def figures_of(algorithm: str) -> type[CommonFigures]:
    """The model of ``training`` for one trainer: the common figures, and its own section under the first name that it had.

    Raises:
        UsageError: the package of the trainer or of its section cannot be loaded (``E_EXTENSION``).
    """
    section = load(TRAINERS[algorithm].parts.report_section, what=f"report of trainer {algorithm!r}")
    name = TRAINERS.lasting(algorithm)
    fields: dict[str, Any] = {"algorithm": (Literal[name], ...), name: (section, ...)}
    return create_model(f"{name.capitalize()}Figures", __base__=CommonFigures, __doc__=CommonFigures.__doc__, **fields)


class _TrainedBy(Frozen, extra="ignore"):
    algorithm: Annotated[str, name_in(TRAINERS)]


def _figures_for(training: Any) -> type[CommonFigures]:
    return figures_of(_TrainedBy.model_validate(training, from_attributes=True).algorithm)


TrainingFigures = Annotated[CommonFigures, ReadBy(_figures_for)]
"""``training`` of a report, by the model of its trainer."""


class Interval(Section):
    """A metric with its 95 % confidence interval, which never leaves the metric's range."""

    mean: float = Field(description="over repeats; of a single one the value itself")
    sd: float = Field(ge=0, description="over repeats; of a single one the standard error")
    low: float
    high: float
    repeats: int = Field(ge=1)
    method: Literal["repeats", "delong", "bootstrap", "noised"] = Field(
        description="repeats: over several splits, corrected for their overlap; of a single split over its rows, by DeLong's "
        "variance (AUC) or a bootstrap; noised: of hidden training, over the rows and the noise in what was opened"
    )


class ConfusionMatrix(Section):
    """How many rows of each class were predicted to be of each, in the first repeat."""

    threshold: Share | None = Field(
        description="probability from which on class 1 is predicted; null with more than two classes: the likeliest is"
    )
    counts: tuple[tuple[Count, ...], ...] = Field(description="by class (row), then by predicted class (column)")


class Metrics(MetricValues):
    """Metrics of a model; a metric is null if it was not asked for or is not defined."""

    model: str | None = Field(default=None, description="what the model is, in words; null for the federated one")
    trained_rows: Count | None = Field(
        default=None,
        description="own labelled rows that a model of the active party alone learnt from, first repeat; null for another",
    )
    rmse: float | None = Field(default=None, description="in the target's unit, as mae")
    mae: float | None = None
    r2: float | None = None
    mse: float | None = Field(default=None, description="in the square of the target's unit")
    deviance: float | None = Field(default=None, description="mean Poisson deviance (task: poisson)")
    d2: float | None = Field(default=None, description="share of the deviance of a constant rate that is explained; likewise")
    constant_nll: float | None = Field(
        default=None,
        description="NLL on the same rows of a model that always says how frequent each class is among the active party's "
        "labels trained on; mean over repeats; null if nll is, or not known to this party",
    )
    constant_rmse: float | None = Field(
        default=None,
        description="RMSE on the same rows of a model that always says the mean of the targets trained on; likewise",
    )
    constant_mse: float | None = Field(default=None, description="its MSE; likewise")
    constant_deviance: float | None = Field(
        default=None, description="deviance of a model that always says the rate of the targets trained on; likewise"
    )
    repeats: dict[str, tuple[float | None, ...]] | None = Field(
        description="metric → its value in each repeat; null at a party that is told the means only"
    )
    confusion: ConfusionMatrix | None = Field(description="null if not known to this party")
    rows: Count | None = Field(description="rows on which it was measured (first repeat); of hidden training with noise")
    population: str | None = Field(description="which shared rows: 'owned', those of the active party; 'common', those of all")
    real_share: Share | None = Field(
        description="share of the active party's shared rows with real passive features: intersection / those rows"
    )
    held_out: bool = Field(description="false if these rows were also trained on (test_fraction: 0)")
    intervals: dict[str, Interval] | None = Field(description="by metric; null if there are none, or not known to this party")
    calibration: tuple[tuple[Share, Share, Count], ...] = Field(
        description="(mean prediction, share of positives, rows) for groups of equal size, first repeat"
    )
    predicted_actual: tuple[tuple[float, float, Count], ...] = Field(
        default=(),
        description="in a regression (mean prediction, mean target, rows) for groups of equal size, first repeat, in the "
        "target's unit; else empty",
    )


class Predictions(Section):
    """Predictions with the model of an earlier job. For a service the counts are over all attempts."""

    model: str = Field(description="the job that trained the model")
    to: Name = Field(description="the party that asked, and got the predictions")
    rows: Literal["known", "new"] = Field(description="known: rows of the model's alignment; new: of an alignment of this job")
    requests: Count | None = Field(
        description="known: answered requests of this party; null at a party that does not ask, and for new rows"
    )
    batches: Count | None = Field(description="known: batches exchanged; null for new rows")
    told: Count | None = Field(
        description="known: different rows of the model that others have learnt about from this party, in all services of the "
        "model; null for new rows"
    )
    audit: Attacks = Field(description="known: on all rows of the model that this party has sent; empty for new rows")
    max_attack_auc: float | None = Field(description="the limit in this party's settings, if there is one")
    label_audit: Attacks = Field(
        default={},
        description="known: how well this party's labels are read from the predictions that others got; empty elsewhere, and "
        "where fewer than 100 rows of a class were asked for",
    )
    max_label_auc: float | None = Field(default=None, description="the limit in this party's settings, if there is one")
    warnings: tuple[str, ...] = Field(default=(), description="whole sentences for this party's owner")
    records: Count | None = Field(
        description="new: this party's records that were predicted; null at a party that does not ask, and for known rows"
    )


class LedgerEntry(Section):
    """One thing that a party learnt, as :class:`vfl_node.ledger.Disclosure`."""

    what: str = Field(description="a stable keyword")
    count: Count | None = Field(description="how many, or how large; null if this is hidden from the party of this report")
    text: str = Field(description="in plain words")


class PhaseTraffic(Section):
    """Traffic of one phase, as serialised frames."""

    bytes_sent: Count
    bytes_received: Count
    messages_sent: Count
    messages_received: Count
