"""Training of two parties without a coordinator: the same model, restarts, and what is refused."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled
from tests.thorough import every, examples
from tests.training.hidden.conftest import NOISED, plain_inputs, weights_of
from tests.training.shares_attempts import KilledError, assert_same, cut, edits, kills, setting, shares
from vfl_node.crypto.shares.paired import machine, stock
from vfl_node.crypto.shares.paired.correlations import OwnNoise
from vfl_node.errors import ProtocolError, StateError, UsageError
from vfl_node.metrics.classes import auc
from vfl_node.node import faults
from vfl_node.process import failpoints
from vfl_node.session.openings import OpeningLog
from vfl_node.session.pins import MemoryPins
from vfl_node.training.hidden import paired_costs
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.inputs import digest_of
from vfl_node.training.shares import pair
from vfl_node.training.shares.attempt import ShareSteps
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.shares.pair import MetPair
from vfl_node.transport.generated.vfl.v1.shares_pb2 import KeptAhead, MaskedShares

pytestmark = compiled
PARTIES = {"randomness": "parties"}
WHOLE = {**PARTIES, "batch_size": 1 << 20}
"""One batch of all rows: so it is the same one as a dealer's."""
DIGEST = "vfl_node.training.hidden.trainer.digest_of"


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@pytest.mark.parametrize("how", [{}, {"loss": "taylor"}], ids=["exact", "taylor"])
def test_the_model_is_that_of_plain_training(world: Any, attempt: Any, protocol: str, how: dict[str, Any]) -> None:
    over = world(2, protocol, people=160)
    run = attempt({**PARTIES, **how})
    results = run(over)
    for found, expected in zip(weights_of(results), run.reference(over), strict=True):
        assert np.abs(found - expected).max() < 2e-4


@pytest.mark.parametrize(
    ("protocol", "how", "people"),
    [
        ("psu", {}, {}),
        ("psi", {"classes": 3}, {"classes": 3}),
        ("apsi", {"task": "regression", "learning_rate": 0.2}, {"numbers": True}),
        ("psu", {"loss": "taylor", "weight_decay": 0.05}, {}),
    ],
    ids=["exact", "classes", "numbers", "taylor"],
)
def test_the_model_is_that_of_a_dealer(
    world: Any, attempt: Any, protocol: str, how: dict[str, Any], people: dict[str, Any]
) -> None:
    """Columns, labels, first weights and batches are the same; both round by coins of their own."""
    over = world(2, protocol, people=300, **people)
    ours, dealt = (weights_of(attempt({**WHOLE, **how, "randomness": by})(over)) for by in ("parties", "coordinator"))
    for one, other in zip(ours, dealt, strict=True):
        assert np.abs(one - other).max() < 2e-5
        assert np.abs(other).max() > 0.05


def test_metrics_are_those_of_a_dealer(world: Any, attempt: Any, silent: None, quiet: None) -> None:
    over = world(2, "psu", people=900)
    both = [attempt({**WHOLE, "randomness": by, "epochs": 12})(over)[0].results for by in ("parties", "coordinator")]
    ours, dealt = (results.metrics for results in both)
    assert ours["auc"] == pytest.approx(dealt["auc"], abs=0.02)  # other bins, in which rows fall by other coins
    assert ours["nll"] == pytest.approx(dealt["nll"], abs=0.02)
    assert ours["auc"] > 0.7


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parties' noise is zero."""
    make = OwnNoise.make

    async def zeros(self: OwnNoise, *given: Any, **named: Any) -> Any:
        return {name: 0 * values for name, values in (await make(self, *given, **named)).items()}

    monkeypatch.setattr(OwnNoise, "make", zeros)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("columns", ["plain", "bins"])
def test_without_the_noise_it_is_gradient_descent_over_bounded_rows(world: Any, attempt: Any, columns: str) -> None:
    over, of = world(2, "psu", people=200), attempt({**PARTIES, **NOISED, "learning_rate": 1.0, "columns": columns})
    results = of(over)
    for found, expected in zip(weights_of(results), of.reference(over), strict=True):
        assert np.abs(found - expected).max() < 1e-3


def test_each_party_draws_noise_of_the_full_width(world: Any, attempt: Any) -> None:
    """Each sees the other's in all that is opened; so the sum has twice the variance, and rates know that."""
    drawn: list[Any] = []
    make = OwnNoise.make

    async def noted(self: OwnNoise, *given: Any, **named: Any) -> Any:
        made = await make(self, *given, **named)
        drawn.append(made["noise"].view(np.int64) / np.sqrt(float(self.variances[0])))
        return made

    over, of = world(2, "psu", people=100), attempt({**PARTIES, **NOISED, "epochs": 40})
    with mock.patch.object(OwnNoise, "make", noted):
        of(over)
    everything = np.concatenate(drawn)
    assert len(everything) == 2 * 40 * (4 + 4)
    assert abs(everything.std() - 1) < 6 / np.sqrt(2 * len(everything))  # six standard deviations: once in 10^9
    train = Hidden.model_validate({"algorithm": "hidden", **PARTIES})
    from vfl_node.training.hidden.descent import descent_of

    ours, dealt = (descent_of(of, 2, 4000.0, 2) for of in (train, train.model_copy(update={"randomness": "coordinator"})))
    assert ours.deviation == pytest.approx(dealt.deviation)
    assert (ours.noise or 0) / ours.rate == pytest.approx(np.sqrt(2) * (dealt.noise or 0) / dealt.rate)


@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_killed_before_any_of_its_messages(world: Any, attempt: Any, victim: str) -> None:
    """In setup, while something is made ahead, and online: what is sent again has the same bytes."""
    over, train = world(people=40), {**PARTIES, "epochs": 2, "batch_size": 16}
    uncut = attempt(train)
    whole = uncut(over)
    sent = {(a, b): set(shares(uncut, a, b)) for a, b in (("clinic", "lab"), ("lab", "clinic"))}
    resumed_from = set()
    for at in every(6, range(sum(entry.sender == victim for entry in uncut.transcript))):
        first = attempt(train, tamper=kills(victim, at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        resumed_from.add(second.resume_from)
        for (a, b), messages in sent.items():
            assert set(shares(first, a, b)) | set(shares(second, a, b)) <= messages
    assert resumed_from == {None, "epoch-000001", "epoch-000002"}


def dies_prepared(over: Any, attempt: Any, train: dict[str, Any]) -> Any:
    """An attempt that ends when all is made ahead that has room."""
    make = MetPair.make_ahead

    async def dies(self: MetPair) -> None:
        await make(self)
        raise KilledError

    first = attempt(train)
    with mock.patch.object(MetPair, "make_ahead", dies):
        assert all(isinstance(result, KilledError) for result in first.raw(over))
    return first


@pytest.mark.parametrize("lost", ["nothing", "the last of lab", "damaged at lab", "all of lab"])
def test_what_both_have_made_ahead_is_not_made_again(world: Any, attempt: Any, lost: str) -> None:
    over, train = world(people=60), {**PARTIES, "epochs": 3, "batch_size": 16}
    whole, first = attempt(train)(over), dies_prepared(over, attempt, train)
    files = sorted((first.state.folder_of("lab") / "ahead").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 4  # of each epoch, and of measuring
    if lost == "damaged at lab":
        files[-1].write_bytes(files[-1].read_bytes()[:-1] + b"?")
    for path in {"the last of lab": files[-1:], "all of lab": files}.get(lost, []):
        path.unlink()
    second = first.again(over)
    results = second(over)
    assert_same(results, whole)
    for before, after in zip(whole, results, strict=True):
        whole_of, of = before.section.phases, after.section.phases
        if lost == "all of lab":
            assert {name: figures.bytes for name, figures in of.items()} == {
                name: figures.bytes for name, figures in whole_of.items()
            }
        elif lost == "nothing":
            assert of["offline"].bytes == 0 < of["setup"].bytes < whole_of["setup"].bytes
        else:
            assert 0 < of["offline"].bytes < whole_of["offline"].bytes
            assert of["setup"].bytes == whole_of["setup"].bytes  # columns are needed again
        assert of["online"].bytes == whole_of["online"].bytes
    assert len(list((second.state.folder_of("lab") / "ahead").iterdir())) == 2  # of the last epoch, and of measuring


@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_a_party_that_dies_before_its_checkpoint_finds_what_was_made_ahead(world: Any, attempt: Any, victim: str) -> None:
    """The other one has stored the epoch, and keeps what it used for it."""
    over, train = world(people=60), {**PARTIES, "epochs": 4, "batch_size": 16}
    whole, first, finish = attempt(train)(over), attempt(train), ShareSteps.finish

    def dies(self: ShareSteps, tensors: Any) -> None:
        if self._session.name == victim and len(self.done) == 1:
            raise KilledError
        finish(self, tensors)

    with mock.patch.object(ShareSteps, "finish", dies):
        first.raw(over)
    second = first.again(over)
    results = second(over)
    assert second.resume_from == "epoch-000001"
    assert_same(results, whole)
    assert [result.section.phases["offline"].bytes for result in results] == [0, 0]


def test_what_is_made_ahead_of_other_columns_is_not_used(world: Any, attempt: Any) -> None:
    over, train = world(people=60), {**PARTIES, "epochs": 2, "batch_size": 16}
    first = dies_prepared(over, attempt, train)
    first.state.pins.clear()  # which would refuse other columns before
    changed = over.changed("lab")
    results = first.again(changed)(changed)
    assert_same(results, attempt(train)(changed))
    assert results[0].section.phases["offline"].bytes > 0


def test_what_was_made_ahead_has_a_checksum(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over, train = world(people=60), {**PARTIES, "epochs": 3, "batch_size": 16}
    read, damaged = stock.read_checked, []

    def damage(path: Any, **how: Any) -> bytes:
        if not damaged:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            damaged.append(path)
        return read(path, **how)

    first, whole = attempt(train), attempt(train)(over)
    with monkeypatch.context() as patch:
        patch.setattr(stock, "read_checked", damage)
        with pytest.raises(StateError, match="damaged") as caught:
            first(over)
    assert caught.value.code in faults.RESUMABLE
    assert_same(first.again(over)(over), whole)


def test_what_is_written_down_is_what_came_from_the_other_party(world: Any, attempt: Any) -> None:
    """Not zeros in place of what a party hands over itself."""
    seen: dict[str, list[Any]] = {"keys": [], "columns": [], "epoch": []}

    def note(log: OpeningLog, section: str, number: int, opened: Any) -> None:
        seen.get(section.split()[1], []).extend(opened)

    with mock.patch.object(OpeningLog, "check", note):
        attempt({**PARTIES, "epochs": 1})(world(people=60))
    assert len(seen["keys"]) == 3 + 3 + 2  # a key and both messages of base transfers; the passive party gets two keys more
    assert len(seen["columns"]) > 2
    assert len(seen["epoch"]) > 2
    assert all(each.any() for name in ("keys", "columns") for each in seen[name])


def test_batches_of_a_step_alone_are_counted(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of a look ahead, nor those that a report counts."""
    reached: list[str] = []
    monkeypatch.setattr(failpoints, "reach", reached.append)
    attempt({**PARTIES, "epochs": 3})(world(people=60))
    assert reached.count("batches") == 2 * 3


def test_the_noise_of_numbers_of_labels_is_that_of_both_draws(world: Any, attempt: Any) -> None:
    over, of = world(people=60), attempt({**PARTIES, "epochs": 1, "metrics_by": "histogram"})
    (privacy, *_), noise = [result.section.privacy for result in of(over)], MetricNoise.from_job(of.job(over))
    assert privacy.noise_of_counts == pytest.approx(np.sqrt(2) * noise.counts)


def test_little_room_makes_the_same_model(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over, train = world(people=60), {**PARTIES, "epochs": 4, "batch_size": 16, "metrics_by": "none"}
    plenty = attempt(train)(over)
    monkeypatch.setattr("vfl_node.training.shares.pair.ROOM_BYTES", 1)
    scarce = attempt(train)(over)
    assert_same(scarce, plenty)
    assert scarce[0].section.most_ahead < plenty[0].section.most_ahead / 2


def test_other_columns_have_other_masks(world: Any, attempt: Any) -> None:
    """With one context for both, errors and masks of a ciphertext cancel out; the control has one digest for both."""
    over = world(people=60)
    changed = over.changed("clinic")

    def sent(of: Any, over: Any) -> np.ndarray:
        of(over)
        return np.frombuffer(b"".join(shares(of, "clinic", "lab")), "<u8")

    for fresh in (True, False):
        digest = mock.patch(DIGEST, digest_of if fresh else lambda own, mark: bytes(32))
        with digest, mock.patch.object(MemoryPins, "check"), mock.patch.object(OpeningLog, "check"):
            one, again, other = (sent(attempt(PARTIES), table) for table in (over, over, changed))
        assert np.array_equal(one, again)
        same = (one == other).mean()
        assert same < 0.01 if fresh else same > 0.2


@pytest.mark.parametrize(
    ("edit", "at", "code"),
    [
        (cut(8), 0, "E_COUNT"),
        (lambda message: setattr(message, "values", b"\xff" * len(message.values)), 0, "E_COUNT"),
        (lambda message: setattr(message, "values", bytes(len(message.values))), 1, "E_COUNT"),
        (lambda message: setattr(message, "values", b"\xff" * len(message.values)), 2, "E_COUNT"),
    ],
    ids=["short", "no residues", "no points", "no columns"],
)
def test_what_is_no_key_and_no_ciphertext_is_refused(world: Any, attempt: Any, edit: Any, at: int, code: str) -> None:
    over = world(people=60)
    with pytest.raises(ProtocolError) as caught:
        attempt(PARTIES, tamper=edits("clinic", MaskedShares, edit, at))(over)
    assert caught.value.code == code


@pytest.mark.usefixtures("small_messages")
def test_a_party_that_repeats_itself_otherwise_is_refused(world: Any, attempt: Any) -> None:
    over = world(people=60)
    first = attempt(PARTIES, tamper=kills("lab", 60))
    first.raw(over)

    def flip(message: Any) -> None:
        message.values = bytes([message.values[0] ^ 1]) + message.values[1:]

    with pytest.raises((StateError, ProtocolError)) as caught:
        first.again(over, tamper=edits("clinic", MaskedShares, flip, 9))(over)
    assert caught.value.code in ("E_REPLAY", "E_COUNT")


def test_a_model_that_has_diverged_is_measured_as_it_is(world: Any, attempt: Any, silent: None, quiet: None) -> None:
    over = world(2, "psu", people=900)
    of = attempt({**WHOLE, "learning_rate": 10.0, "momentum": 0.0, "loss": "taylor", "epochs": 6})
    results = of(over)
    plan, train = of.plan(over), Hidden.section_of(of.job(over))
    x, y = plain_inputs(over, train, plan)
    tested = plan.layout.order[plan.testing]
    tested = tested[(tested >= 0) & over.both[tested]]
    z = x[tested] @ np.concatenate(weights_of(results))
    assert (np.abs(z) > 16).mean() > 0.1
    assert any("have scores beyond ±16" in text for text in results[0].warnings)
    assert results[0].results.metrics["auc"] == pytest.approx(auc(y[tested, 0], z[:, 0]), abs=0.05)  # those beyond are ties


def test_more_than_the_noise_hides_is_refused(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_costs, "LIMIT", -60.0)
    with pytest.raises(UsageError, match="than the noise of answers hides"):
        attempt(PARTIES)(world(people=60))


@pytest.mark.parametrize(
    ("train", "parties", "said"),
    [
        ({"layers": [4], "epsilon": None}, ["lab"], "leave layers out"),
        ({"dealer_audit": 0.1}, ["lab"], "there is none"),
        ({}, ["lab", "insurer"], "is for one passive party"),
        ({"epsilon": None, "batch_size": 15}, ["lab"], "say 16 or more"),
    ],
    ids=["layers", "audit", "parties", "batch"],
)
def test_what_two_parties_cannot_do_is_refused(train: dict[str, Any], parties: list[str], said: str) -> None:
    from vfl_node.job import Job

    job = {
        "name": "trial",
        "parties": {"active": "clinic", "passive": parties},
        "align": {"protocol": "psi"},
        "train": {"algorithm": "hidden", **PARTIES, **train},
    }
    with pytest.raises(ValueError, match=said):
        Job.model_validate(job)


def test_a_coordinator_has_no_part_in_it() -> None:
    from vfl_node.job import Job

    job = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}, "train": {"algorithm": "hidden"}}
    with pytest.raises(ValueError, match="needs a third party"):
        Job.model_validate(job)
    alone = Job.model_validate({**job, "train": {"algorithm": "hidden", **PARTIES}})
    assert alone.parties.coordinator is None
    idle = {**job, "parties": {**job["parties"], "coordinator": "hub"}, "train": {"algorithm": "hidden", **PARTIES}}
    with pytest.raises(ValueError, match=r"parties.coordinator takes part in .* hidden with randomness: coordinator"):
        Job.model_validate(idle)


@pytest.mark.parametrize("room", [1, 60_000, 1 << 30])
def test_deaths_and_lost_files_in_any_order(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Whatever each of them has left, both go on with the same, and nothing is ever said with other bytes."""
    monkeypatch.setattr(pair, "ROOM_BYTES", room)
    monkeypatch.setattr(machine, "count_together", lambda needed: 1)  # many groups
    over, train, chance = world(people=60), {**PARTIES, "epochs": 3, "batch_size": 16}, random.Random(room)
    uncut = attempt(train)
    whole = uncut(over)
    known = {name: set(shares(uncut, name, other)) for name, other in (("clinic", "lab"), ("lab", "clinic"))}
    for _ in range(examples(12, fewer=2)):
        now = attempt(train)
        for _ in range(3):
            victim = chance.choice(["clinic", "lab"])
            now.tamper = kills(victim, chance.randrange(sum(entry.sender == victim for entry in uncut.transcript)))
            now.raw(over)
            for name, other in (("clinic", "lab"), ("lab", "clinic")):
                assert set(shares(now, name, other)) <= known[name]
                folder = now.state.folder_of(name) / "ahead"
                left = sorted(folder.iterdir()) if folder.exists() else []
                if left and chance.random() < 0.4:
                    chance.choice(left).unlink()
            now = now.again(over)
        results = now(over)
        assert_same(results, whole)
        assert results[0].section.most_ahead == results[1].section.most_ahead


@pytest.mark.parametrize("said", [0, 1, 1 << 62])
def test_a_false_number_of_groups_opens_nothing_new(world: Any, attempt: Any, said: int) -> None:
    """What is made again has the same bytes; a party that says more than there is finds no match for its messages."""
    over, train = world(people=60), {**PARTIES, "epochs": 3, "batch_size": 16}
    uncut = attempt(train)
    uncut(over)
    first = dies_prepared(over, attempt, train)
    for path in (first.state.folder_of("lab") / "ahead").iterdir():
        path.unlink()
    second = first.again(over, tamper=edits("lab", KeptAhead, setting("groups", said)))
    results = second.raw(over)
    for name, other in (("clinic", "lab"), ("lab", "clinic")):
        assert set(shares(second, name, other)) <= set(shares(uncut, name, other))
    assert any(isinstance(result, ProtocolError | StateError) for result in results) == (said > 0), results
