"""Rows 46 to 53: disks, descriptors, memory and devices that refuse, and bytes that are not those that were written."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from absences import started_beside, told
from rows import row
from world import DEVICE, EVERYONE, KINDS, World

from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.job import Job

PHASES = ("accepted", "align-store", "align-keep", "toss", "forward", "checkpoint", "keep")


def stopped_in_training(world: World, party: str = "lab", kind: str = "split") -> str:
    """A job in which ``party`` lies dead, late in training, with all of its state."""
    world.clean(kind)
    passed = world.passings(kind)[party]["updated"]
    world.again(party, f"updated=kill@{passed[-2]}")
    job_id = world.submit(kind)
    world.wait_dead(party)
    return job_id


def files_of(world: World, party: str, job_id: str) -> list[Path]:
    """What a party holds of a job."""
    return sorted(path for path in world.federation.job_folder(party, job_id).rglob("*") if path.is_file())


def error_of(world: World, party: str, job_id: str) -> str:
    """The code with which a job ended at ``party``, whose peer may wait for it to come back; R where it ended well."""
    world.federation.wait_until(lambda: world.federation.view(party, job_id).get("state") in ("failed", "done"))
    error = world.federation.view(party, job_id)["error"]
    return str(error["code"]) if error else "R"


def flip(path: Path, place: float = 0.6) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(bytes(data))


@row(
    "46",
    "state of another release",
    must="E_STATE_VERSION, or R",
    how="the version in the head of a stored file is raised between two runs of the node",
)
def newer_state(world: World) -> tuple[str, int, str]:
    from vfl_node.process.files import _MAGIC, VERSION, _digest

    job_id = stopped_in_training(world)
    newer, changed = (VERSION + 1).to_bytes(2, "big"), []
    for path in files_of(world, "lab", job_id):
        data = path.read_bytes()
        if data[:4] == _MAGIC:
            path.write_bytes(_MAGIC + newer + _digest(newer, data[38:]) + data[38:])
            changed.append(path.name)
    if not changed:
        raise AssertionError("no file of a job has a version")
    world.federation.start("lab")
    code = error_of(world, "lab", job_id)
    if code != "E_STATE_VERSION":
        raise AssertionError(f"ended with {code}")
    return code, len(changed), ", ".join(changed)


@row(
    "47",
    "the disk is full, in seven phases, at either party",
    must="E_DISK_FULL, R after space is freed and `resume`",
    how="`write=enospc` and `align-store=enospc` from a failpoint on",
)
def disk_full(world: World) -> tuple[str, int, str]:
    return _refused_everywhere(world, "enospc", {"E_DISK_FULL"})


@row("47 (a part)", "the disk is full", must="E_DISK_FULL, R after space is freed and `resume`", how="`write=enospc@N`")
def disk_full_once(world: World) -> tuple[str, int, str]:
    return _refused_everywhere(world, "enospc", {"E_DISK_FULL"}, shares=(0.5,), parties=("lab",))


def _refused_everywhere(
    world: World,
    error: str,
    codes: set[str],
    shares: tuple[float, ...] = (0.05, 0.3, 0.6, 0.95),
    parties: tuple[str, ...] = ("clinic", "lab"),
) -> tuple[str, int, str]:
    world.clean("split")
    met: dict[str, int] = {}
    for party in parties:
        for point in ("write", "index", "align-store"):
            passed = world.passings("split")[party][point]
            for at in sorted({passed[int(share * len(passed))] for share in shares}):
                world.again(party, f"{point}={error}@{at}+")
                code = _ended_and_resumed(world, party)
                if code != "R" and code not in codes:
                    raise AssertionError(f"{point} at {party}: {code}")
                met[code] = met.get(code, 0) + 1
    return (
        f"{' or '.join(sorted(set(met) - {'R'})) or 'R'}, then R",
        sum(met.values()),
        ", ".join(f"{code} {n}×" for code, n in sorted(met.items())),
    )


def _ended_and_resumed(world: World, party: str) -> str:
    """A job at a party whose machine refuses from some moment on: how it ended there; then that is mended, and it goes on."""
    federation = world.federation
    try:
        job_id = world.submit("split")
    except VflError as error:
        world.again(party)
        world.same("split", world.submit("split"))
        return error.code

    def turned_away() -> list[str]:
        """The code with which ``party`` cannot even store the peer's job, which the submitter then waits with."""
        return re.findall(r"cannot take part now: .*\((E_\w+)\)", federation.view("clinic", job_id).get("note", ""))

    federation.wait_until(lambda: federation.view(party, job_id).get("state") in ("failed", "done") or turned_away())
    codes = turned_away()
    if not codes:
        error = federation.view(party, job_id)["error"]
        codes = [str(error["code"])] if error else ["R"]
    world.again(party)
    for name in ("clinic", "lab"):
        if federation.view(name, job_id).get("resumable"):
            with suppress(VflError):  # it may have gone on meanwhile, at its peer's word
                federation.client(name).resume(job_id)
    world.same("split", job_id)
    return codes[0]


@row(
    "48",
    "SQLite locked by another program",
    must="E_STATE_LOCKED or R; R when the lock is released",
    how="a write transaction held open on `jobs.sqlite`",
)
def index_locked(world: World) -> tuple[str, int, str]:
    world.clean("split")
    world.again("lab", "updated=slow")
    job_id = world.submit("split")
    world.federation.wait_until(lambda: world.federation.in_training("lab", job_id))
    index = sqlite3.connect(world.federation.folder / "lab" / "state" / "jobs.sqlite", isolation_level=None)
    index.execute("BEGIN IMMEDIATE")
    try:
        clinic = world.federation.end("clinic", job_id)
        time.sleep(1)
    finally:
        index.execute("ROLLBACK")
        index.close()
    view = world.federation.end("lab", job_id)
    code = view["error"]["code"] if view["error"] else "R"
    if view["resumable"]:
        world.federation.client("lab").resume(job_id)
    world.same("split", job_id)
    world.again("lab")
    return told(f"{code} {clinic['state']}", code), 1, f"the peer's view: {clinic['state']}"


@row(
    "49",
    "one bit flips in any file of a job, and in the index",
    must="E_STATE_CORRUPT, or R; never another result",
    how="between two runs of the node, file by file",
)
def bit_rot(world: World) -> tuple[str, int, str]:
    found: dict[str, str] = {}
    names = sorted({path.name for path in files_of(world, "lab", stopped_in_training(world))})
    world.all_up()
    for name in names:
        job_id = stopped_in_training(world)
        for path in files_of(world, "lab", job_id):
            if path.name == name and path.stat().st_size:
                flip(path)
        world.federation.start("lab")
        code = error_of(world, "lab", job_id)
        if code == "R":
            world.same("split", job_id)
        elif code not in ("E_STATE_CORRUPT", "E_STATE_LOST", "E_STATE_VERSION"):
            raise AssertionError(f"{name}: {code}")
        found[name] = code
    world.federation.kill("lab", signal.SIGTERM)
    index = world.federation.folder / "lab" / "state" / "jobs.sqlite"
    whole = index.read_bytes()
    page = int.from_bytes(whole[16:18], "big")  # SQLite's header: the first page of the jobs is the second of the file
    index.write_bytes(whole[:page] + bytes(512) + whole[page + 512 :])
    try:
        world.federation.programs["lab"](
            ["--role", "passive", "--config", str(index.parents[1] / "node.yaml")], index.parents[2] / "lab.log"
        ).wait(60)
        said = world.federation.log("lab")[-3000:]
    finally:
        index.write_bytes(whole)
        world.all_up()
    found["jobs.sqlite"] = told(said, "E_STATE_CORRUPT")
    return "E_STATE_CORRUPT or R", len(found), ", ".join(f"{name}: {code}" for name, code in found.items())


@row(
    "50",
    "no descriptors left; the disk fails; other users can read the key",
    must="E_FILES, E_STATE, E_KEY_MODE, with the path; R after `resume`",
    how="`=emfile` and `=eio` at failpoints; chmod 0644",
)
def descriptors(world: World) -> tuple[str, int, str]:
    _, first, one = _refused_everywhere(world, "emfile", {"E_FILES"}, shares=(0.3, 0.8))
    _, second, two = _refused_everywhere(world, "eio", {"E_STATE"}, shares=(0.3, 0.8))
    folder = world.federation.folder / "clinic"
    key = folder / "node.key"
    if not key.exists():
        key = next(folder.rglob("*.key"))
    mode = key.stat().st_mode
    key.chmod(0o644)
    try:
        told(started_beside(world), "E_KEY_MODE", key.name)
    finally:
        key.chmod(mode)
    return "E_FILES, E_STATE or E_KEY_MODE, then R", first + second + 1, f"descriptors: {one}; disk: {two}"


@row(
    "51",
    "memory too small for the job's model",
    must="E_MEMORY before it starts, with the numbers",
    how="a job whose bottom is [24000, 24000]",
)
def memory_too_small(world: World) -> tuple[str, int, str]:
    text = KINDS["split"].replace("bottom: [8]", "bottom: [24000, 24000]")
    for name in ("clinic", "lab"):  # owners who allow any model
        world.again(name, everyone=EVERYONE | {"size": {"parameters": 10**9}})
    try:
        job_id = world.federation.client("clinic").submit(parse(text, Job, source="job").canonical())["id"]
        code = error_of(world, "lab", job_id)  # whose network it is; the clinic waits until it has more
        message = world.federation.view("lab", job_id)["error"]["message"]
        world.federation.client("clinic").cancel(job_id)
    except VflError as error:
        code, message = error.code, error.message
    finally:
        for name in ("clinic", "lab"):
            world.again(name, everyone=EVERYONE)
    if code != "E_MEMORY" and "E_MEMORY" not in message:
        raise AssertionError(f"{code}: {message}")
    return "E_MEMORY", 1, message


@row(
    "52",
    "the GPU's memory is full",
    must="E_GPU_MEMORY, state safe, never a silent CPU switch; R after `resume`",
    how="torch's error injected at `updated`, at either party",
)
def gpu_memory(world: World) -> tuple[str, int]:
    for party in ("clinic", "lab"):
        world.clean("split")
        world.again(party, f"updated=gpu-memory@{world.passings('split')[party]['updated'][60]}+")
        if (code := _ended_and_resumed(world, party)) != "E_GPU_MEMORY":
            raise AssertionError(f"ended with {code}")
    return "E_GPU_MEMORY, then R", 2


@row(
    "53",
    "the GPU is gone, or is another one, when a job continues",
    must="E_DEVICE",
    how="`device: cuda:7` at the next start; a job that began on a device of another name",
)
def other_device(world: World) -> tuple[str, int]:
    told(started_beside(world, device="cuda:7"), "E_DEVICE", "cuda:7")
    os.environ[DEVICE] = "NVIDIA H200"
    try:
        job_id = stopped_in_training(world)
        del os.environ[DEVICE]
        world.federation.start("lab")
        code = error_of(world, "lab", job_id)
        if code != "E_DEVICE":
            raise AssertionError(f"ended with {code}")
        os.environ[DEVICE] = "NVIDIA H200"
        world.again("lab")
        for name in ("clinic", "lab"):
            if world.federation.view(name, job_id)["resumable"]:
                world.federation.client(name).resume(job_id)
        world.same("split", job_id)
    finally:
        os.environ.pop(DEVICE, None)
        world.again("lab")
    return "E_DEVICE, then R", 2
