"""What the trainer ``nearest_mean`` alone reports: ``training.nearest_mean``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import TrainerSection
from vfl_node.training.words import Figure, ReportedTraining, Term, TrainingWords, several


class NearestMeanSection(TrainerSection):
    """The means of both classes, which only the active party knows."""

    class_means: tuple[float, float] | None = Field(
        description="mean number of the rows trained on, of class 0 and of class 1; null at the passive party"
    )

    def words(self, training: ReportedTraining) -> TrainingWords:
        """What the page of the report says about the training."""
        figures = (Figure(training.epochs, several(training.epochs, training.train.traits.unit)),)
        if self.class_means is None:
            sent = f"{training.party} sent one number of each shared record in each epoch, with noise"
            return TrainingWords(figures=figures, remarks=(f"{sent}; {training.peer} has the means.",))
        terms = [Term(f"Mean number of class {number}", ((f"{mean:.3g}",),)) for number, mean in enumerate(self.class_means)]
        return TrainingWords(figures=figures, terms=tuple(terms))
