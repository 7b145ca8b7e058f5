"""Nodes on a stage: what they train is an act, which goes on until it is ended."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job


class Stage:
    """Nodes whose training is an act (:mod:`acting_node`), over many jobs.

    Attributes:
        federation: the nodes.
        shared: the folder where they are told what to do.
    """

    def __init__(self, federation: Any, forked: Any, job: str) -> None:
        import acting_node

        self.federation, self._job = federation, job
        self.shared = federation.folder / "act"
        self.shared.mkdir()
        for name in federation.roles:
            federation.programs[name] = partial(forked, acting_node.run, self.shared, name)

    def tell(self, what: str, text: str = "") -> None:
        (self.shared / what).write_text(text)

    def submit(self, at: str = "clinic") -> str:
        return self.federation.client(at).submit(parse(self._job, Job, source="job").canonical())["id"]

    def in_a_round(self, job_id: str) -> None:
        for name in self.federation.roles:
            self.federation.wait_until(lambda name=name: self.federation.view(name, job_id).get("done"))

    def let_it_end(self) -> None:
        self.tell("enough")

    def all_done(self, job_id: str) -> None:
        """Every party ends the job well, with what its secrets gave from the beginning, and forgets them."""
        for name in self.federation.roles:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (name, view, self.federation.log(name)[-3000:])
        for name in self.federation.roles:
            folder = self.federation.job_folder(name, job_id)
            self.federation.wait_until(lambda folder=folder: self.federation.is_cleared(folder))
            lines = (self.shared / f"{name}-drawn").read_text().splitlines()
            drawn = {line.split()[1] for line in lines if line.startswith(job_id)}
            assert drawn == {self.federation.report(name, job_id)["drawn"]}

    def ends(self, job_id: str, **states: str) -> dict[str, dict[str, Any]]:
        """Every party ends the job in its state; its errors."""
        views = {name: self.federation.end(name, job_id) for name in states}
        assert {name: view["state"] for name, view in views.items()} == states, views
        return {name: view["error"] for name, view in views.items()}

    def survives(self, victim: str, place: str, said: str) -> None:
        """``victim`` is killed at ``place`` and comes back; in the rounds others say ``said`` meanwhile. All end well."""
        in_rounds = place in ("when all are met", "in a round")
        if in_rounds:
            self.tell(f"{victim}-death", place)
            job_id = self.submit()
        else:
            job_id = self.submit()
            self.in_a_round(job_id)
            self.tell(f"{victim}-death", place)
            self.let_it_end()
        self.federation.dies_in(victim, job_id)
        if in_rounds:
            for name in self.federation.roles.keys() - {victim}:
                self.federation.wait_until(lambda name=name: said in self.federation.view(name, job_id)["note"])
        self.federation.start(victim)
        if in_rounds:
            self.in_a_round(job_id)
        self.let_it_end()
        self.all_done(job_id)

    def ready(self) -> None:
        """All nodes are up and connected, and nothing is told to them yet.

        A node whose links still greet otherwise is started anew: a failed test left it, and it would never connect.
        """
        for name in self.federation.roles:
            if (self.shared / f"{name}-other-greeting").exists() and self.federation.processes[name].poll() is None:
                self.federation.kill(name)
        for told in self.shared.iterdir():
            told.unlink()
        for name in self.federation.roles:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
        self.federation.wait_until(lambda: all(map(self.federation.connected, self.federation.roles)))

    def cancel_all(self) -> None:
        """What a failed test left must not hold up the next."""
        for name in self.federation.roles:
            if self.federation.processes[name].poll() is None:
                for view in self.federation.client(name).jobs():
                    if view["state"] in ("waiting", "running"):
                        with suppress(UsageError):  # it has ended meanwhile
                            self.federation.client(name).cancel(view["id"])
