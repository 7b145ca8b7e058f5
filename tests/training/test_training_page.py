"""docs/training.md: its example is a job, and its table has every key."""

from __future__ import annotations

import re
from pathlib import Path

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.training.linked.config import Linked
from vfl_node.training.split.config import Train

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_examples_are_jobs() -> None:
    job, last, stopped, linked = (
        parse(of, Job, source="training.md") for of in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    )
    assert isinstance(job.train, Train)
    assert (job.train.batch_norm, job.train.clip) == (True, 5.0)
    assert last.evaluate.split is not None
    assert last.evaluate.test_fraction == last.evaluate.split.last == 0.2
    assert isinstance(stopped.train, Train)
    assert (stopped.evaluate.validation_fraction, stopped.train.patience) == (0.1, 5)
    assert isinstance(linked.train, Linked)


def test_the_table_has_every_key_and_no_other() -> None:
    section = PAGE[PAGE.index("## Settings") : PAGE.index("## Missing rows")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(Train.model_fields)
