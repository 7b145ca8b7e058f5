"""Whole jobs of every kind, in one process, in which what one party sends is changed on its way.

    python tests/faults/mutated_jobs.py --seed 7 --jobs 1000        a thousand jobs
    python tests/faults/mutated_jobs.py --seed 7 --job 123          that one again, with the story of its end

Every job must end by itself: with results, or at each party with an error that has a code. Nobody waits for ever, nothing may
fail otherwise, and nothing may be left over: memory and objects are compared between the first jobs and the last.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from google.protobuf.message import DecodeError, Message

from vfl_node.configuration import parse
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.reading import read_table
from vfl_node.engines.inline import Inline
from vfl_node.errors import PeerLost, VflError
from vfl_node.execution import run as run_module
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import Run, set_up
from vfl_node.execution.simulation import side_by_side
from vfl_node.job import Job
from vfl_node.node.partners import Partner
from vfl_node.settings import Data, Limits, Settings
from vfl_node.training.glm import coordinator
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import (
    alignment_pb2,
    decryption_pb2,
    matched_pb2,
    prediction_pb2,
    session_pb2,
    shares_pb2,
    training_pb2,
)
from vfl_node.transport.memory import memory_network, run_together

TWO, THREE = "{active: clinic, passive: lab}", "{active: clinic, passive: lab, coordinator: notary}"
SPLIT = "train: {bottom: [3], active_bottom: [2], top: [2], epochs: 1, batch_size: 16}\nevaluate: {test_fraction: 0.3}\n"
LOGISTIC = "align: {protocol: apsi, obfuscation: {size: 30}}\ntrain: {algorithm: logistic, iterations: 2, key_bits: 2048, "
KINDS = {
    "psu": f"parties: {TWO}\nalign: {{protocol: psu}}\n",
    "psi": f"parties: {TWO}\nalign: {{protocol: psi}}\n",
    "apsi": f"parties: {TWO}\nalign: {{protocol: apsi, obfuscation: {{size: 30}}}}\n",
    "dummies": f"parties: {TWO}\nalign: {{protocol: psu, dummies: 8}}\n",
    "split": f"parties: {TWO}\n{SPLIT}",
    "told": f"parties: {TWO}\n{SPLIT.replace('0.3', '0.3, share_with_passive: true')}",
    "two-party": f"parties: {TWO}\n{LOGISTIC}flow: two-party}}\n",
    "coordinator-clear": f"parties: {THREE}\n{LOGISTIC}flow: coordinator-clear}}\n",
    "coordinator": f"parties: {THREE}\n{LOGISTIC}flow: coordinator, loss: taylor}}\n",
    "hidden": f"parties: {THREE}\nalign: {{protocol: psu}}\ntrain: {{algorithm: hidden, epochs: 2, batch_size: 16}}\n",
}
"""Kind → the job. Those with ciphertexts take a hundred times as long as the others, and are drawn a fiftieth as often."""

WEIGHTS = [1.0 if "logistic" not in text else 0.02 for text in KINDS.values()]
ROLES = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
TYPES: dict[str, type[Message]] = {
    message.full_name: getattr(of, name)
    for of in (alignment_pb2, decryption_pb2, matched_pb2, prediction_pb2, session_pb2, shares_pb2, training_pb2)
    for name, message in of.DESCRIPTOR.message_types_by_name.items()
}
EXTREME: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31 - 1, 2**32 - 1, 2**63 - 1, -(2**63)],
    "bytes": [b"", b"\0", b"\xff" * 31, bytes(4096), b"\xff" * 100_000],
    "str": ["", "\0", "../../x", "clinic", "x" * 100_000, "\u202e" * 40],
    "bool": [True, False],
    "float": [0.0, -1.0, float("inf"), float("nan"), 1e308],
}


@dataclass
class Change:
    """What happens to one message."""

    how: str
    at: int
    chance: random.Random

    def apply(self, frame: Any) -> list[Any]:
        """What arrives instead of ``frame``."""
        made = session_pb2.Frame.FromString(frame.SerializeToString())
        body, chance = bytearray(made.body), self.chance
        if self.how == "lost":
            return []
        if self.how == "duplicated":
            return [frame, made]
        if self.how == "flipped" and body:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        elif self.how == "truncated" and body:
            del body[chance.randrange(len(body)) :]
        elif self.how == "oversize":
            body += bytes(chance.choice([1, 1000, 1 << 20]))
        elif self.how == "random":
            body[:] = chance.randbytes(chance.choice([0, 1, 40, 5000]))
        elif self.how == "another type":
            made.type = chance.choice(sorted(TYPES))
        elif self.how == "header":
            name = chance.choice(["sequence", "attempt", "phase", "job_id", "type"])
            setattr(
                made,
                name,
                chance.choice(EXTREME["str"]) if isinstance(getattr(made, name), str) else chance.choice([0, 7, 2**32 - 1]),
            )
        elif self.how == "extreme":
            body[:] = self._extreme(made.type, bytes(body))
        made.body = bytes(body)
        return [made]

    def _extreme(self, type_name: str, body: bytes) -> bytes:
        """One field of the message at the end of its range, or repeated a thousand times."""
        message = TYPES.get(type_name, session_pb2.Beat)()
        try:
            message.ParseFromString(body)
            return self._changed(message)
        except (DecodeError, ValueError, TypeError):
            return body

    def _changed(self, message: Any) -> bytes:
        chance = self.chance
        fields = list(message.DESCRIPTOR.fields)
        if not fields:
            return b"\x08\x01"
        field = chance.choice(fields)
        value = getattr(message, field.name)
        if hasattr(value, "extend") and not isinstance(value, bytes | str):
            if len(value) and chance.random() < 0.5:
                del value[chance.randrange(len(value))]
            elif field.message_type is not None:
                for _ in range(chance.choice([1, 1000])):
                    value.add()
            else:
                value.extend([_like(chance, field)] * chance.choice([1, 1000]))
        elif field.message_type is not None:
            value.ParseFromString(self._changed(value))
        else:
            setattr(message, field.name, _like(chance, field))
        return bytes(message.SerializeToString())


def _like(chance: random.Random, field: Any) -> Any:
    kinds = {1: "float", 2: "float", 8: "bool", 9: "str", 12: "bytes"}
    values = EXTREME[kinds.get(field.type, "int")]
    if kinds.get(field.type) is None:
        unsigned, wide = field.type in (4, 6, 7, 13), field.type in (3, 4, 6, 16, 18)
        low, high = (0 if unsigned else -(2**63 if wide else 2**31)), 2 ** ((64 if wide else 32) - (not unsigned)) - 1
        values = [value for value in values if low <= value <= high]
    return chance.choice(values)


HOWS = (
    "lost",
    "duplicated",
    "swapped",
    "flipped",
    "truncated",
    "oversize",
    "random",
    "another type",
    "header",
    "extreme",
    "file",
)


class Wire:
    """A pipe whose party's messages are changed on their way."""

    def __init__(self, pipe: Any, change: Change | None) -> None:
        self._pipe, self._change = pipe, change
        self._sent = 0
        self._held: list[Any] = []

    async def put(self, frame: Any) -> None:
        number, self._sent = self._sent, self._sent + 1
        change = self._change
        if change is None or number != change.at:
            for one in [frame, *self._held]:
                await self._pipe.put(one)
            self._held = []
        elif change.how == "swapped":
            self._held = [frame]
        elif change.how == "broken off":
            raise VflError("broken off", code="E_BROKEN")
        else:
            for one in change.apply(frame):
                await self._pipe.put(one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


class Mutated:
    """Many jobs over two small tables.

    Args:
        folder: scratch.
        seed: of everything.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        chance = random.Random("tables")
        self._files = {}
        for name, rows in (("clinic", range(40)), ("lab", range(12, 52))):
            cells = [f"p{row},{chance.random():.4f},{chance.random():.4f}" for row in rows]
            label = [f",{row % 2}" if name == "clinic" else "" for row in rows]
            head = "id,x,y" + (",label" if name == "clinic" else "")
            self._files[name] = folder / f"{name}.csv"
            self._files[name].write_text("\n".join([head, *(a + b for a, b in zip(cells, label, strict=True))]) + "\n")
        self._sent: dict[str, dict[tuple[str, str], int]] = {}

    def one(self, number: int, *, say: Callable[[str], None] = lambda _: None) -> str:
        """Job ``number``: how it ended. Raises AssertionError where it ended as none may."""
        chance = random.Random(f"{self._seed}/{number}")
        (kind,) = chance.choices(list(KINDS), WEIGHTS)
        if kind not in self._sent:
            ends, self._sent[kind] = self._played(kind, None, "", "")
            for end in ends:
                if end is not None:
                    raise AssertionError(f"{kind}, with nothing changed: {type(end).__name__}: {end}") from end
        sender, receiver = chance.choice([pair for pair, count in self._sent[kind].items() if count])
        change = Change(chance.choice(HOWS), chance.randrange(self._sent[kind][sender, receiver]), chance)
        where = f"job {number} of seed {self._seed}: {kind}, message {change.at} of {sender} to {receiver} {change.how}"
        say(where)
        try:
            results = (
                self._resumed(kind, change, sender, receiver)
                if change.how == "file"
                else self._played(kind, change, sender, receiver)[0]
            )
        except VflError as error:  # what it stored is seen to be damaged before it says a word
            results = [error]
        except RuntimeError as error:
            if change.how in ("lost", "swapped") and "every party waits" in str(error):
                return "waits for what never comes"  # which the deadline of progress ends in a node
            raise AssertionError(f"{where}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        for result in results:
            if isinstance(result, BaseException):
                say("".join(traceback.format_exception(result)))
            if result is not None and not (isinstance(result, VflError) and result.code != "E_INTERNAL"):
                raise AssertionError(f"{where}: {type(result).__name__}: {result}") from result
        errors = [result for result in results if result is not None]
        return min(
            (error.code for error in errors if not isinstance(error, PeerLost)), default="E_PEER_LOST" if errors else "R"
        )

    def _resumed(self, kind: str, change: Change, sender: str, receiver: str) -> list[Any]:
        """A job that breaks off, and goes on with one file of one party changed."""
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            self._played(kind, dataclasses.replace(change, how="broken off"), sender, receiver, Path(scratch))
            held = sorted(path for path in Path(scratch).rglob("*") if path.is_file())
            path, chance = change.chance.choice(held), change.chance
            data = bytearray(path.read_bytes())
            what = chance.choice(["flipped", "truncated", "longer", "random", "gone"])
            if what == "flipped" and data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            elif what == "truncated":
                del data[chance.randrange(len(data) + 1) :]
            elif what == "longer":
                data += chance.randbytes(chance.choice([1, 100]))
            elif what == "random":
                data[:] = chance.randbytes(len(data))
            path.unlink()
            if what != "gone":
                path.write_bytes(bytes(data))
            return self._played(kind, None, sender, receiver, Path(scratch), attempt=2)[0]

    def _played(
        self, kind: str, change: Change | None, sender: str, receiver: str, folder: Path | None = None, attempt: int = 1
    ) -> tuple[list[Any], dict[tuple[str, str], int]]:
        job = parse(f"name: trial\n{KINDS[kind]}", Job, source="job")
        wires: dict[tuple[str, str], Wire] = {}
        runs: list[Any] = []
        names = job.parties.all
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            kept = folder or Path(scratch)
            for name, channels in memory_network(*names, job_id="trial").items():
                for peer, channel in channels.items():
                    changed = change if (name, peer) == (sender, receiver) else None
                    wires[name, peer] = channel._pipe = Wire(channel._pipe, changed)  # type: ignore[assignment]
                runs += side_by_side(self._run(job, name, kept, attempt, channels))
            results = run_together(*runs)
        return results, {pair: wire._sent for pair, wire in wires.items()}

    def _run(self, job: Job, name: str, folder: Path, attempt: int, channels: Mapping[str, Channel]) -> Run:
        role: Any = ROLES[name]
        data = Data(path=self._files[name], label="label" if name == "clinic" else None) if name in self._files else None
        settings = Settings(
            name=name,
            role=role,
            data=data,
            insecure_loopback=True,
            device="cpu",
            limits=Limits(min_set_size=1),
            group_threads=1,
        )
        table = read_table(data, id_form="text", needs_label=role == "active", party=name) if data else None
        kept = JobFolder(folder / name)
        own = Randomness(kept.seed(first=attempt == 1))
        peers = [peer for peer in channels if peer in job.parties.data] if data else []
        memories = {peer: Partner(folder / "partners" / name, "other") for peer in peers}
        progress = LiveProgress("trial", Stop())
        return set_up(settings, job, "trial", table, own, kept, progress, attempt, memories, channels)

    def many(self, count: int, *, minutes: float = float("inf"), say: Callable[[str], None] = lambda _: None) -> Counter[str]:
        """That many jobs, or as many as there is time for: how often each end came.

        Raises:
            AssertionError: as :meth:`one`, or something grows.
        """
        found: Counter[str] = Counter()
        early, warm = (0, 0), min(count // 4, 500)
        ends = time.monotonic() + 60 * minutes
        for number in range(count):
            if time.monotonic() > ends:
                break
            found[self.one(number)] += 1
            if number == warm:
                early = footprint()
            if number % 500 == 499:
                say(told(found))
        if found.total() <= warm:
            return found  # too few to see anything grow
        late = footprint()
        if late[0] - early[0] > 5_000:
            raise AssertionError(f"{late[0] - early[0]} more objects after {found.total() - warm} jobs")
        if late[1] - early[1] > 64 << 20:
            raise AssertionError(f"{(late[1] - early[1]) >> 20} MiB more after {found.total() - warm} jobs")
        return found


def told(found: Counter[str]) -> str:
    """How often each end came, in words."""
    return f"{found.total()} jobs: " + ", ".join(f"{end} {times}" for end, times in found.most_common())


def footprint() -> tuple[int, int]:
    """Objects that Python tracks, and bytes of memory in use."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return len(gc.get_objects()), resident


def quick() -> None:
    """Keys are made once, ciphertexts are computed in this process, and nobody says anything."""
    import structlog

    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    made = functools.lru_cache(maxsize=None)(lambda bits: keys.generate(bits, Randomness(bytes(32))))
    coordinator.keys = type("Once", (), {"generate": staticmethod(lambda bits, _: made(bits))})  # type: ignore[attr-defined]
    run_module.Processes = lambda _: Inline()  # type: ignore[attr-defined, assignment, misc]


def main() -> int:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no new job after so many")
    parser.add_argument("--job", type=int, help="one job of the seed")
    asked = parser.parse_args()
    quick()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        jobs = Mutated(Path(scratch), asked.seed)
        if asked.job is not None:
            print(jobs.one(asked.job, say=print))
            return 0
        print(told(jobs.many(asked.jobs, minutes=asked.minutes, say=lambda text: print(text, flush=True))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
