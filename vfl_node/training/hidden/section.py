"""What training in shares alone reports: ``training.hidden``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import Count, TrainerSection
from vfl_node.training.shares.privacy import Privacy
from vfl_node.training.words import Code, Figure, Panel, ReportedTraining, Term, TrainingWords

LEAKS = "Training opened no number of a row; what it opened at the end, and to whom, stands below"


class HiddenSection(TrainerSection):
    """How much was exchanged; null where this party does not know it."""

    rounds: Count | None = Field(default=None, description="messages between data parties that had to be waited for")
    bytes: Count | None = Field(default=None, description="masked shares that this party sent, without what frames add")
    dealer_bytes: Count | None = Field(
        default=None, description="corrections that this party got; at the coordinator, that it sent"
    )
    batch_rows: Count | None = Field(default=None, description="shared rows of a batch")
    divisor: float | None = Field(default=None, description="how many of these all parties own, about")
    audited: Count | None = Field(
        default=None, description="batches that were not trained on, to check what was dealt for them; null without an audit"
    )
    privacy: Privacy | None = Field(default=None, description="what noise bounds; null at the coordinator")
    columns: dict[str, Count] = Field(default_factory=dict, description="data party → encoded columns")
    dropped: tuple[str, ...] = Field(default=(), description="this party's own columns left out")

    def words(self, training: ReportedTraining) -> TrainingWords:
        """Rounds and bytes."""
        if self.rounds is None:
            return TrainingWords(leaks=LEAKS)
        return TrainingWords(
            leaks=LEAKS,
            figures=(Figure(self.rounds, "rounds in shares"),),
            remarks=(self.privacy.text,) if self.privacy else (),
            panel=Panel(
                "In shares",
                f"No value of a row was opened but under a mask of its own. {training.coordinator} dealt the randomness, and "
                "must not work together with any data party.",
                (
                    Term("Rounds", ((self.rounds,),)),
                    Term("Sent, masked", ((self.bytes, " bytes"),)),
                    Term("From the dealer", ((self.dealer_bytes, " bytes"),)),
                    *([Term("Batches checked", ((self.audited,),))] if self.audited is not None else []),
                    Term("Columns, encoded", tuple((f"{name}\u00a0", columns) for name, columns in self.columns.items())),
                    *([Term("Columns left out", tuple((Code(name),) for name in self.dropped))] if self.dropped else []),
                ),
            ),
        )
