"""What several trainings tell of labels together, and what a node remembers of that."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.thorough import every
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import PolicyError, StateError
from vfl_node.metrics.classes import auc
from vfl_node.node.partners import Partner
from vfl_node.privacy.labels.evidence import (
    MOST_JOBS,
    MOST_ROWS,
    Evidence,
    History,
    Said,
    labels_key,
    predictions_by,
    record_names,
)
from vfl_node.privacy.labels.meter import ADDED_UP, LabelMeter
from vfl_node.privacy.labels.truth import truth_of
from vfl_node.privacy.peers import TOGETHER
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.session import OwnSettings
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.audit import PredictionLabelAudit
from vfl_node.training.prediction.shown import check_judged

ROWS, WIDTH, BATCH = 1200, 6, 100
RNG = np.random.default_rng(1)
TWO = (RNG.random(ROWS) < 0.3).astype(np.float64)
FOUR = RNG.integers(4, size=ROWS).astype(np.float64)
NUMBERS = RNG.normal(size=ROWS)
CLASSES = {"two classes": (TWO, 2), "four classes": (FOUR, 4), "numbers": (NUMBERS, 0)}
NAMES = RNG.permutation(ROWS).astype(np.uint64)


def noise(*seed: Any) -> Tensor:
    return torch.from_numpy(Randomness(bytes(32)).derive(str(seed)).normal((ROWS, WIDTH)))


def signal(kind: str) -> Tensor:
    """A direction for each label; the same in no training but in its size."""
    labels, classes = CLASSES[kind]
    if classes:
        told = np.eye(max(classes, 2))[labels.astype(int)] - 1 / max(classes, 2)
        return torch.from_numpy(np.pad(told, ((0, 0), (0, WIDTH - told.shape[1]))).astype(np.float32))
    return torch.from_numpy(np.outer(labels, np.eye(WIDTH)[0]).astype(np.float32))


def meter(kind: str, **more: Any) -> LabelMeter:
    labels, classes = CLASSES[kind]
    return LabelMeter(truth_of(labels, np.arange(ROWS), NAMES, classes=classes), ["lab"], party="clinic", **more)


def trained(of: LabelMeter, kind: str, strength: float, seed: int, epochs: int = 2) -> dict[str, float]:
    found: Any = {}
    for epoch in range(epochs):
        gradients, embeddings = strength * signal(kind) + noise(seed, epoch), noise(seed, epoch, "embeddings")
        for rows in torch.from_numpy(np.random.default_rng(seed).permutation(ROWS)).split(BATCH):
            of.see(rows.numpy(), [embeddings[rows]], [gradients[rows] / BATCH])
        of.epoch_done()
        found = of.judge()
    return dict(found)


def repeats(kind: str, strength: float, count: int = 12) -> list[dict[str, float]]:
    told: Any = {}
    found = []
    for number in range(count):
        of = meter(kind)
        of.follow_on(told)
        found.append(trained(of, kind, strength, number))
        told = of.carry_over()
    return found


@pytest.mark.parametrize(("kind", "strength"), every(2, [("two classes", 0.6), ("four classes", 0.8), ("numbers", 0.5)]))
def test_what_repeats_tell_adds_up(kind: str, strength: float) -> None:
    """And where nothing is told, nothing does: at chance the sum of 12 is as exact as one (.02 by 1,200 rows)."""
    found = repeats(kind, strength)
    assert ADDED_UP not in found[0]
    alone = max(value for name, value in found[-1].items() if name != ADDED_UP)
    assert found[-1][ADDED_UP] > alone + 0.04, found[-1]
    assert found[-1][ADDED_UP] > found[2][ADDED_UP] + 0.02
    assert max(of[ADDED_UP] for of in repeats(kind, 0.0)[1:]) < 0.57


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_of_every_kind_are_read_from_plain_gradients_and_shuffled_ones_are_not(kind: str) -> None:
    found = trained(meter(kind), kind, 8.0, 0)
    assert max(found.values()) > 0.96, found
    labels, classes = CLASSES[kind]
    other = truth_of(np.random.default_rng(7).permutation(labels), np.arange(ROWS), NAMES, classes=classes)
    assert max(trained(LabelMeter(other, ["lab"], party="clinic"), kind, 8.0, 0).values()) < 0.57


def job(memory: Any, kind: str, job_id: str, strength: float, seed: int, **more: Any) -> dict[str, float]:
    labels, classes = CLASSES[kind]
    truth = truth_of(labels, np.arange(ROWS), NAMES, classes=classes)
    told = {
        ("lab", attack): [History(memory, f"{labels_key('default', 'label', classes)} {attack}", truth.columns, job_id, NAMES)]
        for attack in truth.attacks.summed
    }
    of = LabelMeter(truth, ["lab"], party="clinic", histories=told, **more)
    try:
        of.epoch_begins(0, -(-ROWS // BATCH))
        found = trained(of, kind, strength, seed)
    except PolicyError:
        of.break_off()  # as the loop does
        raise
    of.carry_over()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two classes", "four classes"])
def test_jobs_with_one_partner_add_up_and_a_job_that_is_repeated_counts_once(tmp_path: Path, kind: str) -> None:
    strength = {"two classes": 0.6, "four classes": 0.8}[kind]
    by_repeats = repeats(kind, strength, 6)
    for number in range(6):
        found = job(Partner(tmp_path, "lab"), kind, f"job-{number}", strength, number)  # read back from the disk each time
    assert found[ADDED_UP] == pytest.approx(by_repeats[-1][ADDED_UP], abs=1e-6)
    again = job(Partner(tmp_path, "lab"), kind, "job-5", strength, 5)
    assert again[ADDED_UP] == pytest.approx(found[ADDED_UP], abs=1e-6)
    other = job(Partner(tmp_path, "insurer"), kind, "job-5", strength, 5)
    assert ADDED_UP not in other


def test_the_limit_is_for_the_sum_and_a_stopped_job_counts(tmp_path: Path) -> None:
    alone = job(MemoryOfOneRun(Randomness(bytes(32))), "two classes", "job-0", 0.6, 0)
    limit = max(alone.values()) + 0.03
    stopped = None
    for number in range(10):
        try:
            job(Partner(tmp_path, "lab"), "two classes", f"job-{number}", 0.6, number, limit=limit)
        except PolicyError as error:
            stopped = number, error
            break
    assert stopped is not None
    assert "added up" in stopped[1].message
    later = History(Partner(tmp_path, "lab"), "default label 2 joined", 1, "later", NAMES)
    assert later.trainings == stopped[0] + 1
    with pytest.raises(PolicyError, match="by earlier jobs"):  # before anything leaves
        job(Partner(tmp_path, "lab"), "two classes", "job-11", 0.6, 11, limit=limit)
    assert later.trainings == stopped[0] + 1


def scored(*seed: Any) -> Evidence:
    return Evidence.from_scores(np.arange(ROWS).astype(np.uint64), noise(*seed)[:, 0], torch.from_numpy(TWO)[:, None])


def test_more_jobs_than_are_kept_apart_are_one_sum_and_one_that_goes_on_is_not_folded(tmp_path: Path) -> None:
    memory = Partner(tmp_path, "lab")
    for number in (*range(MOST_JOBS + 5), 0, MOST_JOBS + 4):  # two are repeated; of the first only what was folded counts twice
        History(memory, "about", 1, f"job-{number}", NAMES).keep_at(scored(number))
    of = History(memory, "about", 1, "later", NAMES)
    assert of.trainings == MOST_JOBS + 6
    assert len(list((tmp_path / "lab").glob("labels-*.kept"))) == 2  # and that there is one


def test_trials_that_go_on_after_many_others_count_once(tmp_path: Path) -> None:
    """As those of a sweep by halving do, whose first is named as the job."""
    memory, most = Partner(tmp_path, "lab"), MOST_JOBS + 4
    for number in (*range(most), 0, 1, 2):
        History(memory, "about", 1, f"job.t{number:03d}" if number else "job", NAMES).keep_at(scored(number))
    assert History(memory, "about", 1, "later", NAMES).trainings == most
    for number in range(MOST_JOBS):  # later jobs take their places
        History(memory, "about", 1, f"later-{number}", NAMES).keep_at(scored(number))
    History(memory, "about", 1, "job", NAMES).keep_at(scored(0))
    assert History(memory, "about", 1, "other", NAMES).trainings == most + MOST_JOBS + 1  # the control: it counts twice


def test_two_jobs_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    memory = Partner(tmp_path, "lab")
    one, two = (History(memory, "about", 1, name, NAMES) for name in ("one", "two"))
    for of, seed in ((one, 1), (two, 2), (one, 3)):
        of.keep_at(scored(seed))
    assert History(memory, "about", 1, "later", NAMES).trainings == 2


def test_weak_trainings_take_nothing_back() -> None:
    """A score counts by how well it goes along with the labels, by the other half of the rows."""
    names, targets = np.arange(ROWS).astype(np.uint64), torch.from_numpy(TWO)[:, None]
    told = Evidence.from_scores(names, 4 * targets[:, 0] + noise("strong")[:, 0], targets)
    first = auc(TWO, told.scores(names).double().numpy())
    for number in range(20):
        told = told.add(Evidence.from_scores(names, -0.05 * targets[:, 0] + noise("weak", number)[:, 0], targets))
    assert auc(TWO, told.scores(names).double().numpy()) > first - 0.01
    for share in (0.0, 0.1):  # at chance many scores stay there; whichever sign they have, weak ones add up
        summed = Evidence.empty(1)
        for number in range(60):
            sign = (-1) ** number
            summed = summed.add(
                Evidence.from_scores(names, sign * (share * targets[:, 0] * 2 + noise("many", number)[:, 0]), targets)
            )
        figure = auc(TWO, summed.scores(names).double().numpy())
        assert (0.44 < figure < 0.56) if share == 0 else figure > 0.7, share  # deviation at chance: .018


def test_what_one_of_several_peers_was_told_is_kept_for_it_and_what_all_were_for_each(tmp_path: Path) -> None:
    """Another peer's long gradients do not hide what one was told."""
    truth, memories = truth_of(TWO, np.arange(ROWS), NAMES, classes=2), {n: Partner(tmp_path, n) for n in ("lab", "insurer")}
    told: Any = {}
    for name, memory in memories.items():
        for attack in truth.attacks.summed:
            told[name, attack] = [History(memory, attack, 1, "job", NAMES)]
            told.setdefault((TOGETHER, attack), []).append(History(memory, f"{attack} {TOGETHER}", 1, "job", NAMES))
    of = LabelMeter(truth, ["lab", "insurer"], party="clinic", histories=told)
    gradients, loud = 8 * signal("two classes") + noise("lab"), 100 * noise("insurer")
    for rows in torch.from_numpy(np.random.default_rng(0).permutation(ROWS)).split(BATCH):
        of.see(rows.numpy(), [noise("e")[rows]] * 2, [gradients[rows] / BATCH, loud[rows] / BATCH])
    of.epoch_done()
    of.judge()
    names = np.sort(NAMES)
    labels = TWO[np.argsort(NAMES)]
    figures = {
        name: auc(labels, History(memory, "mean_direction", 1, "later", NAMES).earlier.scores(names).double().numpy())
        for name, memory in memories.items()
    }
    assert figures["lab"] > 0.97
    assert figures["insurer"] < 0.57


def test_an_epoch_that_is_broken_off_counts(tmp_path: Path) -> None:
    def broken(number: int) -> LabelMeter:
        truth = truth_of(TWO, np.arange(ROWS), NAMES, classes=2)
        told = {("lab", "mean_direction"): [History(Partner(tmp_path, "lab"), "about", 1, f"job-{number}", NAMES)]}
        of = LabelMeter(truth, ["lab"], party="clinic", histories=told)
        gradients = 0.6 * signal("two classes") + noise("broken", number)
        for rows in torch.from_numpy(np.random.default_rng(number).permutation(ROWS)[:-BATCH]).split(BATCH):
            of.see(rows.numpy(), [noise("e", number)[rows]], [gradients[rows] / BATCH])
        of.break_off()
        return of

    for number in range(10):
        broken(number)
    history = History(Partner(tmp_path, "lab"), "about", 1, "later", NAMES)
    assert history.trainings == 10
    assert auc(TWO[np.argsort(NAMES)], history.earlier.scores(np.sort(NAMES)).double().numpy()) > 0.75


def test_breaking_off_waits_for_the_epoch_that_is_being_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is kept is the same as where it was fast."""
    find = LabelMeter._find

    def slow(of: LabelMeter, seen: Any) -> Any:
        sleep(0.2)
        return find(of, seen)

    kept = []
    for name in ("fast", "slow"):
        if name == "slow":
            monkeypatch.setattr(LabelMeter, "_find", slow)
        truth = truth_of(TWO, np.arange(ROWS), NAMES, classes=2)
        history = History(Partner(tmp_path, name), "about", 1, "job", NAMES)
        of = LabelMeter(truth, ["lab"], party="clinic", histories={("lab", "mean_direction"): [history]})
        for epoch, rows in enumerate((range(ROWS), range(ROWS // 2))):
            gradients, at = 0.6 * signal("two classes") + noise("slow", epoch), np.array(rows)
            of.see(at, [noise("e", epoch)[at]], [gradients[at] / len(at)])
            if epoch == 0:
                of.epoch_done()
        of.break_off()
        kept.append(history.own)
    assert np.array_equal(kept[0].sums, kept[1].sums)
    assert kept[0].counts.tolist() == [1] * ROWS


def test_the_limit_sees_what_another_job_tells_meanwhile(tmp_path: Path) -> None:
    memory = Partner(tmp_path, "lab")
    mine, other = (History(memory, "about", 1, name, NAMES) for name in ("mine", "other"))
    mine.keep_at(scored(1))
    assert not len(mine.earlier.names)
    other.keep_at(scored(2))
    assert len(mine.earlier.names) == ROWS


def test_one_number_that_is_no_number_does_not_outweigh_the_others() -> None:
    labels = np.random.default_rng(3).normal(size=ROWS)
    labels[7] = 1e6
    truth, told = truth_of(labels, np.arange(ROWS), NAMES, classes=0), Evidence.empty(1)
    rank = torch.from_numpy(np.argsort(np.argsort(labels)) / ROWS)
    for number in range(10):
        score = (rank[truth.followed] + 2 * noise("sentinel", number)[:, 0].double()).float()
        told = told.add(Evidence.from_scores(truth.followed.astype(np.uint64), score, truth.targets(np.arange(ROWS))))
    assert (truth.figure(told.scores(truth.followed.astype(np.uint64))) or 0) > 0.6


def test_a_sum_that_is_lost_or_damaged_is_an_error(tmp_path: Path) -> None:
    job(Partner(tmp_path, "lab"), "two classes", "job-0", 0.6, 0)
    files = sorted(of for of in (tmp_path / "lab").glob("labels-*.kept") if "begun" not in of.name)
    kept = files[0].read_bytes()
    files[0].write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(StateError) as damaged:
        job(Partner(tmp_path, "lab"), "two classes", "job-1", 1.0, 1)
    assert damaged.value.code == "E_STATE_CORRUPT"
    for file in files:
        file.unlink()
    with pytest.raises(StateError) as lost:
        job(Partner(tmp_path, "lab"), "two classes", "job-1", 1.0, 1)
    assert lost.value.code == "E_STATE_LOST"


def test_rows_are_named_alike_in_every_set_under_one_secret_alone() -> None:
    ids = Identifiers.from_items(b"text:%d" % number for number in range(20))
    some = Identifiers.from_items(b"text:%d" % number for number in range(5, 15))
    secret = Randomness(bytes(32))
    names = record_names(secret, ids, np.arange(20), np.arange(20))
    assert np.array_equal(record_names(secret, some, np.arange(10), np.arange(10)), names[5:15])
    assert not np.intersect1d(record_names(Randomness(b"1" * 32), ids, np.arange(20), np.arange(20)), names).size
    assert list(record_names(secret, ids, np.arange(20), np.array([3])).nonzero()[0]) == [3]


def test_what_is_remembered_is_bounded() -> None:
    many = Evidence.from_scores(
        np.arange(2 * MOST_ROWS).astype(np.uint64), torch.arange(2 * MOST_ROWS), torch.ones(2 * MOST_ROWS, 1)
    )
    assert len(Evidence.empty(1).add(many).names) == MOST_ROWS


def served(folder: Path, kind: str = "two classes", limit: float | None = None, model: str = "job-0") -> PredictionLabelAudit:
    labels, classes = CLASSES[kind]
    memory = Partner(folder, "lab")
    return PredictionLabelAudit(
        memory, "default", model, names=NAMES, labels=labels, column="label", classes=classes, limit=limit
    )


def predictions(kind: str, strength: float) -> Tensor:
    """As a model would say them: a column for each class, or one."""
    labels, classes = CLASSES[kind]
    told = np.eye(classes)[labels.astype(int)] if classes > 2 else labels[:, None] * (1.0 if classes else 0.3)
    said = torch.from_numpy(strength * told) + noise("said", kind)[:, : told.shape[1]].double()
    return said if classes > 2 else said[:, 0]


@pytest.mark.parametrize("kind", CLASSES)
def test_predictions_that_tell_labels_are_stopped_and_others_are_not(tmp_path: Path, kind: str) -> None:
    said = predictions(kind, 3.0)
    of = served(tmp_path, kind, limit=0.7)
    with pytest.raises(PolicyError, match=r"attacks\.labels allows 0\.7") as caught:
        of.admit(np.arange(ROWS), said)
    assert (caught.value.code, caught.value.peer_code) == ("E_LEAK", "E_STOPPED")
    assert "AUC" not in str(caught.value.for_peer)
    free = served(tmp_path / "other", kind, limit=0.6)
    free.admit(np.arange(ROWS), predictions(kind, 0.0))  # at chance the strongest of two figures is .02 off, and of four .03
    assert free.figure is not None
    assert free.figure < 0.57


def test_few_predictions_are_not_judged_and_each_row_counts_once(tmp_path: Path) -> None:
    said, positive, negative = predictions("two classes", 3.0), np.flatnonzero(TWO == 1), np.flatnonzero(TWO == 0)
    some = np.concatenate([positive[:90], negative])
    of = served(tmp_path, limit=0.6)
    for _ in range(3):
        of.admit(some, said[torch.from_numpy(some)])
    assert of.figure is None
    for row in positive[:50]:  # one at a time, each in a service of its own
        served(tmp_path / "singly").admit(np.array([row]), said[torch.from_numpy(np.array([row]))])
    singly = Said(
        Partner(tmp_path / "singly", "lab"), f"{labels_key('default', 'label', 2)} said", 1, predictions_by("job-0"), NAMES
    )
    assert len(singly.own.names) == 50
    again = served(tmp_path, limit=0.6)  # what earlier services told is read back
    with pytest.raises(PolicyError):
        again.admit(positive[:120], said[torch.from_numpy(positive[:120])])


def test_what_trainings_told_counts_with_predictions_and_these_with_later_trainings(tmp_path: Path) -> None:
    for number in range(3):
        trained_alone = job(Partner(tmp_path, "lab"), "two classes", f"job-{number}", 0.6, number)
    said = predictions("two classes", 1.2)
    alone, together = served(tmp_path / "other"), served(tmp_path)
    for of in (alone, together):
        of.admit(np.arange(ROWS), said)
        assert of.figure is None  # nothing is limited: nobody waits for it
        of.catch_up()
    assert alone.figure is not None
    assert together.figure is not None
    assert together.figure > max(alone.figure, trained_alone[ADDED_UP]) + 0.02
    later = job(Partner(tmp_path, "lab"), "two classes", "job-3", 0.6, 3)
    without = [job(MemoryOfOneRun(Randomness(bytes(32))), "two classes", "job-3", 0.6, 3)]
    assert later[ADDED_UP] > max(max(of.values()) for of in without)
    assert later[ADDED_UP] > trained_alone[ADDED_UP] + 0.02


@pytest.mark.parametrize(
    ("asker", "limit", "named", "refused"),
    [
        ("lab", 0.8, False, True),
        ("lab", 0.8, True, False),
        ("lab", None, False, False),
        ("clinic", 0.8, False, False),
        (None, 0.8, False, False),
    ],
)
def test_rows_whose_labels_cannot_be_looked_up_are_predicted_for_others_only_without_a_limit(
    asker: str | None, limit: float | None, named: bool, refused: bool
) -> None:
    """New records, and rows that are not named."""
    session: Any = SimpleNamespace(
        role="active",
        name="clinic",
        job=SimpleNamespace(asker=asker),
        policy=OwnSettings(protection=Protection(max_label_auc=limit)),
    )
    if not refused:
        check_judged(session, named=named)
        return
    with pytest.raises(PolicyError, match=r"attacks\.labels") as caught:
        check_judged(session, named=named)
    assert (caught.value.code, caught.value.peer_code) == ("E_LEAK", "E_STOPPED")


def test_two_services_of_one_model_lose_no_row_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, one, two = predictions("two classes", 0.0), served(tmp_path), served(tmp_path)
    half = np.arange(ROWS // 2)
    one.admit(half, said[torch.from_numpy(half)])
    two.admit(half + ROWS // 2, said[torch.from_numpy(half + ROWS // 2)])
    one.admit(half[:1], said[:1])
    kept = Said(Partner(tmp_path, "lab"), f"{labels_key('default', 'label', 2)} said", 1, predictions_by("job-0"), NAMES).own
    assert len(kept.names) == ROWS


def test_what_is_kept_of_many_models_is_bounded(tmp_path: Path) -> None:
    said = predictions("two classes", 0.0)
    for number in range(MOST_JOBS + 4):
        served(tmp_path, model=f"job-{number}").admit(np.arange(ROWS), said)
    sizes = {len(of.read_bytes()) for of in (tmp_path / "lab").glob("labels-*.kept")}
    row = 8 + 3 * 4
    assert max(sizes) < (MOST_JOBS + 2) * ROWS * row + 4096


def test_what_a_killed_service_has_told_is_judged_by_the_next(tmp_path: Path) -> None:
    """It counts before it leaves, and is judged beside the requests: a node may die in between."""
    labels = (np.arange(2000) % 2).astype(np.float64)
    names = np.random.default_rng(0).permutation(2000).astype(np.uint64) + np.uint64(2000)

    def begin() -> PredictionLabelAudit:
        partner = Partner(tmp_path, "lab")
        return PredictionLabelAudit(
            partner, "default", "job", names=names, labels=labels, column="label", classes=2, limit=None
        )

    killed = begin()
    killed.admit(np.arange(2000), torch.from_numpy(labels))
    after = begin()
    after.catch_up()
    assert killed.figure is None
    assert after.figure == 1.0


def test_a_rare_class_is_not_crowded_out_of_what_is_remembered_of_predictions(tmp_path: Path) -> None:
    rows = 2 * MOST_ROWS
    labels = np.zeros(rows)
    labels[:300] = 1
    names = np.random.default_rng(0).permutation(rows).astype(np.uint64) + np.uint64(rows)
    of = PredictionLabelAudit(
        Partner(tmp_path, "lab"), "default", "job", names=names, labels=labels, column="label", classes=2, limit=None
    )
    for part in np.array_split(np.random.default_rng(1).permutation(rows), 8):
        of.admit(part, torch.from_numpy(labels[part]))
    of.catch_up()
    assert of.figure == 1.0
    kept = Said(Partner(tmp_path, "lab"), f"{labels_key('default', 'label', 2)} said", 1, predictions_by("job"), names).own
    assert np.isin(names[:300], kept.names).all()
    assert len(kept.names) <= MOST_ROWS
