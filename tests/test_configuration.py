"""YAML that is made to cost time or memory is refused at once, at the place where it becomes too much."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vfl_node.configuration import models as configuration
from vfl_node.configuration import yaml_text
from vfl_node.configuration.models import load, parse
from vfl_node.configuration.yaml_text import MOST_BYTES, MOST_DEPTH, MOST_VALUES, quote_key
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.settings.node import Settings
from vfl_node.training.split.config import Train

LEVELS = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else 'x'] * 10)}]" for n in range(9))
HOSTILE = {
    "an alias bomb": (LEVELS, "job:5:", "more than 20000 values"),
    "a merge bomb": ("a: &a {" + ", ".join(f"k{n}: 1" for n in range(5000)) + "}\nb: {<<: [*a, *a]}", "job:2:", "values"),
    "many values": ("a: [" + "x," * MOST_VALUES + "]", "job:1:", "values"),
    "nested lists": ("[" * 60_000, f"job:1:{MOST_DEPTH + 1} ", "more than 32 levels"),
    "nested mappings": ("{a: " * 20_000, "job:1:", "levels"),
    "nested blocks": ("- " * 60_000, "job:1:", "levels"),
    "a list of itself": ("a: &a [*a]", "job:1:8 ", "part of"),
    "an unknown alias": ("a: *b", "job:1:4 ", "alias"),
    "a day of no calendar": ("a: 2001-99-99", "job", "not valid YAML"),
    "a number without end": ("a: 1\nb: " + "9" * 5_000, "job:2:4 ", "not valid YAML: a whole number of more than 100 digits"),
    "a hexadecimal one": ("name: 0x" + "f" * 5_000, "job:1:7 ", "not valid YAML: a whole number of more than 100 digits"),
    "a control character": ("a: 1\nb: \x01", "job:2:4 ", "not valid YAML"),
    "a tag that makes objects": ("a: !!python/object/apply:os.system [x]", "job:1:4 ", "not valid YAML"),
    "a key that is there twice": ("a: {b: 1}\nc: 1\na: 2", "job:3:1 ", "not valid YAML: 'a' is there twice"),
    "a key in a mapping that is there twice": ("a: {b: 1, b: 2}", "job:1:11 ", "not valid YAML: 'b' is there twice"),
    "too many bytes": ("a: " + "x" * MOST_BYTES, "job", "bytes"),
}


@pytest.mark.parametrize("loader", ["C", "Python"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused_where_it_becomes_too_much(name: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loader == "Python":
        monkeypatch.setattr(yaml_text, "Loader", yaml.SafeLoader)
    elif yaml_text.Loader is yaml.SafeLoader:
        pytest.skip("PyYAML without libyaml here")
    text, place, said = HOSTILE[name]
    built: list[object] = []
    if "YAML" not in said:
        monkeypatch.setattr(yaml_text.Loader, "get_single_node", built.append)
    with pytest.raises(UsageError, match=said) as caught:
        parse(text, Job, source="job")
    assert caught.value.code == "E_YAML"
    assert caught.value.message.startswith(place)
    assert not built  # refused before anything of it was


def test_aliases_within_the_bounds_are_read() -> None:
    text = (
        "name: trial\nparties: &p {active: clinic, passive: lab}\nalign: &a {protocol: psi}\ntrain: {bottom: &b [8], top: *b}\n"
    )
    assert parse(text, Job, source="job").train.top == (8,)  # type: ignore[union-attr]


def test_only_the_first_mistakes_are_explained() -> None:
    text = "name: trial\n" + "\n".join(f"unknown{n}: 1" for n in range(5000))
    with pytest.raises(UsageError, match="more mistakes") as caught:
        parse(text, Job, source="job")
    assert len(caught.value.message) < 1000
    assert caught.value.message.count("unknown key") <= configuration.MOST_MISTAKES


def test_a_file_that_never_ends_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageError, match="bytes"):
        load(Path("/dev/zero"), Job)


FORM = """\
name: Bank Trial
parties: {active: bank, passive: telco}
train:
  epochs: many
  missing: {labels: majority, feature: sampling}
"""


def test_every_mistake_has_its_line_and_column() -> None:
    with pytest.raises(UsageError) as caught:
        parse(FORM, Job, source="job.yaml")
    assert caught.value.message == (
        "job.yaml:1:7: 'name': 'Bank Trial' is not a name: 1 to 63 small letters, digits and hyphens that begin and end with a "
        "letter or digit; 4:11: 'train.epochs': 'many' is not a whole number; 5:31: unknown key 'train.missing.feature'"
    )
    assert caught.value.hint == "did you mean 'bank-trial'? 'train.missing.feature': did you mean 'features'?"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: t\nparties: {active: a}", "job:2:1: 'parties.passive' is missing"),
        ("parties: {active: a, passive: b}", "job:1:1: 'name' is missing"),
        ("name: t\nparties:\n  active: a\n  passive: [b, C]", "job:4:16: 'parties.passive.1'"),
        (
            "name: t\nparties: {active: a, passive: b}\ntrain: {}\nevaluate: {metrics: [rmse]}",
            "job:4:12: evaluate.metrics: rmse",
        ),
        (
            "name: t\nparties: {active: a, passive: b}\ntrain: {epochs: 2, task: regression, classes: 3}",
            "job:3:38: 'train': classes",
        ),
        ("name: t\nparties: {active: a, passive: b}\ntables: {c: x}", "job:3:1: tables names 'c'"),
        ("name: t\nparties: {active: a, passive: b}\ntrain:\n\tepochs: 2", "job:4:1 is not valid YAML: a tab"),
        ("name: t\nparties: &p {active: a, passive: b}\ntrain: *p", "job:2:14: unknown key 'train.active'"),
    ],
)
def test_a_mistake_is_placed_where_it_stands_or_what_should_have_it(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, Job, source="job")
    assert caught.value.message.startswith(place)


@pytest.mark.parametrize(
    ("keys", "text", "hint"),
    [
        (
            "{u: {kind: numbr, low: 0}}",
            "'align.keys.u.kind' cannot be 'numbr'; it is one of number, date, place, text",
            "did you mean 'number'?",
        ),
        ("{u: {low: 0, high: 1}}", "'align.keys.u.kind' is missing", None),
        (
            "{u: {kind: text, lenght: 3, reach: 1}}",
            "unknown key 'align.keys.u.lenght'; 3:62: unknown key 'align.keys.u.reach'",
            "'align.keys.u.lenght': did you mean 'length'? 'align.keys.u.reach': "
            "known keys: edits, fixed_ones, hashes, kind, length, q",
        ),
        ("{}", "'align.keys' has 0 entries, and must have at least 1", None),
    ],
)
def test_mistakes_in_keys_are_told_in_plain_words(keys: str, text: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"name: t\nparties: {{active: a, passive: b}}\nalign: {{protocol: linkage, keys: {keys}}}", Job, source="job")
    assert caught.value.message.partition(": ")[2] == text
    assert (caught.value.hint or None) == hint


@pytest.mark.parametrize("columns", ["[u]", "[]", "[a, b, c]"])
def test_a_key_has_one_column_or_two_of_a_place(columns: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(
            f"name: a\nrole: active\nlisten: 127.0.0.1:0\ndata: {{path: x.csv, keys: {{u: {columns}}}}}",
            Settings,
            source="node",
        )
    assert caught.value.message == "node:4:31: 'data.keys.u': name one column, or the two of a place: [LATITUDE, LONGITUDE]"


def test_names_may_be_written_in_capitals() -> None:
    job = parse("name: t\nparties: {active: a, passive: b}\nalign: {protocol: PSI}\ntrain: {model: mlp}", Job, source="job")
    assert job.align.protocol == "psi"
    train = "{optimizer: ADAM, missing: {labels: Random_Pred, features: none}}"
    job = parse(f"name: t\nparties: {{active: a, passive: b}}\nalign: {{protocol: PSI}}\ntrain: {train}", Job, source="job")
    assert (job.train.optimizer, job.train.missing.labels) == ("adam", "random-pred")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ("train: {lr: 0.1}", "'train.lr': did you mean 'learning_rate'?"),
        ("train: {num_epochs: 3}", "'train.num_epochs': did you mean 'epochs'?"),
        ("train: {hidden_layers: [3]}", "'train.hidden_layers': did you mean 'bottom'?"),
        ("evaluate: {test_size: 0.2}", "'evaluate.test_size': did you mean 'test_fraction'?"),
        ("evaluate: {cv: 5}", "'evaluate.cv': did you mean 'repeats'?"),
    ],
)
def test_keys_of_other_tools_are_understood(section: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"name: t\nparties: {{active: a, passive: b}}\n{section}", Job, source="job")
    assert caught.value.hint == hint


def test_what_is_called_otherwise_elsewhere_is_a_key_here() -> None:
    for model in (Train, Evaluate):
        others = [name for names in model.called_elsewhere.values() for name in names]
        assert set(model.called_elsewhere) <= set(model.model_fields)
        assert len(others) == len(set(others))
        assert not set(others) & set(model.model_fields)


@pytest.mark.parametrize("name", ["age", "Unnamed: 0", "a, b", "x #1", "{y}", "Größe", "it's"])
def test_a_name_in_a_hint_can_be_copied(name: str) -> None:
    assert yaml.safe_load(f"{{{quote_key(name)}: ignore}}") == {name: "ignore"}
