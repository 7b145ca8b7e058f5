"""Keys of strategies beside those of ``train.missing``."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import Field, ValidationError, field_validator

from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Job, differing_fields, parse_job
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import FEATURES, LABELS, FeatureStrategy, LabelStrategy


class Sharp(LabelStrategy):
    implementation: ClassVar[str] = "nothing:here"
    sharpness: float = Field(default=1, ge=0)

    @field_validator("sharpness")
    @classmethod
    def _rounded(cls, value: float) -> float:
        return round(value, 2)


class Blurred(FeatureStrategy):
    sharpness: float = 0.5


class Greedy(LabelStrategy):
    implementation: ClassVar[str] = "nothing:here"
    calibrate: int = 3


class Keyless(LabelStrategy):
    implementation: ClassVar[str] = "nothing:here"
    depth: int
    share: float = Field(default=2, le=1)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"sharp": "Sharp", "greedy": "Greedy", "keyless": "Keyless", "no-strategy": "Blurred"}
    for registry, names in ((LABELS, labels), (FEATURES, {"blurred": "Blurred"})):
        places = {name: f"{__name__}:{attribute}" for name, attribute in names.items()}
        monkeypatch.setattr(registry, "_places", dict(registry._places) | places)


def job(**missing: Any) -> Job:
    document = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}, "train": {"missing": missing}}
    return validate(document, Job, source="job")


def missing_of(job: Job) -> Missing:
    return Train.section_of(job).missing


def test_a_default_of_another_type_is_read_like_what_a_job_says() -> None:
    left_out, written, other = job(labels="sharp"), job(labels="sharp", sharpness=1), job(labels="sharp", sharpness=0.333)
    assert '"sharpness":1.0' in left_out.canonical()
    assert left_out.digest() == written.digest() == parse_job(left_out.canonical(), source="a peer").digest()
    assert differing_fields(left_out.field_digests(), other.field_digests()) == ["train.missing.sharpness"]
    assert '"sharpness":0.33}' in other.canonical()
    assert parse_job(other.canonical(), source="a peer") == other
    assert missing_of(other).label_strategy == Sharp(sharpness=0.33)


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ({"labels": "greedy"}, "E_EXTENSION", "strategy 'greedy' cannot be used: the name of its key 'calibrate' is taken"),
        ({"labels": "keyless"}, "E_EXTENSION", "Keyless has keys without a default that fits them: depth, share"),
        ({"labels": "no-strategy"}, "E_EXTENSION", "Blurred is no LabelStrategy"),
        (
            {"labels": "sharp", "features": "blurred"},
            "E_CONFIG",
            "'train.missing': labels: sharp and features: blurred both have a key 'sharpness': choose another of them",
        ),
        ({"labels": "sharp", "sharpness": -1}, "E_CONFIG", "job: 'train.missing.sharpness': -1 is not 0.0 or more"),
        ({"labels": "random-pred", "draws": 0}, "E_CONFIG", "job: 'train.missing.draws': 0 is not 1 or more"),
        ({"labels": "random-pred", "drawz": 1}, "E_CONFIG", "job: unknown key 'train.missing.drawz'"),
        ({"draws": 2}, "E_CONFIG", "'train.missing': draws is for random-pred"),
        ({"draws": "many"}, "E_CONFIG", "'train.missing': draws is for random-pred"),
        ({"sharpness": 2}, "E_CONFIG", "'train.missing': sharpness is for sharp and blurred"),
    ],
)
def test_a_key_that_cannot_be_is_refused(missing: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(**missing)
    assert caught.value.code == code
    assert said in caught.value.message


def test_hints_know_the_keys_of_the_chosen_strategies() -> None:
    with pytest.raises(UsageError) as caught:
        job(labels="random-pred", drawz=1)
    assert caught.value.hint == "'train.missing.drawz': did you mean 'draws'?"
    with pytest.raises(UsageError) as caught:
        job(zzzzzzzz=1)
    assert caught.value.hint == "'train.missing.zzzzzzzz': known keys: calibration, calibration_for, features, labels, shares"


@pytest.mark.parametrize("stored", [{"draws": 1}, {"sharpness": 1}, {"sharpness": 0.5, "draws": 1}])
def test_another_strategys_default_in_a_stored_job_says_nothing(stored: dict[str, Any]) -> None:
    """Jobs of earlier versions have ``draws: 1`` beside every strategy."""
    assert job(labels="minority", **stored) == job(labels="minority")


def test_keys_are_immutable_and_go_with_their_strategy() -> None:
    chosen = missing_of(job(labels="random-pred", draws=3, calibration="train"))
    with pytest.raises(ValidationError, match="frozen"):
        chosen.draws = 4  # type: ignore[attr-defined]
    assert chosen.model_extra is None
    other = chosen.model_copy(update={"labels": "majority"})
    assert other == Missing(labels="majority", calibration="train")
    assert Train.model_validate({"missing": other.model_dump()}).missing == other
    assert chosen.model_copy(update={"draws": 5}).label_strategy.draws == 5  # type: ignore[attr-defined]
    with pytest.raises(ValidationError, match="draws"):
        other.model_copy(update={"draws": 5})
