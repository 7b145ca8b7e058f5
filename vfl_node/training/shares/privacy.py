"""What a report says of noise: what this job spends, what is spent with earlier ones, and what that leaves to tell."""

from __future__ import annotations

from pydantic import Field

from vfl_node.gdp import DELTA, auc_bound, epsilon_of
from vfl_node.job import Job
from vfl_node.session.spent import TELLS, Spent, auc_text, epsilon_text
from vfl_node.training.section import Section
from vfl_node.training.shares.config import SharesConfig

UNCOVERED = (
    "NO BOUND covers a single target: the table's mean and deviation scale all of them. Say train.target_range, the numbers "
    "between which targets usually lie, to cover them."
)


MIXED = (
    "Earlier jobs over this table were about something else (another alignment, or targets that are not covered): what they "
    "tell stands in their reports, and comes on top."
)


class Privacy(Section):
    """What this job spends of what noise allows; of earlier jobs over this party's table, with the partner of whom most is."""

    epsilon: float | None = Field(description="ε of this job, its metrics included; null: what it opens has no bound")
    delta: float = Field(description="δ of every ε here")
    mu: float = Field(description="the same as one number that adds up as the root of the sum of squares")
    spent: float = Field(description="ε of this job and earlier ones; jobs without a bound are left out")
    limit: float | None = Field(description="ε that this party's owner allows; null: any")
    auc_bound: float | None = Field(
        description="how well anybody tells what ε is about, by all that these jobs opened, at most; by this one alone if "
        "they are about different things; null: one has no bound"
    )
    noise_of_score: float | None = Field(default=None, description="standard deviation that noise gives a score, about")
    noise_of_counts: float | None = Field(default=None, description="the same of a number of labels held out")
    text: str = Field(description="the same in words")


def privacy_of(
    job: Job,
    spent: Spent,
    limit: float | None,
    *,
    columns: int,
    records: int,
    trainings: int,
    noise_of_score: float | None = None,
    noise_of_counts: float | None = None,
) -> Privacy:
    """What a data party reports.

    Args:
        job: the job.
        spent: over its table, this job included.
        limit: of ε, its owner's.
        columns: of the data party that has most.
        records: shared ones, trained on, as far as all know how many.
        trainings: over these records, this one included, of those without ε.
        noise_of_score: as :attr:`Privacy.noise_of_score`.
        noise_of_counts: likewise.
    """
    train = SharesConfig.section_of(job)
    opens = train.opens(job.evaluate)
    epsilon = None if opens.unbounded else epsilon_of(opens.mu)
    mixed = len(spent.about) > 1
    bound = None if spent.unbounded else auc_bound(opens.mu if mixed else spent.mu)
    if epsilon is None:
        said = train.meter(columns, records, trainings) or opens.warning
    else:
        said = f"{_amounts_text(epsilon, epsilon_of(spent.mu), limit)} {_bound_text(job, bound, spent)}" + f" {MIXED}" * mixed
    return Privacy(
        epsilon=epsilon,
        delta=DELTA,
        mu=opens.mu,
        spent=epsilon_of(spent.mu),
        limit=limit,
        auc_bound=bound,
        noise_of_score=noise_of_score,
        noise_of_counts=noise_of_counts,
        text=said,
    )


def _amounts_text(epsilon: float, spent: float, limit: float | None) -> str:
    subject = "This job" if limit is None else f"Of {epsilon_text(limit)} this job"
    return f"{subject} spends {epsilon_text(epsilon)}; with earlier ones {epsilon_text(spent)}."


def _bound_text(job: Job, bound: float | None, spent: Spent) -> str:
    """How much that leaves to tell."""
    if bound is None:
        several = "an earlier job" if spent.unbounded == 1 else f"{spent.unbounded} earlier jobs"
        return f"NO BOUND: {several} over this table opened a model without one."
    covers_labels, what = SharesConfig.section_of(job).covers_labels, _subject(job)
    all_of = "all that this job opened" if len(spent.about) > 1 else "all that was opened"
    said = f"Whoever has {all_of}, and knows everything else, tells {what} at an AUC of at most {auc_text(bound)}."
    return " ".join([*([said] if what else []), *([] if covers_labels else [UNCOVERED])])


def _subject(job: Job) -> str:
    """What ε is about: not what the alignment has told already; empty: nothing."""
    labels = SharesConfig.section_of(job).covers_labels
    if job.align.spec.every_row_is_shared:
        return "the label of one record" if labels else ""
    if job.align.tells_common:  # so the number of shared records is the same in both worlds
        return (
            "which of two records is the shared one, or the label of one,"
            if labels
            else "which of two records is the shared one"
        )
    return TELLS if labels else "whether one record is shared"
