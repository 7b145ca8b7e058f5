"""What training trees in shares alone reports: ``training.trees``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import Count, Section, TrainerSection
from vfl_node.training.shares.privacy import Privacy
from vfl_node.training.words import Code, Figure, Panel, ReportedTraining, Term, TrainingWords

LEAKS = "Training opened no number of a row; what it opened at the end, and to whom, stands below"


class OwnSplit(Section):
    """A node that one of this party's own candidates splits."""

    tree: Count = Field(description="number of the tree, from 1; of several classes each has one of this number")
    label: Count | None = Field(default=None, description="of several classes the one that the tree is of, from 0; else null")
    node: Count = Field(description="number of the node in it, level by level, from 1")
    split: str = Field(description="which rows go left; it names a column of this party's table")


class TreesSection(TrainerSection):
    """The trees, and how much was exchanged; null where this party does not know it."""

    trees: Count | None = Field(default=None, description="how many were added up; of several classes for each")
    depth: Count | None = Field(default=None, description="levels of splits of each")
    bins: Count | None = Field(default=None, description="intervals into which each owner cuts a column of numbers, at most")
    rounds: Count | None = Field(default=None, description="messages between data parties that had to be waited for")
    bytes: Count | None = Field(default=None, description="masked shares that this party sent, without what frames add")
    dealer_bytes: Count | None = Field(
        default=None, description="corrections that this party got; at the coordinator, that it sent"
    )
    cells: Count | None = Field(
        default=None, description="rows of the shared order times candidates of all parties: each was sent once, under a mask"
    )
    slots: Count | None = Field(
        default=None, description="places of each candidate for cells that are sent a second time, used or not"
    )
    once_bytes: Count | None = Field(
        default=None, description="of bytes those of cells and slots, which are sent once and serve all trees"
    )
    beyond: Count | None = Field(
        default=None,
        description="about how many records measured on have a score for which the sum of sines is no sigmoid, or an error of "
        "more than 16 deviations: with noise, whose size the ledger's entry metrics says; null without metrics, and at a party "
        "that is not told them",
    )
    privacy: Privacy | None = Field(default=None, description="what noise bounds; null at the coordinator")
    columns: dict[str, Count] = Field(default_factory=dict, description="data party → candidates for splits")
    dropped: tuple[str, ...] = Field(default=(), description="this party's own columns without candidates")
    splits: tuple[OwnSplit, ...] = Field(default=(), description="nodes that this party's own columns split")
    gains: dict[str, float] = Field(
        default_factory=dict,
        description="this party's own column with candidates → how much its splits gain in all trees, to a step of about a "
        "1,024th of the rows; empty with an ε",
    )
    leaves: tuple[tuple[float, ...], ...] = Field(
        default=(),
        description="values of the leaves of each tree, from left to right, at the active party; of several classes those of "
        "one number follow each other",
    )

    def words(self, training: ReportedTraining) -> TrainingWords:
        """Rounds, bytes and own splits."""
        if self.rounds is None:
            return TrainingWords(leaks=LEAKS)
        used: dict[str, int] = {}
        for each in self.splits:
            name = each.split.rsplit(" ≤ ", 1)[0].rsplit(" = ", 1)[0].rsplit(" is ", 1)[0]
            used[name] = used.get(name, 0) + 1
        unused = tuple((Code(name),) for name in self.dropped)
        most = sorted(used.items(), key=lambda pair: (-pair[1], pair[0]))[:8]
        gains = sorted(((name, gain) for name, gain in self.gains.items() if gain), key=lambda pair: (-pair[1], pair[0]))[:8]
        return TrainingWords(
            leaks=LEAKS,
            figures=(Figure(self.rounds, "rounds in shares"),),
            remarks=(self.privacy.text,) if self.privacy else (),
            panel=Panel(
                "Trees in shares",
                f"No value of a row was opened but under a mask of its own. {training.coordinator} dealt the randomness, and "
                "must not work together with any data party.",
                (
                    Term("Trees", ((self.trees,),)),
                    Term("Rounds", ((self.rounds,),)),
                    Term("Sent, masked", ((self.bytes, " bytes"),)),
                    Term("Of that cells, sent once", ((self.once_bytes, " bytes"),)),
                    Term("From the dealer", ((self.dealer_bytes, " bytes"),)),
                    Term("Candidates for splits", tuple((f"{name}\u00a0", columns) for name, columns in self.columns.items())),
                    *([Term("Own splits", tuple((Code(name), f"\u00a0{count}") for name, count in most))] if most else []),
                    *([Term("Own gains", tuple((Code(name), f"\u00a0{gain:.4g}") for name, gain in gains))] if gains else []),
                    *([Term("Columns without candidates", unused)] if unused else []),
                ),
            ),
        )
