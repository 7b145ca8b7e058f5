"""Three real nodes whose owners want more than there is: each gets the same CPU time at the node that runs all jobs."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from typing import Any

import pytest

from tests.node.nodes import at_least
from tests.node.several import job_text, make_several
from tests.node.test_turns_schedules import jain
from vfl_node.configuration.models import parse
from vfl_node.job import Job

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive"}
PLACES, EACH = 4, 20


@pytest.mark.slow
def test_sixty_jobs_of_three_partners_take_the_same_cpu_time(
    federations: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of the lab come first, then the insurer's, then the clinic's own.

    As in :mod:`test_turns_schedules`: while all three have jobs that wait, the shares are within p·L, for p places and a
    longest job of L CPU seconds, so Jain's index is at least 1 / (1 + 2/9·(p·L/m)²) for shares with a mean m. Which jobs are
    larger is drawn from a fixed seed.
    """
    folder = tmp_path_factory.mktemp("fairness")
    federation = federations(folder, ROLES, make_several(folder))
    everyone = at_least(1) | {"budgets": {"alignments": 1000}}
    federation.start_several(queue={"max_running": PLACES, "partners": {"*": {"running": PLACES}}}, everyone=everyone)
    draw, submitted = random.Random(20261128), []
    for name in ("lab", "insurer", "clinic"):
        for number in range(EACH):
            text = f"align: {{protocol: {draw.choice(['psi', 'psi', 'psu'])}}}"
            job = parse(job_text(text, ("lab", "insurer")).replace("trial", f"{name}-{number}"), Job, source="job")
            submitted.append(federation.client(name).submit(job.canonical())["id"])
    for job_id in submitted:
        assert federation.end("clinic", job_id)["state"] == "done"
    with sqlite3.connect(folder / "clinic" / "state" / "jobs.sqlite") as index:
        rows = index.execute("SELECT submitter, body FROM documents JOIN jobs ON id = job WHERE documents.name LIKE 'usage%'")
        taken = sorted((json.loads(body)["ended"], who, json.loads(body)["cpu_s"]) for who, body in rows)
    longest, left = max(cpu_s for *_, cpu_s in taken), Counter(who for _, who, _ in taken)
    assert left == dict.fromkeys(ROLES, EACH)
    shares, seen = dict.fromkeys(ROLES, 0.0), []
    for _, who, cpu_s in taken:
        shares[who] += cpu_s
        left[who] -= 1
        if min(left.values()) >= PLACES:  # all three have jobs that wait
            mean = sum(shares.values()) / 3
            seen.append((jain(list(shares.values())), 1 / (1 + 2 / 9 * (PLACES * longest / mean) ** 2)))
    assert all(index >= bound for index, bound in seen)
    assert seen[-1][0] >= 0.9
