"""Two nodes go from the release before to this one, one after the other, and one of them goes back: ``make drill-upgrade``.

Both releases are wheels, each in an environment of its own. The nodes are processes of these environments, paired and started
as by their owners. The drill ends with status 1 where anything is not as docs/guides/upgrade.md says.

The release before is the commit ``OLD``; without one it is the newest tag of git. As long as there is no tag, it is the commit
before the one that brought today's version of the index: of all that went before it is the nearest from which there is
something to migrate.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import Trial, make_trial
from tests.node.indexes import version_of
from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.configuration.models import parse
from vfl_node.execution.trial import Trial as Seeds
from vfl_node.execution.trial import write_trial
from vfl_node.job import Job
from vfl_node.node.index import MIGRATIONS
from vfl_node.node.index_copies import path_of_copy
from vfl_node.version import VERSION

ROOT = Path(__file__).parents[2]
JOB = """\
name: {name}
parties: {{active: clinic, passive: lab}}
align: {{protocol: psu}}
train: {{epochs: 3, bottom: [8], active_bottom: [4], top: [8], batch_size: 32, learning_rate: 0.01}}
"""
JOBS = ("one", "two", "three")
TIMES = {"seconds", "started", "finished"}


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def commit_before() -> str:
    """The release before, as said above."""
    if tags := git("tag", "--merged", "HEAD", "--sort=-creatordate").splitlines():
        return tags[0]
    brought = git("log", "--format=%H", "-S", MIGRATIONS[-1][0], "--", "vfl_node/node/index.py").splitlines()
    return f"{brought[-1]}^" if brought else "HEAD"


@dataclass(frozen=True)
class Release:
    """A release in an environment of its own.

    Attributes:
        name: for people.
        program: its ``vfl-node``.
        index: the version of its index.
    """

    name: str
    program: Path
    index: int

    @classmethod
    def build(cls, name: str, commit: str, folder: Path) -> Release:
        """Its wheel, and an environment with that and with what the one of this process has, in the new ``folder``."""
        (source := folder / "source").mkdir(parents=True)
        with subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        offline = ["--no-index", "--no-deps"]
        subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, source], check=True)
        (wheel,) = folder.glob("*.whl")
        venv.create(folder / "venv", symlinks=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
        (packages,) = folder.glob("venv/lib/python*/site-packages")
        (packages / "others.pth").write_text(
            "\n".join(site.getsitepackages())
        )  # read when pip is done: it touches none of them
        look = "import vfl_node.node.index as index; print(index.__file__, index.VERSION)"
        found = subprocess.run([python, "-I", "-c", look], check=True, capture_output=True, text=True).stdout.split()
        assert Path(found[0]).is_relative_to(packages), found
        return cls(
            f"{name} ({git('rev-parse', '--short', commit)}, index {found[1]})", python.with_name("vfl-node"), int(found[1])
        )

    def words(self, *words: object) -> list[str]:
        """Of a command that runs with this release, and with no other code."""
        return ["env", "-u", "PYTHONPATH", str(self.program), *map(str, words)]


class Nodes(OwnAuthorities):
    """A clinic and a lab whose secrets follow from a seed, so that two runs of them can be compared.

    Attributes:
        releases: name → what it runs.
    """

    def __init__(self, folder: Path, trial: Trial, releases: Mapping[str, Release]) -> None:
        self.folder, self.trial, self.roles = folder, trial, {"clinic": "active", "lab": "passive"}
        self.processes, self.failpoints, self.releases = {}, {}, dict(releases)
        self.programs = {name: self.command(*release.words()) for name, release in releases.items()}
        everyone = {"budgets": {"alignments": 99, "trainings": 99, "changes": 99}}
        for name, role in self.roles.items():
            self.say_at(name, "init", name, folder / name, "--role", role)
            write_trial(folder / name / "state", Seeds.from_number(7, name))
            self.configure(name, listen=None, data={"path": str(trial.files[name])}, everyone=everyone)

    def begin_both(self) -> None:
        """Start and pair them, as their owners do."""
        self.start_both()
        (joined, said, words), (invited, _, same) = self.pair()
        assert (joined, invited, words) == (0, 0, same), said
        self.wait_until(lambda: all(map(self.connected, self.roles)))

    def say_at(self, name: str, *words: object, status: int = 0) -> str:
        """What a command of the owner of a node says."""
        done = subprocess.run(self.releases[name].words(*words), capture_output=True, text=True, check=False)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def say(self, *words: str) -> subprocess.Popen[str]:
        name = Path(words[-1]).parent.name  # the owner of these settings
        return subprocess.Popen(self.releases[name].words(*words), stdin=-1, stdout=-1, stderr=-1, text=True)

    def stop(self, name: str) -> None:
        assert self.kill(name, 15) == 0

    def begin(self, name: str, release: Release) -> None:
        """Start a node with this release, and wait for its partner."""
        self.releases[name], self.programs[name] = release, self.command(*release.words())
        self.start(name)
        self.wait_until(lambda: all(map(self.connected, self.roles)))

    def verify(self) -> None:
        for name in self.roles:
            said = self.say_at(name, "ledger", "--verify", "--config", self.config(name))
            assert "are as they were written" in said, said

    def submit_job(self, name: str) -> str:
        """Submit a job of this name at the clinic; its id."""
        job = parse(JOB.format(name=name), Job, source="job")
        return self.client("clinic").submit(job.canonical())["id"]

    def finish(self, job: str) -> dict[str, dict[str, Any]]:
        """Wait until a job is done; what it leaves at each party, as :func:`read_results`."""
        for party in self.roles:
            end = self.end(party, job)
            assert end["state"] == "done", end
        self.verify()
        return {party: read_results(self.job_folder(party, job) / "artefacts") for party in self.roles}


def read_results(folder: Path) -> dict[str, Any]:
    """What a job leaves, by its files' names: models byte by byte, the report without times, of others that they are there."""
    read = {"model.safetensors": Path.read_bytes, "report.json": lambda path: without_times(json.loads(path.read_bytes()))}
    return {path.name: read.get(path.name, lambda _: None)(path) for path in folder.iterdir()}  # type: ignore[no-untyped-call]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two results differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key, "absent"), other.get(key, "absent"), f"{place}/{key}")
    elif one != other:
        yield f"{place}: {str(one)[:80]} and {str(other)[:80]}"


class Drill:
    """The whole drill, in a new folder.

    Args:
        old: the release before.
        new: this one.
        base: where all of it lies.
    """

    def __init__(self, old: Release, new: Release, base: Path) -> None:
        self.old, self.new, self.base, self.trial = old, new, base, make_trial(base)
        self.began = time.monotonic()

    def log(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    @contextmanager
    def nodes(self, name: str, clinic: Release, lab: Release) -> Iterator[Nodes]:
        """Both nodes, of new parties; the end of their logs is shown where something fails."""
        (self.base / name).mkdir()
        nodes = Nodes(self.base / name, self.trial, {"clinic": clinic, "lab": lab})
        try:
            nodes.begin_both()
            yield nodes
        except AssertionError:
            for party in nodes.roles:
                print(f"--- log of {party}\n{nodes.log(party)[-3000:]}", file=sys.stderr)
            raise
        finally:
            nodes.end_all()

    def run_without_upgrade(self, name: str, release: Release) -> dict[str, dict[str, Any]]:
        """What the jobs leave at each party where both have one release all the time."""
        with self.nodes(name, release, release) as nodes:
            found = {name: nodes.finish(nodes.submit_job(name)) for name in JOBS}
        self.log(f"{len(JOBS)} jobs without an upgrade: {release.name}")
        return found

    def play(self) -> None:
        """Raises AssertionError where something is not as it should be."""
        old, new = self.old, self.new
        known = {old: self.run_without_upgrade("old-all-the-time", old), new: self.run_without_upgrade("new-all-the-time", new)}

        def compare(nodes: Nodes, name: str, job: str) -> None:
            for party, found in nodes.finish(job).items():
                others = list(differences(found, known[nodes.releases[party]][name][party]))
                assert not others, (job, party, others)
            self.log(f"job {name} is done, with the model and the report of a run without an upgrade")

        with self.nodes("upgraded", old, new) as nodes:
            index = nodes.folder / "clinic" / "state" / "jobs.sqlite"
            at = ("--config", nodes.config("clinic"))
            self.log(f"clinic: {old.name}, lab: {new.name}; paired")
            compare(nodes, "one", nodes.submit_job("one"))

            self.upgrade(nodes, index)
            nodes.stop("clinic")
            said = nodes.say_at("clinic", "rollback", "--to", old.index, *at)
            assert ("again as it was" if old.index < new.index else "nothing needs to be done") in said, said
            assert version_of(index) == old.index
            nodes.begin("clinic", old)
            nodes.verify()
            self.log(f"the clinic has gone back: {old.name}")
            compare(nodes, "two", nodes.submit_job("two"))

            self.upgrade(nodes, index)
            compare(nodes, "three", job := nodes.submit_job("three"))

            nodes.stop("clinic")
            if old.index < new.index:
                said = nodes.say_at("clinic", "rollback", "--to", old.index, *at, status=1)
                assert "1 job began" in said, said
                assert job in said, said
                assert version_of(index) == new.index
                self.log("now the clinic cannot go back: what it knows of job three would be lost, and that is said")
            nodes.begin("clinic", new)
            nodes.verify()

    def upgrade(self, nodes: Nodes, index: Path) -> None:
        """The clinic, as its owner would."""
        nodes.releases["clinic"] = self.new  # whose command looks while the earlier node runs
        said = nodes.say_at("clinic", "upgrade", "--check", "--config", nodes.config("clinic"))
        assert f"lab has release {VERSION}, with which {VERSION} talks" in said, said
        nodes.stop("clinic")
        nodes.begin("clinic", self.new)
        assert version_of(index) == self.new.index
        if self.old.index < self.new.index:
            assert version_of(path_of_copy(index, self.old.index)) == self.old.index
        nodes.verify()
        self.log(f"the clinic is upgraded: both {self.new.name}")


def main() -> int:
    """The drill; the exit status."""
    with tempfile.TemporaryDirectory(prefix="vfl-drill-") as folder:
        base = Path(folder)
        given = {"old": os.environ.get("OLD") or commit_before(), "new": "HEAD"}
        with ThreadPoolExecutor() as pool:
            old, new = pool.map(lambda name: Release.build(name, given[name], base / name), given)
        drill = Drill(old, new, base)
        try:
            drill.play()
        except AssertionError as error:
            print(f"the drill failed: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
