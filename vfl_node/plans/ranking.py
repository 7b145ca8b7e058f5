"""What makes one way better than another, of those that the answers allow; and what an owner should know of a way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.plans.answers import Answers
from vfl_node.plans.combinations import Combination
from vfl_node.plans.meaning import list_told

ENOUGH_SHARED, ENOUGH_SHARED_HIDDEN = 1000, 2000
"""From how many shared records on a model with noise of ε = 1 is usually better than one of the active party alone, where all
know which records are shared, and where some do not (docs/explanations/training/hidden.md)."""

REGRESSION_LOSS = (
    "a regression loses much where rows and targets are made up: R² .425 ± .116 in place of .995 over psi on one table, "
    "and .540 ± .022 in place of .855 on another, in 8 draws each with half of the records shared "
    "(docs/experiments/regression-union.md)"
)

LATER = "By these answers it is as good; it stands later in the table of combinations."


@dataclass(frozen=True)
class Case:
    """A way in the light of the answers.

    Attributes:
        combination: of trainer and alignment.
        answers: what the owners said.
        job: of both.
        declared: what each party may learn by it at most.
    """

    combination: Combination
    answers: Answers
    job: Job
    declared: tuple[Declaration, ...]

    @property
    def off_by_default(self) -> bool:
        """Whether a node refuses the alignment until its owner names it."""
        return not self.combination.spec.allowed_by_default

    @property
    def learners(self) -> int:
        """How many parties learn which records are shared in a job that only counts them."""
        return 0 if self.job.train else len(list_told(self.declared, "shared"))

    @property
    def onlookers(self) -> int:
        """How many parties learn something of others' columns, about which there is no question."""
        return len(list_told(self.declared, "columns"))

    @property
    def enough_shared(self) -> int:
        """From how many shared records on noise takes little; 0 where there is none."""
        train, spec = self.job.train, self.combination.spec
        opens = train and train.opens(self.job.evaluate, self.answers.shared)
        if not opens or not opens.mu or opens.unbounded:
            return 0
        return ENOUGH_SHARED if spec.every_row_is_shared else ENOUGH_SHARED_HIDDEN

    @property
    def unbounded(self) -> str:
        """What kind of model it opens without a bound, as policies name it; empty: none."""
        train = self.job.train
        return train.opens(self.job.evaluate, self.answers.shared).unbounded if train else ""

    @property
    def is_experimental(self) -> bool:
        """Whether no outside cryptographer has read how it trains."""
        return self.job.train is not None and self.job.train.is_experimental

    @property
    def has_few(self) -> bool:
        """Whether so few records are shared that noise takes most of the gain."""
        return self.answers.shared < self.enough_shared

    @property
    def surplus(self) -> int:
        """Where rows that are not shared are trained over, too: 1 within one party's records, 2 within those of all."""
        spec = self.combination.spec
        return 0 if spec.every_row_is_shared or spec.by_similarity else 1 if spec.is_within_one_set else 2


CRITERIA: tuple[tuple[Callable[[Case], int], str], ...] = (
    (lambda case: case.is_experimental, "It is experimental: no outside cryptographer has read it yet."),
    (lambda case: case.off_by_default, "Owners must first name its protocol in their policies."),
    (lambda case: case.learners, "It also tells which records are shared, and not only how many."),
    (lambda case: case.combination.makes_up_rows, "It makes up rows for records that a party lacks, which costs accuracy."),
    (lambda case: bool(case.unbounded), "Nothing bounds what its opened model tells of single records."),
    (lambda case: case.has_few, "It adds noise, and so few shared records leave little of the model beside it."),
    (lambda case: case.onlookers, "A party learns something of another one's columns."),
    (lambda case: case.surplus, "It trains over more rows than are shared, which costs more."),
    (lambda case: case.combination.coordinated, "It needs the third party, and another way does without."),
)
"""(Number of a way, what a larger one means): ways are sorted by the first number, then by the second, and so on."""


def rank(case: Case) -> tuple[int, ...]:
    """By which ways are sorted, the least first."""
    return tuple(int(measure(case)) for measure, _ in CRITERIA)


def explain_place(own: tuple[int, ...], better: tuple[int, ...]) -> str:
    """Why a way comes after a ``better`` one, by the ranks of both: a sentence."""
    compared = zip(CRITERIA, own, better, strict=True)
    return next((why for (_, why), ours, other in compared if ours != other), LATER)


def warn(case: Case) -> Iterator[str]:
    """What an owner should know of a way before choosing it: sentences without a capital and a full stop."""
    if case.off_by_default:
        yield f"each owner must first allow {case.combination.alignment} (protocols in policy.yaml)"
    if case.combination.makes_up_rows:
        classes = "rows are made up for records that a party lacks; the model is less good than over shared records alone"
        yield REGRESSION_LOSS if case.answers.aim == "regression" else classes
    if kind := case.unbounded:
        yield f"nothing bounds what its opened model tells of records: each owner must allow it (unbounded_models: {kind})"
    if case.is_experimental:
        yield "it is experimental: no outside cryptographer has read it yet, and both parties must follow the protocol"
    if case.has_few:
        yield (
            f"about {case.answers.shared:,} records are shared: below about {case.enough_shared:,} the active party's own "
            "model is often as good, because of the noise that bounds what is told"
        )
    if case.job.align.keys:
        yield "align.keys is an example: write there what both tables have that is alike (docs/guides/link-records.md)"
