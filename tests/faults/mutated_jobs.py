"""Whole jobs of every kind, in one process, in which what one party sends is changed, on its way or before.

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
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kinds
import torch
from kinds import ALL, KINDS, SERVES, job_of, settings_of
from mutations import HOWS, Change, Speaker, Wire

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.inline import Inline
from vfl_node.errors import PeerLost, VflError
from vfl_node.execution import run as run_module
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.requests import Requests
from vfl_node.execution.run import Run, set_up
from vfl_node.execution.simulation import side_by_side
from vfl_node.job import Job
from vfl_node.node import predictions
from vfl_node.node.partners import Partner
from vfl_node.node.store import Store
from vfl_node.settings import Settings
from vfl_node.training.glm import coordinator
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

Said = Mapping[tuple[str, str], list[str]]
"""(Sender, receiver) → the types of messages, in their order."""


@dataclass(frozen=True)
class Brings:
    """What one party brings to a job, beside its channels."""

    settings: Settings
    job: Job
    folder: JobFolder
    memories: Mapping[str, Any]
    table: Any
    predicting: Any = None

    @classmethod
    def of(cls, job: Job, name: str, tables: kinds.Tables, folder: Path) -> Brings:
        """To a job that predicts nothing."""
        settings = settings_of(job, name, tables, folder / name)
        table = read_input(settings, job) if settings.data else None
        memories = {peer: Partner(folder / "partners" / name, peer) for peer in job.remembered_by(name)}
        return cls(settings, job, JobFolder(folder / name), memories, table)

    def run(self, attempt: int, channels: Mapping[str, Channel]) -> Run:
        """The run of this party."""
        own, progress = Randomness(self.folder.seed(first=attempt == 1)), LiveProgress("trial", Stop())
        return set_up(
            self.settings,
            self.job,
            "trial",
            self.table,
            own,
            self.folder,
            progress,
            attempt,
            self.memories,
            channels,
            self.predicting,
        )


class Mutated:
    """Many jobs over two small tables.

    Args:
        folder: scratch.
        seed: of everything.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._tables = kinds.tables(folder)
        self._said: dict[str, Said] = {}

    def said(self, kind: str) -> Said:
        """What the parties of a job of this kind say to each other where nothing is changed."""
        if kind not in self._said:
            ends, self._said[kind] = self._played(kind, None, "", "")
            for end in ends:
                if end is not None:
                    raise AssertionError(f"{kind}, with nothing changed: {type(end).__name__}: {end}") from end
        return self._said[kind]

    def one(self, number: int, *, say: Callable[[str], None] = lambda _: None) -> str:
        """Job ``number``: how it ended. Raises AssertionError where it ended as none may."""
        chance = random.Random(f"{self._seed}/{number}")
        (kind,) = chance.choices(ALL, kinds.WEIGHTS)
        said = self.said(kind)
        sender, receiver = chance.choice([pair for pair, types in said.items() if types])
        types = said[sender, receiver]
        how = chance.choice([how for how in HOWS if how != "file" or kind in KINDS])
        rare = chance.choice(sorted(set(types)))  # each type of message is as likely
        at = chance.choice([at for at, name in enumerate(types) if name == rare])
        change = Change(how, at if how == "meant" else chance.randrange(len(types)), chance)
        what = f"message {change.at} ({types[change.at]}) of {sender} to {receiver} {how}"
        where = f"job {number} of seed {self._seed}: {kind}, {what}"
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
    ) -> tuple[list[Any], Said]:
        job, runs, speakers = job_of(kind), [], {}
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch, ExitStack() as stack:
            kept = folder or Path(scratch)
            of_party = self._brings(kind, job, kept, stack) if kind in SERVES else {}
            if of_party:
                job = next(iter(of_party.values())).job
            for name, channels in memory_network(*job.parties.all, job_id="trial").items():
                met = {peer: channel for peer, channel in channels.items() if peer in job.parties.met_by(name)}
                for peer, channel in met.items():
                    changed = change if (name, peer) == (sender, receiver) else None
                    channel._pipe = Wire(channel._pipe, changed)  # type: ignore[assignment]
                    speakers[name, peer] = Speaker(channel, changed)
                brings = of_party.get(name) or Brings.of(job, name, self._tables, kept)
                runs += side_by_side(brings.run(attempt, met))
            results = run_together(*runs)
        return results, {pair: speaker.types for pair, speaker in speakers.items()}

    def _brings(self, kind: str, job: Job, folder: Path, stack: ExitStack) -> dict[str, Brings]:
        """What each party of a job of predictions brings, by a copy of what it stored when the model was trained."""
        _, asker, new = SERVES[kind]
        trained = self._folder / f"trained {kind}"
        if not trained.exists():
            self._train(job, trained)
        names, made = job.parties.data, {}
        shutil.copytree(trained, folder, dirs_exist_ok=True)
        stores = {name: Store(folder / name) for name in names}
        for store in stores.values():
            stack.callback(store.close)
        predicting = predictions.job_for(stores[asker], "trained", asker, new=new)
        rows = list(kinds.ROWS[asker])[-20:]
        asked = (
            "id,x,y,g\n" + "".join(f"p{row},.{row},.5,{row // 2}\n" for row in rows)
            if new
            else "id\n" + "".join(f"p{row}\n" for row in rows)
        )
        for name, store in stores.items():
            settings = settings_of(job, name, self._tables, folder / name)
            record = store.add(
                predicting, submitter=asker, job_id="trial", request=asked.encode() if new and name == asker else None
            )
            requests = Requests() if name == asker and not new else None
            if requests:
                for _ in range(2):
                    requests.ask(predictions.read_request(settings, store, predicting, asked.encode()))
                requests.close()
            own = store.job_folder(record)
            table, brought = predictions.prepare(settings, store, predicting, own, requests)
            memories = {peer: store.partner(peer) for peer in predicting.remembered_by(name)}
            made[name] = Brings(settings, predicting, own, memories, table, brought)
        return made

    def _train(self, job: Job, folder: Path) -> None:
        """Train the model of ``job``; each data party's store lies in ``folder``."""
        runs = []
        with ExitStack() as stack, tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            for name, channels in memory_network(*job.parties.all, job_id="trial").items():
                met = {peer: channel for peer, channel in channels.items() if peer in job.parties.met_by(name)}
                brings = Brings.of(job, name, self._tables, Path(scratch))
                if name in job.parties.data:
                    store = Store(folder / name)
                    stack.callback(store.close)
                    record = store.update(store.add(job, submitter="clinic", job_id="trained"), state="done")
                    memories = {peer: store.partner(peer) for peer in job.remembered_by(name)}
                    brings = dataclasses.replace(brings, folder=store.job_folder(record), memories=memories)
                runs += side_by_side(brings.run(1, met))
            for end in run_together(*runs):
                if end is not None:
                    raise AssertionError(f"a training for predictions: {type(end).__name__}: {end}") from end

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
