"""A node by whose clock it is what a file says, and that can die at any place in a job (:mod:`dying_node`).

The schedules of the node, and what it counts by week and year, go by the file ``clock`` beside its folder of deaths. Everything
else, such as certificates and waiting times, goes by the machine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import dying_node

from vfl_node.node import counts, schedules
from vfl_node.trust import lanes


def run(folder: Path, environment: Mapping[str, str], arguments: list[str], log: Path) -> None:
    clock = folder.parent / "clock"

    def tell() -> str:
        return clock.read_text()

    schedules.Schedules.__init__.__defaults__ = (lambda: datetime.fromisoformat(tell()),)
    schedules.LOOK_S = 0.1  # of 5 s
    counts.utc_now = lanes.utc_now = tell  # type: ignore[assignment]
    dying_node.run(folder, environment, arguments, log)
