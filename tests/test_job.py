from __future__ import annotations

import math

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job, Parties, differing_fields, parse_job
from vfl_node.training.logistic.config import Logistic

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
        ("predict: {model: m, to: active, rows: new}", "new needs align.protocol: psi", ""),
        (APSI.format("private") + "predict: {model: m, to: active, rows: new}", "would get synthetic rows", ""),
        ("evaluate: {test_fraction: 0, repeats: 3}", "repeats above 1 need a test_fraction", ""),
        ("evaluate: {threshold: 0}", "'evaluate.threshold'", ""),
        ("evaluate: {threshold: 1}", "'evaluate.threshold'", ""),
        ("evaluate: {metrics: [prauc]}", "'evaluate.metrics.0' cannot be 'prauc'", "did you mean 'pr_auc'?"),
        ("evaluate: {metrics: [ks, auc, lift]}\ntrain: {classes: 3}", "evaluate.metrics: ks and lift are for two classes", ""),
        ("evaluate: {metrics: [lift]}\ntrain: {classes: 3}", "evaluate.metrics: lift is for two classes", ""),
        ("evaluate: {threshold: 0.3}\ntrain: {classes: 3}", "evaluate.threshold is for two classes", ""),
        ("train: [1]", "'train'", ""),
        ("train: {missing: 3}", "'train.missing'", ""),
        ("train: 3", "'train': 3 is not keys and values", ""),
        ("train: {algorithm: 3}", "'train.algorithm' cannot be '3'; it is one of split, logistic", ""),
        ("train: {algorithm: [split]}", "'train.algorithm' cannot be", ""),
        ("train: {algorithm: logistics}", "'train.algorithm' cannot be 'logistics'; it is one of", "did you mean 'logistic'?"),
        (
            "train: {missing: {shares: {active: 1, passive: 1, activ: 1}}}",
            "unknown key 'train.missing.shares.activ'",
            "did you mean 'active'?",
        ),
        ("align: {id_form: inteer}", "'align.id_form' cannot be 'inteer'; it is one of text, nocase, integer", "'integer'?"),
        ("align: {id_form: [text, inteer]}", "'align.id_form.1' cannot be 'inteer'", "did you mean 'integer'?"),
        ("align: {id_form: [text]}", "'align.id_form' has 1 entry, and must have at least 2", ""),
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


def test_several_passive_parties_are_refused_with_the_reason() -> None:
    text = "name: t\nparties: {active: a, passive: [b, c]}\nalign: {protocol: apsi, obfuscation: private}"
    with pytest.raises(UsageError, match=r"aligns with 1 of parties\.passive") as caught:
        parse(text, Job, source="j")
    assert "reveal" in caught.value.message


@pytest.mark.parametrize("name", ["active", "passive", "both"])
def test_a_word_for_a_role_is_no_name_of_one_of_several_passive_parties(name: str) -> None:
    """Else ``predict.to`` would mean several parties by it, and this one could never ask."""
    text = "name: t\nparties: {{active: a, passive: [{}]}}\nalign: {{protocol: psi}}"
    with pytest.raises(UsageError, match=f"one of several passive parties cannot be called '{name}'"):
        parse(text.format(f"b, {name}"), Job, source="j")
    assert parse(text.format(name), Job, source="j").parties.passive == (name,)


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


def test_a_purpose_travels_and_a_job_without_one_is_what_it_was_before_there_was_the_key() -> None:
    said = job('purpose: " Does the lab help? é "\n')
    assert said.purpose == "Does the lab help? é"
    assert parse_job(said.canonical(), source="wire") == said
    assert differing_fields(said.field_digests(), job().field_digests()) == ["purpose"]
    assert "purpose" not in job().canonical()
    assert job().digest() == "8f3ce2fcc1b9ea991f691d20806d898c97600dc1b53da06313e9757d46df4976"


@pytest.mark.parametrize("purpose", ["''", "'  '", '"two\\nlines"', '"\\u202e turned"', "5", "x" * 201])
def test_a_purpose_that_is_no_short_line_is_refused(purpose: str) -> None:
    with pytest.raises(UsageError, match="'purpose': "):
        job(f"purpose: {purpose}\n")


def test_keys_of_a_strategy_are_fields_of_the_job() -> None:
    """Two files that differ in one of them differ in that field; one that writes a default down does not differ."""
    one, default, several = (
        job(f"train: {{missing: {{labels: random-pred{keys}}}}}") for keys in ("", ", draws: 1", ", draws: 3")
    )
    assert differing_fields(one.field_digests(), default.field_digests()) == []
    assert one.digest() == default.digest() != several.digest()
    assert differing_fields(one.field_digests(), several.field_digests()) == ["train.missing.draws"]
    assert parse_job(several.canonical(), source="a peer") == several


def regression(train: str = "", rest: str = "", *, align: str = "psi", coordinator: bool = False) -> Job:
    """A job with a logistic regression; ``train`` are further keys of its section."""
    parties = "{active: clinic, passive: lab, coordinator: hub}" if coordinator else "{active: clinic, passive: lab}"
    text = f"name: trial\nparties: {parties}\nalign: {{protocol: {align}}}\ntrain: {{algorithm: logistic, {train}}}\n{rest}"
    return parse(text, Job, source="job.yaml")


BLIND = "flow: coordinator, loss: taylor"


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ("flow: coordinator", "where the exact loss's sigmoid cannot be computed: say loss: taylor"),
        ("labels: passive", "labels: passive needs flow: coordinator: whoever else held the key could decrypt residuals"),
        ("labels: passive, flow: coordinator-open-scores", "labels: passive needs flow: coordinator"),
        (f"{BLIND}, labels: passive, classes: 3", "labels: passive is for two classes"),
        ("classes: 3, mask: multiplicative", "one factor would show the ratios of their gradients"),
        (f"{BLIND}, classes: 3, tolerance: 0.1", "tolerance must be 0 with flow: coordinator and several classes"),
        ("key_bits: 1024", "'train.key_bits' cannot be '1024'; it is one of 2048, 3072, 4096"),
        ("classes: 1", "'train.classes'"),
        ("classes: 65", "'train.classes'"),
        ("tolerance: 1", "'train.tolerance'"),
        ("tolerance: -0.1", "'train.tolerance'"),
        ("iterations: 0", "'train.iterations'"),
        ("l2: -1", "'train.l2'"),
        ("l2: .nan", "'train.l2'"),
        ("learning_rate: 0", "'train.learning_rate'"),
        ("learning_rate: .inf", "'train.learning_rate'"),
        ("batch_size: 0", "'train.batch_size'"),
        ("least_rows: -1", "'train.least_rows'"),
        ("seed: -1", "'train.seed'"),
    ],
)
def test_what_a_regression_cannot_be_is_refused_with_the_reason(train: str, said: str) -> None:
    for coordinator in (True, False):
        with pytest.raises(UsageError) as caught:
            regression(train, coordinator=coordinator, rest="evaluate: {test_fraction: 0}")
        assert said in caught.value.message
        assert ";" not in caught.value.message.replace("; it is one of", "")


@pytest.mark.parametrize(
    ("train", "said", "hint"),
    [
        ("lerning_rate: 1", "unknown key 'train.lerning_rate'", "did you mean 'learning_rate'?"),
        ("itterations: 1", "unknown key 'train.itterations'", "did you mean 'iterations'?"),
        ("epochs: 3", "unknown key 'train.epochs'", ""),
        ("missing: {labels: none}", "unknown key 'train.missing'", ""),
        ("bottom: [3]", "unknown key 'train.bottom'", ""),
        (
            "zzz: 3",
            "unknown key 'train.zzz'",
            "known keys: algorithm, batch_size, class_weight, classes, flow, iterations",
        ),
        ("flow: two-parties", "'train.flow' cannot be 'two-parties'", "did you mean 'two-party'?"),
        ("mask: additiv", "'train.mask' cannot be 'additiv'", "did you mean 'additive'?"),
        ("scaling: standart", "'train.scaling' cannot be 'standart'", "did you mean 'standard'?"),
        ("loss: quadratic", "'train.loss' cannot be 'quadratic'; it is one of exact, taylor", ""),
    ],
)
def test_mistakes_inside_a_regression_are_named(train: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        regression(train)
    assert said in caught.value.message
    assert hint in caught.value.hint
    for of_a_network in ("epochs", "optimizer", "embedding_size"):
        assert of_a_network not in caught.value.hint.replace(f"{train.split(':')[0]}'", "")


def test_the_two_trainings_have_keys_of_their_own() -> None:
    with pytest.raises(UsageError, match=r"unknown key 'train\.flow'"):
        job("train: {flow: two-party}")
    with pytest.raises(UsageError, match=r"'train\.algorithm' cannot be 'logistics'; it is one of split, logistic"):
        job("train: {algorithm: logistics}")
    assert job("train: {algorithm: split}") == job("train: {}")


@pytest.mark.parametrize(
    ("train", "rest", "align", "coordinator", "said"),
    [
        ("", "", "psu", False, "does not train on the union: for rows that only the active party owns"),
        ("", "evaluate: {repeats: 2}", "psi", False, "evaluate.repeats must be 1 with logistic"),
        (f"{BLIND}, labels: passive", "", "psi", True, "evaluate.test_fraction must be 0 with labels: passive"),
        (
            f"{BLIND}, labels: passive",
            "evaluate: {test_fraction: 0, share_with_passive: true}",
            "psi",
            True,
            "has nothing to share with labels: passive",
        ),
        (
            "",
            "evaluate: {share_with_passive: true}",
            "apsi, obfuscation: private",
            False,
            "share_with_passive must be false with apsi",
        ),
        ("flow: coordinator-open-scores", "", "psi", False, "needs a third party: name it in parties.coordinator"),
        (BLIND, "", "psi", False, "needs a third party"),
        ("", "", "psi", True, "parties.coordinator takes part in train.algorithm: logistic with flow: coordinator"),
    ],
)
def test_what_a_job_cannot_have_with_a_regression(train: str, rest: str, align: str, coordinator: bool, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        regression(train, rest, align=align, coordinator=coordinator)
    assert said in caught.value.message


def test_a_coordinator_is_for_regressions_only() -> None:
    for train in ("", "train: {}"):
        with pytest.raises(UsageError, match=r"parties\.coordinator takes part in train\.algorithm: logistic"):
            parse(f"name: t\nparties: {{active: a, passive: b, coordinator: c}}\n{train}", Job, source="j")
    with pytest.raises(UsageError, match="a party may appear once only"):
        parse("name: t\nparties: {active: a, passive: b, coordinator: b}", Job, source="j")


@pytest.mark.parametrize(
    ("train", "rest", "align", "coordinator"),
    [
        ("", "", "apsi, obfuscation: {size: 100}", False),
        ("classes: 10, loss: taylor, tolerance: 0.01, batch_size: 64, key_bits: 4096, scaling: unit", "", "psi", False),
        ("mask: multiplicative", "evaluate: {share_with_passive: true}", "psi", False),
        ("flow: coordinator-open-scores, classes: 3", "", "apsi, obfuscation: private", True),
        (f"{BLIND}, tolerance: 0.001, mask: multiplicative", "", "apsi, obfuscation: {fraction: 0.5}", True),
        (f"{BLIND}, labels: passive", "evaluate: {test_fraction: 0}", "apsi, obfuscation: private", True),
    ],
)
def test_what_a_regression_can_be_is_accepted_and_travels(train: str, rest: str, align: str, coordinator: bool) -> None:
    ours = regression(train, rest, align=align, coordinator=coordinator)
    assert parse_job(ours.canonical(), source="wire") == ours
    assert ours.parties.all == (("clinic", "lab", "hub") if coordinator else ("clinic", "lab"))
    assert ours.label_holder == ("passive" if "labels: passive" in train else "active")
    assert ours.classes == int(next((part.split()[1] for part in train.split(", ") if part.startswith("classes")), "2"))
    assert isinstance(ours.train, Logistic)
    assert ours.train.outputs == (1 if ours.classes == 2 else ours.classes)


def test_who_has_labels_in_other_jobs() -> None:
    assert job().label_holder is None
    assert job("train: {}").label_holder == "active"
    assert job("train: {}").classes == 2


def test_a_difference_in_a_regression_is_named() -> None:
    ours, theirs = regression("mask: additive"), regression("mask: multiplicative")
    assert differing_fields(ours.field_digests(), theirs.field_digests()) == ["train.mask"]
    assert "train.algorithm" in differing_fields(ours.field_digests(), job("align: {protocol: psi}\ntrain: {}").field_digests())


@pytest.mark.parametrize("net", ["bottom", "active_bottom", "top"])
def test_a_network_of_very_many_layers_is_refused(net: str) -> None:
    """Thirty thousand layers of one unit have few weights, and took half a gibibyte that no estimate foresees."""
    job = f"name: x\nparties: {{active: clinic, passive: [lab]}}\ntrain: {{{net}: [{','.join(['1'] * 65)}]}}\n"
    with pytest.raises(UsageError, match=rf"'train\.{net}'.*at most 64"):
        parse(job, Job, source="job")


def test_two_data_parties_are_peers() -> None:
    parties = Parties(active="a", passive="b", coordinator="c")
    assert parties.pair == {"active": "a", "passive": "b"}
    with pytest.raises(ValueError, match="values to unpack"):
        _ = Parties(active="a", passive=("b", "d")).pair


LINKED = """\
parties: {active: a, passive: b, coordinator: c}
align: {protocol: linkage, keys: {u: {kind: number, low: 0, high: 1, reach: 0.1}}, noise: {sigma: 0.1}}
train: {algorithm: candidates}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serve: {to: active}", "serve keeps a trained model for predictions, and the job trains none"),
        (LINKED + "serve: {to: active}", "and train.algorithm: candidates has none for that"),
        ("evaluate: {matched: true}", "measures a model on the rows that both parties own, and the job trains none"),
        ("train: {algorithm: logistic}\nevaluate: {matched: true}", "and train.algorithm: logistic has none for that"),
    ],
)
def test_what_needs_a_model_says_so(text: str, said: str) -> None:
    rest = "" if "align:" in text else "parties: {active: a, passive: b}\nalign: {protocol: psi}\n"
    with pytest.raises(UsageError) as caught:
        parse(f"name: t\n{rest}{text}", Job, source="j")
    assert said in caught.value.message


THREE = "name: t\nparties: {active: a, passive: [b, c]}\nalign: {protocol: psi}\n"


@pytest.mark.parametrize(("to", "asker"), [("active", "a"), ("b", "b"), ("c", "c"), ("a", "a")])
def test_one_party_asks_for_predictions(to: str, asker: str) -> None:
    job = parse(THREE + f"predict: {{model: m, to: {to}}}", Job, source="j")
    assert job.asker == asker
    assert job.parties.members(job.parties.role_or_name(asker)) == (asker,)
    assert parse(THREE, Job, source="j").asker is None


def test_a_role_that_one_party_has_stands_for_it() -> None:
    job = parse(THREE.replace("[b, c]", "b") + "predict: {model: m, to: passive}", Job, source="j")
    assert (job.asker, job.parties.role_or_name("b")) == ("b", "passive")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("predict: {model: m, to: passive}", "predict.to: one party asks; say which: b or c"),
        ("predict: {model: m, to: both}", "predict.to: one party asks; say which: active or b or c"),
        ("predict: {model: m, to: d}", "predict.to: d is none of active, passive and the data parties (a, b, c)"),
        ("train: {}\nserve: {to: d}", "serve.to: d is none of active, passive, both and the data parties (a, b, c)"),
        ("train: {}\nserve: {to: nobody!}", "a name: 1 to 63 small letters"),
    ],
)
def test_who_may_ask_is_a_role_or_a_party(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(THREE + text, Job, source="j")
    assert said in caught.value.message
