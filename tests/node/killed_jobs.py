"""Real nodes, each of which can be killed (-9) at any place in a job: it must end as if nothing had been."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.models import storage
from vfl_node.node.counts import PartnerCounts

TIMES = ("started", "finished", "phases")
"""Of a report: what depends on when attempts broke off."""

SECONDS = ("seconds", "bytes", "bytes_sent", "bytes_received", "defence_seconds", "defence_seconds_share")
"""The same, anywhere in a report."""


class KilledJobs:
    """Nodes that may be killed anywhere, over many jobs; and what a job leaves that nothing disturbed.

    Args:
        federation: the nodes, not started yet; one listens, and passive parties dial it.
        forked: starts processes.
        settings: name → settings of a node beside those of all.
    """

    def __init__(self, federation: Any, forked: Any, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        import dying_node

        self.federation, self.names = federation, tuple(federation.roles)
        for name in self.names:
            self.folder(name).mkdir()
            federation.programs[name] = partial(forked, dying_node.run, self.folder(name), dict(os.environ))
            federation.configure(name, **(settings or {}).get(name, {}))
        federation.start_several()
        self._clean: dict[str, Any] = {}

    def folder(self, name: str) -> Any:
        """Where ``name`` is told to die; it names the seed, too."""
        return self.federation.folder / f"{name}-deaths"

    def submit(self, text: str, **deaths: int) -> str:
        """A job in which the parties named die at the numbers of places given."""
        for name in self.names:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
            for file in ("death", "places"):
                (self.folder(name) / file).unlink(missing_ok=True)
            partners = self.federation.folder / name / "state" / "partners"
            for kind in ("labels*", "dp-*"):
                for counted in partners.glob(f"*/{kind}"):
                    counted.unlink()  # each case is the first training over these records: reports say how many there were
            for folder in partners.glob("*/"):
                with suppress(UsageError):  # nothing is spent
                    PartnerCounts(folder, folder.name).forget()
        for name, number in deaths.items():
            (self.folder(name) / "death").write_text(str(number))
        self.federation.wait_until(lambda: all(map(self.federation.connected, self.names)))
        return str(self.federation.submit(text))

    def outcome(self, job_id: str) -> dict[str, Any]:
        """What must not depend on how often a node was killed: models, halves, and reports but for times and traffic."""
        left = {}
        for name in self.names:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (name, view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            del report["job"]["id"]
            for key in TIMES:
                del report[key]
            model, weights = self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors", {}
            if model.exists():
                weights = {key: value.numpy().tobytes() for key, value in storage.load(model)[0].items()}
            halves = {path.name: path.read_bytes().replace(job_id.encode(), b"") for path in model.parent.glob("half-*.onnx")}
            left[name] = timeless(report), weights | halves
        return left

    def clean(self, text: str) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """What such a job leaves that nothing disturbs, and the places that each party passed."""
        if text not in self._clean:
            left = self.outcome(self.submit(text, **dict.fromkeys(self.names, 0)))
            places = {name: (self.folder(name) / "places").read_text().split() for name in self.names}
            self._clean[text] = left, places
        left, places = self._clean[text]
        return left, places

    def killed(self, text: str, victim: str, number: int) -> None:
        """The job ends with the same bytes though ``victim`` dies at this place of it, from 1."""
        expected, places = self.clean(text)
        job_id = self.submit(text, **{victim: number})
        self.federation.dies_in(victim, job_id)
        self.federation.start(victim)
        left = self.outcome(job_id)
        for name in self.names:
            assert left[name] == expected[name], (name, victim, number, places[victim][number - 1])


def timeless(value: Any) -> Any:
    """A report's part without :data:`SECONDS`."""
    if isinstance(value, dict):
        return {key: timeless(of) for key, of in value.items() if key not in SECONDS}
    return [timeless(of) for of in value] if isinstance(value, list) else value
