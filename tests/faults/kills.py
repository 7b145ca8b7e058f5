"""Rows 1 to 16: parties that die, stop, freeze, or come back as others."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time

import yaml
from rows import row
from world import KINDS, World, parties_of

from vfl_node.errors import VflError
from vfl_node.node.client import Client
from vfl_node.process.failpoints import POINTS

WHO = {"1": "notary", "2": "clinic", "3": "lab"}
ANYTIME = ("send", "receive", "write", "rename", "index")
"""Points that are passed in every phase: they are tried at their first, middle and last passing in a job."""


def places(world: World, kind: str, party: str) -> list[tuple[str, int]]:
    """Every failpoint that ``party`` passes in a job of this kind, and at which passing it dies there."""
    found = []
    for point, passed in sorted(world.passings(kind)[party].items()):
        middle = passed[len(passed) // 2]
        found += [(point, at) for at in sorted({passed[0], middle, passed[-1]} if point in ANYTIME else {middle})]
    return found


def killed(world: World, kind: str, party: str, point: str, at: int) -> bool:
    """One kill, and the end of the job as if there had been none; False where the party never came to that place."""
    world.clean(kind)
    before = len(world.federation.log(party))
    world.prune(party)
    world.again(party, f"{point}=kill@{at}")
    job_id = world.submit(kind)
    if f"failpoint {point} kill" not in world.federation.log(party)[before:]:
        world.dies(party, kind, job_id)
    reached = f"failpoint {point} kill" in world.federation.log(party)[before:]
    if reached and world.federation.processes[party].poll() is None:
        world.dies(party, kind, job_id)
    world.all_up()
    world.same(kind, job_id)
    return reached


def every_place(world: World, party: str) -> tuple[str, int, str]:
    """Kill ``party`` everywhere in every kind of job that it takes part in, or as long as there is time, in an order drawn."""
    kinds = [kind for kind in KINDS if party in parties_of(kind)]
    everywhere = [(kind, point, at) for kind in kinds for point, at in places(world, kind, party)]
    random.Random(os.environ.get("FAULTS_SEED", "1")).shuffle(everywhere)
    ends = time.monotonic() + 60 * float(os.environ.get("FAULTS_MINUTES", "inf"))
    count, points = 0, set()
    for kind, point, at in everywhere:
        if time.monotonic() > ends:
            break
        try:
            reached = killed(world, kind, party, point, at)
        except (AssertionError, VflError) as error:
            raise AssertionError(f"{kind}, {point}@{at}, after {count} places that held: {error}") from error
        if reached:
            count += 1
            points.add(point)
    return "R", count, f"{count} of {len(everywhere)} places, at {len(points)} of the {len(POINTS)} failpoints there are"


for number, party in WHO.items():
    row(
        number,
        f"kill -9 of the { {'notary': 'coordinator', 'clinic': 'active party', 'lab': 'passive party'}[party] }, everywhere",
        must="R",
        how="`NAME=kill@N` for every failpoint that the party passes, in every kind of job",
    )(lambda world, party=party: every_place(world, party))


@row("1–3 (a part)", "kill -9 when a gradient is about to leave", must="R", how="a failpoint", bounded=True)
def one_place(world: World) -> tuple[str, int]:
    assert killed(world, "split", "clinic", "backward", world.passings("split")["clinic"]["backward"][0])
    return "R", 1


@row(
    "4",
    "all processes die at once",
    must="R",
    how="`kill -9` of all processes when the first one has died at a failpoint",
    bounded=True,
)
def all_at_once(world: World) -> tuple[str, int]:
    tried = [("split", "backward"), ("coordinator", "decrypt")]
    for kind, point in tried:
        world.clean(kind)
        victim = "clinic" if kind == "split" else "notary"
        world.again(victim, f"{point}=kill@2")
        job_id = world.submit(kind)
        world.wait_dead(victim)
        for name in WHO.values():
            if name != victim:
                world.federation.kill(name)
        world.all_up()
        world.same(kind, job_id)
    return "R", len(tried)


@row(
    "5–7",
    "crash after work before it is sent; after a list is stored before it is pinned; after a mask is drawn",
    must="R",
    how="failpoints",
)
def between(world: World) -> tuple[str, int]:
    tried = [
        ("split", "lab", "forward"),
        ("split", "clinic", "align-synced"),
        ("split", "lab", "align-stored"),
        ("coordinator", "clinic", "mask"),
        ("coordinator", "lab", "mask"),
        ("coordinator", "notary", "decrypted"),
        ("two-party", "clinic", "residual"),
    ]
    for kind, party, point in tried:
        passed = world.passings(kind)[party][point]
        assert killed(world, kind, party, point, passed[len(passed) // 2])
    return "R", len(tried)


@row(
    "8–9",
    "crash inside a checkpoint's write; crash during recovery, twice",
    must="R",
    how="failpoints, also after the first and second restart",
)
def in_recovery(world: World) -> tuple[str, int]:
    tried = [("split", "lab"), ("split", "clinic"), ("coordinator", "clinic")]
    for kind, party in tried:
        world.clean(kind)
        world.again(party, f"checkpoint=kill@{world.passings(kind)[party]['checkpoint'][0]}")
        job_id = world.submit(kind)
        world.wait_dead(party)
        for again in ("agreed=kill@1", "toss=kill@1"):
            world.federation.failpoints[party] = again
            world.federation.start(party)
            world.wait_dead(party)
        world.federation.start(party)
        world.same(kind, job_id)
    return "R", len(tried)


@row(
    "10–11",
    "SIGTERM during a checkpoint, and during a step",
    must="ends within 10 s; R",
    how="`=stop` at failpoints",
)
def told_to_stop(world: World) -> tuple[str, int, str]:
    longest, tried = 0.0, [("lab", "checkpoint"), ("clinic", "updated"), ("lab", "align-store")]
    for party, point in tried:
        world.clean("split")
        passed = world.passings("split")[party][point]
        before = len(world.federation.log(party))
        world.again(party, f"{point}=stop@{passed[len(passed) // 2]}")
        job_id = world.submit("split")
        world.wait_said(party, f"failpoint {point} stop", after=before)
        asked = time.monotonic()
        world.wait_dead(party, 0)
        longest = max(longest, time.monotonic() - asked)
        world.federation.start(party)
        world.same("split", job_id)
    if longest > 10:
        raise AssertionError(f"the slowest took {longest:.1f} s to end")
    return "R", len(tried), f"the slowest ended after {longest:.1f} s"


@row("12", "SIGSTOP in a step, SIGCONT when the peers have noticed", must="R", how="`updated=pause`, then SIGCONT")
def frozen(world: World) -> tuple[str, int, str]:
    world.clean("split")
    passed = world.passings("split")["lab"]["updated"]
    before = len(world.federation.log("clinic"))
    world.again("lab", f"updated=pause@{passed[2]}")
    job_id = world.submit("split")
    began = time.monotonic()
    world.wait_said("clinic", "not a word from lab", after=before)
    noticed = time.monotonic() - began
    world.federation.processes["lab"].send_signal(signal.SIGCONT)
    world.same("split", job_id)
    return "R", 1, f"noticed after {noticed:.0f} s"


@row(
    "13",
    "a second process with the identity of a running node",
    must="E_FENCED at the second, the first is undisturbed",
    how="a copy of the node's folder is started beside it",
)
def second_life(world: World) -> tuple[str, int]:
    federation = world.federation
    world.clean("split")
    before = len(federation.log("lab"))
    world.again("lab", "updated=slow")
    job_id = world.submit("split")
    federation.wait_until(lambda: federation.in_training("lab", job_id))
    copy = federation.folder / "lab-again"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(federation.folder / "lab", copy, ignore=shutil.ignore_patterns("*.sock"))
    (copy / "state" / "running.json").unlink(missing_ok=True)
    config = copy / "node.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"peer_wait_s": 1}))
    program, log = federation.programs["lab"], federation.folder / "lab-again.log"
    double = program(["--role", "passive", "--config", str(config)], log)
    try:
        federation.wait_until(lambda: (copy / "state" / "running.json").exists())
        at = json.loads((copy / "state" / "running.json").read_text())["http"]
        view = list(Client(at, (copy / "state" / "token").read_text()).watch(job_id))[-1]
        if federation.view("lab", job_id)["state"] != "running":
            raise AssertionError("the first process ended before the second was refused")
        world.same("split", job_id)
        if "another node under this name" in federation.log("lab")[before:]:
            raise AssertionError("the first process was disturbed")
    finally:
        double.kill()
        double.wait()
        world.again("lab")
    return _expected(view["error"]["code"], "E_FENCED"), 1


@row("14", "restart with a changed table", must="E_INPUT_CHANGED", how="one line is removed between two runs of the node")
def changed_table(world: World) -> tuple[str, int]:
    world.clean("split")
    table = world.trial.files["lab"]
    whole = table.read_text()
    world.again("lab", f"updated=kill@{world.passings('split')['lab']['updated'][1]}")
    job_id = world.submit("split")
    world.wait_dead("lab")
    try:
        table.write_text("".join(whole.splitlines(keepends=True)[:-1]))
        world.federation.start("lab")
        code = world.ends("split", job_id)["lab"]["error"]["code"]
    finally:
        table.write_text(whole)
    return _expected(code, "E_INPUT_CHANGED"), 1


@row(
    "15",
    "the job's state is lost between two runs of the node",
    must="E_STATE_LOST, no silent rerun; R when it is put back",
    how="its seed is moved away, and back between two further runs",
    bounded=True,
)
def lost_state(world: World) -> tuple[str, int]:
    world.clean("split")
    world.again("lab", f"updated=kill@{world.passings('split')['lab']['updated'][1]}")
    job_id = world.submit("split")
    world.wait_dead("lab")
    seed, away = world.federation.job_folder("lab", job_id) / "seed", world.federation.folder / "seed"
    seed.rename(away)
    world.federation.start("lab")
    code = _expected(world.federation.end("lab", job_id)["error"]["code"], "E_STATE_LOST")
    world.federation.kill("lab", signal.SIGTERM)
    away.rename(seed)
    world.federation.start("lab")
    world.same("split", job_id)
    return f"{code}, R", 1


def _expected(code: str, wanted: str) -> str:
    if code != wanted:
        raise AssertionError(f"{code}, expected {wanted}")
    return code
