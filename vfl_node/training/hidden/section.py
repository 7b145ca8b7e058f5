"""What training in shares alone reports: ``training.hidden``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import Count, TrainerSection
from vfl_node.training.shares.deviating import TRAINING, UNREAD, caveat
from vfl_node.training.shares.phases import PHASES, PhaseFigures
from vfl_node.training.shares.privacy import Privacy
from vfl_node.training.words import Code, Figure, Panel, ReportedTraining, Term, TrainingWords

EXPERIMENTAL = (
    f"Training without a coordinator is {UNREAD}. It holds against a partner that follows the protocol; {caveat(TRAINING)}."
)

LEAKS = "Training opened no number of a row; what it opened at the end, and to whom, stands below"


class HiddenSection(TrainerSection):
    """How much was exchanged; null where this party does not know it."""

    rounds: Count | None = Field(default=None, description="messages between data parties that had to be waited for")
    bytes: Count | None = Field(default=None, description="masked shares that this party sent, without what frames add")
    dealer_bytes: Count | None = Field(
        default=None, description="corrections that this party got; at the coordinator, that it sent"
    )
    phases: dict[str, PhaseFigures] = Field(
        default_factory=dict,
        description="without a coordinator: setup, offline and online; online is what rounds and bytes are of; else empty",
    )
    most_ahead: Count | None = Field(
        default=None, description="without a coordinator: the most bytes of what is made ahead that were on the disk, about"
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
        if self.phases:
            return self._paired_words()
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

    def _paired_words(self) -> TrainingWords:
        """The words of a training without a coordinator: its phases."""
        each = [(name, self.phases[name]) for name in PHASES if name in self.phases]
        phases = [
            Term(name.capitalize(), ((f"{figures.seconds:.1f} s",), (figures.bytes, " bytes sent"))) for name, figures in each
        ]
        return TrainingWords(
            leaks=LEAKS,
            figures=(Figure(self.rounds or 0, "rounds in shares"),),
            remarks=(self.privacy.text,) if self.privacy else (),
            panel=Panel(
                "In shares, without a coordinator (experimental)",
                "No value of a row was opened but under a mask of its own. Both data parties made all randomness: no "
                "third party took part.",
                (
                    Term("Rounds", ((self.rounds or 0,),)),
                    *phases,
                    Term("Made ahead at most", ((self.most_ahead or 0, " bytes"),)),
                    Term("Columns, encoded", tuple((f"{name}\u00a0", columns) for name, columns in self.columns.items())),
                    *([Term("Columns left out", tuple((Code(name),) for name in self.dropped))] if self.dropped else []),
                ),
            ),
        )
