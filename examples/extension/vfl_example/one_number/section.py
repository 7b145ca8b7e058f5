"""What the trainer ``one_number`` reports: ``training.one_number``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import TrainerSection
from vfl_node.training.words import ReportedTraining, Term, TrainingWords


class OneNumberSection(TrainerSection):
    """The line, at the active party."""

    slope: float | None = Field(description="change of the score with the number; null at the passive party")

    def words(self, of: ReportedTraining) -> TrainingWords:
        """What the page of the report says of it."""
        if self.slope is None:
            return TrainingWords(remarks=(f"{of.party} sent one number of each shared record to {of.peer}.",))
        return TrainingWords(terms=(Term("Slope of the line", ((f"{self.slope:.3g}",),)),))
