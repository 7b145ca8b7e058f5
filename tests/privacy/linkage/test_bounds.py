"""The bounds of a job, which anybody may submit, tell the passive party's extreme keys: documented, and nothing counts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.data.reading import read_table
from vfl_node.errors import UNUSABLE_DATA, DataError
from vfl_node.job import Job
from vfl_node.settings.node import Data

JOB = """\
name: linked
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: linkage, keys: {u: {kind: number, low: -1000, high: HIGH, reach: 1}}, noise: {sigma: 50}}
"""


def accepted(path: Path, high: float) -> bool:
    """Whether the table of the passive party suits a job; the peer hears no more than that."""
    job = parse(JOB.replace("HIGH", f"{high:.9f}"), Job, source="job")
    try:
        read_table(Data(path=path), id_form="text", needs_label=False, party="lab", keys=job.align.keys or {})
    except DataError as error:
        return (error.code, error.for_peer) != ("E_KEY_BOUNDS", UNUSABLE_DATA)
    else:
        return True


def bisected(path: Path, jobs: int) -> float:
    low, high = -900.0, 1000.0
    for _ in range(jobs):
        middle = (low + high) / 2
        low, high = (low, middle) if accepted(path, middle) else (middle, high)
    return high


def test_the_largest_key_is_bisected(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=80)
    path = tmp_path / "lab.csv"
    path.write_text("id,u,x\n" + "".join(f"{row},{value:.6f},1\n" for row, value in enumerate(values)))
    assert bisected(path, 30) == pytest.approx(values.max(), abs=1e-5)
    values[values.argmax()] = 3.5  # the control: another table, another answer
    path.write_text("id,u,x\n" + "".join(f"{row},{value:.6f},1\n" for row, value in enumerate(values)))
    assert bisected(path, 30) == pytest.approx(3.5, abs=1e-5)
