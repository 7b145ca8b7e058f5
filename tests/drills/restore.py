"""A node loses its disk in a job and is restored from yesterday's backup: ``make drill-restore``.

Two paired nodes, each a process as a user starts it; first the passive one loses everything but its settings and keys, then the
active one. The drill ends with status 1 where anything is not as docs/guides/recover-after-a-failure.md says. It prints when
each step was done, counted from the kill.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conftest import make_trial
from tests.node.nodes import command
from tests.trust.test_new_authority_nodes import LONG, Paired

JOB = "align: {protocol: psi}\ntrain: {epochs: 2, bottom: [4], active_bottom: [4], top: [4]}\n"
OTHER = {"lab": "clinic", "clinic": "lab"}


class Drill:
    """What happens to the node ``lost``.

    Args:
        nodes: both, running.
        lost: the one that loses its disk.
        backup: where yesterday's backup is written.
    """

    def __init__(self, nodes: Paired, lost: str, backup: Path) -> None:
        self.nodes, self.lost, self.other, self.backup = nodes, lost, OTHER[lost], backup
        self.began = 0.0

    def say(self, *words: str, at: str = "") -> str:
        """Run a command of the owner of a node; its output."""
        done = command(*words, *(["--config", str(self.nodes.config(at))] if at else []), real_nodes=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def log(self, what: str) -> None:
        after = f"{time.monotonic() - self.began:6.1f} s" if self.began else " " * 8
        print(f"{after}  {what}", flush=True)

    def run(self, text: str = JOB) -> None:
        job = self.nodes.submit(text)
        ends = {name: self.nodes.end(name, job) for name in self.nodes.roles}
        assert [end["state"] for end in ends.values()] == ["done", "done"], ends

    def begin_long(self) -> str:
        """A job that both nodes train."""
        job = self.nodes.submit(LONG)
        self.nodes.wait_until(lambda: self.nodes.in_training("clinic", job))
        return job

    def fail(self, code: str) -> dict[str, dict[str, Any]]:
        """A job that ends with this error at the restored node, and names it at the other one."""
        job = self.nodes.submit(JOB)
        ends = {name: self.nodes.end(name, job)["error"] for name in self.nodes.roles}
        assert ends[self.lost]["code"] == code, ends
        assert code in ends[self.other]["message"], ends
        return ends

    def play(self) -> float:
        """The whole drill; seconds from the kill to the end of the next job."""
        nodes, lost, other = self.nodes, self.lost, self.other
        self.run()
        known = self.begin_long()
        self.say("backup", str(self.backup), at=lost)
        self.say("backup", "verify", str(self.backup))
        self.run()
        unknown = self.begin_long()
        self.began = time.monotonic()
        nodes.kill(lost)
        shutil.rmtree(nodes.folder / lost / "state")
        shutil.rmtree(nodes.folder / lost / "peers")
        (nodes.folder / lost / "policy.yaml").unlink()
        self.log(f"{lost} was killed in a job, and lost all but its settings and keys")
        said = self.say("restore", str(self.backup), at=lost)
        assert f"accept-loss {other}" in said, said
        self.log("the backup is verified and restored")
        nodes.start(lost)
        nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))
        self.log("the node is up, and linked with its partner")
        assert nodes.view(lost, known)["error"]["code"] == "E_RESTORED"
        assert nodes.end(other, known)["error"]["code"] == "E_JOB_ENDED"
        self.log("the job that was under way in the backup has ended at both")
        if lost == "clinic":  # its active party does not know it, and no other one decides but by its owner
            nodes.client(other).cancel(unknown)
        self.log(f"the job that is in no backup has ended at {other}: {nodes.end(other, unknown)['state']}")
        ends = self.fail("E_STATE_OLDER")
        assert f"accept-loss {other}" in ends[lost]["hint"], ends
        self.log("both owners see that the ledger is older than the partner has seen (E_STATE_OLDER)")
        self.say("accept-loss", other, at=lost)
        self.fail("E_STATE_OLDER")  # the other owner has not accepted it
        self.say("accept-loss", lost, "--of-peer", at=other)
        self.log("both owners have accepted the loss")
        self.run()
        took = time.monotonic() - self.began
        self.log("the next job has run")
        for name in nodes.roles:
            assert "are as they were written" in self.say("ledger", "--verify", at=name)
        assert "restored from a backup" in self.say("ledger", at=lost)
        return took


def main() -> int:
    """Both drills; the exit status."""
    with tempfile.TemporaryDirectory(prefix="vfl-drill-") as folder:
        base = Path(folder)
        nodes = Paired(base, make_trial(base))
        nodes.as_users_start_them()
        budgets = {"everyone": {"budgets": {"alignments": 99, "trainings": 99, "changes": 99}}}
        nodes.configure("clinic", **budgets)
        nodes.start_both(**budgets)
        try:
            for lost in ("lab", "clinic"):
                took = Drill(nodes, lost, base / f"{lost}.tar").play()
                print(f"{lost}: {took:.0f} s from the loss to the end of the next job\n", flush=True)
        except AssertionError as error:
            print(f"the drill failed: {error}", file=sys.stderr)
            for name in nodes.roles:
                print(f"--- log of {name}\n{nodes.log(name)[-3000:]}", file=sys.stderr)
            return 1
        finally:
            nodes.end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
