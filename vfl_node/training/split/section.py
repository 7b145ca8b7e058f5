"""What split training alone reports: ``training.split``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal

from pydantic import Field, JsonValue
from typing_extensions import override

from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.job.parties import Parties
from vfl_node.job.unaligned import Unaligned
from vfl_node.privacy.defences.idle import effective, outgoing_direction
from vfl_node.privacy.labels.words import WORDS
from vfl_node.settings.defences import read_params
from vfl_node.training.network.section import EarlyStopping
from vfl_node.training.section import Attacks, Count, MetricValues, Section, Share, TrainerSection
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.words import (
    Attacked,
    Code,
    Figure,
    MetricColumn,
    MetricsByParty,
    ReportedTraining,
    Term,
    TrainingWords,
    several,
)

CALIBRATIONS = {
    "none": "made-up labels and columns shift the probabilities",
    "train": "in the loss, so that probabilities are as if all rows were real",
    "test": "of the probabilities, after training",
}
"""Strategy of the job → what it does, in words."""


RowAttacks = dict[str, Share | None]
"""Attack → its largest figure; null where it is not defined."""


SHOWN = 10
"""Single columns on the page, those of the largest figures; the report for programs has all."""


class Strategies(Section):
    """How rows were filled in that are not real at both parties."""

    labels: str | None = Field(description="for a label that the active party lacks; null where it lacks none")
    features: str | None = Field(description="for columns that a party lacks; null where none are lacking")
    calibration: Literal["none", "train", "test"] = Field(description="whether and when probabilities were corrected for it")

    def terms(self, missing: Missing) -> tuple[Term, ...]:
        """Each strategy that was needed, and what it does; ``missing`` is the job's section with their keys."""
        needed = []
        if self.labels:
            needed.append(Term("Missing labels", ((Code(self.labels), f": {missing.label_strategy.words()}"),)))
        if self.features:
            needed.append(Term("Missing columns", ((Code(self.features), f": {missing.feature_strategy.words()}"),)))
        if needed:
            needed.append(Term("Calibration", ((Code(self.calibration), f": {CALIBRATIONS[self.calibration]}"),)))
        return tuple(needed)


def strategies_used(missing: Missing, lacks: Mapping[str, int | None], parties: Parties) -> Strategies:
    """Which strategies an alignment needed; of rows that it hides there may be some. ``lacks`` as :func:`count_lacking`."""
    return Strategies(
        labels=None if lacks[parties.active] == 0 else missing.labels,
        features=None if all(rows == 0 for rows in lacks.values()) else missing.features,
        calibration=missing.calibration,
    )


class HeldOut(Section):
    """This party's own attacks on rows that are all embedded by the same weights."""

    attacks: Attacks
    judged: dict[str, Count] = Field(description="attack → number of rows behind its AUC")


class MatchedMetrics(MetricValues):
    """The federated model on the held-out rows that both parties own; null throughout where they are too few to count."""

    rows: Count | None

    def column(self, run: ReportedTraining) -> MetricColumn:
        """Beside the metrics on all rows that the active party owns."""
        if self.rows is None:
            note = "Rows of both: too few to be counted without telling of single ones."
        else:
            note = (
                f"Rows of both: {self.rows:,} held-out rows that {run.passive} owns too, so that the columns are real on both "
                f"sides{'; first repeat' if run.repeats > 1 else ''}. They are counted under encryption in groups of rows of "
                "like scores; while both parties follow the protocol neither learns which rows they are."
            )
        return MetricColumn("Federated, rows of both", self.model_dump(exclude={"rows"}), note)


class Drop(Section):
    """How much worse a metric is where one party's part of the rows is permuted; below 0: better."""

    mean: float = Field(description="over the permutations")
    sd: float = Field(ge=0, description="standard deviation over the permutations")

    @classmethod
    def from_values(cls, values: Sequence[float | None]) -> Drop | None:
        """Mean and deviation of the drop in each permutation; None where it is not defined in one."""
        defined = [value for value in values if value is not None]
        return cls(mean=fmean(defined), sd=stdev(defined)) if len(defined) == len(values) else None


Contributions = dict[str, dict[str, Drop | None]]
"""Party → metric → what its columns are worth."""


def contributions_of(drops: Mapping[str, Mapping[str, Sequence[float | None]]] | None) -> Contributions | None:
    """The section for the drops in each permutation; None where they were not measured."""
    if drops is None:
        return None
    return {party: {name: Drop.from_values(values) for name, values in metrics.items()} for party, metrics in drops.items()}


class LabelPrivacy(Section):
    """What a row's gradients tell of its label at most: (ε, δ).

    Of ``randomised-labels`` that is all of what is trained with the label, in every job; of ``dp``, if it is the only defence,
    all gradients of the row in this training: of a sweep in the trial that was chosen.
    """

    epsilon: float | None = Field(description="ε; null where it is so large that it says nothing")
    delta: float = Field(description="δ")
    releases: Count = Field(
        description="of dp: gradients of each row, epochs × repeats × passive parties; of randomised-labels: 1, the answer"
    )
    epsilon_together: float | None = Field(
        default=None,
        description="with what a partner got in other trials of the job and in earlier jobs. Of randomised-labels: of all "
        "answers about the same labels, with another ε or on other terms; of dp: of all gradients of a row in jobs with dp "
        "over this table. Jobs without a bound "
        "are not in it. null where it is so large that it says nothing",
    )


class UnalignedRows(Section):
    """What the active party did with its rows outside of the alignment."""

    method: str = Field(description="how their embeddings were filled in")
    rows: Count = Field(description="rows outside of the alignment that were learnt from")
    steps_federated: Count = Field(description="batches of aligned rows, first repeat")
    steps_local: Count = Field(description="batches of rows outside, first repeat; none of them sends anything")
    generated: Count = Field(description="embeddings that the method made up, first repeat")
    seconds: float = Field(ge=0, description="that filling in and local batches took, first repeat")
    figures: dict[str, float] = Field(description="what the method says of its filling, by name")

    def term(self, unaligned: Unaligned) -> Term:
        """In words; ``unaligned`` is the job's section."""
        said = (Code(self.method), f": {unaligned.outcome_text(self.rows, self.steps_local, self.steps_federated)}")
        return Term("Rows outside of the alignment", (said,))


class SplitSection(TrainerSection):
    """What only split training has."""

    strategies: Strategies
    held_out: HeldOut | None = Field(
        description="the attacks on the embeddings of the rows held out in the first repeat, and of validation rows by the "
        "same weights; null where this party sent none"
    )
    defences: tuple[dict[str, JsonValue], ...] = Field(
        default=(), description="this party's own defences, in their order: name and parameters"
    )
    label_privacy: LabelPrivacy | None = Field(
        default=None,
        description="of the active party's defence randomised-labels; else of dp, where it is the only defence of gradients; "
        "null without either",
    )
    defence_seconds_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="of the seconds of the first repeat's epochs, the share in which this party's defences moved its bottom; "
        "null without such",
    )
    matched_metrics: MatchedMetrics | None = Field(
        description="over the held-out rows that both own, counted under encryption, first repeat; null where the job does not "
        "ask, and at the passive party"
    )

    early_stopping: EarlyStopping | None = Field(default=None, description="null without evaluate.validation_fraction")
    contributions: Contributions | None = Field(
        default=None,
        description="party → metric → how much worse it is with the party's part of the held-out rows permuted, first repeat; "
        "null without evaluate.contributions, and at passive parties",
    )
    column_contributions: Contributions | None = Field(
        default=None,
        description="the active party's own column → metric → the same with this column alone permuted, on 2,048 held-out rows "
        "of its own, drawn with replacement; null likewise, and of images",
    )
    column_movements: dict[str, float] | None = Field(
        default=None,
        description="a passive party's own column → how far embeddings move if its cells belong to other rows, as a share of "
        "how far they lie from their mean. Movement, not importance. null without evaluate.contributions, and of images",
    )
    unaligned: UnalignedRows | None = Field(
        default=None, description="null without a method in train.unaligned, and at passive parties"
    )
    row_weight_audit: RowAttacks | None = Field(
        default=None,
        description="the largest figure of each attack on weights of rows (data.weight), in all repeats: of two rows that "
        "differ how often the larger one is told, folded; empty where nothing is judged, null without weights or audit.labels",
    )
    row_offset_audit: RowAttacks | None = Field(
        default=None, description="the same of offsets and exposures of rows (data.offset, data.exposure)"
    )

    @property
    @override
    def counts_matched_rows(self) -> bool:
        return self.matched_metrics is not None

    def words(self, run: ReportedTraining) -> TrainingWords:
        """What stands in for missing rows, what this party did against attacks, and what it attacks itself."""
        assert isinstance(run.train, Train)
        repeats = f" × {run.repeats} repeats" if run.repeats > 1 else ""
        return TrainingWords(
            figures=(Figure(run.epochs, several(run.epochs, run.train.traits.unit) + repeats), Figure(run.steps, "batches")),
            remarks=(*self._defence_remarks(run), *self._row_column_remarks(run), *self._movement_remarks(run)),
            columns=(self.matched_metrics.column(run),) if self.matched_metrics else (),
            terms=(
                *self.strategies.terms(run.train.missing),
                *((self.early_stopping.term(run.train),) if self.early_stopping else ()),
                *((self.unaligned.term(run.train.unaligned),) if self.unaligned else ()),
            ),
            attacked=self._describe_attacked(run.role),
            by_party=self._metrics_by_party(run),
        )

    def _metrics_by_party(self, run: ReportedTraining) -> MetricsByParty | None:
        if self.contributions is None:
            return None
        drops = {party: _plain(by_metric) for party, by_metric in self.contributions.items()}
        single = ""
        if self.column_contributions:
            first = next(iter(next(iter(self.column_contributions.values()))))
            best = sorted(self.column_contributions.items(), key=lambda column: -_mean(column[1][first]))[:SHOWN]
            drops |= {f"{run.party}: {name}": _plain(by_metric) for name, by_metric in best}
            single = f" Below are single columns of {run.party}, those that help most."
        return MetricsByParty(
            "Which party's columns help",
            drops,
            "How much worse the federated model is on the held-out rows if the columns of one party belong to other rows. "
            "Above 0 they help; ± is the standard deviation over random permutations. Where columns of two parties say the "
            f"same, both figures are small.{single}{' First repeat.' if run.repeats > 1 else ''}",
        )

    def _defence_remarks(self, run: ReportedTraining) -> tuple[str, ...]:
        sent = outgoing_direction(run.role)
        at_work = [entry for entry in self.defences if effective([read_params(entry, context=LASTING_NAMES)], sent)]
        if not at_work:
            return ()
        keys = [{name: value for name, value in entry.items() if name != "name" and value is not None} for entry in at_work]
        each = (
            f"{entry['name']} ({', '.join(f'{name} {_value(value)}' for name, value in own.items())})"
            for entry, own in zip(at_work, keys, strict=True)
        )
        took = ""
        if self.defence_seconds_share is not None:
            took = f" To move the bottom took {self.defence_seconds_share:.0%} of the time of training."
        return (f"{run.party} changed what it sent by {', then '.join(each)}, without telling {run.peer}.{took}",)

    def _row_column_remarks(self, run: ReportedTraining) -> Iterator[str]:
        """What attacks on weights and offsets of rows found."""
        for what, audit in (("weights", self.row_weight_audit), ("offsets", self.row_offset_audit)):
            known = {name: value for name, value in (audit or {}).items() if value is not None}
            if known:
                name = max(known, key=known.__getitem__)
                yield (
                    f"{run.party} attacked its own {what} of rows with what {run.peer} got. Of two rows that differ the "
                    f"attack “{WORDS[name][0]}” tells the larger one {known[name]:.0%} of the time; guessing does it half "
                    "of the time."
                )
            elif audit is not None:
                yield f"No attack judged the {what} of {run.party}'s rows: too few of them were trained on."

    def _movement_remarks(self, run: ReportedTraining) -> Iterator[str]:
        """Which of a passive party's columns move its embeddings most."""
        if self.column_movements:
            most = sorted(self.column_movements.items(), key=lambda column: -column[1])[:SHOWN]
            each = ", ".join(f"{name} {moved:.2f}" for name, moved in most)
            yield (
                f"How far {run.party}'s embeddings move if the cells of one column belong to other rows, as a share of how far "
                f"they lie from their mean: {each}. This is movement, not importance: only {run.active} can say what helps."
            )

    def _describe_attacked(self, role: str) -> Attacked:
        if role == "active":
            return Attacked("gradients", "a gradient for every row, also where the label is made up")
        return Attacked(
            "embeddings",
            "an embedding of every row, also where the columns are made up",
            "The rows held out are all embedded by the same weights; of these, judged before they were sent",
            self.held_out.attacks if self.held_out else {},
            self.held_out.judged if self.held_out else {},
        )


def _plain(by_metric: Mapping[str, Drop | None]) -> dict[str, tuple[float, float] | None]:
    """Mean and deviation of each metric's drop."""
    return {name: None if drop is None else (drop.mean, drop.sd) for name, drop in by_metric.items()}


def _mean(drop: Drop | None) -> float:
    return drop.mean if drop else float("-inf")


def _value(value: JsonValue) -> str:
    """One value of a node's settings as a sentence has it."""
    return " and ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
