"""All that is opened and dealt is uniform and independent of what is masked; with any one mask left out, something is not.

The numbers of one place are judged by χ² of their four highest bits, by the test of Kolmogorov and Smirnov, and by the shortest
arc of the ring that has all n of them: uniform ones lie within a share t of it with a probability of n·t^(n − 1). Values
without a mask lie close together. The smallest of these p-values counts times their number, a bound for the p-value of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest

from tests.thorough import every
from vfl_node.crypto.shares.machine import Party, ShareMachine
from vfl_node.crypto.shares.operation import Opening
from vfl_node.crypto.shares.ring import Ring
from vfl_node.session.openings import OpeningLog
from vfl_node.session.share_wire import PairWire, StarWire
from vfl_node.training.shares import measuring

MODELS: list[dict[str, Any]] = [{}, {"loss": "taylor"}, {"layers": (4,)}, {"task": "regression"}, {"classes": 3}]
SOME = [({}, 2), ({"layers": (4,)}, 3), ({"classes": 3}, 2)]
models = pytest.mark.parametrize(
    ("train", "parties"),
    [
        pytest.param(train, parties, marks=[] if (train, parties) in SOME else [pytest.mark.slow])
        for train in MODELS
        for parties in (2, 3)
    ],
)
"""Each model with two and with three data parties; all but some in make test-all."""

ONE_STEP = {"reveal": "none", "epochs": 1, "batch_size": 1000}
DIGEST = "vfl_node.training.hidden.trainer.digest_of"
LEAST = 3
"""Numbers of a place that is judged. Smaller ones are single weights."""

CHANCE = 1e-4
"""A p-value that is smaller shows that something is not uniform."""

Place = tuple[str, int, str]
"""Section, number of the operation or of the first one of its round, and which of its values."""

Floats = NDArray[np.float64]


class Recorded:
    """What all parties draw, see opened and get from the dealer while this is in effect (:func:`recorded`).

    Attributes:
        masks: place → numbers of a mask.
        drawn: place, and the place of the party that drew there → the bytes of its share.
        seen: place → what was opened or dealt there, as shares of the ring in 0 … 1.
        told: openings of sums for metrics, which are not masked, and so not judged.
    """

    def __init__(self) -> None:
        self.masks: dict[Place, int] = {}
        self.drawn: dict[tuple[Place, int], bytes] = {}
        self.seen: dict[Place, Floats] = {}
        self.told: list[Opening] = []

    def note(self, party: int, section: str, number: int, shown: Sequence[Opening], opened: Sequence[Ring]) -> None:
        """Those openings of a round that are for the party."""
        for index, (each, values) in enumerate(zip(shown, opened, strict=True)):
            if values.size >= LEAST and each.to in (None, party) and not any(each is of for of in self.told):
                self.seen[section, number, f"opening {index}"] = values.ravel() / 2.0**each.bits

    @property
    def p_value(self) -> float:
        """Whether everything is uniform."""
        return uniform(self.seen)


@contextmanager
def recorded(
    left_out: Callable[[Place], bool] = lambda place: False, telling_in: Sequence[ModuleType] = (measuring,)
) -> Iterator[Recorded]:
    """Record, and have zeros for some masks, at their party as at the dealer; what ``telling_in`` reveals is not judged."""
    found, last = Recorded(), list[Any]()
    draw, material, check, revealed = ShareMachine._draw, Party._material, OpeningLog.check, measuring.reveal

    def drawn(machine: ShareMachine, seed: Any, number: int, name: str, shape: Any) -> Any:
        place = (machine._section, number, name)
        values = draw(machine, seed, number, name, shape) * np.uint64(not left_out(place))
        found.masks[place] = values.size
        if machine.place >= 0:
            found.drawn[place, machine.place] = values.tobytes()
        return values

    async def dealt(party: Party, number: int, operation: Any) -> Any:
        made = await material(party, number, operation)
        for name in operation.dealt:
            if party._receivers[number] == party.place and made[name].size >= LEAST:
                found.seen[party._section, number, name] = made[name].ravel() / 2.0**operation.dealt_bits
        return made

    def opening(original: Any) -> Any:
        async def opened(wire: Any, shown: Sequence[Opening], shares: Sequence[Ring]) -> Any:
            values = await original(wire, shown, shares)
            last[:] = wire._place, shown  # the party checks what it got before another one has its turn
            return values

        return opened

    def telling(*given: Any) -> Any:
        operation = revealed(*given)
        found.told += operation.shown
        return operation

    def checked(log: OpeningLog, section: str, number: int, opened: Sequence[Ring]) -> None:
        party, shown = last
        found.note(party, section, number, shown, opened)
        check(log, section, number, opened)

    with (
        ExitStack() as patched,
        mock.patch.object(ShareMachine, "_draw", drawn),
        mock.patch.object(Party, "_material", dealt),
        mock.patch.object(PairWire, "open", opening(PairWire.open)),
        mock.patch.object(StarWire, "open", opening(StarWire.open)),
        mock.patch.object(OpeningLog, "check", checked),
    ):
        for module in telling_in:
            patched.enter_context(mock.patch.object(module, "reveal", telling))
        yield found


def uniform(seen: Mapping[Place, Floats]) -> float:
    """The p-value of all places together."""
    every = [p for values in [*seen.values(), np.concatenate(list(seen.values()))] for p in p_values(values)]
    return min(every) * len(every)


def p_values(values: Floats) -> list[float]:
    found = [float(kstest(values, "uniform").pvalue)]
    if len(values) < 1000:  # many leave no gap that a float can see
        ordered = np.sort(values)
        gap = np.append(np.diff(ordered), 1 + ordered[0] - ordered[-1]).max()
        found.append(min(1.0, len(values) * (1 - gap) ** (len(values) - 1)))
    if len(values) >= 80:
        found.append(float(chisquare(np.bincount((values * 16).astype(int) % 16, minlength=16)).pvalue))
    return found


def over_for(world: Any, train: dict[str, Any], *given: Any, **more: Any) -> Any:
    return world(*given, classes=train.get("classes", 2), numbers=train.get("task") == "regression", **more)


def part(section: str) -> str:
    """An epoch with all of its blocks, or all that makes w."""
    return section.split(" block")[0].removesuffix(" 0") if section.startswith("both") else section.split(" block")[0]


def alike(_own: Any, _mark: bytes) -> bytes:
    return bytes(32)


@models
def test_all_that_is_opened_and_dealt_is_uniform(world: Any, attempt: Any, train: dict[str, Any], parties: int) -> None:
    with recorded() as found:
        attempt({"reveal": "none", "epochs": 2, **train})(over_for(world, train, parties))
    assert {part(section) for section, *_ in found.seen} == {"columns", "both", "epoch 0", "epoch 1", "measure"}
    assert len(found.seen) > 50
    assert found.p_value > CHANCE
    with recorded(lambda place: True) as bare:
        attempt({"reveal": "none", "epochs": 2, **train})(over_for(world, train, parties))
    assert bare.p_value < 1e-30


@pytest.mark.parametrize(
    ("train", "sections"),
    [
        ({}, {"columns", "both", "epoch 0", "measure"}),
        pytest.param({"layers": (4,)}, {"epoch 0"}, marks=pytest.mark.slow),
    ],
)
def test_any_one_mask_left_out_is_noticed(world: Any, attempt: Any, train: dict[str, Any], sections: set[str]) -> None:
    """But those of products of two random matrices, which are uniform themselves, and seeds of noise, which mask nothing."""
    over = world(people=60)
    with recorded() as whole:
        attempt({**ONE_STEP, **train})(over)
    masks = [of for of, size in whole.masks.items() if size >= LEAST and of[2] not in ("product", "seed")]
    places = [of for of in masks if part(of[0]) in sections]
    assert {part(section) for section, *_ in places} == sections
    assert len(places) > 20
    for left_out in every(7, places):
        with recorded(lambda place, left_out=left_out: place == left_out) as found:
            attempt({**ONE_STEP, **train})(over)
        assert found.p_value < CHANCE, left_out


@models
def test_other_inputs_have_other_masks(world: Any, attempt: Any, train: dict[str, Any], parties: int) -> None:
    """The same randomness of all, and two tables of each: openings differ by uniform numbers.

    Inputs change masks by the context alone. Were it the same, so were all masks, and openings would differ as what is masked.
    """

    def both(same_context: bool) -> tuple[Recorded, Recorded]:
        runs = []
        for seed in (0, 1):
            with recorded() as found, mock.patch(DIGEST, alike) if same_context else nullcontext():
                attempt({**ONE_STEP, **train})(over_for(world, train, parties, seed=seed))
            assert found.p_value > CHANCE
            runs.append(found)
        return runs[0], runs[1]

    def differing(one: Recorded, other: Recorded) -> float:
        return uniform({place: (one.seen[place] - other.seen[place]) % 1 for place in one.seen})

    one, other = both(same_context=False)
    assert one.drawn.keys() == other.drawn.keys()
    assert not any(one.drawn[place] == other.drawn[place] for place in one.drawn)
    assert differing(one, other) > CHANCE
    one, other = both(same_context=True)
    assert one.drawn == other.drawn
    assert differing(one, other) < 1e-30
