"""The pages on rows without a partner: one to begin with, the tables of each data set, and what was expected."""

from __future__ import annotations

from experiments.pages import Page, divide

BESIDE = (
    Page(
        "unaligned-tables",
        "Rows outside of the alignment, by data set",
        "What each method gains on each data set. For whoever chooses a method.",
        ("adult,", "credit,", "criteo,", "generator,"),
    ),
    Page(
        "unaligned-expected",
        "Rows outside of the alignment: what was expected",
        "Every claim that was made before the runs, and whether it holds. For whoever checks the figures.",
        ("What was expected",),
    ),
)
"""Pages beside the first one."""


def pages(whole: str, *, small: bool = False) -> dict[str, str]:
    """File → page of ``whole``, all of the pages as one; ``small``: of made-up tables, which fit one page."""
    return {"unaligned.md": whole} if small else divide(whole, "unaligned", BESIDE)
