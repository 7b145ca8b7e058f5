"""What each of two parties sees in training without a coordinator: uniform numbers that tell nothing; unprotected they do.

An attacker has all that a party receives, and its own keys, masks and shares. Each attack is tried on a training as it is, and
on one from which the protection against it is taken away.

All seeds are fixed. With others an honest training fails a test here with a probability below 10⁻⁹: 6.2 standard deviations are
6·10⁻¹⁰ on both sides, and where many numbers are tried, 10⁻⁹ is shared out among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, rankdata

from tests.crypto.lattice.phases import errors_of, multiplier, phase, read, whole
from tests.crypto.lattice.variants import compiled
from tests.crypto.shares.paired import watch as watching
from tests.crypto.shares.paired.pairs import PairRun
from tests.crypto.shares.paired.watch import Watch, uniform_bytes, uniform_numbers
from tests.privacy.test_hidden_training import World, trained_auc
from tests.training.hidden.test_paired import PARTIES
from vfl_node.crypto.lattice.parameters import SLOT_PRIME
from vfl_node.crypto.lattice.ring import LINEAR
from vfl_node.crypto.lattice.tiles import tiles_of
from vfl_node.crypto.shares.paired.kit import OwnBits
from vfl_node.crypto.shares.paired.tools import PairTools, describe_columns, swap_columns
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.crypto.shares.sines import PERIOD_BITS
from vfl_node.training.hidden.computation import Held, HiddenPlan, Own, WeightShares, compute
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.layout import BlockLayout, batch_rows
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule

pytestmark = compiled

Z = 6.2
Floats = NDArray[np.float64]
Truth = NDArray[np.bool_]


# All bytes of whole trainings.

JOBS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "psu": ("psu", {}, {}),
    "psu, all shared": ("psu", {"loss": "taylor"}, {"share": 1.0}),
    "apsi, batches": ("apsi", {"loss": "taylor", "batch_size": 32, "epochs": 2}, {}),
    "psi, numbers": ("psi", {"task": "regression", "reveal": "none"}, {"numbers": True}),
}
TO_BOTH = {"points", "columns", "products", "vectors"}
KINDS = TO_BOTH | {"keys", "transfers", "bits", "numbers", "monomials", "tallies"}
OF_SINES = {"terms", "inner products", "sines"}


def p_value(values: NDArray[np.uint64]) -> float:
    """Of χ² over 256 classes, or over two where there are only bits."""
    classes = 2 if int(values.max()) < 2 else 256
    counts = np.bincount(values.astype(np.int64), minlength=classes)
    return float(chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), classes - 1))


def p_values(watch: Watch) -> dict[tuple[int, str], float]:
    """Receiver and kind → that of all that was received of the kind."""
    found: dict[tuple[int, str], list[NDArray[np.uint64]]] = defaultdict(list)
    for place, kind, data in watch.handed:
        found[place, kind].append(uniform_bytes(kind, data))
    for each in watch.seen:
        if each.kind not in ("openings", "draws"):
            for kind, values in uniform_numbers(each).items():
                found[each.place, kind].append(values)
    return {key: p_value(np.concatenate(values)) for key, values in found.items()}


@pytest.mark.parametrize("job", JOBS)
def test_all_that_is_received_is_uniform(world: Any, attempt: Any, job: str) -> None:
    protocol, how, people = JOBS[job]
    over, of, watch = world(2, protocol, people=400, **people), attempt({**PARTIES, **how}), Watch()
    with watch.running():
        of(over)
    found = p_values(watch)
    assert {kind for _, kind in found} == KINDS | (OF_SINES if job == "psu" else set())
    assert set(found) >= {(place, kind) for place in (0, 1) for kind in TO_BOTH} | {(1, "bits"), (0, "numbers")}
    # 4 trainings with 25 values at most: one is below 10⁻¹¹ once in 10⁹.
    assert {key: value for key, value in found.items() if value < 1e-11} == {}
    # Whatever else is opened, is opened to be read: sums with noise, and weights to their owners.
    assert {each.section for each in watch.seen if each.kind == "openings"} <= {"measure", "reveal"}


REMOVALS: dict[str, tuple[Any, set[tuple[int, str]]]] = {
    "no bits": (watching.no_random_bits, {(0, "bits")}),
    "no numbers": (watching.no_random_numbers, {(0, "numbers")}),
    "no factors": (watching.no_random_factors, {(0, "sines"), (1, "sines")}),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_unprotected_it_is_not_uniform(world: Any, attempt: Any, removal: str) -> None:
    """The control. Plaintexts under a key that is 0 look uniform, as they are transformed: keys have an attack of their own."""
    removed, kinds = REMOVALS[removal]
    watch = Watch()
    with watch.running(), removed():
        attempt({**PARTIES, "metrics_by": "none"})(world(2, "psu", people=400))
    found = p_values(watch)
    assert {key for key in kinds if found[key] > 1e-30} == set()


# Attacks on what belongs to rows.


@dataclass(frozen=True, eq=False)
class Trained:
    """A training of all rows of :class:`~tests.privacy.test_hidden_training.World` as one batch, as both parties have it.

    Attributes:
        world: whose records.
        plan: of the training.
        watch: what both have seen.
        tools: of both.
        rows: positions in the world of the rows of the layout that somebody owns.
        real: which rows of the layout these are.
        products: sums of evaluators before they are hidden.
    """

    world: World
    plan: HiddenPlan
    watch: Watch
    tools: Sequence[PairTools]
    rows: NDArray[np.int64]
    real: Truth
    products: list[Any]

    def owned(self, place: int) -> Truth:
        """Whether a party owns each row of the layout that is real."""
        return self.world.owned[self.rows, place]

    @property
    def labels(self) -> Truth:
        """Of these."""
        return np.asarray(self.world.labels[self.rows])

    def by_row(self, values: Any) -> NDArray[np.uint64] | None:
        """uint64[rows, …] of what has an axis of the layout's rows; None: it has none."""
        at = [axis for axis, size in enumerate(values.shape) if size == len(self.real)]
        return np.moveaxis(values, at[0], 0).reshape(len(self.real), -1)[self.real] if at else None

    def everything(self, place: int) -> Floats:
        """float64[rows, …] between 0 and 1: all that came row by row, all own masks and shares, and sums of both."""
        found = []
        for each in self.watch.seen:
            if each.place == place:
                came = [flat for values in each.opened if (flat := self.by_row(values)) is not None]
                mine = [flat for values in each.material.values() if (flat := self.by_row(values)) is not None]
                mine += [flat] if (flat := self.by_row(each.about.get("value", np.zeros(0)))) is not None else []
                sums = [one + other for one in came for other in mine if one.shape == other.shape]
                found += [*came, *mine, *sums]
        for epoch in range(self.plan.epochs):
            gate, shares = gate_of(self, epoch, place, place)
            found.append(self.by_row(shares[place] + gate.opened[0]))
        return np.concatenate([flat / 2.0 ** max(1, int(flat.max()).bit_length()) for flat in found], axis=1)


ROWS_OF_ONE = 512


class OneColumn(World):
    """With one column each, of rows that both own."""

    def __init__(self, seed: int) -> None:
        super().__init__(2, seed)
        self.owned = np.ones((ROWS_OF_ONE, 2), np.bool_)
        self.columns, self.labels = [of[:ROWS_OF_ONE, :1] for of in self.columns], self.labels[:ROWS_OF_ONE]


def plan_of(world: World, loss: Any, epochs: int) -> HiddenPlan:
    rows = len(world.labels)
    schedule, everyone = Schedule(bytes(32), rows, 0), np.arange(rows)
    batch = batch_rows(rows, rows)
    blocks = BlockLayout.make(schedule, everyone, everyone, batch, 128)
    return HiddenPlan(
        form=Form(tuple(of.shape[1] for of in world.columns), (), 1, loss),
        rows=rows,
        schedule=schedule,
        training=np.arange(blocks.trained),
        testing=everyone[:0],
        descent=Descent(epochs, momentum=0.5, rate=1.0, deviation=1.0),
        batch_rows=batch,
        divisor=rows / 3,
        weight_decay=0.0,
        bins=256,
        reveals=False,
        layout=blocks,
    )


def train(world: World, seed: int, loss: str = "exact", epochs: int = 2, removed: Callable[[], Any] = nullcontext) -> Trained:
    """All rows in one batch; nothing is opened to be read."""
    plan, watch, products = plan_of(world, loss, epochs), Watch(), list[Any]()
    layout = plan.layout
    assert layout is not None
    brought = [Own(*(layout.lay_out(of) for of in (own.columns, own.bits, own.targets))) for own in map(world.own, (0, 1))]
    generator = np.random.default_rng(seed)
    whole = [encode(generator.normal(size=shape) * 0.5, WEIGHT_FRACTION) for shape in plan.form.shapes]
    drawn = [generator.integers(0, 1 << 64, of.shape, np.uint64) for of in whole]
    starts = [drawn, [of - part for of, part in zip(whole, drawn, strict=True)]]

    async def setup(machine: Any, tools: Any) -> Any:
        shapes = len(layout), plan.form.widths, layout.tile_rows, FRACTION
        columns = describe_columns(machine.place, brought[machine.place].columns, *shapes)
        await swap_columns(machine, tools, columns)
        return columns

    async def program(machine: Any, kit: Any, columns: Any) -> Any:
        place = machine.place
        own = brought[place] if place >= 0 else None
        bits = OwnBits(own.bits if own else None, len(layout), (False, False))
        nothing = tuple(np.zeros(shape, np.uint64) for shape in plan.form.shapes)
        start = WeightShares(tuple(starts[place]) if place >= 0 else nothing, nothing)

        async def after(*_: Any) -> None:
            pass

        return await compute(machine, plan, own, start, 0, after, kit, Held(columns, bits, bits))

    with watch.running(), watching.sums_noted(products), removed():
        run = PairRun(program, seed=seed, setup=setup)
    real = layout.order >= 0
    return Trained(world, plan, watch, run.tools, layout.order[real], real, products)  # type: ignore[arg-type]


RUNS = 2


@pytest.fixture(scope="module")
def trained() -> Callable[..., list[Trained]]:
    """Two trainings as they are; one without a protection."""
    made: dict[Any, list[Trained]] = {}

    def runs(removed: Any = None) -> list[Trained]:
        if removed not in made:
            worlds = [World(2, seed) for seed in range(1 if removed else RUNS)]
            made[removed] = [train(world, seed, removed=removed or nullcontext) for seed, world in enumerate(worlds)]
        return made[removed]

    return runs


def areas(scores: Floats, truth: Truth) -> Floats:
    """The area under the curve of each column."""
    positive = truth.sum()
    ranks = rankdata(scores, axis=0)[truth].sum(axis=0)
    return np.asarray((ranks - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))


def deviation(truth: Truth) -> float:
    """Of an area at chance."""
    positive = int(truth.sum())
    return float(np.sqrt((len(truth) + 1) / 12 / positive / (len(truth) - positive)))


def signed(values: NDArray[np.uint64]) -> Floats:
    return values.view(np.int64).astype(float)


def gate_of(of: Trained, epoch: int, place: int, bits_of: int) -> tuple[Any, list[NDArray[np.uint64]]]:
    """What a party has of a step's product of the residual with a party's bits, and both shares of the residual."""
    (section,) = {section for _, section in of.watch.gated if section.startswith(f"epoch {epoch} ")}
    (number, first), (_, second) = (of.watch.gated[place, section] for place in (0, 1))
    (found,) = (each for each in of.watch.of(place, "choices") if (each.section, each.number) == (section, number + bits_of))
    return found, [first, second]


# A bit that says who owns a row.


def opened_bits(of: Trained, place: int) -> Floats:
    """What a party hears of the bits of the other one, in each step."""
    each = [gate_of(of, epoch, place, 1 - place)[0] for epoch in range(of.plan.epochs)]
    return np.concatenate([of.by_row(gate.opened[0])[:, :1] for gate in each], axis=1).astype(float)


@pytest.mark.parametrize("place", [0, 1])
def test_a_bit_of_who_owns_a_row_is_hidden_by_a_random_one(trained: Any, place: int) -> None:
    for of in trained():
        rows, truth = of.owned(place), of.owned(1 - place)
        found = areas(opened_bits(of, place)[rows], truth[rows])
        assert np.abs(found - 0.5).max() < 6.5 * deviation(truth[rows])  # of 8 areas
    (bare,) = trained(watching.no_random_bits)
    rows, truth = bare.owned(place), bare.owned(1 - place)
    assert np.array_equal(opened_bits(bare, place)[:, 0] == 1, truth)
    assert (areas(opened_bits(bare, place)[rows], truth[rows]) == 1).all()


# Residuals, which tell labels and who owns a row.


def residuals(of: Trained, place: int, epoch: int) -> tuple[Floats, Floats]:
    """What a party thinks that they are: its share and what it hears of the other's; and what they are. By row."""
    gate, shares = gate_of(of, epoch, place, place)
    (heard,) = gate.opened
    each = of.by_row(shares[place] + heard), of.by_row(shares[0] + shares[1])
    return signed(each[0][:, 0]), signed(each[1][:, 0])


@pytest.mark.parametrize("place", [0, 1])
def test_a_residual_is_hidden_by_a_random_number(trained: Any, place: int) -> None:
    for of in trained():
        for epoch in range(of.plan.epochs):
            guess, truth = residuals(of, place, epoch)
            assert abs(np.corrcoef(guess, truth)[0, 1]) < 6.5 / np.sqrt(len(truth))  # of 8 correlations
            assert abs(areas(guess[:, None], of.labels)[0] - 0.5) < 6.5 * deviation(of.labels)
    (bare,) = trained(watching.no_random_numbers)
    guess, truth = residuals(bare, place, 0)
    assert np.array_equal(guess, truth)
    labelled = bare.owned(0)
    assert areas(-guess[labelled, None], bare.labels[labelled])[0] > 0.95  # σ(z) − y: its sign is the label
    assert trained_auc(guess[labelled, None], bare.labels[labelled]) > 0.99


def vectors(of: Trained, place: int, kind: str) -> list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Of products with a party's own columns: its share of the vector and what it hears, and the vector."""
    found = []
    for mine, theirs in zip(of.watch.of(place, "vectors"), of.watch.of(1 - place, "vectors"), strict=True):
        matrix = mine.about["matrix"]
        if matrix.owner == place and matrix.is_transposed == (kind == "residuals"):
            (heard,) = mine.opened
            found.append((mine.about["value"] + heard, mine.about["value"] + theirs.about["value"]))
    assert len(found) == of.plan.epochs
    return found


@pytest.mark.parametrize("place", [0, 1])
def test_a_residual_that_rows_are_multiplied_by_is_hidden(trained: Any, place: int) -> None:
    for of in trained():
        for guess, truth in vectors(of, place, "residuals"):
            both = signed(of.by_row(guess)[:, 0]), signed(of.by_row(truth)[:, 0])
            assert abs(np.corrcoef(*both)[0, 1]) < 6.5 / np.sqrt(len(of.rows))  # of 8
            rows, others = of.owned(place), of.owned(1 - place)[of.owned(place)]
            assert abs(areas(np.abs(both[0])[rows, None], others)[0] - 0.5) < 6.5 * deviation(others)
    (bare,) = trained(watching.no_random_vectors)
    for guess, truth in vectors(bare, place, "residuals"):
        assert np.array_equal(guess, truth)
        rows = bare.owned(place)
        moved = np.abs(signed(bare.by_row(guess)[rows, 0]))
        assert areas(moved[:, None], bare.owned(1 - place)[rows])[0] > 0.95  # 0 where the other one has no row


@pytest.mark.parametrize("place", [0, 1])
def test_weights_are_hidden_while_they_are_trained(trained: Any, place: int) -> None:
    """A uniform number is within 2^29 of another one, 8 of a weight's units, once in 2^34: one of 14 with 8·10⁻¹⁰."""
    off = [signed(guess - truth) for of in trained() for guess, truth in vectors(of, place, "weights")]
    assert 12 <= sum(each.size for each in off) <= 16
    assert min(np.abs(each).min() for each in off) > 1 << 29
    (bare,) = trained(watching.no_random_vectors)
    assert all(np.array_equal(guess, truth) for guess, truth in vectors(bare, place, "weights"))


# Angles of scores.


def angles(of: Trained, place: int) -> list[tuple[Floats, Floats]]:
    """Of each step: the other's angle by the sine and cosine that a party hears, and as it is; in turns."""
    found = []
    for mine, theirs in zip(of.watch.of(place, "sines"), of.watch.of(1 - place, "sines"), strict=True):
        heard = mine.opened[0][:2].astype(np.int64)
        heard = np.where(heard > SLOT_PRIME // 2, heard - SLOT_PRIME, heard).astype(float)
        sine, cosine = heard if place else heard[::-1]  # the active party's come as sine and cosine
        bits = theirs.about["fraction"] + PERIOD_BITS
        truth = (theirs.about["value"].ravel() & np.uint64((1 << bits) - 1)) / 2.0**bits
        found.append((np.arctan2(sine, cosine)[of.real] / (2 * np.pi), truth[of.real]))
    assert len(found) == of.plan.epochs
    return found


@pytest.mark.parametrize("place", [0, 1])
def test_angles_are_hidden_by_random_factors(trained: Any, place: int) -> None:
    """The mean cosine of n uniform angles has the standard deviation 1/√(2n)."""
    for of in trained():
        for guess, truth in angles(of, place):
            assert abs(np.cos(2 * np.pi * (guess - truth)).mean()) < 6.5 / np.sqrt(2 * len(truth))  # of 8
    (bare,) = trained(watching.no_random_factors)
    for guess, truth in angles(bare, place):
        apart = (guess - truth + 0.5) % 1 - 0.5
        assert np.abs(apart).max() < 2.0**-16  # .001 of a score


# Columns.


def columns_read(of: Trained, place: int) -> tuple[Floats, Floats]:
    """The other's columns as who takes a ciphertext's first part for the plaintext reads them; and as they are."""
    layout, found = of.plan.layout, []
    assert layout is not None
    owner = 1 - place
    laid = layout.lay_out(of.world.own(owner).columns)
    (tiles,) = {each.about["matrix"].tiles for each in of.watch.of(place, "vectors") if each.about["matrix"].owner == owner}
    data = of.watch.came(place, "columns")[0]
    first = LINEAR.empty()
    LINEAR.unpack(data[32:], first)
    q = LINEAR.parameters.q
    found = [((x << 64) + q // 2) // q % (1 << 64) for x in whole(LINEAR, first)]
    plain = tiles_of(laid[: layout.tile_rows], tiles)[0]
    used = np.flatnonzero(plain)
    return signed(np.array(found, np.uint64)[used]), signed(plain[used])


@pytest.mark.parametrize("place", [0, 1])
def test_columns_are_hidden_by_a_secret_key(trained: Any, place: int) -> None:
    for of in trained():
        guess, truth = columns_read(of, place)
        assert abs(np.corrcoef(guess, truth)[0, 1]) < 6.5 / np.sqrt(len(truth))  # of 4
    (bare,) = trained(watching.no_secret_key)
    guess, truth = columns_read(bare, place)
    assert len(truth) > 900
    assert np.array_equal(guess, truth)


# The noise of answers, whose errors the key's owner knows.


def first_answer(of: Trained, owner: int) -> dict[str, Any]:
    """The first answer of a product with a party's columns, which is one of X·b for a block of rows."""
    asked = next(each for each in of.watch.of(1 - owner, "vectors") if each.about["matrix"].owner == owner)
    matrix, tiles = asked.about["matrix"], asked.about["matrix"].tiles
    assert not matrix.is_transposed
    key = of.tools[owner].key
    block = of.tools[1 - owner].blocks[owner][matrix.blocks[0]]
    parts = np.stack(
        [part([0], LINEAR.empty(1))[0] for part in (block.ciphertexts.first_parts, block.ciphertexts.second_parts)]
    )
    layout = of.plan.layout
    assert layout is not None
    laid = layout.lay_out(of.world.own(owner).columns)
    start = matrix.blocks[0] * tiles.tile_rows
    x = laid[start : start + tiles.tile_rows]
    size = LINEAR.parameters.answer_bytes(tiles.tile_rows)
    came = next(data for data in of.watch.came(owner, "products"))[:size]
    # Which sums the answer was made of: by what was sent.
    sums, _, mask, step, _ = next(of_all for of_all in of.products if of_all[-1] == came)
    b = asked.material["mask"]
    return {"key": key, "parts": parts, "x": x, "tiles": tiles, "came": came, "sums": sums, "mask": mask, "step": step, "b": b}


def noise_and_errors(of: Trained, owner: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Noise of an answer as the owner reads it, and before it is hidden; the errors [rows, columns]; b."""
    at = first_answer(of, owner)
    key, tiles, q = at["key"], at["tiles"], LINEAR.parameters.q
    errors = np.array(errors_of(key, at["parts"], tiles_of(at["x"], tiles)[0])).reshape(tiles.tile_rows, tiles.tile_columns)
    signed_b = at["b"].view(np.int64)[:, 0]
    product = (at["x"].view(np.int64) @ signed_b).view(np.uint64)
    hidden = (product - at["mask"]).tolist()
    modulus = 1 << LINEAR.parameters.long_bits
    sent = [
        (x - (modulus * m + (1 << 63)) // (1 << 64) + modulus // 2) % modulus - modulus // 2
        for x, m in zip(read(key, at["came"], tiles.tile_rows, at["step"]), hidden, strict=True)
    ]
    bare = [
        (x - (q * m + (1 << 63)) // (1 << 64) + q // 2) % q - q // 2
        for x, m in zip(phase(key, at["sums"])[:: at["step"]][: tiles.tile_rows], product.tolist(), strict=True)
    ]
    return np.array(sent, float), np.array(bare, float), errors[:, : len(signed_b)], signed_b.astype(float)


@pytest.mark.parametrize("owner", [0, 1])
def test_noise_of_answers_tells_nothing_of_what_was_multiplied(trained: Any, owner: int) -> None:
    """Of real answers: by least squares, with errors that the owner computes. Before it is hidden, it tells b to 10⁻⁹."""
    for of in trained():
        sent, bare, errors, b = noise_and_errors(of, owner)
        assert len(sent) == 512
        assert abs(np.corrcoef(sent, errors @ b)[0, 1]) < Z / np.sqrt(len(sent))
        unit = LINEAR.parameters.q / 2.0**LINEAR.parameters.long_bits
        guess = np.linalg.lstsq(errors, sent * unit, rcond=None)[0]
        assert (np.abs(guess) > 2.0**100).all()  # 2^63 is the most that b can be
        # The control: what an answer's noise would be without flooding and a fresh encryption.
        assert np.corrcoef(bare, errors @ b)[0, 1] > 1 - 1e-9
        assert np.abs(np.linalg.lstsq(errors, bare, rcond=None)[0] - b).max() < 1e-9 * 2.0**63


def test_an_answer_has_a_fresh_encryption() -> None:
    """Without one its second part is a·b: with one column, b is read at once, and by that the other's share of the weight."""

    def reads(of: Trained) -> tuple[int, int]:
        at = first_answer(of, 1)
        a = whole(LINEAR, at["parts"][1])
        q, begins = LINEAR.parameters.q, at["tiles"].tile_rows * LINEAR.parameters.short_bits // 8
        shortened = int.from_bytes(at["came"][begins : begins + LINEAR.parameters.long_bits // 8], "little")
        truth = int(at["b"].view(np.int64)[0, 0])
        return multiplier(a[0], q, shortened * q >> 80, 1 << 57), truth

    world = OneColumn(0)
    found, truth = reads(train(world, 0, epochs=1, removed=watching.no_fresh_encryption))
    assert found == truth
    found, truth = reads(train(world, 0, epochs=1))
    assert abs(found - truth) > 1 << 33  # b is uniform: a number that does not depend on it is as near once in 2^30


# Everything.


@pytest.mark.parametrize("place", [0, 1])
def test_nothing_that_belongs_to_a_row_tells_membership_or_labels(trained: Any, place: int) -> None:
    """Each number by itself, and all of them by a boosted tree that knows the truth of half of the rows.

    Labels are the active party's own.
    """
    features, told = [], defaultdict[str, list[tuple[Truth, Truth]]](list)
    for of in trained():
        everything = of.everything(place)
        features.append(everything)
        told["members"].append((of.owned(place), of.owned(1 - place)))
        if place:
            told["labels"].append((of.owned(0), of.labels))
        z = -NormalDist().inv_cdf(1e-9 / (2 * 2 * RUNS * everything.shape[1]))  # shared out among all areas of this test
        for chosen, truth in (each[-1] for each in told.values()):
            found = areas(everything[chosen], truth[chosen])
            assert np.abs(found - 0.5).max() < z * deviation(truth[chosen])
    for each in told.values():
        chosen, truth = (np.concatenate(of) for of in zip(*each, strict=True))
        all_of_it = np.concatenate(features)[chosen]
        assert all_of_it.shape[1] > 100
        assert abs(trained_auc(all_of_it, truth[chosen]) - 0.5) < Z * deviation(truth[chosen])


def test_without_a_protection_everything_tells_them(trained: Any) -> None:
    """The same tree, which is not told where to look."""
    (bare,) = trained(watching.no_random_bits)
    for place in (0, 1):
        rows = bare.owned(place)
        assert trained_auc(bare.everything(place)[rows], bare.owned(1 - place)[rows]) > 0.99
    for removed in (watching.no_random_vectors, watching.no_random_numbers):
        (bare,) = trained(removed)
        assert trained_auc(bare.everything(1)[bare.owned(0)], bare.labels[bare.owned(0)]) > 0.9
