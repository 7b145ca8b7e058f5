"""What generalised linear models under encryption alone report: ``training.logistic``, or ``training.linear``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.glm.config import Flow
from vfl_node.training.section import Count, TrainerSection
from vfl_node.training.words import Code, Figure, Panel, ReportedTraining, Term, TrainingWords, several

FLOWS: dict[Flow, str] = {
    "two-party": "{active} has the key: it decrypts {passive}'s gradients, which {passive} masks, and sees {passive}'s scores.",
    "coordinator": "{coordinator} has the key: it decrypts gradients, which each party masks. Scores of rows trained on travel "
    "encrypted.",
    "coordinator-open-scores": "{coordinator} has the key: it decrypts {passive}'s gradients, which {masking}. {active} sees "
    "{passive}'s scores.",
}
"""Flow → who sees what while it trains."""


class GlmSection(TrainerSection):
    """What only a regression under encryption has; of a party that this one knows nothing of there is no entry, or null."""

    flow: Flow = Field(description="who decrypts, and what the active party sees of scores")
    rows: Count | None = Field(description="shared rows trained on, dummies included; null if not known to this party")
    features: dict[str, Count | None] = Field(
        description="party → encoded columns; null for a party of which this one does not know it"
    )
    rounds: Count = Field(description="gradients computed under encryption")
    decryptions: dict[str, Count] = Field(description="party → values decrypted for it, as far as this party knows")
    decrypted_bits: dict[str, Count] = Field(description="party → bits it was told of these, whatever they were of")
    dropped: tuple[str, ...] = Field(default=(), description="this party's own columns left out")

    def words(self, training: ReportedTraining) -> TrainingWords:
        """Who has the key, and how much was decrypted for whom."""
        passive = [name for name in self.features if name != training.active]
        masking = "each of them masks" if len(passive) > 1 else f"{training.passive} masks"
        dropped = [Term("Columns left out", tuple((Code(name),) for name in self.dropped))] if self.dropped else []
        return TrainingWords(
            figures=(
                Figure(self.rounds, several(self.rounds, training.train.traits.unit)),
                *(
                    Figure(values, f"{several(values, 'value')} decrypted for {name}")
                    for name, values in self.decryptions.items()
                ),
            ),
            panel=Panel(
                "Under encryption",
                FLOWS[self.flow].format(
                    active=training.active, passive=" and ".join(passive), coordinator=training.coordinator, masking=masking
                ),
                (
                    Term("Shared rows", ((self.rows,),)),
                    Term("Columns, encoded", tuple((f"{name}\u00a0", columns) for name, columns in self.features.items())),
                    *dropped,
                    Term("Rounds", ((self.rounds,),)),
                    *(
                        Term(
                            f"Decrypted for {name}",
                            ((values, f" {several(values, 'value')}"), (self.decrypted_bits[name], " bits")),
                        )
                        for name, values in self.decryptions.items()
                    ),
                ),
            ),
        )
