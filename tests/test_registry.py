"""Installed packages that are broken: only what names them fails, in words and with a code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.estimate.plans import ONLY_POWERS, estimate, plan
from vfl_node.configuration.registry import Registry
from vfl_node.errors import UsageError
from vfl_node.estimate.words import notes
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import REPORT_KEYS, TRAINERS
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.report.sections import CommonFigures
from vfl_node.settings.defences import DEFENCES

PACKAGE = """
from typing import ClassVar

from vfl_node.job.training import TrainerConfig, TrainerParts


class Bare(TrainerConfig):
    algorithm: str = "bare"


class Whole(TrainerConfig):
    parts: ClassVar[TrainerParts] = TrainerParts(implementation="careless:Trainer", report_section="careless:Section")
    algorithm: str = "whole"
    pace: int = 1
"""

POINTS = """
[vfl_node.trainers]
absent = vfl_node_is_not_here:Config
raises = raising:Config
bare = careless:Bare
none = careless:ClassVar
steps = careless:Whole
copy = careless:Whole
whole = careless:Whole
[vfl_node.alignments]
absent = vfl_node_is_not_here:SPEC
[vfl_node.attacks]
absent = vfl_node_is_not_here:Attack
[vfl_node.strategies.labels]
absent = vfl_node_is_not_here:Labels
[vfl_node.defences]
absent = vfl_node_is_not_here:SPEC
"""

PROGRAM = """
import json, sys
from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.job import Job
said = []
for text in json.loads(sys.argv[1]):
    try:
        parse("name: trial\\nparties: {active: clinic, passive: lab}\\n" + text, Job, source="job")
        said.append(["", "", ""])
    except VflError as error:
        said.append([error.code, error.message, error.for_peer])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which a package with these entry points is installed."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "careless.py").write_text(PACKAGE)
    (folder / "raising.py").write_text("raise RuntimeError\n")
    about = folder / "careless-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1\n")
    (about / "entry_points.txt").write_text(POINTS)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def ended(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


def parsed(environment: dict[str, str], *texts: str) -> list[tuple[str, str, str]]:
    """Code, message and words for a peer of each job; nothing of one that is read."""
    result = ended(environment, "-c", PROGRAM, json.dumps(texts))
    assert result.returncode == 0, result.stderr
    return [tuple(said) for said in json.loads(result.stdout)]


def test_commands_run_beside_broken_packages(environment: dict[str, str]) -> None:
    result = ended(environment, "-m", "vfl_node", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    jobs = ("", "train: {}", "align: {protocol: psi}\ntrain: {algorithm: logistic}", "train: {algorithm: whole, pace: 3}")
    assert [code for code, _, _ in parsed(environment, *jobs)] == [""] * len(jobs)


def test_a_job_that_names_a_broken_package_is_refused(environment: dict[str, str]) -> None:
    names = {
        "train: {algorithm: absent}": "vfl_node.trainers 'absent' cannot be loaded from vfl_node_is_not_here:Config: No module",
        "train: {algorithm: raises}": "vfl_node.trainers 'raises' cannot be loaded from raising:Config: RuntimeError",
        "train: {algorithm: bare}": "careless:Bare lacks parts",
        "train: {algorithm: none}": "careless:ClassVar is no TrainerConfig",
        "train: {algorithm: steps}": "careless:Whole has a name that is taken in reports",
        "train: {algorithm: copy}": "careless:Whole has a name that is taken in reports",
        "align: {protocol: absent}": "vfl_node.alignments 'absent' cannot be loaded",
        "train: {missing: {labels: absent}}": "vfl_node.strategies.labels 'absent' cannot be loaded",
    }
    for (code, message, for_peer), expected in zip(parsed(environment, *names), names.values(), strict=True):
        assert expected in message
        assert (code, for_peer) == ("E_EXTENSION", "a part that the job needs cannot be loaded there")


def test_a_trainer_whose_code_cannot_be_loaded_is_refused_before_a_job_begins(environment: dict[str, str]) -> None:
    program = "from vfl_node.job.training import TRAINERS; TRAINERS['whole']().check_here({})"
    result = ended(environment, "-c", program)
    assert "trainer 'whole' cannot be loaded from careless:Trainer" in result.stderr
    for name in TRAINERS.own:
        TRAINERS[name](algorithm=name).check_here({})


def test_a_broken_package_hides_no_other_mistake(environment: dict[str, str]) -> None:
    mistakes = {
        "train: {algorithm: hole}": "'train.algorithm' cannot be 'hole'; it is one of split, logistic, linear, candidates",
        "train: {algorithm: whole, pase: 1}": "unknown key 'train.pase'",
        "train: {missing: {lables: none}}": "unknown key 'train.missing.lables'",
        "train: {missing: {draws: 2}}": "'train.missing': draws is for random-pred",
        "align: {protocol: psi, dummies: 3}": "align.dummies is for psu",
    }
    for (code, message, _), expected in zip(parsed(environment, *mistakes), mistakes.values(), strict=True):
        assert (code, expected in message) == ("E_CONFIG", True), message


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    def declare(registry: Registry[Any]) -> None:
        monkeypatch.setattr(registry, "_places", dict(registry._places) | {"broken": "vfl_node_is_not_here:Thing"})

    return declare


def test_an_estimate_leaves_out_an_alignment_that_cannot_be_loaded(broken: Any) -> None:
    broken(ALIGNMENTS)
    assert list(estimate(plan())) == ["psu", "psi", "apsi"]
    (said,) = [note for note in notes(plan(), ONLY_POWERS) if note.startswith("left out")]
    assert "vfl_node.alignments 'broken' cannot be loaded" in said


def test_an_attack_that_cannot_be_loaded_is_reported_before_a_job_begins(broken: Any) -> None:
    job = Job.model_validate({"name": "trial", "parties": {"active": "clinic", "passive": "lab"}, "train": {}})
    assert job.train is not None
    job.train.check_here({})
    broken(ATTACKS)
    with pytest.raises(UsageError, match=r"vfl_node\.attacks 'broken' cannot be loaded") as caught:
        job.train.check_here({})
    assert caught.value.code == "E_EXTENSION"
    assert "broken" not in dict(ATTACKS.usable())


@pytest.mark.parametrize(
    ("registry", "place", "reason"),
    [
        (ALIGNMENTS, "vfl_node.job.alignment:AlignmentSpec", "is no AlignmentSpec"),
        (DEFENCES, "vfl_node.settings.defences:DefenceSpec", "is no DefenceSpec"),
        (ATTACKS, "vfl_node.privacy.attacks.whole:Whole", "is no subclass of Attack"),
    ],
)
def test_what_does_not_keep_to_its_contract_is_refused_by_name(
    registry: Registry[Any], place: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_places", dict(registry._places) | {"other": place})
    with pytest.raises(UsageError, match=f"{registry.group} 'other' cannot be used: {place} {reason}"):
        registry["other"]


def test_no_trainer_is_called_like_a_key_of_every_report() -> None:
    assert {*CommonFigures.model_fields, "section"} == REPORT_KEYS


def test_names_are_words() -> None:
    assert all(name not in ALIGNMENTS for name in ("", None, 3, ["psu"]))
