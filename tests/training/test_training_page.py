"""The pages of split training: their examples are jobs, and the table of settings has every key."""

from __future__ import annotations

import re
from pathlib import Path

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.training.candidates.config import Linked
from vfl_node.training.split.config import Train

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    (DOCS / page).read_text(encoding="utf-8")
    for page in (
        "reference/split-training.md",
        "guides/hold-out-the-last-rows.md",
        "guides/stop-in-time.md",
        "explanations/training/candidates.md",
    )
]


def test_the_examples_are_jobs() -> None:
    job, last, stopped, linked = (
        parse(of, Job, source="docs") for page in PAGES for of in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    )
    assert isinstance(job.train, Train)
    assert (job.train.batch_norm, job.train.clip) == (True, 5.0)
    assert last.evaluate.hold_out is not None
    assert last.evaluate.test_fraction == last.evaluate.hold_out.last == 0.2
    assert isinstance(stopped.train, Train)
    assert (stopped.evaluate.validation_fraction, stopped.train.patience) == (0.1, 5)
    assert isinstance(linked.train, Linked)


def test_the_table_has_every_key_and_no_other() -> None:
    section = PAGES[0][PAGES[0].index("## Settings") :]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(Train.model_fields)
