"""Inject every fault of the table and write down what happened: ``make faults``.

::

    python tests/faults/run.py                     every row, and docs/explanations/reliability.md
    python tests/faults/run.py --only 4 --only 13  some rows
    python tests/faults/run.py --bounded           the selection that the tests run
    python tests/faults/run.py --page              docs/explanations/reliability.md of what was found so far

What each row showed is kept at once in ``build/faults.json``, where a later run of that row replaces it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import absences  # noqa: F401 - registers its rows
import kills  # noqa: F401
import network  # noqa: F401
import proven  # noqa: F401
import soak  # noqa: F401
import storage_faults  # noqa: F401
from found import Found, Shown
from page import page
from rows import ROWS, Row, tried
from world import World

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "explanations" / "reliability.md"


def make_trial(folder: Path) -> Any:
    """The tables of the tests."""
    spec = importlib.util.spec_from_file_location("tests_conftest", HERE.parent / "conftest.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.make_trial(folder)


def main() -> int:
    """Run what the command line asks for; 1 where a row does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="number of a row")
    parser.add_argument("--bounded", action="store_true", help="the selection of the tests")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs with mutated messages")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of whatever is random")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each of the rows 1 to 3")
    parser.add_argument("--page", action="store_true", help="write the page of what was found so far, and run nothing")
    asked = parser.parse_args()
    kept = Found(ROOT / "build" / "faults.json")
    if asked.page:
        PAGE.write_text(page(shown(kept)))
        return 0
    chosen = [row for row in ROWS if row.numbers in asked.only] if asked.only else whole()
    if asked.bounded:
        chosen = [row for row in ROWS if row.bounded]
    os.environ |= {"FAULTS_JOBS": str(asked.jobs), "FAULTS_SEED": str(asked.seed), "FAULTS_MINUTES": str(asked.minutes)}
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"seed {asked.seed}", flush=True)
    found = []
    for row, outcome in outcomes(chosen):
        kept.keep(row, outcome, asked.seed)
        found.append(outcome)
    if not asked.only and not asked.bounded:
        PAGE.write_text(page(shown(kept)))
    return int(any(outcome.holds is False for outcome in found))


def whole() -> list[Row]:
    """Every row of the table; not the parts that the tests try alone."""
    return [row for row in ROWS if "a part" not in row.numbers]


def shown(kept: Found) -> list[Shown]:
    """What the page has: every row, and parts of those that were not run whole."""
    parts = [row for row in ROWS if "a part" in row.numbers]
    return kept.of(whole()) + [part for part in kept.of(parts) if part.outcome and not _has_whole(kept, part)]


def _has_whole(kept: Found, part: Shown) -> bool:
    first = part.row.numbers.split("–")[0].split(" ")[0]
    return any(row.outcome for row in kept.of(whole()) if row.row.numbers == first)


def outcomes(chosen: list[Row]) -> Any:
    """Run rows one after the other; each has a world of its own where the one before was left in disorder."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as scratch:
        world: World | None = None
        for number, row in enumerate(chosen):
            if world is None:
                folder = Path(scratch) / str(number)
                (folder / "tables").mkdir(parents=True)
                world = World(folder, make_trial(folder / "tables"))
            outcome = tried(row, world)
            print(f"{row.numbers:>8}  {outcome.what:16} {outcome.seconds:7.1f} s  {outcome.places:4}  {row.fault}", flush=True)
            if outcome.note:
                print(f"{'':10}{outcome.note}", flush=True)
            yield row, outcome
            if outcome.holds is False:
                world.close()
                world = None
        if world:
            world.close()


if __name__ == "__main__":
    sys.exit(main())
