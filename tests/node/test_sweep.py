"""Several settings are tried in one job: validation rows choose one, and held-out rows are measured with that one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.node.test_reuse import Kept
from tests.node.test_trainings import NOISY, ROLES, Tap
from vfl_node.configuration.models import parse
from vfl_node.errors import PeerLost, PolicyError, UsageError
from vfl_node.estimate.memory import check_steps, frame_bytes, need
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job, parse_job
from vfl_node.job.costs import TableShape
from vfl_node.node.partners import Partner
from vfl_node.prediction.models import load_model
from vfl_node.privacy.defences.dp import epsilon
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Data, Settings
from vfl_node.training.split.prediction import SplitModel

HEAD = "name: demo\nparties: {active: clinic, passive: lab}\n"
MANY = ("epochs", "batch_size", "patience", "warmup_steps")

SWEEP = """\
align: {protocol: psi}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 32}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2}
serve: {to: both, batch_size: 16}
sweep: {over: {learning_rate: [0.0001, 0.03], bottom: [[3], [6]]}}
"""


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


def test_bytes_are_those_of_a_run_that_nobody_disturbed(trials: Trials) -> None:
    text = SWEEP.replace("bottom: [[3], [6]]", "batch_size: [32, 48]")
    undisturbed: list[Any] | None = None
    for place in (0, 25, 45):
        trials.last = trials.series = place
        if place:
            assert any(isinstance(each, PeerLost) for each in trials.run("job", text))
            assert len(trials.sent) < place
            trials.last = 0
            assert trials.run("job", text, attempt=2) == [None, None]
        else:
            assert trials.run("job", text) == [None, None]
            assert len(trials.sent) > 50
        found = weights(trials, "job")
        undisturbed = undisturbed or found
        for before, after in zip(undisturbed, found, strict=True):
            assert before.keys() == after.keys()
            assert all(np.array_equal(before[key], after[key]) for key in before)


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
