"""Figures and names in words: for the report, the board and the terminal.

The terminal shows a job within a fraction of a second, so nothing here imports more than the standard library and light events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from vfl_node.progress import CONSTANT, Rebuilt

NO_TITLES: Mapping[str, str] = {}

SEEDED = (
    "All secrets of this run follow from a seed (vfl-node run --seed): whoever knows it can compute every key, mask and "
    "initial weight of every party. For trials on one machine only."
)


def attack_figures(
    attacks: Mapping[str, float | None], judged: Mapping[str, int], titles: Mapping[str, str] = NO_TITLES
) -> str:
    """The newest AUC of each attack, and of how many rows, in one line; empty where there is none.

    Args:
        attacks: attack → AUC.
        judged: attack → rows.
        titles: attack → its name for people, where it is not the name in the registry.
    """
    figures = [
        f"{titles.get(name) or name.replace('_', ' ')} {auc:.2f}" + (f" ({judged[name]:,} rows)" if name in judged else "")
        for name, auc in attacks.items()
        if auc is not None
    ]
    return f"AUC of own attacks on what is sent, 0.5 is chance: {', '.join(figures)}" if figures else ""


MOST_LABEL_ATTACKS = 3
"""Attacks on labels in one line."""


def label_figures(labels: Mapping[str, float | None]) -> str:
    """The newest AUC of the strongest attacks on this party's labels, in one line; empty where there is none."""
    known = sorted(((auc, name) for name, auc in labels.items() if auc is not None), reverse=True)
    figures = [f"{name.replace('_', ' ')} {auc:.2f}" for auc, name in known[:MOST_LABEL_ATTACKS]]
    return f"Own labels read from what passive parties have (0.5 is chance): {', '.join(figures)}" if figures else ""


METRICS_OF_COLUMNS = {"accuracy": "accuracy", "auc": "AUC", "r2": "R²"}
"""What success is called with which a column is rebuilt: of categories, of a flag, of a number."""


def worst_first(rebuilt: Rebuilt) -> list[str]:
    """The columns, first the one that is rebuilt best compared with the best constant."""
    return sorted(rebuilt, key=lambda name: (-_gain(rebuilt[name]), name))


def _gain(successes: Mapping[str, float | None]) -> float:
    return (strongest(successes) or 0.0) - (successes.get(CONSTANT) or 0.0)


def strongest(successes: Mapping[str, float | None]) -> float | None:
    """The success of the best attack on a column; None where there is none."""
    defined = [value for attack, value in successes.items() if attack != CONSTANT and value is not None]
    return max(defined, default=None)


def rebuilt_figures(rebuilt: Rebuilt, most: int) -> str:
    """How well the ``most`` worst columns are rebuilt, in one line; empty where there are none."""
    tried = [name for name in worst_first(rebuilt) if strongest(rebuilt[name]) is not None]
    figures = [
        f"{name} {strongest(rebuilt[name]):.2f}"
        + (f" ({constant:.2f})" if (constant := rebuilt[name].get(CONSTANT)) is not None else "")
        for name in tried[:most]
    ]
    more = f", and {len(tried) - most:,} more" if len(tried) > most else ""
    return f"Own columns rebuilt from what is sent (beside the best constant): {', '.join(figures)}{more}" if figures else ""


def join_names(names: Sequence[str]) -> str:
    """Names in a sentence: "lab, insurer and shop"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def human_bytes(count: float) -> str:
    """A number of bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def human_count(count: int | None) -> str:
    """A number of things for people."""
    return "hidden" if count is None else f"{count:,}"


def human_seconds(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def human_span(span: Sequence[float]) -> str:
    """The least and the most that something still takes, in seconds: "20 s to 2 min 5 s left"; empty for none."""
    return f"{' to '.join(human_seconds(float(round(seconds))) for seconds in span)} left" if span else ""


def human_age(moment: str, now: datetime | None = None) -> str:
    """How long ago an ISO 8601 moment was, for people; empty where ``moment`` is."""
    if not moment:
        return ""
    passed = (now or datetime.now(timezone.utc)) - datetime.fromisoformat(moment)
    minutes = max(0, int(passed.total_seconds())) // 60
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def human_time(moment: str) -> str:
    """An ISO 8601 moment in UTC for people; empty where it is not known."""
    return "" if not moment else f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S} UTC"


def quantity(value: float) -> str:
    """A number of any size, to four digits."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def round_numbers(value: Any) -> Any:
    """``value`` with each number in it that is no count to four significant digits, for logs and lines of JSON."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case Mapping():
            return {key: round_numbers(item) for key, item in value.items()}
        case list() | tuple():
            return [round_numbers(item) for item in value]
    return value


def add_sign(value: float, written: str) -> str:
    """A difference of two metrics with its sign; ``written`` is its size, in words for people."""
    return f"{'−' if value < 0 else '+'}{written}"
