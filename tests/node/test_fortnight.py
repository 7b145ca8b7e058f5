"""A fortnight of two nodes by a clock: jobs by a schedule over tables that grow, budgets of a week, and deaths each day.

It ends as one in which nobody dies: the same models, reports and answers, the same counts, and the same jobs.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import clocked_node
import numpy as np
import pytest

from tests.node.killed_jobs import TIMES, timeless
from tests.node.nodes import ENDED, Federation
from vfl_node.errors import VflError
from vfl_node.models import storage
from vfl_node.node.counts import PartnerCounts

BEGIN = datetime(2027, 3, 1, tzinfo=timezone.utc)
"""The midnight before the first job."""

DAYS, NODES = range(14), ("clinic", "lab")

JOB = """\
name: daily
parties: {active: clinic, passive: lab}
align: {protocol: %s}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 64}
evaluate: {test_fraction: 0.3}
serve: {to: active}
"""

SCHEDULE = {"name": "daily", "job": "job.yaml", "at": "0 3 * * *", "jitter_s": 600, "skip_unchanged": True}
BUDGETS = {"alignments": [{"most": 4, "per": "week"}, {"most": 12}], "trainings": 12}

QUIET, DOWN = {3, 10}, {8}
"""Days on which the clinic's table stays as it is, and days on which both nodes are down."""


def row(number: int, *, labelled: bool) -> str:
    """A record's cells, which go by its number alone."""
    draws = np.random.default_rng(number)
    label, values = number % 2, draws.normal(size=6)
    values[[0, 3]] += 1.5 * label
    own = values[:3] if labelled else values[3:]
    return ",".join([f"person-{number:04d}", *(f"{value:.4f}" for value in own), *([str(label)] if labelled else [])])


class Fortnight:
    """Two nodes, their tables, and the time.

    Args:
        federation: the nodes, not started.
        forked: starts processes.
        protocol: of alignment.

    Attributes:
        died: how often each node did.
    """

    def __init__(self, federation: Federation, forked: Any, protocol: str) -> None:
        self.federation, self.rows = federation, dict.fromkeys(NODES, 160)
        self.models: list[str] = []
        self.died = dict.fromkeys(NODES, 0)
        self.tell(BEGIN)
        for name in NODES:
            self.deaths(name).mkdir()
            federation.programs[name] = partial(forked, clocked_node.run, self.deaths(name), dict(os.environ))
            everyone = {"budgets": BUDGETS, "min_own_rows": 1, "min_peer_rows": 1}
            federation.configure(name, everyone=everyone, data={"path": str(self.table(name))})
            self.write(name)
        (federation.folder / "clinic/job.yaml").write_text(JOB % protocol)
        federation.configure("clinic", schedules=[SCHEDULE])
        federation.start_several()

    def deaths(self, name: str) -> Path:
        """Where ``name`` is told to die; it names the seed, too."""
        return self.federation.folder / f"{name}-deaths"

    def table(self, name: str) -> Path:
        return self.federation.folder / f"{name}.csv"

    def write(self, name: str) -> None:
        """The table as it is now. The lab knows everybody but the first 40."""
        first, more = (0, ",label") if name == "clinic" else (40, "")
        lines = [f"id,{name}-a,{name}-b,{name}-c{more}", *(row(first + k, labelled=first == 0) for k in range(self.rows[name]))]
        written = self.table(name).with_suffix(".new")
        written.write_text("\n".join(lines) + "\n")
        written.replace(self.table(name))

    def tell(self, time: datetime) -> None:
        """It is this time now."""
        written = self.federation.folder / "clock.new"
        written.write_text(time.isoformat(timespec="seconds"))
        written.replace(self.federation.folder / "clock")

    def restart_dead(self) -> None:
        for name in NODES:
            if self.federation.processes[name].poll() is not None:
                self.died[name] += 1
                (self.deaths(name) / "death").unlink(missing_ok=True)  # not while it starts
                self.federation.start(name)

    def is_up(self) -> bool:
        """Whether both nodes are, and their link; one that died is started again."""
        self.restart_dead()
        with suppress(VflError, FileNotFoundError):
            return all(map(self.federation.connected, NODES))
        return False

    def schedule(self) -> dict[str, Any]:
        """How it stands; empty while the clinic is down."""
        with suppress(VflError, FileNotFoundError):
            return self.federation.client("clinic").schedules()[0]
        return {}

    def is_settled(self, day: int) -> bool:
        """Whether something has become of the day's planned time, and its job, if there is one, has ended at both."""
        self.restart_dead()
        stands, job_id = self.schedule(), f"daily-{BEGIN + timedelta(days=day):%Y%m%d}"
        if not stands.get("next", "").startswith(f"{BEGIN + timedelta(days=day + 1):%Y-%m-%d}"):
            return False
        if stands["last_job"] != job_id:
            return True
        with suppress(VflError, FileNotFoundError):
            ended = [self.federation.view(name, job_id).get("state") in ENDED for name in NODES]
            return all(ended) and bool(stands["ended"])
        return False

    def live_through(self, day: int, chance: random.Random | None) -> dict[str, Any]:
        """One day; with ``chance`` both die in its job, and one at any moment of it. What it leaves for comparison."""
        if day not in QUIET:
            self.rows["clinic"] += 1 + day % 3
            self.write("clinic")
        if day % 4 == 0:
            self.rows["lab"] += 2
            self.write("lab")
        if day in DOWN:
            for name in NODES:
                self.federation.kill(name)
            self.tell(BEGIN + timedelta(days=day + 1))  # its job comes at the next start
        self.federation.wait_until(self.is_up)
        if chance:
            for name in NODES:
                (self.deaths(name) / "death").write_text(str(chance.randint(1, 90)))
        self.tell(max(BEGIN + timedelta(days=day, hours=3, minutes=10), BEGIN + timedelta(days=day + (day in DOWN))))
        if chance:
            time.sleep(2 * chance.random())
            self.federation.processes[chance.choice(NODES)].kill()  # which may have died by now
        self.federation.wait_until(lambda: self.is_settled(day))
        self.call_off_deaths()
        self.federation.wait_until(self.is_up)
        return self.outcome(day)

    def call_off_deaths(self) -> None:
        for name in NODES:
            for file in ("death", "places"):
                (self.deaths(name) / file).unlink(missing_ok=True)

    def outcome(self, day: int) -> dict[str, Any]:
        """What must not depend on who died."""
        stands = self.schedule()
        left: dict[str, Any] = {key: stands[key] for key in ("next", "became", "paused", "refusals", "last_job", "ended")}
        job_id = f"daily-{BEGIN + timedelta(days=day):%Y%m%d}"
        views = {name: self.federation.view(name, job_id) for name in NODES}
        codes = {(view.get("error") or {}).get("code") for view in views.values()} - {None}
        why = "E_BUDGET" if "E_BUDGET" in codes else "".join(sorted(codes))  # who refuses first may die before it says so
        if left["ended"] != "done" and job_id == left["last_job"]:
            left["ended"] = why
        for name, view in views.items():
            left[name] = [view.get("state"), why, self.used(name)]
            if view.get("state") == "done":
                report = self.federation.report(name, job_id)
                for key in TIMES:
                    del report[key]
                weights, _ = storage.load(self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors")
                left[name] += [timeless(report), {key: value.numpy().tobytes() for key, value in weights.items()}]
        if left["ended"] == "done" and job_id == left["last_job"]:
            self.models.append(job_id)
        if self.models:  # people whom the first model knows are scored on the table of this day
            asked = "id\n" + "".join(f"person-{number:04d}\n" for number in range(60, 75))
            left["answers"] = self.federation.client("clinic").predict(self.models[0], asked.encode(), lambda: None)
        return left

    def used(self, name: str) -> dict[str, float]:
        """What has been used of each budget, as the owner sees it."""
        (peer,) = set(NODES) - {name}
        return PartnerCounts(self.federation.folder / name / "state/partners" / peer, peer).usage()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["psi", "psu"])
def test_a_fortnight_of_deaths_ends_as_a_quiet_one(federations: Any, forked: Any, tmp_path: Path, protocol: str) -> None:
    lived = {}
    for name, chance in (("quiet", None), ("deadly", random.Random(protocol))):
        (tmp_path / name).mkdir()
        fortnight = Fortnight(federations(tmp_path / name), forked, protocol)
        lived[name] = [fortnight.live_through(day, chance) for day in DAYS]
        assert chance is None or min(fortnight.died.values()) >= 7
    for day in DAYS:
        assert lived["deadly"][day] == lived["quiet"][day], day
    quiet = lived["quiet"]
    assert [day for day in DAYS if quiet[day]["became"].startswith("skipped")] == sorted(QUIET)
    assert [day for day in DAYS if quiet[day]["clinic"][0] == "done"] == [0, 1, 2, 4, 7, 8, 9, 11]  # four within seven days
    assert [day for day in DAYS if quiet[day]["clinic"][1]] == [5, 6, 12, 13]
    assert {quiet[day]["clinic"][1] for day in (5, 6, 12, 13)} == {"E_BUDGET"}
    assert quiet[-1]["clinic"][2]["alignments"] == 8
    assert len({quiet[day]["answers"] for day in DAYS}) == 1  # the first model's, whatever was added since
