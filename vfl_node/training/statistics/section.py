"""What statistics in shares alone report: ``training.statistics``."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import override

from vfl_node.training.section import Count, Section, Share, TrainerSection
from vfl_node.training.shares.privacy import Privacy
from vfl_node.training.words import Bars, Code, Figure, FigureTable, Panel, ReportedTraining, Term, TrainingWords

LEAKS = "Counting opened no number of a row; what it opened at the end, and to whom, stands below"

STRENGTHS = ((0.5, "very strong: look for a leak"), (0.3, "strong"), (0.1, "medium"), (0.02, "weak"), (0.0, "none"))
"""From which information value on a column is said to be so strong (Siddiqi 2006)."""

SHIFTS = ((0.25, "large"), (0.1, "some"), (0.0, "none"))
"""Likewise of a stability index."""


MOST_PAIRS = 12
"""Rows of a table on the page."""


class BinFigures(Section):
    """One bin of a column of this party's own."""

    bin: str = Field(description="which values it has")
    counts: tuple[float, float] | None = Field(description="records with label 0 and 1, with noise; null: they are not opened")
    woe: float = Field(
        description="weight of evidence, ln of the share of label 1 over that of label 0; equal in bins taken together"
    )


class ColumnName(Section):
    """One column of one party."""

    party: str = Field(description="whose column it is")
    number: Count = Field(description="of the column among its party's, from 1")
    name: str | None = Field(default=None, description="of the column; null where it is another party's")

    @property
    def shown(self) -> str:
        """For people: others know the column by its number."""
        return f"{self.name} (column {self.number})" if self.name else f"column {self.number} of {self.party}"


class LinearScore(Section):
    """How well a linear score would tell the labels."""

    party: str = Field(description="of whose columns it is made, and of those of all parties before it")
    auc: Share = Field(description="its AUC, about")
    low: Share = Field(description="lower end of an interval in which the AUC is in 95 % of cases, by the noise")
    high: Share = Field(description="upper end")


class ComparedColumns(Section):
    """How the columns of all parties move together over the shared records trained on."""

    columns: tuple[ColumnName, ...] = Field(description="in the order of all that follows")
    correlations: tuple[tuple[float | None, ...], ...] = Field(
        description="Pearson's, for each column a row; null where a column varies less than noise, and of categories"
    )
    noise: tuple[tuple[float | None, ...], ...] = Field(description="standard deviation of each, about")
    inflation: tuple[float | None, ...] = Field(description="variance inflation factor (VIF) of each column")
    most_inflation: float = Field(description="about the largest one that two columns can have under this noise")
    scores: tuple[LinearScore, ...] = Field(description="what each party's columns add")

    def tables(self) -> tuple[FigureTable, ...]:
        """For the page: what each party adds, pairs, and variance inflation."""
        shown = [each.shown for each in self.columns]
        pairs = [
            (value, shown[one], shown[other], self.noise[one][other] or 0.0)
            for one, row in enumerate(self.correlations)
            for other, value in enumerate(row)
            if one < other and value is not None
        ]
        pairs.sort(key=lambda each: -abs(each[0]))
        inflated = sorted(((each, name) for each, name in zip(self.inflation, shown, strict=True) if each), reverse=True)
        names = [each.party for each in self.scores]
        adds = [
            (" and ".join(names[: place + 1]), f"{each.auc:.3f}", f"{each.low:.3f} to {each.high:.3f}")
            for place, each in enumerate(self.scores)
        ]
        tables = (
            FigureTable(
                "What a partner adds",
                ("Columns of", "AUC of a linear score, about", "By the noise"),
                tuple(adds),
                "Made of correlations alone. Where intervals overlap, a difference may be noise. Trees or bins may find more.",
            ),
            FigureTable(
                "Columns that move together",
                ("Column", "Column", "Correlation"),
                tuple((one, other, f"{value:+.3f} ± {2 * noise:.3f}") for value, one, other, noise in pairs[:MOST_PAIRS]),
                f"The {min(MOST_PAIRS, len(pairs))} strongest pairs.",
            ),
            FigureTable(
                "Variance inflation",
                ("Column", "VIF"),
                tuple((name, f"{value:.2f}") for value, name in inflated[:MOST_PAIRS]),
                "How much less sure a weight is because other columns say the same. Above 5 or 10 leave one of them out. Under "
                f"this noise even a copy of a column has no more than about {self.most_inflation:.1f}.",
            ),
        )
        return tuple(each for each in tables if each.rows)


class CountedColumn(ColumnName):
    """What a column says of the label on the shared records."""

    iv: float | None = Field(ge=0, description="information value; null: too few records beside the noise")
    iv_noise: float | None = Field(default=None, ge=0, description="standard deviation that noise gives it; null without noise")
    ks: float | None = Field(
        ge=0,
        le=1,
        description="largest distance of both labels' shares below an end of an interval; null: as iv, or categories",
    )
    ks_noise: float | None = Field(default=None, ge=0, description="standard deviation that noise gives it; null without noise")
    chi2: float | None = Field(ge=0, description="χ² of bins and labels; null: as iv")
    freedom: Count | None = Field(default=None, description="its degrees of freedom; null where that is not told")
    p_value: float | None = Field(default=None, ge=0, le=1, description="of χ²")
    stability: float | None = Field(
        default=None,
        ge=0,
        description="stability index (PSI) of records held out against those trained on; null: none are",
    )
    shared: float | None = Field(
        default=None, ge=0, description="stability index of the shared records against this party's whole table, at its owner"
    )
    worth: float | None = Field(
        default=None,
        description="bits that it says of the label beyond the active party's own columns; null: not asked for",
    )
    area: float | None = Field(
        default=None, ge=0, le=1, description="AUC that the active party's own score would have with it, about; at that party"
    )
    bins: tuple[BinFigures, ...] = Field(default=(), description="at its owner")


class StatisticsSection(TrainerSection):
    """All columns, and how much was exchanged; null where this party does not know it."""

    rounds: Count | None = Field(default=None, description="messages between data parties that had to be waited for")
    bytes: Count | None = Field(default=None, description="masked shares that this party sent, without what frames add")
    dealer_bytes: Count | None = Field(
        default=None, description="corrections that this party got; at the coordinator, that it sent"
    )
    privacy: Privacy | None = Field(default=None, description="what noise bounds; null at the coordinator")
    noise: float | None = Field(default=None, description="standard deviation of the noise of each number of records")
    records: tuple[float, float] | None = Field(
        default=None, description="shared records trained on with label 0 and 1, of numbers with noise; null without noise"
    )
    counted: dict[str, Count] = Field(default_factory=dict, description="data party → columns that are counted")
    dropped: tuple[str, ...] = Field(default=(), description="this party's own columns that are not counted")
    columns: tuple[CountedColumn, ...] = Field(
        default=(), description="this party's own columns, and at the active party those of all others"
    )
    area_alone: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="AUC of the active party's own score by tenths, over its whole table; at that party, if columns' bits are "
        "asked for",
    )
    compared: ComparedColumns | None = Field(default=None, description="null where the job does not ask for it")

    @property
    @override
    def verdict(self) -> tuple[str, str]:
        count = len(self.columns)
        return f"Done. {count:,} column{'s were' if count != 1 else ' was'} counted, and no model was trained.", (
            "What each says of the label stands below. Whether federating helps, a training measures."
        )

    def words(self, training: ReportedTraining) -> TrainingWords:
        """A table of all columns, the strongest first, and the bins of its own strongest ones."""
        if self.rounds is None:
            return TrainingWords(leaks=LEAKS)
        ranked = sorted(self.columns, key=lambda each: -1.0 if each.iv is None else each.iv, reverse=True)
        return TrainingWords(
            leaks=LEAKS,
            figures=(Figure(len(self.columns), "columns looked at"),),
            remarks=(self.privacy.text,) if self.privacy else (),
            tables=(self._table(ranked), *self._worth(), *(self.compared.tables() if self.compared else ())),
            bars=tuple(_bars(each) for each in ranked if each.bins)[:12],
            panel=Panel(
                "Statistics in shares",
                f"No value of a row was opened but under a mask of its own. {training.coordinator} dealt the randomness, and "
                "must not work together with any data party.",
                (
                    Term("Rounds", ((self.rounds,),)),
                    Term("Sent, masked", ((self.bytes, " bytes"),)),
                    Term("From the dealer", ((self.dealer_bytes, " bytes"),)),
                    Term("Columns", tuple((f"{name}\u00a0", columns) for name, columns in self.counted.items())),
                    *([Term("Not counted", tuple((Code(name),) for name in self.dropped))] if self.dropped else []),
                ),
            ),
        )

    def _worth(self) -> tuple[FigureTable, ...]:
        judged = sorted((each for each in self.columns if each.worth is not None), key=lambda each: -(each.worth or 0))
        rows = [(each.shown, f"{each.worth:.3f}", "" if each.area is None else f"{each.area:.3f}") for each in judged]
        note = (
            "Bits that a column says of the label beyond a score of the active party's own columns. Of one that says nothing "
            "they are 0 on average; by chance up to 20 divided by the number of shared records."
        )
        heads = "Column", "Bits", "AUC with it, about"
        return (
            (FigureTable("What columns add to the active party's own", heads, tuple(rows[:MOST_PAIRS]), note),) if rows else ()
        )

    def _table(self, ranked: list[CountedColumn]) -> FigureTable:
        noise = (
            ""
            if self.noise is None
            else " Beside each weight of evidence stand the numbers of records with label 0 / 1; each has noise of standard "
            f"deviation {self.noise:.3g}."
        )
        return FigureTable(
            "What each column says of the label",
            ("Column", "Information value", "Strength", "KS", "χ²", "Held out", "Own table"),
            tuple(
                (
                    each.shown,
                    _show_with_noise(each.iv, each.iv_noise),
                    "too few records" if each.iv is None else grade(each.iv, STRENGTHS),
                    _show_with_noise(each.ks, each.ks_noise),
                    "" if each.chi2 is None else f"{each.chi2:.1f}",
                    _shift(each.stability),
                    _shift(each.shared),
                )
                for each in ranked
            ),
            "Held out and Own table are stability indices: of the records held out, and of the shared records against this "
            f"party's whole table. Below 0.1 nothing has moved, above 0.25 much has.{noise}",
        )


def grade(value: float, grades: tuple[tuple[float, str], ...]) -> str:
    """The word for a value."""
    return next(word for least, word in grades if value >= least)


def _show_with_noise(value: float | None, noise: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if noise is None else f"{value:.3f} ± {2 * noise:.3f}"


def _shift(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _bars(column: CountedColumn) -> Bars:
    return Bars(
        f"Weight of evidence: {column.name}", tuple((each.bin, each.woe, _counts_text(each.counts)) for each in column.bins)
    )


def _counts_text(counts: tuple[float, float] | None) -> str:
    return "" if counts is None else f"{max(0, round(counts[0])):,} / {max(0, round(counts[1])):,}"
