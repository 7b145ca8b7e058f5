"""Rows that tests of the suite show already, in one process: they are run, and the row holds where they pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from rows import row
from world import World

ROOT = Path(__file__).parents[2]


def shown(numbers: str, fault: str, *tests: str, must: str) -> None:
    """Register a row that ``tests`` show."""
    row(numbers, fault, must=must, how="tests: " + ", ".join(f"`{test}`" for test in tests))(_run(must, tests))


def _run(must: str, tests: tuple[str, ...]) -> Callable[[World], tuple[str, int]]:
    def run(world: World) -> tuple[str, int]:
        named = sorted({test.split("::")[0] for test in tests if "::" in test})
        names = " or ".join(test.split("::")[1] for test in tests if "::" in test)
        entire = sorted({test for test in tests if "::" not in test})
        runs = [[*named, "-k", names] if named else [], entire]
        return must, sum(_passed(world, *chosen) for chosen in runs if chosen)

    return run


def _passed(world: World, *chosen: str) -> int:
    """How many tests there are, of which none failed."""
    report = world.federation.folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not compose", f"--junitxml={report}"]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        raise AssertionError("; ".join(failed) or done.stdout.strip().splitlines()[-1])
    suite = ElementTree.parse(report).getroot()[0]
    return int(suite.get("tests", 0)) - int(suite.get("skipped", 0))


CONFORMANCE, CONVERSATIONS, SERVER = (
    "tests/transport/test_channel_conformance.py",
    "tests/transport/test_conversations.py",
    "tests/transport/test_server.py",
)

shown(
    "25–29",
    "duplicate, reordered, lost, corrupted, truncated message",
    CONFORMANCE,
    "tests/transport/test_streams.py",
    must="E_ORDER, E_CHUNK, E_COUNT, E_TRUNCATED; never wrong data",
)
shown(
    "30–31",
    "oversize message, decompression bomb, flood of streams, sockets that send nothing",
    f"{CONVERSATIONS}::oversize",
    f"{CONVERSATIONS}::compressed",
    f"{SERVER}::one_party_cannot",
    "tests/transport/test_handshake.py::greet",
    "tests/transport/test_bounds.py",
    "tests/transport/test_connections.py",
    must="refused; other connections continue",
)
shown(
    "35–42",
    "certificates: expired, not yet valid, another party's, a rogue authority's, none, no or two names, TLS 1.2, renewed",
    SERVER,
    "tests/transport/test_dialer.py",
    "tests/transport/test_authority.py",
    "tests/transport/test_credentials.py",
    "tests/transport/test_identity.py",
    must="E_CERTIFICATE, E_IDENTITY or E_UNREACHABLE, with party and date; renewal without a restart",
)
shown("43", "another job under the same id", "tests/node/test_preflight.py::another_job", must="E_MANIFEST, with the field")
shown("44", "a replayed stream", "tests/alignment/test_replays.py", "tests/alignment/test_restart.py::refused", must="E_REPLAY")
shown("45", "another protocol version", "tests/node/test_preflight.py::another_version", must="E_VERSION, with both")
shown(
    "54–59",
    "tables: repeated, empty and odd ids, ragged rows, marks, text in numbers, one class, nothing left, values out of range",
    "tests/data",
    "tests/crypto/test_fixed_point.py",
    must="E_DUP_IDS, E_ID, E_CSV, E_NUMERIC, E_LABEL, E_ONE_CLASS, E_EMPTY, E_OVERFLOW; one canonical form",
)
shown(
    "61",
    "a party dies or has a full disk at each point of a job's end, also for longer than the others wait; a cancel there",
    "tests/node/test_end.py",
    must="done only where all have stored theirs, else unconfirmed; all end alike, and nothing is lost",
)
shown(
    "62",
    "kill -9 at places drawn, in eight kinds of jobs of two to five parties",
    "tests/node/test_kill_at_random.py",
    must="R",
)
shown(
    "secrets",
    "canary ids, labels and cells in logs, state, metrics, reports, answers",
    "tests/node/test_canaries.py",
    must="found nowhere; planted ones are found",
)


@row(
    "60",
    "a random mix: changed messages and files, in whole jobs of every kind",
    must="R, with the bytes of an undisturbed job at every party, or an error with a code; no deadlock, no growth of memory",
    how="`tests/faults/mutated_jobs.py`: messages lost, doubled, swapped, with flipped bits, cut, too large, of another type, "
    "with extreme fields. Also by their sender before digests are made, or by a party that fails; files of a resumed job with "
    "flipped bits, cut, lost",
)
def mutated(world: World) -> tuple[str, int, str]:
    jobs, seed = os.environ.get("FAULTS_JOBS", "1000"), os.environ.get("FAULTS_SEED", "1")
    command = [sys.executable, str(Path(__file__).parent / "mutated_jobs.py"), "--jobs", jobs, "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise AssertionError(lines[-1])
    return "R or E_…", int(jobs), lines[-1]
