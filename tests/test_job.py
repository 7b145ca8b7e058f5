from __future__ import annotations

import math

import pytest

from vfl_node.configuration import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job, differing_fields, parse_job

MINIMAL = "name: trial\nparties: {active: clinic, passive: lab}\n"
APSI = "align: {{protocol: apsi, obfuscation: {}}}\n"


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
        ("train: {missing: 3}", "'train.missing'", ""),
        ("align: {id_form: inteer}", "'align.id_form' cannot be 'inteer'; it is one of text, nocase, integer", "'integer'?"),
        ("align: {id_form: [text, inteer]}", "'align.id_form.1' cannot be 'inteer'", "did you mean 'integer'?"),
        ("align: {id_form: [text]}", "'align.id_form': Tuple should have at least 2 items", ""),
        ("align: {id_form: {}}", "'align.id_form' cannot be '{}'; it is one of text", ""),
        ("align: {padding: 17}", "'align.padding'", ""),
        ("align: {dummies: -1}", "'align.dummies'", ""),
        ("align: {protocol: apsi}", "apsi needs align.obfuscation", ""),
        ("align: {obfuscation: private}", "align.obfuscation is for apsi: psu", ""),
        ("align: {protocol: psi, obfuscation: {size: 9}}", "align.obfuscation is for apsi: psi", ""),
        ("align: {protocol: psi, dummies: 1}", "align.dummies is for psu", ""),
        (APSI.format("{size: 0}"), "'align.obfuscation.size': ", ""),
        (APSI.format("{fraction: 0}"), "'align.obfuscation.fraction': ", ""),
        (APSI.format("{fraction: 1.5}"), "'align.obfuscation.fraction': ", ""),
        (APSI.format("{fraction: .nan}"), "'align.obfuscation.fraction': ", ""),
        (APSI.format("{size: 5, fraction: 0.5}"), "'align.obfuscation': give either size", ""),
        (APSI.format("{}"), "'align.obfuscation': give either size", ""),
        (APSI.format("{sise: 5}"), "unknown key 'align.obfuscation.sise'", "did you mean 'size'?"),
        (APSI.format("public"), "'align.obfuscation': give {size: RECORDS}", ""),
        (APSI.format("7"), "'align.obfuscation': give {size: RECORDS}", ""),
        (APSI.format("private") + "train: {missing: {labels: none}}", "no labels for the rows that are not its own", ""),
        (
            APSI.format("private") + "train: {}\nevaluate: {share_with_passive: true}",
            "share_with_passive must be false with apsi",
            "",
        ),
        (APSI.format("private") + "train: {missing: {calibration: train}}", "which apsi keeps from the passive party", ""),
        ("align: {dummies: 9}\ntrain: {missing: {calibration: test}}", "which align.dummies hides from both", ""),
    ],
)
def test_mistakes_are_named(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(text)
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.startswith("job.yaml")
    assert caught.value.exit_status == 2
    assert ";" not in caught.value.message.replace("; it is one of", "")  # one mistake, said once


@pytest.mark.parametrize(
    "text",
    [
        "align: {protocol: psi, padding: 4}",
        "align: {dummies: 100, padding: 16}\ntrain: {}",
        "align: {padding: 1}\ntrain: {missing: {calibration: train}}",  # |I| of padded sets is known
        "align: {protocol: psi}\ntrain: {missing: {labels: none, features: none, calibration: test}}",
        APSI.format("{size: 5}"),
        APSI.format("{fraction: 1}"),
        APSI.format("private") + "train: {missing: {features: none}}",
        "align: {id_form: [text, nocase, integer]}",
    ],
)
def test_what_fits_together_is_accepted_and_travels(text: str) -> None:
    assert parse_job(job(text).canonical(), source="wire") == job(text)


@pytest.mark.parametrize(
    "obfuscation", ["{security_number: 0.5}", "private, security_number: 0.5", "{size: 5, security_number: 1}"]
)
def test_a_security_number_in_the_job_is_refused_with_the_reason(obfuscation: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(APSI.format(obfuscation))
    assert "(m/n_s^ξ)^(1/(1-ξ))" in caught.value.message
    assert "settings (obfuscation.security_number)" in caught.value.message


def test_the_security_number_would_give_the_intersection() -> None:
    for size, security_number in ((100, 0.5), (300, 0.25), (10_000, 0.75)):
        m = math.ceil(size ** (1 - security_number) * 60_000**security_number)
        assert (m / 60_000**security_number) ** (1 / (1 - security_number)) == pytest.approx(size, rel=0.01)


def test_a_difference_in_obfuscation_is_named() -> None:
    ours, theirs = job(APSI.format("{size: 5}")), job(APSI.format("{size: 6}"))
    assert differing_fields(ours.field_digests(), theirs.field_digests()) == ["align.obfuscation.size"]
    private = job(APSI.format("private"))
    assert "align.obfuscation" in differing_fields(ours.field_digests(), private.field_digests())


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi, obfuscation: private"])
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
