"""Check 20: whether a worker of this party's cluster computes for this node."""

from __future__ import annotations

import time
from contextlib import closing

from vfl_node.crypto.build import describe_build
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.groups.contract import Exponent, block_powers
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.ray.worker import NO_WORKER
from vfl_node.errors import VflError
from vfl_node.node.doctor.finding import Finding, fail, ok, warn
from vfl_node.settings.engine import EngineSettings

START_S = 20.0
"""How long a worker may take to start here."""


def check_workers(settings: EngineSettings) -> Finding:
    """Check 20: one worker is started, as a job starts many, and has to compute what this machine does."""
    if settings.kind == "local":
        return ok(20, "this node computes on its own machine alone")
    group, began = Curve25519(), time.monotonic()
    rows, key = group.hash_to_group([b"doctor"], b"doctor"), Exponent(group, 1 << 250, True)
    one = settings.model_copy(update={"workers": 1, "slots": 1, "start_s": min(START_S, settings.start_s)})
    try:
        with closing(Cluster(one, describe_build)) as cluster:
            (computed,) = cluster.map(block_powers, [rows], key)
    except VflError as error:
        if NO_WORKER in error.message:
            return warn(20, f"{settings.address}: {error.message}", "wait until a core is free, or add a machine")
        hint = "correct what it names, as docs/guides/use-several-machines.md says"
        return fail(20, f"{settings.address}: {error.message} ({error.code})", hint)
    took_s = round(time.monotonic() - began, 1)
    if computed.tobytes() != block_powers(key, rows).tobytes():
        return fail(20, f"a worker of {settings.address} computes other bytes than this machine", "have its memory tested")
    return ok(20, f"a worker of {settings.address} runs this build and has computed a block after {took_s} s", took_s=took_s)
