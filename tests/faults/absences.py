"""Rows 16 and 32 to 34: workers that die, ports that are taken, peers that are elsewhere or late."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import yaml
from rows import row
from world import World

from vfl_node.errors import VflError


@row(
    "16",
    "a worker process dies in a job",
    must="R or E_WORKER, then R after `resume`",
    how="`kill -9` of a worker of the clinic in an iteration",
)
def worker_dies(world: World) -> tuple[str, int]:
    federation = world.federation
    world.clean("two-party")
    world.again("clinic", "residual=slow,updated=slow")
    job_id = world.submit("two-party")
    federation.wait_until(lambda: federation.view("clinic", job_id).get("phase") == "train")
    node = federation.processes["clinic"].pid
    federation.wait_until(lambda: _children(node) or federation.view("clinic", job_id).get("state") == "done")
    for child in _children(node)[:1]:
        os.kill(child, signal.SIGKILL)
    try:
        world.same("two-party", job_id)
        return "R", 1
    except VflError as error:
        if error.code not in ("E_WORKER", "E_PEER_LOST", "E_PEER"):
            raise
        world.again("clinic")
        for name in ("clinic", "lab"):
            if federation.view(name, job_id).get("resumable"):
                federation.client(name).resume(job_id)
        world.same("two-party", job_id)
        return "E_WORKER, then R", 1
    finally:
        world.again("clinic")


def _children(parent: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


@row("32", "the port is taken", must="E_PORT, with the port", how="another socket listens on the port first", bounded=True)
def port_taken(world: World) -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = started_beside(world, listen=f"127.0.0.1:{port}")
    return told(said, "E_PORT", str(port)), 1


def started_beside(world: World, **settings: object) -> str:
    """What a node says that starts with the clinic's settings and these, beside it."""
    config = world.federation.folder / "clinic" / "beside.yaml"
    own = yaml.safe_load((world.federation.folder / "clinic" / "node.yaml").read_text())
    config.write_text(yaml.safe_dump(own | {"state_dir": "beside"} | settings))
    command = [sys.executable, "-m", "vfl_node", "--role", "active", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False).stderr


def told(said: str, *words: str) -> str:
    if missing := [word for word in words if word not in said]:
        raise AssertionError(f"{missing} not in: {said[-300:]}")
    return words[0]


@row(
    "33",
    "the address of a peer is wrong",
    must="the error names the peer, the address and the cause",
    how="the lab dials a port where nobody listens",
)
def wrong_address(world: World) -> tuple[str, int, str]:
    federation = world.federation
    right = {name: {"address": federation.running(name)["listen"]} for name in ("clinic", "notary")}
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
    federation.kill("lab", signal.SIGTERM)
    try:
        federation.start("lab", peers=right | {"clinic": {"address": nobody}})
        federation.wait_until(lambda: federation.client("lab").health()["peers"]["clinic"]["cause"])
        cause = federation.client("lab").health()["peers"]["clinic"]["cause"]
        told(cause, "clinic", nobody)
    finally:
        federation.kill("lab", signal.SIGTERM)
        federation.start("lab", peers=right)
        world.all_up()
    return "E_UNREACHABLE", 1, cause.replace(nobody, "HOST:PORT")


@row("34", "a peer starts 60 s late", must="waits, then R", how="the lab starts a minute after the job was submitted")
def late(world: World) -> tuple[str, int]:
    world.clean("split")
    world.federation.kill("lab", signal.SIGTERM)
    job_id = world.submit("split")
    time.sleep(60)
    note = world.federation.view("clinic", job_id)["note"]
    world.federation.start("lab")
    world.same("split", job_id)
    return told(f"R {note}", "R", "waiting for lab"), 1
