"""Five incidents for a person who has the runbook: ``python -m tests.drills.incidents begin NUMBER FOLDER``.

Two paired nodes run, each a process as a user starts it, and one thing goes wrong. ``FOLDER/README.txt`` says what the person
on call knows: where things lie, and the alert. The person works by docs/guides/runbook.md alone. ``check NUMBER FOLDER`` then
says whether all is well again, with status 1 where it is not; ``end NUMBER FOLDER`` ends the nodes. Root, for incident 2.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509

from tests.conftest import make_trial
from tests.node.nodes import NOBODY_ELSE, command
from tests.trust.test_new_authority_nodes import Paired
from vfl_node.errors import VflError
from vfl_node.transport.authority import request_for, sign

JOB = "align: {protocol: psi}\ntrain: {epochs: 2, bottom: [4], active_bottom: [4], top: [4]}\n"
PURPOSE = "readmission study 12"
BUDGETS = {"budgets": {"alignments": 99, "trainings": 99, "changes": 99}}

SITE = """\
You are on call for two nodes, the clinic and the lab. They run on this machine.

    clinic/, lab/             each with node.yaml, policy.yaml, keys/ and state/
    clinic.log, lab.log       their logs (in place of journalctl)
    backups/                  last night's backups of both
    job.yaml                  a job; vfl-node submit job.yaml --config clinic/node.yaml runs it

There is no systemd here. To stop a node: kill its process (its number stands in state/running.json). To start it:
    setsid vfl-node --config clinic/node.yaml >>clinic.log 2>&1 </dev/null &

What you have got:
"""


class Site(Paired):
    """The two nodes of a folder, which go on when this program has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.roles = folder, {"clinic": "active", "lab": "passive"}
        self.processes, self.failpoints = {}, {}
        self.programs = dict.fromkeys(self.roles, self.command("setsid", sys.executable, "-m", "vfl_node"))

    def make(self) -> None:
        """Both nodes, paired, with a job done, a backup of each, and one more job since."""
        super().__init__(self.folder, make_trial(self.folder))
        self.programs = dict.fromkeys(self.roles, self.command("setsid", sys.executable, "-m", "vfl_node"))
        self.configure("clinic", everyone=BUDGETS)
        self.start_both(everyone=BUDGETS)
        (self.folder / "job.yaml").write_text(self.trial.job(JOB).canonical())
        (self.folder / "backups").mkdir()
        self.run()
        for name in self.roles:
            self.say("backup", str(self.folder / "backups" / f"{name}.tar"), at=name)
        self.run()

    def say(self, *words: str, at: str) -> str:
        done = command(*words, "--config", self.config(at), real_nodes=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def submit(self, text: str = "") -> str:
        document = json.loads((self.folder / "job.yaml").read_text())
        return self.client("clinic").submit(json.dumps(document | {"purpose": text} if text else document))["id"]

    def run(self) -> str:
        """A job that both end well."""
        job = self.submit()
        ends = {name: self.end(name, job)["state"] for name in self.roles}
        assert set(ends.values()) == {"done"}, f"a new job does not end well: {ends}"
        return job

    def pids(self) -> dict[str, int]:
        """Of the nodes that run, however they were started."""
        found = {}
        for name in self.roles:
            with suppress(OSError, ValueError):
                pid = int(self.running(name)["pid"])
                process = Path(f"/proc/{pid}")
                if f"{name}/node.yaml" in (process / "cmdline").read_text():
                    found[name] = pid
        return found

    def note(self, **facts: Any) -> None:
        """Keep for the check what the person is not told."""
        (self.folder / ".facts").write_text(json.dumps(facts))

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads((self.folder / ".facts").read_text())

    def check(self) -> None:
        """Both are up and ready, linked, run a job, and their ledgers hold."""
        assert set(self.pids()) == set(self.roles), f"of the nodes only these run: {list(self.pids())}"
        for name in self.roles:
            health = self.client(name).health()
            assert health["status"] != "failing", f"{name}: {health['causes']}"
            assert self.connected(name), f"{name} is not linked"
        self.run()
        for name in self.roles:
            assert "are as they were written" in self.say("ledger", "--verify", at=name)


def let_leaf_expire(site: Site) -> None:
    """The authority's key lies elsewhere, so that the node could not renew its leaf."""
    site.kill("lab", 15)
    safe = site.folder / "safe"
    files = site.own("lab").settings.tls
    assert files
    request = request_for("lab", site.own("lab").settings.federation, files.key.read_bytes())
    then = datetime.now(timezone.utc) - timedelta(days=91)
    files.certificate.write_bytes(sign(files.ca.read_bytes(), files.authority_key.read_bytes(), request, days=90, now=then))
    safe.mkdir(mode=0o700)
    shutil.move(files.authority_key, safe)
    site.note(leaf=str(files.certificate))
    site.programs["lab"](["--role", "passive", "--config", str(site.config("lab"))], site.folder / "lab.log")


def leaf_is_new(site: Site) -> None:
    leaf = x509.load_pem_x509_certificate(Path(site.facts["leaf"]).read_bytes())
    assert leaf.not_valid_after_utc > datetime.now(timezone.utc) + timedelta(days=30), "the leaf ends soon"


def fill_disk(site: Site) -> None:
    """Something else lies where the state folder is, and a job cannot go on."""
    site.kill("lab", 15)
    state, kept = site.folder / "lab" / "state", site.folder / "kept"
    shutil.move(state, kept)
    state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", str(state)], check=True)
    shutil.copytree(kept, state, dirs_exist_ok=True)
    shutil.rmtree(kept)
    site.start("lab")
    site.wait_until(lambda: site.connected("clinic"))
    with suppress(OSError), (state / "core.4711").open("wb") as file:
        while True:
            file.write(os.urandom(1 << 14))
            file.flush()
    site.note(job=site.submit())


def disk_has_room(site: Site) -> None:
    assert shutil.disk_usage(site.folder / "lab" / "state").free > 8 << 20, "the disk of the lab's state is still full"
    job = site.facts["job"]
    assert site.view("clinic", job)["state"] == "done", f"the job {job} has not gone on"
    assert (site.folder / "lab" / "state" / "partners" / "clinic" / "ledger.log").exists()


def lose_partner(site: Site) -> None:
    """The memory of the partner is gone, and a job has failed."""
    site.kill("lab", 15)
    shutil.rmtree(site.folder / "lab" / "state" / "partners" / "clinic")
    site.start("lab")
    site.wait_until(lambda: site.connected("clinic"))
    job = site.submit()
    site.wait_until(lambda: site.view("clinic", job)["state"] == "failed")


def partner_is_known(site: Site) -> None:
    """What last night's backup had is there again."""
    said = site.say("ledger", "--partner", "clinic", at="lab")
    assert "restored" in said, "the lab's ledger does not have what the backup had"


def forget_drain(site: Site) -> None:
    """Somebody has drained the lab and has not told anybody."""
    site.say("drain", at="lab")
    site.note(jobs=[site.submit() for _ in range(3)])


def queue_is_empty(site: Site) -> None:
    for job in site.facts["jobs"]:
        assert site.view("clinic", job)["state"] == "done", f"the job {job} is not done"


def refuse_job(site: Site) -> None:
    """The lab's owner is asked about each job, and refuses one that says no purpose."""
    site.kill("lab", 15)
    site.start("lab", policy={"preset": "careful", "everyone": BUDGETS, "approve": [{"name": "all", "by": "one"}, NOBODY_ELSE]})
    site.wait_until(lambda: site.connected("clinic"))
    job = site.submit()
    site.wait_until(lambda: site.client("lab").asks())
    site.client("lab").refuse(job, "purpose")
    site.wait_until(lambda: site.view("clinic", job)["state"] == "failed")


def purpose_is_consented(site: Site) -> None:
    done = [view["id"] for view in site.client("clinic").jobs() if view["state"] == "done"]
    manifests = [site.client("lab").manifest(job) for job in done]
    assert any(PURPOSE in json.dumps(manifest) for manifest in manifests), "no job with the purpose is done"


@dataclass(frozen=True)
class Incident:
    """One of them.

    Attributes:
        told: what the person gets to read.
        happens: makes it so.
        mended: raises AssertionError unless the end is as it should be, besides :meth:`Site.check`.
        asks: whether the lab's owner says yes to each job, so that the check submits none.
    """

    told: str
    happens: Callable[[Site], None]
    mended: Callable[[Site], None]
    asks: bool = False


INCIDENTS = (
    Incident(
        "VflLinkDown, VflCertificateExpiresSoon of the lab. The security officer keeps a key in safe/.",
        let_leaf_expire,
        leaf_is_new,
    ),
    Incident("VflDiskLow and VflNotReady of the lab. The clinic's job must not be lost.", fill_disk, disk_has_room),
    Incident("VflJobFailed of the clinic, after somebody tidied up at the lab.", lose_partner, partner_is_known),
    Incident("VflQueueOld of the clinic. Both owners say that nothing is planned today.", forget_drain, queue_is_empty),
    Incident(
        "VflJobFailed, VflRefusalsOften of the clinic. You have called the lab's owner, who says: what is it for? It needs\n"
        f'    the purpose "{PURPOSE}". Then you may say yes for me.',
        refuse_job,
        purpose_is_consented,
        asks=True,
    ),
)


def end(site: Site) -> None:
    for pid in site.pids().values():
        os.kill(pid, 15)
    site.wait_until(lambda: not site.pids())
    subprocess.run(["umount", "-l", str(site.folder / "lab" / "state")], check=False, capture_output=True)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["begin", "check", "end"])
    parser.add_argument("number", type=int, choices=range(1, len(INCIDENTS) + 1))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    site, incident = Site(given.folder.absolute()), INCIDENTS[given.number - 1]
    if given.what == "begin":
        site.folder.mkdir(mode=0o700)
        site.make()
        incident.happens(site)
        (site.folder / "README.txt").write_text(f"{SITE}    {incident.told}\n")
        print((site.folder / "README.txt").read_text())
        os._exit(0)  # the nodes go on
    if given.what == "end":
        end(site)
        return 0
    try:
        if not incident.asks:
            site.check()
        incident.mended(site)
    except (AssertionError, VflError) as error:
        print(f"not yet: {error}", file=sys.stderr)
        return 1
    print(f"incident {given.number}: all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
