"""What a defended step costs by rounds of Minimax, by network, and if Minimax runs before some batches only.

Both parties take turns on one thread. For the slow link each message waits for half a round trip before it is delivered, in the
process itself: this has the delay of a link of 20 ms, not its bandwidth.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sessions import session
from experiments.inference.data import ACTIVE, SPLITS, VICTIMS, Split
from experiments.inference.defended import COLUMNS, FBS, NAMES, NONE, SETTINGS, Defence, Results, defended, entries
from experiments.inference.experiment import Expectation, Found, Outcome, Plan, Work, cell, interval, mean, table
from experiments.inference.training import OF_DATA, TRAIN, view
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Parties
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.network.half import Half, RepeatStart
from vfl_node.training.network.loop import HalfOf
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.frames import Frame
from vfl_node.transport.memory import memory_network

TITLE = "Cost of a defended step"

SEEDS = 3
ROUNDS = {False: (5, 10, 20), True: (10,)}
EVERY = {False: (1, 2, 5, 10), True: (1, 5)}
DATA = ("adult", "location30")
ROUND_TRIP_S = 0.02

STEPS = {False: 30, True: 4}
"""Steps of each kind that are timed, by :attr:`Plan.small`."""

MOST = 25.0
"""At 10 rounds a step takes at most so many times as long on ``adult``, without a slow link."""


class SlowChannel(Channel):
    """Takes over a conversation; each message that it sends waits for ``seconds``."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        vars(self).update(vars(channel))
        self._seconds = seconds

    async def _transmit(self, frame: Frame) -> None:
        time.sleep(self._seconds)
        await super()._transmit(frame)


class Pair:
    """Both parties of one training, which take steps together.

    Args:
        data: name of the table, for :data:`OF_DATA`.
        split: the tables.
        settings: of the job's ``train`` section, where they differ.
        defences: of the passive party's settings.
        delay_s: how long each message is on its way.
    """

    def __init__(
        self, data: str, split: Split, settings: Mapping[str, Any], defences: list[dict[str, Any]], delay_s: float
    ) -> None:
        train = Train.model_validate({**TRAIN, "classes": split.classes, **OF_DATA.get(data, {}), **settings})
        parties, rows = Parties(active=ACTIVE, passive=(VICTIMS[0],)), np.arange(len(split))
        params = tuple(read_params(entry) for entry in defences)
        self._halves: list[Half] = []
        self._batch, self._number = train.batch_size, 0
        self._order = Randomness(bytes(32)).permutation(len(split))
        for party, channels in memory_network(ACTIVE, VICTIMS[0]).items():
            own = session(
                party,
                {peer: SlowChannel(channel, delay_s) for peer, channel in channels.items()},
                Randomness(bytes(32)),
                train=train,
                parties=parties,
                protection=Protection(() if party == ACTIVE else params, membership=False),
                clock=lambda: 0.0,
            )
            of_data = TrainingData(view(split, party), split.tables[party])
            half: HalfOf = ActiveHalf if party == ACTIVE else PassiveHalf
            self._halves.append(half(own, of_data, RepeatStart(Randomness(bytes(32)), Randomness(bytes(32)), 0, rows)))

    def step(self) -> float:
        """Seconds of the next step."""
        start = self._number * self._batch % (len(self._order) - self._batch)
        positions = self._order[start : start + self._batch]
        started = time.perf_counter()
        pending: list[Coroutine[Any, Any, None]] = [half.step(self._number, positions) for half in reversed(self._halves)]
        while pending:
            for step in tuple(pending):
                try:
                    step.send(None)
                except StopIteration:
                    pending.remove(step)
        self._number += 1
        return time.perf_counter() - started


def timed(shared: Path, *, data: str, defence: Defence, steps: int) -> Outcome:
    """Seconds of steps with and without a defence, which are taken in turn.

    Returns:
        ``near`` and ``far`` (over the slow link) → medians of ``plain``, of ``minimax``, and of a step ``between`` two before
        which Minimax runs.
    """
    split, settings = SPLITS[data](shared, 0), SETTINGS[data.startswith("made_up")]
    defences = entries({**defence, "every": 2}, COLUMNS[data])
    found = {}
    for link, delay_s in (("near", 0.0), ("far", ROUND_TRIP_S / 2)):
        plain, protected = Pair(data, split, settings, [], delay_s), Pair(data, split, settings, defences, delay_s)
        times: dict[str, list[float]] = {"plain": [], "minimax": [], "between": []}
        for number in range(2 * steps + 4):  # the first four warm up
            for name, pair in (("plain", plain), (("minimax", "between")[number % 2], protected)):
                taken = pair.step()
                if number >= 4:
                    times[name].append(taken)
        found[link] = {name: statistics.median(seconds) for name, seconds in times.items()}
    return found


def _defence(rounds: int, every: int = 1) -> Defence:
    return {**FBS, "rounds": rounds, **({"every": every} if every > 1 else {})}


def _timed(plan: Plan, data: str, rounds: int) -> Work:
    table_ = plan.data(data)
    return Work(timed, {"data": table_, "defence": _defence(rounds), "steps": STEPS[plan.small]})


def works(plan: Plan) -> list[Work]:
    """Times, and what ``every`` does to privacy."""
    times = [_timed(plan, data, rounds) for data in DATA for rounds in ROUNDS[plan.small]]
    chosen = [NONE, *(_defence(10, every) for every in EVERY[plan.small])]
    return times + [defended(plan, "adult", seed, one) for one in chosen for seed in plan.few(SEEDS)]


def ratio(found: Mapping[str, float], every: int) -> float:
    """How many times as long a step takes with Minimax before one batch in ``every``, of what :func:`timed` found of a link."""
    return (found["minimax"] + (every - 1) * found["between"]) / every / found["plain"]


def page(plan: Plan, found: Found) -> list[str]:
    """Ratios by rounds, network and ``every``, and its privacy."""
    rows = []
    for data in DATA:
        for rounds in ROUNDS[plan.small]:
            outcome = found[_timed(plan, data, rounds).name]
            for link, words in LINKS.items():
                times = outcome[link]
                plain, minimax = (f"{1e3 * times[name]:.1f} ms" for name in ("plain", "minimax"))
                ratios = [f"{ratio(times, every):.1f}" for every in EVERY[plan.small]]
                rows.append([f"{NETWORKS[data]}", str(rounds), words, plain, minimax, *ratios])
    head = ["network", "N2", "link", "plain", "defended", *(f"every: {every}" for every in EVERY[plan.small])]
    results = Results(plan, found, "adult", plan.few(SEEDS))
    metric = NAMES[results.metric]
    kept = []
    for every in EVERY[plan.small]:
        one = _defence(10, every)
        left = mean(results.leakage(one)) / mean(results.leakage(NONE))
        attack, leak = cell(results.success(one)), interval(results.leakage(one))
        kept.append([str(every), attack, leak, f"{left:.0%}", interval(results.gain(one))])
    names = ["every", "best attack", "best − imputation", "of that without a defence", f"{metric} − without a defence"]
    return [ABOUT, "", *table(head, rows), "", ABOUT_EVERY, "", *table(names, kept)]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """10 rounds on ``adult`` take no longer than was said before."""
    found_ratio = ratio(found[_timed(plan, "adult", 10).name]["near"], 1)
    return [Expectation(f"`adult`, N2 = 10: {MOST:g} − how many times as long a step takes", MOST - found_ratio, 0.0)]


LINKS = {"near": "none", "far": "20 ms"}

NETWORKS = {"adult": "`adult`: 64→32, decoder 128→128→15", "location30": "`location30`: 223→128→64, decoder 128→128→223"}

ABOUT = """\
Seconds of a whole step of both parties, 256 rows, one thread; medians of steps with and without `fbs` that were taken in turn,
and their ratio. Between two batches before which Minimax runs, the bottom is only pulled to what Minimax has left. Over the
link of 20 ms each message waits for 10 ms before it is delivered, in the process itself; its bandwidth is not limited."""

ABOUT_EVERY = """\
What `every` does to privacy: `adult`, N2 = 10, three seeds."""
