"""What training over candidates alone reports: ``training.linked``, by the first name of the trainer."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.methods import MERGES
from vfl_node.training.network.section import EarlyStopping
from vfl_node.training.section import Count, TrainerSection
from vfl_node.training.words import Code, Figure, ReportedTraining, Term, TrainingWords, several


class LinkedSection(TrainerSection):
    """What only training over candidates has."""

    method: str = Field(description="what a row makes of its candidates")
    merge: str | None = Field(description="how weighted candidates become one prediction; null with a method without weights")
    embeddings: Count = Field(description="embeddings sent in the first repeat: one for each distinct candidate of a batch")
    places: Count = Field(description="candidates of all rows of these batches, each of which stands for one of the embeddings")
    spearman: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="rank correlation of a candidate's weight and its similarity on the held-out rows, with "
        "test_fraction 0 on the training rows, first repeat; null at the passive party, with a method without weights, and "
        "where all weights are equal",
    )
    pair_metrics: dict[str, float | None] | None = Field(
        default=None,
        description="metrics with each candidate of a held-out row, with test_fraction 0 of a training row, counted as a row "
        "of its own, first repeat; null at the passive party, and with a method whose candidates are no samples",
    )
    early_stopping: EarlyStopping | None = Field(default=None, description="null without evaluate.validation_fraction")

    def words(self, run: ReportedTraining) -> TrainingWords:
        """What the method does, how much was sent, and whether weights rise with similarity."""
        assert isinstance(run.train, Linked)
        repeats = f" × {run.repeats} repeats" if run.repeats > 1 else ""
        merged = (f", {MERGES[self.merge]}",) if self.merge else ()
        return TrainingWords(
            figures=(Figure(run.epochs, several(run.epochs, run.train.traits.unit) + repeats), Figure(run.steps, "batches")),
            terms=(
                Term("Candidates", ((Code(self.method), f": {run.train.how.words}", *merged),)),
                Term("Embeddings sent", ((self.embeddings, " for "), (self.places, " candidates"))),
                *self._weights(),
                *self._pairs(),
                *((self.early_stopping.term(run.train),) if self.early_stopping else ()),
            ),
        )

    def _weights(self) -> tuple[Term, ...]:
        if self.spearman is None:
            return ()
        return (Term("Weight and similarity", ((f"rank correlation {self.spearman:.2f} on the rows measured on",),)),)

    def _pairs(self) -> tuple[Term, ...]:
        if self.pair_metrics is None:
            return ()
        values = (f"{name} {value:.4g}" for name, value in self.pair_metrics.items() if value is not None)
        return (Term("Each candidate counted as a row", tuple((text,) for text in values)),)
