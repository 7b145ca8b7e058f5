"""Several settings are tried in one job: validation rows choose one, and held-out rows are measured with that one alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.node.test_reuse import Kept
from tests.node.test_trainings import NOISY, ROLES, Tap
from vfl_node.configuration.models import parse
from vfl_node.errors import PeerLost, PolicyError, ProtocolError, UsageError
from vfl_node.estimate.memory import check_steps, frame_bytes, need
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.sweep import DueStep, SweepTrials, TrialStep, due, tell_kept
from vfl_node.job import Job, parse_job
from vfl_node.job.costs import TableShape
from vfl_node.node.partners import Partner
from vfl_node.prediction.models import load_model
from vfl_node.privacy.defences.dp import epsilon
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Data, Settings
from vfl_node.training.split.prediction import SplitModel
from vfl_node.training.trainer import Tried
from vfl_node.transport.generated.vfl.v1.training_pb2 import TrialEnd

HEAD = "name: demo\nparties: {active: clinic, passive: lab}\n"
MANY = ("epochs", "batch_size", "patience", "warmup_steps")

SWEEP = """\
align: {protocol: psi}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 32}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2}
serve: {to: both, batch_size: 16}
sweep: {over: {learning_rate: [0.0001, 0.03], bottom: [[3], [6]]}}
"""


HALVING = SWEEP.replace("epochs: 2", "epochs: 8, patience: 8").replace(
    "sweep: {over: {learning_rate: [0.0001, 0.03], bottom: [[3], [6]]}}",
    "sweep: {by: halving, eta: 2, over: {learning_rate: [0.0001, 0.03, 0.003], batch_size: [32, 48]}}",
)
"""Six trials of an epoch, three of two, two of four, and one of eight."""


class Trials(Kept):
    """Such jobs, in folders of a series; what the lab has sent is cut off before its message of number :attr:`last`."""

    last, series = 0, 0

    def job_folder(self, job_id: str, name: str) -> JobFolder:
        return JobFolder(self.folder / f"{self.series}" / name / job_id)

    def run(self, job_id: str, text: str = SWEEP, **rest: Any) -> list[Any]:
        self.sent.clear()
        return super().run(job_id, text, **rest)

    def trials(self, job_id: str, name: str = "clinic") -> list[dict[str, Any]]:
        return self.report(job_id, name)["training"]["trials"]


@pytest.fixture
def trials(trial: Any, ram: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    made = Trials(trial, ram)

    async def put(self: Tap, frame: Any) -> None:
        self._dead = self._dead or 0 < made.last <= len(made.sent) + 1
        self._check()
        self._sent.append(frame.type.rpartition(".")[2])
        await self._pipe.put(frame)

    monkeypatch.setattr(Tap, "put", put)
    return made


def weights(trials: Trials, job_id: str) -> list[Any]:
    return [load_file(trials.job_folder(job_id, name).artefacts / "model.safetensors") for name in ROLES]


def test_the_best_by_validation_is_measured_once(trials: Trials) -> None:
    assert trials.run("first") == [None, None]
    ours, theirs = trials.trials("first"), trials.trials("first", "lab")
    best = min(ours, key=lambda each: each["loss"])
    assert [each["chosen"] for each in ours] == [each is best for each in ours] == [each["chosen"] for each in theirs]
    assert {each["loss"] for each in theirs} == {None}
    assert best["setting"]["learning_rate"] == 0.03
    shapes = {tuple(tensor.shape) for tensor in weights(trials, "first")[1].values()}
    assert any(best["setting"]["bottom"][0] in shape for shape in shapes)
    assert trials.counted("lab") == 0, "psi makes up no rows, so no training is counted"
    assert trials.report("first")["metrics"]["rows"] > 0

    sent = list(trials.sent)
    rows, batch = trials.report("first")["training"]["rows"], 32
    per_trial = 2 * (-(-rows["training"] // batch) + -(-rows["validation"] // batch))
    assert sent.count("Embedding") == 4 * per_trial + -(-rows["test"] // batch), "held-out rows are embedded once"

    for name in ROLES:
        settings = Settings(
            name=name,
            role=ROLES[name],
            data=Data(path=trials.files[name], label="label" if name == "clinic" else None),
            insecure_loopback=True,
        )
        folder = trials.job_folder("first", name)
        stored = folder.predictor
        assert stored is not None
        model = load_model(settings, trials.trial.job(SWEEP), folder, stored)
        assert model.job.train.bottom == tuple(best["setting"]["bottom"])  # type: ignore[union-attr]
        SplitModel.load(model.stored)


@pytest.mark.parametrize(
    "text", [SWEEP.replace("bottom: [[3], [6]]", "batch_size: [32, 48]"), HALVING], ids=["grid", "halving"]
)
def test_bytes_are_those_of_a_run_that_nobody_disturbed(trials: Trials, text: str) -> None:
    undisturbed: list[Any] | None = None
    for place in (0, 25, 45, 60, 75) if text == HALVING else (0, 25, 45):
        trials.last = trials.series = place
        if place:
            assert any(isinstance(each, PeerLost) for each in trials.run("job", text))
            assert len(trials.sent) < place
            trials.last = 0
            assert trials.run("job", text, attempt=2) == [None, None]
        else:
            assert trials.run("job", text) == [None, None]
            assert len(trials.sent) > (80 if text == HALVING else 50)
        found = weights(trials, "job")
        undisturbed = undisturbed or found
        for before, after in zip(undisturbed, found, strict=True):
            assert before.keys() == after.keys()
            assert all(np.array_equal(before[key], after[key]) for key in before)


def test_a_sweep_that_began_anew_goes_on_from_no_later_step(trials: Trials) -> None:
    """One party's only common checkpoint is damaged: all begin again, and a second death goes on from that."""
    trials.last = 75
    trials.run("job", HALVING)
    begun = sorted((trials.job_folder("job", "lab").checkpoints).iterdir())
    late = int(begun[-1].name[1:])
    assert late > 3
    for path in begun:
        for file in path.iterdir():
            file.write_bytes(file.read_bytes()[:-1])
    trials.last = 30
    trials.run("job", HALVING, attempt=2)
    folder = trials.job_folder("job", "clinic")
    assert any(int(path.name[1:]) >= late - 1 for path in folder.checkpoints.iterdir()), "what it had before is there still"
    assert SweepTrials(folder).points()
    assert {int(point[1:4]) for point in SweepTrials(folder).points()} <= {0, 1, 2}
    trials.last = 0
    assert trials.run("job", HALVING, attempt=3) == [None, None]
    trials.series = 1
    assert trials.run("job", HALVING) == [None, None]
    found = weights(trials, "job")
    trials.series = 0
    assert all(
        np.array_equal(of[key], other[key]) for of, other in zip(found, weights(trials, "job"), strict=True) for key in of
    )


def test_halving_keeps_the_best_of_each_rung(trials: Trials) -> None:
    """The one that is left has the weights that it has where all trials train to their end."""
    assert trials.run("job", HALVING) == [None, None]
    ours, theirs = trials.trials("job"), trials.trials("job", "lab")
    assert sorted(each["epochs"] for each in ours) == [1, 1, 1, 2, 4, 8]
    assert [(each["epochs"], each["chosen"]) for each in ours] == [(each["epochs"], each["chosen"]) for each in theirs]
    (best,) = [each for each in ours if each["chosen"]]
    assert best["epochs"] == 8
    trials.series = 1
    assert trials.run("job", HALVING.replace("by: halving, eta: 2, ", "")) == [None, None]
    same = [each for each in trials.trials("job") if each["setting"] == best["setting"]]
    assert [each | {"chosen": True} for each in same] == [best]


def test_noise_is_counted_for_the_epochs_that_trials_were_to_train(trials: Trials) -> None:
    assert trials.run("job", HALVING, clinic=NOISY) == [None, None]
    privacy = trials.report("job")["training"]["split"]["label_privacy"]
    assert privacy["epsilon_together"] == pytest.approx(epsilon(3.0, privacy["delta"], 8 + 4 + 2 + 3 * 1))


@pytest.mark.parametrize("kept", [[], [2], [1, 2], [2, 3], [3]])
def test_another_choice_than_is_due_is_refused(kept: list[int]) -> None:
    """Trial 3 ends where trial 1 was kept and one is kept: it is 1 or 3."""

    async def told(_: Any) -> TrialEnd:
        return TrialEnd(trial=3, kept=kept)

    job = parse(HEAD + SWEEP, Job, source="job")
    peer = SimpleNamespace(receive=told, peer="clinic")
    session: Any = SimpleNamespace(job=job, role="passive", peer=peer, phase=lambda _: AsyncExitStack())
    step = DueStep(trial=2, until=None, before=None, candidates=(0,), waiting=(), keeps=1)
    answer = tell_kept(session, step, {})
    if kept == [3]:
        assert asyncio.run(answer) == (2,)
    else:
        with pytest.raises(ProtocolError, match="kept another number"):
            asyncio.run(answer)


def test_halving_gives_more_epochs_to_fewer_trials() -> None:
    job = parse(HEAD + HALVING, Job, source="job")
    assert job.sweep
    assert job.sweep.rungs(8) == ((6, 1), (3, 2), (2, 4), (1, 8))
    assert job.sweep.rungs(2) == ((6, 1), (1, 2)), "rungs of no epoch are left out"
    assert job.add_trials([8] * 6) == 8 + 4 + 2 + 3 * 1
    assert job.add_trials([8, 80, 8, 8, 8, 8]) == 80 + 4 + 2 + 3 * 1, "the largest may be the one that is kept"
    done: list[TrialStep] = []
    while step := due(job, done):
        kept = sorted({*step.candidates, step.trial}, reverse=True)[: step.keeps]  # the later, the better
        done.append(TrialStep(step.trial, Tried(1, 1), tuple(sorted(kept))))
    assert [step.trial for step in done] == [0, 1, 2, 3, 4, 5, 3, 4, 5, 4, 5, 5]
    assert done[-1].kept == (5,)


def test_each_trial_counts_and_all_are_set_aside_before_anything_is_sent(trials: Trials) -> None:
    text = SWEEP.replace("psi", "psu").replace("serve: {to: both, batch_size: 16}\n", "")
    _, refused = trials.run("first", text, trainings=3)
    assert isinstance(refused, PolicyError)
    assert "this node allows 3" in refused.message
    assert "Embedding" not in trials.sent
    assert trials.run("second", text, trainings=4) == [None, None]
    assert trials.counted("lab") == 4
    lane = Partner(trials.folder / "partners" / "lab", "clinic")
    assert lane.usage()["trainings"] == 4


def test_noise_on_gradients_is_counted_for_each_trial_before_it_sends(trials: Trials) -> None:
    """Four trials of two epochs spend as much as one of eight; one that is cut off has spent what it was to."""
    text = SWEEP.replace("epochs: 2", "epochs: 2, patience: 2")
    assert trials.run("first", text, clinic=NOISY) == [None, None]
    privacy = trials.report("first")["training"]["split"]["label_privacy"]
    assert privacy["epsilon_together"] == pytest.approx(epsilon(3.0, privacy["delta"], 4 * 2))
    assert privacy["epsilon"] == pytest.approx(epsilon(3.0, privacy["delta"], 2))
    trials.last = trials.sent.index("Embedding") + 3
    assert any(isinstance(each, PeerLost) for each in trials.run("cut", text, clinic=NOISY))
    trials.last = 0
    alone = text.partition("sweep:")[0]
    assert trials.run("last", alone, clinic=NOISY) == [None, None]
    together = trials.report("last")["training"]["split"]["label_privacy"]["epsilon_together"]
    assert together == pytest.approx(epsilon(3.0, privacy["delta"], (4 + 1 + 1) * 2))


def test_the_largest_trial_and_all_steps_count_towards_limits() -> None:
    long = parse(HEAD + SWEEP.replace("learning_rate: [0.0001, 0.03]", "epochs: [1, 500]"), Job, source="job")
    (base,) = parse(HEAD + SWEEP.partition("sweep:")[0], Job, source="job").trials
    assert len(long.trials) == 4
    limits = Limits.model_validate({"size": {"steps": 1000}})
    check_steps(base, 160, limits)
    with pytest.raises(PolicyError, match="training steps"):
        check_steps(long, 160, limits)
    wide = parse(HEAD + SWEEP.replace("[[3], [6]]", "[[3], [600]]"), Job, source="job")
    assert frame_bytes(parse(HEAD + SWEEP.replace("[[3], [6]]", "[[3], [60000]]"), Job, source="job")) > frame_bytes(base)
    table = TableShape(rows=160, numeric=4)
    assert need(wide, "passive", table).model > 50 * need(base, "passive", table).model


@pytest.mark.parametrize(
    ("sweep", "rest", "said"),
    [
        ("{over: {learning_rate: [0.1]}}", "", "fewer than two values"),
        ("{over: {learning_rate: [0.1, 0.1]}}", "", "a value twice"),
        ("{over: {seed: [1, 2]}}", "", "seed is the same in all trials"),
        ("{over: {depth: [1, 2]}}", "", "depth is no key of train"),
        (
            "{over: {learning_rate: [0.1, -1]}}",
            "",
            "trial 2 .* is no training: train.learning_rate: Input should be greater than 0",
        ),
        ("{over: {epochs: [1, 2], batch_size: [32, 64]}, by: drawn, trials: 5}", "", "trials, of 2 to 4"),
        ("{over: {epochs: [1, 2]}, by: halving}", "", "leave epochs out of over"),
        ("{over: {batch_size: [1, 2]}, by: halving, trials: 3}", "", "more than the 2 combinations"),
        ("{over: {batch_size: [1, 2]}, eta: 2}", "", "eta is for by: halving"),
        ("{over: {epochs: [1, 2, 3, 4, 5, 6, 7, 8, 9], batch_size: [1, 2, 3, 4, 5, 6, 7, 8]}}", "", "72 combinations"),
        (f"{{over: {{{', '.join(f'{key}: {list(range(1, 12))}' for key in MANY)}}}, by: drawn, trials: 9}}", "", "14641 comb"),
        ("{over: {epochs: [1, 2]}}", "evaluate: {validation_fraction: 0}\n", "set evaluate.validation_fraction"),
        ("{over: {epochs: [1, 2]}}", "evaluate: {validation_fraction: 0.2, repeats: 2}\n", "leave evaluate.repeats out"),
        ("{over: {epochs: [1, 2]}, choose: auc}", "evaluate: {validation_fraction: 0.2, metrics: [nll]}\n", "auc needs auc"),
    ],
)
def test_a_sweep_that_chooses_nothing_is_refused(sweep: str, rest: str, said: str) -> None:
    rest = rest or "evaluate: {validation_fraction: 0.2}\n"
    with pytest.raises(UsageError, match=said):
        parse(f"{HEAD}train: {{bottom: [4]}}\n{rest}sweep: {sweep}\n", Job, source="job")


def test_trials_are_the_same_at_all_parties() -> None:
    """Keys come in another order by the wire."""
    job = parse(HEAD + SWEEP, Job, source="job")
    peer = parse_job(job.canonical(), source="peer")
    assert job.sweep is not None
    assert peer.sweep is not None
    assert peer.sweep.settings() == job.sweep.settings()
    assert len(job.sweep.settings()) == 4
    few = job.sweep.model_copy(update={"by": "drawn", "trials": 3})
    assert len(few.settings()) == 3
    assert [each in job.sweep.settings() for each in few.settings()] == [True] * 3
    assert "sweep" not in parse(HEAD, Job, source="job").canonical()
