"""Whole jobs of every kind, in one process, in which what one party sends is changed, on its way or before.

    python tests/faults/mutated_jobs.py --seed 7 --jobs 1000        a thousand jobs
    python tests/faults/mutated_jobs.py --seed 7 --job 123          that one again, with the story of its end

Every job must end by itself: with results, or at each party with an error that has a code. Where one party ends well, all have
the models and reports that they would have without the change. Nobody waits for ever, nothing may fail otherwise, and nothing
may be left over: memory and objects are compared between the first jobs and the last.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kinds
from kinds import ALL, KINDS
from mutations import HOWS, Change
from players import COSTS, Played, Players, quick, without

from vfl_node.errors import PeerError, PeerLost, VflError


class Mutated:
    """Many jobs over two small tables.

    Args:
        folder: scratch.
        seed: of everything.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._seed, self._players = seed, Players(folder)
        self._unchanged: dict[str, Played] = {}

    def unchanged(self, kind: str) -> Played:
        """A job of this kind in which nothing is changed."""
        if kind not in self._unchanged:
            played = self._unchanged[kind] = self._players.play(kind)
            for end in played.ends:
                if end is not None:
                    raise AssertionError(f"{kind}, with nothing changed: {type(end).__name__}: {end}") from end
        return self._unchanged[kind]

    def one(self, number: int, *, say: Callable[[str], None] = lambda _: None) -> str:
        """Job ``number``: how it ended. Raises AssertionError where it ended as none may."""
        chance = random.Random(f"{self._seed}/{number}")
        (kind,) = chance.choices(ALL, kinds.WEIGHTS)
        said = self.unchanged(kind).said
        between = sender, receiver = chance.choice([pair for pair, types in said.items() if types])
        types = said[between]
        how = chance.choice([how for how in HOWS if how != "file" or kind in KINDS])
        rare = chance.choice(sorted(set(types)))  # each type of message is as likely
        at = chance.choice([at for at, name in enumerate(types) if name == rare])
        change = Change(how, at if how == "meant" else chance.randrange(len(types)), chance)
        what = f"message {change.at} ({types[change.at]}) of {sender} to {receiver} {how}"
        where = f"job {number} of seed {self._seed}: {kind}, {what}"
        say(where)
        try:
            played = self._resumed(kind, change, between) if how == "file" else self._players.play(kind, change, between)
        except VflError as error:  # what it stored is seen to be damaged before it says a word
            played = Played([error], {}, {})
        except RuntimeError as error:
            if "every party waits" in str(error) and how not in ("duplicated", "another type", "header", "file"):
                return "waits for what never comes"  # which the deadline of progress ends in a node
            raise AssertionError(f"{where}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        for end in played.ends:
            if isinstance(end, BaseException):
                say("".join(traceback.format_exception(end)))
            if end is not None and not (isinstance(end, VflError) and end.code != "E_INTERNAL"):
                raise AssertionError(f"{where}: {type(end).__name__}: {end}") from end
        if None in played.ends and (differs := self._differing(kind, how, played)):
            raise AssertionError(f"{where}: ended well, with another {', '.join(differs)}")
        errors = [end for end in played.ends if isinstance(end, VflError)]
        echoes = [isinstance(error, PeerLost) + isinstance(error, PeerError | PeerLost) for error in errors]
        return min(zip(echoes, (error.code for error in errors), strict=True), default=(0, "R"))[1]

    def _differing(self, kind: str, how: str, played: Played) -> list[str]:
        """What the parties have for their owners that they would not have had without the change."""
        if how == "meant":  # only its sender could tell it from what it says otherwise
            return [f"part of {party}" for party, left in played.left.items() if not left]
        differing, known = [], COSTS if how == "file" else ()
        for party, expected in self.unchanged(kind).left.items():
            expected, left = without(expected, known), without(played.left[party], known)
            differing += [
                f"{name} of {party}" for name in expected.keys() | left.keys() if left.get(name) != expected.get(name)
            ]
        return sorted(differing)

    def _resumed(self, kind: str, change: Change, between: tuple[str, str]) -> Played:
        """A job that breaks off, and goes on with one file of one party changed."""
        with self._players.scratch() as scratch:
            self._players.play(kind, replace(change, how="broken off"), between, Path(scratch))
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
            return self._players.play(kind, folder=Path(scratch), attempt=2)

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
