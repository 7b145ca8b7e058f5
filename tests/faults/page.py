"""docs/reliability.md, of what was found."""

from __future__ import annotations

import os
import platform

from found import Shown
from rows import Outcome

HEAD = """\
# Reliability

What happens when things fail: found by `make faults`, which injects every fault below into real nodes on one machine and
writes this page. **R** is the same result, to the byte, as that of a job that nothing disturbed; `E_…` is that code, at the
party where it rose ([operations.md](operations.md)). Seconds are those of all places of a row together, starts included.

Kills are not timed: a process dies where a name in `vfl_node/failpoints.py` says (`VFL_FAILPOINT=NAME=ACTION@N`), and each
party is killed at every name that it passes. The network's faults are made by a proxy of the project.

"""


def page(found: list[Shown]) -> str:
    """The whole page."""
    run = [shown for shown in found if shown.outcome]
    failing = [shown.row.numbers for shown in run if shown.outcome and shown.outcome.holds is False]
    places = sum(shown.outcome.places for shown in run if shown.outcome)
    days = sorted({shown.day for shown in run})
    seeds = ", ".join(sorted({str(shown.seed) for shown in run}))
    loads = [shown.load for shown in run] or [0.0]
    summary = (
        f"{' to '.join(sorted({*days[:1], *days[-1:]}))}, {os.cpu_count()} cores, load {min(loads):.0f} to "
        f"{max(loads):.0f} (the machine did other work as well), Python {platform.python_version()}, seeds {seeds}: "
        f"{len(run)} of {len(found)} rows run, {places} places. "
        + (f"**Rows that do not hold: {'; '.join(failing)}.**" if failing else "All of these hold.")
        + "\n\n"
    )
    lines = ["| row | fault | must happen | happened | holds | places | seconds |", "|---|---|---|---|---|---|---|"]
    notes = ["", "## How each was injected, and what else was seen", ""]
    for shown in found:
        row, outcome = shown.row, shown.outcome or Outcome("not run", None, 0.0, 0)
        holds = {True: "yes", False: "**no**", None: "not tried"}[outcome.holds]
        cells = (row.numbers, row.fault, row.must, outcome.what, holds, str(outcome.places), f"{outcome.seconds:.0f}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        seen = f" {'Not as it must be' if outcome.holds is False else 'Seen'}: {outcome.note}." if outcome.note else ""
        notes.append(f"- **{row.numbers}** {row.how}.{seen}")
    return HEAD + summary + "\n".join([*lines, *notes]) + "\n"
