"""Metrics on matched rows: right, and each party sees no more than it may."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, log_loss, roc_auc_score

from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import PrivateKey, PublicKey
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import ProtocolError, StateError
from vfl_node.job.evaluate import METRICS
from vfl_node.metrics import classes as metrics
from vfl_node.session.pins import MemoryPins
from vfl_node.training.evaluation import measure
from vfl_node.training.split import matched
from vfl_node.training.split.costs import BINS, bins_of
from vfl_node.training.split.matched import (
    LEAST,
    Matched,
    cells_of,
    least_rows,
    matched_active,
    matched_passive,
    weighted_values,
)
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import decryption_pb2, matched_pb2, session_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

NAMES = METRICS["classification"]
CLINIC, LAB = b"clinic's private randomness, 32b", b"the lab's private randomness, 32"
ROWS, CELLS = 400, 2 * BINS


KEY_BITS = matched.KEY_BITS


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that protects nothing, and all cells for few rows: the same arithmetic, and much quicker."""
    monkeypatch.setattr(matched, "KEY_BITS", 512)
    monkeypatch.setattr(matched, "bins_of", lambda rows: BINS if rows else 0)


@dataclass(frozen=True)
class HeldOut:
    """The held-out rows; scores are worth something where the lab's columns are real, and nothing elsewhere."""

    labels: NDArray[np.float32]
    scores: NDArray[np.float64]
    clinic: NDArray[np.bool_]
    lab: NDArray[np.bool_]

    @property
    def both(self) -> NDArray[np.bool_]:
        return self.clinic & self.lab


def held_out(rows: int = ROWS, *, owned: float = 0.8, share: float = 0.5, seed: int = 0) -> HeldOut:
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.3
    clinic, lab = rng.random(rows) < owned, rng.random(rows) < share
    seems = np.where(lab, labels, rng.random(rows) < 0.3)
    logits = np.where(seems, 1.8, -1.8) + 1.9 * rng.normal(size=rows) + np.log(0.3 / 0.7)
    return HeldOut(labels.astype(np.float32), 1 / (1 + np.exp(-logits)), clinic, lab)


@dataclass
class Run:
    """One attempt of both parties in memory, and what they sent."""

    data: HeldOut
    pins: MemoryPins = field(default_factory=MemoryPins)
    clinic_seed: bytes = CLINIC
    lab_seed: bytes = LAB

    def __post_init__(self) -> None:
        self._recorder = Recorder()

    @property
    def sent(self) -> dict[str, list[Message]]:
        """What each party sends, in order."""
        return {name: [entry.message for entry in self._recorder.entries if entry.sender == name] for name in ("clinic", "lab")}

    def __call__(self) -> tuple[Any, Any]:
        a, b = map(self._recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        data = self.data
        active = matched_active(a, data.labels, data.scores, data.clinic, NAMES, Randomness(self.clinic_seed))
        passive = matched_passive(b, data.lab, Randomness(self.lab_seed), pins=self.pins)
        ours, theirs = run_together((active, a), (passive, b))
        return ours, theirs

    @property
    def private(self) -> PrivateKey:
        return keys.generate(matched.KEY_BITS, Randomness(self.lab_seed).derive("key"))

    def column(self, sender: str) -> NDArray[np.uint8]:
        """The ciphertexts that ``sender`` sent."""
        data = b"".join(message.rows for message in self.sent[sender] if isinstance(message, session_pb2.Chunk))
        return np.frombuffer(data, np.uint8).reshape(-1, self.private.public.width)

    def opened(self) -> list[int]:
        """What the passive party decrypts."""
        return decrypt(self.private, self.column("clinic"), Inline())

    def shape(self) -> list[tuple[str, str, int]]:
        """Sender, type and size of each message."""
        return [
            (name, type(message).__name__, message.ByteSize()) for name, messages in self.sent.items() for message in messages
        ]


def ran(data: HeldOut, **settings: Any) -> tuple[Run, Matched]:
    run = Run(data, **settings)
    ours, theirs = run()
    assert isinstance(ours, Matched), ours
    assert theirs is None, theirs
    return run, ours


def in_the_clear(data: HeldOut, cells: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Each row's share of its cell that is matched, and the counts, by the definition."""
    weights = np.zeros(len(cells))
    counts = np.zeros(CELLS, np.int64)
    for cell in range(CELLS):
        rows = cells == cell
        if rows.any():
            counts[cell] = np.count_nonzero(rows & data.lab)
            weights[rows] = counts[cell] / np.count_nonzero(rows)
    return weights, counts


# --- right ---


def test_what_comes_out_is_what_counting_in_the_clear_gives() -> None:
    data = held_out()
    _, result = ran(data)
    w, _ = in_the_clear(data, cells_of(data.labels, data.scores, data.clinic, LEAST, BINS))
    own = w > 0
    y, p, w = data.labels[own], data.scores[own], w[own]
    assert result.rows == np.count_nonzero(data.both)
    assert result.values["auc"] == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-12)
    assert result.values["nll"] == pytest.approx(log_loss(y, p, sample_weight=w), abs=1e-12)
    assert result.values["pr_auc"] == pytest.approx(average_precision_score(y, p, sample_weight=w), abs=1e-12)
    assert result.values["f1"] == pytest.approx(f1_score(y, p >= 0.5, sample_weight=w), abs=1e-12)
    assert result.values["accuracy"] == pytest.approx(accuracy_score(y, p >= 0.5, sample_weight=w), abs=1e-12)
    assert list(result.values) == list(NAMES)


def test_with_a_key_of_the_size_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched, "KEY_BITS", KEY_BITS)
    data = held_out(100, owned=0.95)
    _, result = ran(data)
    assert result.rows == np.count_nonzero(data.both)


def test_the_estimate_is_that_of_the_matched_rows_and_not_of_all_owned_ones() -> None:
    """By the cells alone. Over 100 draws the bias was −.0006 (AUC) and +.003 (NLL), with a sd below .002."""
    data = held_out(10_000, owned=1)
    w, _ = in_the_clear(data, cells_of(data.labels, data.scores, data.clinic, LEAST, BINS))
    exact = metrics.compute(NAMES, data.labels[data.lab], data.scores[data.lab], data.scores[data.lab])
    everywhere = metrics.compute(NAMES, data.labels, data.scores, data.scores)
    for name, margin in {"auc": 0.005, "nll": 0.015, "accuracy": 0.005, "ace": 0.01}.items():
        (estimate,) = weighted_values([name], data.labels, data.scores, w).values()
        assert abs(estimate - exact[name]) < margin  # type: ignore[operator]
        assert abs(everywhere[name] - exact[name]) > 5 * margin  # type: ignore[operator]


def test_scores_beyond_0_and_1_are_ranked_as_they_are_and_clipped_otherwise() -> None:
    labels, scores = np.array([0, 1, 1], dtype=np.float32), np.array([-0.5, 1.5, -0.2])
    assert weighted_values(NAMES, labels, scores, np.ones(3)) == pytest.approx(measure(NAMES, labels, scores))
    assert weighted_values(["auc"], labels, scores, np.ones(3)) == {"auc": 1}


# --- cells ---


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 900), st.sampled_from([20, 35, 100]), st.sampled_from([1, 5, 1000]))
def test_cells_are_ranges_of_one_label_and_never_small(seed: int, rows: int, least: int, distinct: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rng.random()).astype(np.float32)
    scores, owned = rng.integers(0, distinct, rows) / distinct, rng.random(rows) < 0.8
    cells = cells_of(labels, scores, owned, least, BINS)
    enough = min(np.count_nonzero(owned & (labels == label)) for label in (0, 1)) >= least
    assert np.array_equal(cells < CELLS, owned & enough)
    for label in (0, 1) if enough else ():
        sizes = np.bincount(cells[owned & (labels == label)] - label * BINS, minlength=BINS)
        used = sizes[sizes > 0]
        assert used.min() >= least
        assert used.max() - used.min() <= 1
        assert len(used) == min(BINS, used.sum() // least)
        ranges = [scores[cells == label * BINS + place] for place in range(len(used))]
        assert all(low.max() <= high.min() for low, high in pairwise(ranges))


def test_the_rarer_rows_of_either_kind_are_the_larger_a_cell_is() -> None:
    assert [least_rows(share) for share in (None, 0.5, 0.75, 0.25, 0.1)] == [20, 20, 40, 40, 100]
    assert least_rows(1.0) == least_rows(0.0) == np.inf


def test_counts_of_none_or_all_are_rare_in_cells_of_that_size() -> None:
    for share in (0.5, 0.8, 0.9, 0.99):
        rows = least_rows(share)
        assert share**rows + (1 - share) ** rows < 1 / 20_000


# --- what the passive party sees ---


def uniformity(opened: list[int], modulus: int) -> float:
    """Kolmogorov–Smirnov statistic of ``opened``/modulus against uniform, times √count: 1.95 is met once in 1,000 times."""
    values = np.sort([float(value / modulus) for value in opened])
    steps = np.arange(len(values) + 1) / len(values)
    return float(max(np.abs(values - steps[1:]).max(), np.abs(values - steps[:-1]).max()) * np.sqrt(len(values)))


def test_what_the_passive_party_decrypts_are_counts_only_without_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = held_out()
    _, counts = in_the_clear(data, cells_of(data.labels, data.scores, data.clinic, LEAST, BINS))
    run, _ = ran(data)
    opened = run.opened()
    assert uniformity(opened, run.private.public.n) < 1.95
    assert min(opened) > ROWS
    monkeypatch.setattr(homomorphic, "add_plain", lambda public, sums, offsets, workers: sums)
    bare = Run(data)
    bare()
    assert sorted(bare.opened()) == sorted(counts.tolist())
    assert bare.opened() != counts.tolist()  # which of them is whose it cannot tell even then


def spelt(opened: list[int]) -> NDArray[np.int64]:
    """In how many of ``opened`` each row's bit stands, if the flags were powers of two."""
    return np.array([sum(value >> row & 1 for value in opened) for row in range(ROWS)])


@pytest.mark.parametrize("masked", [True, False])
def test_flags_made_to_spell_out_the_rows_of_a_cell_tell_nothing(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = held_out(owned=0.5)

    def powers(private: PrivateKey, owned: Any, randomness: Randomness, workers: Any) -> Iterator[Any]:
        yield Encryptor(private.public, randomness, workers).encrypt([1 << row for row in range(ROWS)], "powers")

    monkeypatch.setattr(matched, "_encrypt", powers)
    if not masked:
        monkeypatch.setattr(homomorphic, "add_plain", lambda public, sums, offsets, workers: sums)
    run = Run(data)
    ours, theirs = run()
    assert theirs is None
    found = metrics.auc(data.clinic, spelt(run.opened()))
    assert found is not None
    if masked:
        assert abs(found - 0.5) < 0.12  # a sd of .029
        assert isinstance(ours, Matched)
    else:
        assert found == 1


def test_absurd_flags_end_neither_the_job_nor_come_out_as_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(private: PrivateKey, owned: Any, randomness: Randomness, workers: Any) -> Iterator[Any]:
        yield Encryptor(private.public, randomness, workers).encrypt([7] * len(owned), "many")

    data = held_out()
    usual, _ = ran(data)
    monkeypatch.setattr(matched, "_encrypt", many)
    run, result = ran(data)
    assert result == Matched(dict.fromkeys(NAMES), None)
    assert run.shape() == usual.shape()


@pytest.mark.parametrize("blinded", [True, False])
def test_sums_are_recognised_by_their_ciphertexts_only_without_noise(blinded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's owner guesses the rows of a cell rightly and asks whether it was right. A mask changes nothing modulo N."""
    if not blinded:
        monkeypatch.setattr(Encryptor, "blind", lambda self, ciphertexts, label: ciphertexts)
    data = held_out()
    run, _ = ran(data)
    public = run.private.public
    flags = run.column("lab")
    cells = cells_of(data.labels, data.scores, data.clinic, LEAST, BINS)
    guesses = {int(public.integers(homomorphic.total(public, flags[cells == cell]))[0] % public.n) for cell in np.unique(cells)}
    seen = {int(number % public.n) for number in public.integers(run.column("clinic"))}
    used = len(np.unique(cells[cells < CELLS]))
    assert len(guesses & seen) == (0 if blinded else used)


def test_messages_are_the_same_whatever_the_rows_are() -> None:
    usual = held_out()
    everything, nothing = np.ones(ROWS, bool), np.zeros(ROWS, bool)
    ones = np.ones(ROWS, np.float32)
    run, _ = ran(usual)
    others = [
        HeldOut(usual.labels, usual.scores, everything, everything),
        HeldOut(usual.labels, usual.scores, nothing, usual.lab),
        HeldOut(usual.labels, usual.scores, usual.clinic, nothing),
        HeldOut(ones, usual.scores, usual.clinic, usual.lab),  # one label only: nothing is measured
        HeldOut(usual.labels, np.full(ROWS, 0.5), usual.clinic, usual.lab),
    ]
    for data in others:
        other, result = ran(data)
        assert other.shape() == run.shape()
        assert uniformity(other.opened(), other.private.public.n) < 1.95
        if data.labels is ones or data.clinic is nothing:
            assert result == Matched(dict.fromkeys(NAMES), None)


def test_without_held_out_rows_there_is_nothing_to_measure() -> None:
    assert ran(held_out(0))[1] == Matched(dict.fromkeys(NAMES), None)


def test_none_of_the_rows_are_matched() -> None:
    data = held_out()
    _, result = ran(HeldOut(data.labels, data.scores, data.clinic, np.zeros(ROWS, bool)))
    assert result == Matched(dict.fromkeys(NAMES), 0)


# --- what the active party sees ---


def test_flags_are_fresh_ciphertexts(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = ran(held_out())
    flags, public = run.column("lab"), run.private.public
    assert len(np.unique(flags, axis=0)) == ROWS
    assert min(public.integers(flags)) > public.n + 1  # neither 1 nor 1 + n, which everybody can open
    monkeypatch.setattr(
        Encryptor, "_multiply", lambda self, numbers, noise: self.public.rows(x % public.square for x in numbers)
    )
    bare = Run(held_out())
    bare()
    assert len(np.unique(bare.column("lab"), axis=0)) == 2


async def nosy(channel: Channel, chosen: list[list[tuple[int, int]]], rows: int) -> list[int]:
    """An active party that has sums of ``chosen`` (row, factor) decrypted, unmasked."""
    key = await channel.receive(decryption_pb2.PaillierKey)
    public = PublicKey.from_bytes(key.n)
    flags = public.integers(await channel.receive_rows(width=public.width, count=rows))
    sums = []
    for cell in chosen:
        number = flags[0] ** 0
        for row, factor in cell:
            number = number * pow(flags[row], factor, public.square) % public.square
        sums.append(number)
    await channel.send_rows(public.rows(sums), count=len(sums), width=public.width)
    return list((await channel.receive(matched_pb2.MaskedCounts)).values)


def ask(data: HeldOut, chosen: list[list[tuple[int, int]]], pins: MemoryPins) -> list[Any]:
    a, b = memory_channels("clinic", "lab")
    passive = matched_passive(b, data.lab, Randomness(LAB), pins=pins)
    return run_together((nosy(a, chosen, len(data.lab)), a), (passive, b))


def test_an_answer_has_no_more_bits_than_a_count() -> None:
    data = held_out()
    spelling = [[(row, 1 << row) for row in range(ROWS)]] * CELLS  # every flag, as a bit of one number
    answer, _ = ask(data, spelling, MemoryPins())
    assert set(answer) == {sum(int(flag) << row for row, flag in enumerate(data.lab)) % (ROWS + 1)}


def flags_read(data: HeldOut) -> int:
    """How many of the lab's flags an active party reads that departs from the protocol as far as it can."""
    rows = len(data.lab)
    cells, each = 2 * matched.bins_of(rows), (rows + 1).bit_length() - 1
    if not cells:
        _, result = ran(data)
        assert result == Matched(dict.fromkeys(NAMES), None)
        return 0
    chosen = [[(row, 1 << bit) for bit, row in enumerate(range(cell * each, (cell + 1) * each))] for cell in range(cells)]
    answer, problem = ask(data, [[(row, factor) for row, factor in cell if row < rows] for cell in chosen], MemoryPins())
    assert problem is None
    found = np.array([value >> bit & 1 for value in answer for bit in range(each)][:rows])
    assert (found == data.lab[: len(found)]).all()
    return len(found)


def test_a_party_that_departs_from_the_protocol_reads_an_eighth_of_the_flags_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    few, more = held_out(170), held_out(1000)
    assert (flags_read(few), flags_read(more)) == (170, 540)  # with 60 cells whatever the rows
    monkeypatch.setattr(matched, "bins_of", bins_of)
    assert (flags_read(few), flags_read(more)) == (0, 108)


@given(st.integers(0, 10**6))
def test_cells_hold_a_bit_for_eight_rows_at_most(rows: int) -> None:
    cells = 2 * bins_of(rows)
    assert cells * math.log2(rows + 1) <= rows / 8
    assert (cells == 0) == (rows < 800)
    assert cells == 0 or 10 <= cells <= 60


def test_too_few_rows_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched, "bins_of", bins_of)
    run, result = ran(held_out(799))
    assert result == Matched(dict.fromkeys(NAMES), None)
    assert run.sent == {"clinic": [], "lab": []}
    run, result = ran(held_out(800, owned=1))
    assert len(run.column("clinic")) == 10
    assert result.rows == np.count_nonzero(held_out(800, owned=1).lab)


def test_another_request_in_a_later_attempt_is_refused() -> None:
    data, pins = held_out(), MemoryPins()
    first = [[(row, 1)] for row in range(CELLS)]
    second = [[(row, 1)] for row in range(CELLS, 2 * CELLS)]
    answer, _ = ask(data, first, pins)
    assert answer == data.lab[:CELLS].astype(int).tolist()
    assert ask(data, first, pins)[0] == answer
    assert isinstance(ask(data, second, pins)[1], StateError)
    assert ask(data, second, pins)[1].code == "E_REPLAY"


# --- after a restart ---


def test_a_restart_repeats_every_byte() -> None:
    pins = MemoryPins()
    (first, one), (second, two) = (ran(held_out(), pins=pins) for _ in range(2))
    assert one == two
    assert first.sent == second.sent
    assert ran(held_out(), clinic_seed=LAB)[0].column("clinic").tolist() != first.column("clinic").tolist()


@pytest.mark.parametrize("bound", [True, False])
def test_other_flags_in_a_later_attempt_meet_other_masks(bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the masks of before, the difference of two sums would tell the rows whose flags were changed."""
    if not bound:
        monkeypatch.setattr(matched, "_stream", lambda randomness, label, content: randomness.derive(label))
    data = held_out()
    flipped = data.lab.copy()
    row = int(np.flatnonzero(data.clinic)[0])
    flipped[row] = ~flipped[row]
    runs = [ran(HeldOut(data.labels, data.scores, data.clinic, lab))[0] for lab in (data.lab, flipped)]
    n = runs[0].private.public.n
    differences = [(one - two) % n for one, two in zip(*(run.opened() for run in runs), strict=True)]
    told = [difference for difference in differences if difference in (1, n - 1)]
    assert len(told) == (0 if bound else 1)


# --- refusals ---


def test_an_unsound_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "prove", lambda private, context: bytes(8 * 64))
    ours, _ = Run(held_out())()
    assert isinstance(ours, ProtocolError)
    assert ours.code == "E_KEY"


def test_a_proof_for_another_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = keys.prove
    monkeypatch.setattr(keys, "prove", lambda private, context: prove(private, b"another"))
    ours, _ = Run(held_out())()
    assert isinstance(ours, ProtocolError)
    assert ours.code == "E_KEY"


def test_a_key_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = keys.generate
    monkeypatch.setattr(keys, "generate", lambda bits, randomness: generate(384, randomness))
    ours, _ = Run(held_out())()
    assert isinstance(ours, ProtocolError)
    assert ours.code == "E_KEY"


def test_another_number_of_rows_is_refused() -> None:
    data = held_out()
    ours, _ = Run(HeldOut(data.labels, data.scores, data.clinic, data.lab[:-1]))()
    assert isinstance(ours, ProtocolError)
    assert ours.code == "E_COUNT"


async def crooked(channel: Channel, data: HeldOut, values: list[int]) -> None:
    """A passive party that does not decrypt."""
    private = keys.generate(512, Randomness(LAB))
    proof = keys.prove(private, f"{channel.job_id}/matched".encode())
    await channel.send(decryption_pb2.PaillierKey(n=private.public.to_bytes(), proof=proof))
    flags = Encryptor(private.public, Randomness(LAB), Inline()).encrypt([1] * len(data.lab), "flags")
    await channel.send_rows(flags, count=len(flags), width=private.public.width)
    await channel.receive_rows(width=private.public.width)
    await channel.send(matched_pb2.MaskedCounts(values=values))


@pytest.mark.parametrize("values", [[], [0] * (CELLS - 1), [0] * (CELLS + 1), [ROWS + 1] * CELLS])
def test_an_answer_that_is_none_is_refused(values: list[int]) -> None:
    a, b = memory_channels("clinic", "lab")
    data = held_out()
    active = matched_active(a, data.labels, data.scores, data.clinic, NAMES, Randomness(CLINIC))
    ours, _ = run_together((active, a), (crooked(b, data, values), b))
    assert isinstance(ours, ProtocolError)
    assert ours.code == "E_DECRYPTION"


@pytest.mark.parametrize("cells", [[], [[]] * (CELLS - 1), [[]] * (CELLS + 1)])
def test_another_number_of_cells_is_refused(cells: list[Any]) -> None:
    _, theirs = ask(held_out(), cells, MemoryPins())
    assert isinstance(theirs, ProtocolError)
    assert theirs.code == "E_COUNT"


# --- the ledger ---


def test_the_ledger_says_what_each_party_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched, "bins_of", bins_of)
    counts, flags = matched.active_learns("lab", 1000)
    assert (counts.what, counts.count) == ("matched rows", 12)
    assert "it could have learnt 119 bits instead: of so many of the 1000 held-out records" in counts.text
    assert (flags.what, flags.count) == ("encrypted membership", 1000)
    (none,) = matched.active_learns("lab", 400)
    assert (none.what, none.count) == ("matched rows", 0)
    (nothing,) = matched.passive_learns("clinic")
    assert (nothing.what, nothing.count) == ("matched rows", 0)
    assert all("lab" in entry.text for entry in (counts, flags))
    assert "clinic" in nothing.text
