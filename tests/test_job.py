from __future__ import annotations

import pytest

from vfl_node.configuration import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job, differing_fields, parse_job

MINIMAL = "name: trial\nparties: {active: clinic, passive: lab}\n"


def job(text: str = "") -> Job:
    return parse(MINIMAL + text, Job, source="job.yaml")


def test_defaults_and_single_passive_as_a_name() -> None:
    assert job().parties.all == ("clinic", "lab")
    assert job().train is None
    assert job().align.protocol == "psu"


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("aling: {protocol: psu}", "unknown key 'aling'", "did you mean 'align'?"),
        ("train: {epoch: 3}", "unknown key 'train.epoch'", "did you mean 'epochs'?"),
        ("train: {missing: {lables: majority}}", "unknown key 'train.missing.lables'", "did you mean 'labels'?"),
        ("align: {protocol: psv}", "'align.protocol' cannot be 'psv'", "did you mean 'psu'?"),
        ("align: {group: curve448}", "one of curve25519, modp3072, modp2048", "curve25519"),
        ("train: {learning_rate: .nan}", "'train.learning_rate'", ""),
        ("train: {epochs: 0}", "'train.epochs'", ""),
        ("train: {missing: {labels: none}}", "psu trains on the union", ""),
        ("evaluate: {test_fraction: 0, repeats: 3}", "repeats above 1 need a test_fraction", ""),
        ("train: [1]", "'train'", ""),
    ],
)
def test_mistakes_are_named(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(text)
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.startswith("job.yaml")
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_several_passive_parties_are_refused_with_the_reason(protocol: str) -> None:
    text = f"name: t\nparties: {{active: a, passive: [b, c]}}\nalign: {{protocol: {protocol}}}"
    with pytest.raises(UsageError, match="not built yet") as caught:
        parse(text, Job, source="j")
    assert "reveal" in caught.value.message


@pytest.mark.parametrize("name", ["../x", "A", "a b", "-a", "a-", "", "x" * 64, "a\x00"])
def test_names_that_could_leave_their_folder_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        parse(f"name: {name!r}\nparties: {{active: a, passive: b}}", Job, source="j")


def test_yaml_errors_have_a_place() -> None:
    with pytest.raises(UsageError, match=r"job\.yaml:2:\d+ is not valid YAML"):
        parse("name: x\nparties: {a: [}\n", Job, source="job.yaml")
    with pytest.raises(UsageError, match="must hold keys and values"):
        parse("- 1\n", Job, source="job.yaml")


def test_canonical_form_travels_and_digests_name_the_difference() -> None:
    ours = job("train: {epochs: 3, learning_rate: 0.1}")
    assert parse_job(ours.canonical(), source="wire") == ours
    theirs = job("train: {epochs: 3, learning_rate: 0.2}")
    assert differing_fields(ours.field_digests(), theirs.field_digests()) == ["train.learning_rate"]
    assert differing_fields(ours.field_digests(), ours.field_digests()) == []
    align_only = differing_fields(ours.field_digests(), job().field_digests())
    assert "train" in align_only
    assert "train.epochs" in align_only
    assert ours.digest() != theirs.digest()
