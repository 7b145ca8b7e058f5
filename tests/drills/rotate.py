"""Every certificate changes, and one job goes on: 91 days and more of two nodes' clocks in one training: ``make drill-rotate``.

The clock of the day of both nodes is that of ``tests/trust/clock.c``: it goes on by steps while they run, and what they wait
for stays true (libfaketime changes that, too). By this clock,

    day 20   the clinic's owner makes a new authority (vfl-node renew --authority); the lab gets its card over the link
    day 50   the clinic shows the certificate of the new authority; on day 51 the former one has ended
    day 60   the lab renews its certificate by itself
    day 90   every certificate that a node showed on day 0 has ended

Exit status 0: the job was running at every look and ended as done, no node was started again, neither node refused a call, and
afterwards a new connection and another job were accepted. A link that began with a certificate that has ended since is made
anew, and the job goes on meanwhile.

The control is that of two nodes whose authorities' keys lie elsewhere, so that nothing is renewed: on day 91 their link ends.
gRPC refuses a new connection, by the clock of the dialer and by that of the clinic.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509

from tests.conftest import make_trial
from tests.trust.test_new_authority_nodes import LONG, Paired
from vfl_node.errors import VflError
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.dialer import Dialer

JOB = "align: {protocol: psi}\ntrain: {epochs: 2, bottom: [4], active_bottom: [4], top: [4]}\n"
LAST, AUTHORITY_DAY, DAY_S, TRAINS_S = 92, 20, 86_400, 600
LOOKED_S = 45.0
"""Nodes look at certificates every 20 seconds: in this time both have looked twice."""
STAYS = {50.5, 60.5, 91, LAST}
"""Days on which both clocks stay until both nodes have looked. All others take a second: each change has more than that."""


class Rotation:
    """Two paired nodes, and their clock.

    Args:
        base: an empty folder.
    """

    def __init__(self, base: Path) -> None:
        base.mkdir()
        self.nodes, self.clock = Paired(base, make_trial(base)), base / "clock"
        library, compiler = base / "clock.so", shutil.which("cc") or "cc"
        source = Path(__file__).parents[1] / "trust" / "clock.c"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        self.set_day(0)
        self.words = ("env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD_FILE={self.clock}", sys.executable, "-m")
        self.nodes.programs = dict.fromkeys(self.nodes.roles, self.nodes.command(*self.words, "vfl_node"))
        self.shown: dict[str, list[x509.Certificate]] = {}

    def set_day(self, day: float) -> None:
        """So far are both clocks ahead from now on."""
        self.day = day
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("<q", round(day * DAY_S)))

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(days=self.day)

    def log(self, what: str) -> None:
        print(f"day {self.day:5.1f}  {what}", flush=True)

    def say(self, *words: str) -> str:
        """Run a program by the nodes' clock; its output."""
        done = subprocess.run([*self.words, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def start(self) -> None:
        budgets = {"everyone": {"budgets": {"alignments": 99, "trainings": 99, "changes": 99}}}
        self.nodes.configure("clinic", **budgets)
        self.nodes.start_both(**budgets)

    def leaf(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.nodes.folder / name / "keys" / "node.crt").read_bytes())

    def connects(self) -> str:
        """What the lab says of a new connection to the clinic, by gRPC and whatever its node thinks of it; empty: accepted."""
        return self.say("tests.drills.rotate", "--connect", str(self.nodes.config("lab"))).strip()

    def refused(self, name: str) -> list[str]:
        """The series of calls that the node refused."""
        text = self.nodes.client(name)._fetch("GET", "/metrics").decode()
        return re.findall(r"^vfl_calls_refused_total\{.*", text, re.MULTILINE)


class Drill(Rotation):
    """Nothing is out of order."""

    def begin(self) -> str:
        """A job that trains for about so long on a machine as busy as now."""
        first = self.nodes.submit(LONG)
        self.nodes.wait_until(lambda: self.nodes.in_training("clinic", first))
        rates = []
        for _ in range(5):
            before, began = self.nodes.view("clinic", first)["done"], time.monotonic()
            time.sleep(2)
            rates.append((self.nodes.view("clinic", first)["done"] - before) / (time.monotonic() - began))
        total = self.nodes.view("clinic", first)["total"]
        self.nodes.client("clinic").cancel(first)
        epochs = round(max(rates) * TRAINS_S * 100_000 / total)
        job = self.nodes.submit(LONG.replace("100000", str(epochs)))
        self.nodes.wait_until(lambda: self.nodes.in_training("clinic", job))
        self.log(f"a job of {epochs} epochs trains")
        return job

    def look(self, job: str, seconds: float) -> None:
        """For so long the job goes on at both."""
        limit = time.monotonic() + seconds
        before = self.nodes.view("clinic", job)["done"]
        while True:
            views = {name: self.nodes.view(name, job) for name in self.nodes.roles}
            assert {view["state"] for view in views.values()} == {"running"}, (self.day, views)
            if time.monotonic() > limit and views["clinic"]["done"] > before:
                return
            assert time.monotonic() < limit + 60, ("the job stands still", self.day, views)
            time.sleep(0.5)

    def note_certificates(self) -> None:
        """Which ones lie at both nodes now."""
        for name in self.nodes.roles:
            leaf = self.leaf(name)
            if leaf not in self.shown.setdefault(name, []):
                self.shown[name].append(leaf)
                self.log(f"{name} shows its certificate {len(self.shown[name])}, until {leaf.not_valid_after_utc:%Y-%m-%d}")

    def play(self) -> None:
        """The whole drill."""
        nodes = self.nodes
        self.start()
        processes = dict(nodes.processes)
        job = self.begin()
        self.note_certificates()
        for day in (half / 2 for half in range(2, 2 * LAST + 1)):
            if day % 1 and day not in STAYS:
                continue
            self.set_day(day)
            if day == AUTHORITY_DAY:
                self.say("vfl_node", "renew", "--authority", "--config", str(nodes.config("clinic")))
                nodes.wait_until(lambda: "clinic.2.card" in nodes.files("lab"))
                self.log("the clinic's owner made a new authority, and the lab has its card")
            self.look(job, LOOKED_S if day in STAYS else 1)
            self.note_certificates()
        ended = [leaf for leaves in self.shown.values() for leaf in leaves if leaf.not_valid_after_utc < self.now()]
        assert {leaves[0] in ended for leaves in self.shown.values()} == {True}, "a certificate of day 0 still holds"
        assert {name: len(leaves) for name, leaves in self.shown.items()} == {"clinic": 3, "lab": 2}
        self.log(f"the job trains, and {len(ended)} certificates have ended")
        assert self.connects() == ""
        assert {name: nodes.end(name, nodes.submit(JOB))["state"] for name in nodes.roles} == {"clinic": "done", "lab": "done"}
        self.log("a new connection and new jobs are accepted")
        ends = {name: nodes.end(name, job)["state"] for name in nodes.roles}
        assert ends == {"clinic": "done", "lab": "done"}, ends
        self.log("the job is done at both")
        assert processes == nodes.processes
        assert {process.poll() for process in processes.values()} == {None}
        assert not (refused := {name: each for name in nodes.roles if (each := self.refused(name))}), refused
        for name in nodes.roles:
            assert "are as they were written" in self.say("vfl_node", "ledger", "--verify", "--config", str(nodes.config(name)))
            links = nodes.log(name).count('"peer connected"')
            self.log(
                f"{name} was not started again and refused no call; its link was made {links} time(s), its ledger verifies"
            )


class Control(Rotation):
    """Nothing is renewed."""

    def play(self) -> None:
        """Its end is that of the certificates."""
        nodes = self.nodes
        self.start()
        for name in nodes.roles:
            (nodes.folder / name / "keys" / "authority.key").unlink()
        assert self.connects() == ""
        job = nodes.submit(LONG)
        nodes.wait_until(lambda: nodes.in_training("clinic", job))
        self.set_day(91)
        nodes.wait_until(lambda: not nodes.connected("clinic") and not nodes.connected("lab"))
        cause = nodes.client("lab").health()["peers"]["clinic"]["cause"]
        assert "expired" in cause, cause
        self.log(f"control: the link has ended ({cause})")
        mine = self.connects()
        assert mine
        self.log(f"control: a new connection is refused ({mine})")
        self.words = (sys.executable, "-m")  # by the clock of this machine the clinic's certificate still holds
        theirs = self.connects()
        assert theirs
        self.log(f"control: and by the clinic alone, where the dialer's clock is behind ({theirs})")


def connect(config: Path) -> str:
    """Open one more stream to the clinic by this process's clock; what comes of it, empty if it is accepted."""
    settings = load_settings(config)
    files, address = settings.tls, settings.peers["clinic"].address
    assert files
    assert address
    held = x509.load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_before_utc
    own = load_credentials(files, name=settings.name, federation=settings.federation, peers=settings.authorities, now=held)
    try:
        Dialer(address, own=own.name, peer="clinic", federation=own.federation, credentials=own).probe().close()
    except VflError as error:
        return error.message
    return ""


def main() -> int:
    """Both; the exit status."""
    if sys.argv[1:2] == ["--connect"]:
        print(connect(Path(sys.argv[2])))
        return 0
    with tempfile.TemporaryDirectory(prefix="vfl-drill-") as folder:
        for kind in (Control, Drill):
            drill = kind(Path(folder, kind.__name__.lower()))
            try:
                drill.play()
            except AssertionError as error:
                print(f"the drill failed: {error}", file=sys.stderr)
                for name in drill.nodes.roles:
                    print(f"--- log of {name}\n{drill.nodes.log(name)[-3000:]}", file=sys.stderr)
                return 1
            finally:
                drill.nodes.end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
