"""docs/explanations/reliability.md, of what was found."""

from __future__ import annotations

import os
import platform

from found import Shown
from rows import Outcome

HEAD = """\
# Reliability

This page shows what happens when things fail. `make faults` injects every fault below into real nodes on one machine and
writes this page. **R** means: the same result, to the byte, as that of an undisturbed job. `E_…` is the error code at the
party where the error occurred ([errors.md](../reference/errors.md)). The column seconds has the time of all places of a row
together, including the start of the nodes.

Kills do not depend on timing: a process dies at a named place in the code, a failpoint of `vfl_node/process/failpoints.py`
(`VFL_FAILPOINT=NAME=ACTION@N`). Each party is killed at every failpoint that it passes. A proxy of the project injects the
network's faults.

"""


def readable(note: str, most: int = 20) -> str:
    """A long list of what was counted, in sentences: a new one begins with a code once ``most`` words are in one."""
    lines, words = "", 0
    for part in note.split(", "):
        ended = words >= most and part[:1].isupper()
        lines += (". " if ended else ", " if lines else "") + part
        words = len(part.split()) + (0 if ended else words)
    return lines


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
    notes = ["", "## How each fault was injected, and what else was seen", ""]
    for shown in found:
        row, outcome = shown.row, shown.outcome or Outcome("not run", None, 0.0, 0)
        holds = {True: "yes", False: "**no**", None: "not tried"}[outcome.holds]
        cells = (row.numbers, row.fault, row.must, outcome.what, holds, str(outcome.places), f"{outcome.seconds:.0f}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        seen = (
            f" {'Not as it must be' if outcome.holds is False else 'Seen'}: {readable(outcome.note)}." if outcome.note else ""
        )
        notes.append(f"- **{row.numbers}** {row.how}.{seen}")
    return HEAD + summary + "\n".join([*lines, *notes]) + "\n"
