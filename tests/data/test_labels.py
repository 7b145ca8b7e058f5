"""What a column of labels may have in its cells, which class each becomes, and what is said where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.data import labels as labels_module
from vfl_node.data.profile import LabelProfile, profile
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import columns_for, read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.settings.node import Data, Settings

Read = Callable[..., Table]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a table of one column of labels."""

    def table(*labels: str, classes: int = 2, positive: Any = None, name: str = "diagnosis") -> Table:
        path = tmp_path / "table.csv"
        path.write_text(f"id,x,{name}\n" + "".join(f"r{row},{row},{label}\n" for row, label in enumerate(labels)))
        label = name if positive is None else {"column": name, "positive": positive}
        data = Data.model_validate({"path": path, "label": label})
        return read_table(data, id_form="text", needs_label=True, party="clinic", classes=classes)

    return table


def seen_in(data: Data) -> LabelProfile:
    """What a check says of the labels."""
    with closing(open_input(data, party="clinic")) as reader:
        text = columns_for(reader, data, id_form="text", needs_label=True, party="clinic")
    label = profile(text, data, id_form="text", needs_label=True, party="clinic").label
    assert isinstance(label, LabelProfile)
    return label


@pytest.mark.parametrize(
    ("labels", "classes", "expected", "names", "assumed"),
    [
        (["0", "1", "1"], 2, [0, 1, 1], (), False),
        (["0.000", "1.0", "1", "01", "1e0"], 2, [0, 1, 1, 1, 1], (), False),
        (["true", "FALSE", "True"], 2, [1, 0, 1], ("FALSE", "True"), False),
        (["y", "N", "y"], 2, [1, 0, 1], ("N", "y"), False),
        (["Yes", "no", "NO"], 2, [1, 0, 0], ("NO", "Yes"), False),
        (["yes", "0", "1"], 2, [1, 0, 1], ("0", "1"), False),
        (["malignant", "benign", "malignant"], 2, [1, 0, 1], ("benign", "malignant"), True),
        (["true", "maybe"], 2, [1, 0], ("maybe", "true"), True),
        (["10", "healthy"], 2, [0, 1], ("10", "healthy"), True),
        (["2", "0", "1", "2.0"], 3, [2, 0, 1, 2], (), False),
        (["2", "0"], 3, [2, 0], (), False),
        (["c", "a", "b", "a"], 3, [2, 0, 1, 0], ("a", "b", "c"), False),
        (["30", "4", "4.0", "3.5"], 3, [2, 1, 1, 0], ("3.5", "4", "30"), False),
        (["b", "a", "1"], 3, [2, 1, 0], ("1", "a", "b"), False),
    ],
)
def test_cells_become_classes(
    read: Read, labels: list[str], classes: int, expected: list[int], names: tuple[str, ...], assumed: bool
) -> None:
    table = read(*labels, classes=classes)
    assert table.labels is not None
    assert table.labels.tolist() == expected
    assert (table.classes, table.positive_assumed) == (names, assumed)


@pytest.mark.parametrize(
    ("labels", "positive", "expected", "names"),
    [
        (["malignant", "benign"], "benign", [0, 1], ("malignant", "benign")),
        (["malignant", "benign"], "malignant", [1, 0], ("benign", "malignant")),
        (["1", "2", "2.0"], 1, [1, 0, 0], ("2", "1")),
        (["-1", "1"], "1.0", [0, 1], ("-1", "1")),
        (["0", "1"], 0, [1, 0], ("1", "0")),
        (["no", "YES"], False, [1, 0], ("YES", "no")),
        (["no", "YES"], "yes", [0, 1], ("no", "YES")),
    ],
)
def test_the_owner_names_the_positive_class(
    read: Read, labels: list[str], positive: Any, expected: list[int], names: tuple[str, ...]
) -> None:
    table = read(*labels, positive=positive)
    assert table.labels is not None
    assert (table.labels.tolist(), table.classes, table.positive_assumed) == (expected, names, False)


ERRORS: dict[str, tuple[list[str], dict[str, Any], str, str, str]] = {
    "a third name": (
        ["canary", "bird", "dog"],
        {},
        "E_LABEL",
        ": column 'diagnosis' has 3 different labels, and the job is for 2 classes",
        "set train.classes: 3 in the job if each of them is a class",
    ),
    "two names of three": (
        ["canary", "bird"],
        {"classes": 3},
        "E_LABEL",
        ": column 'diagnosis' has 2 different labels, and the job is for 3 classes",
        "set train.classes: 2 in the job if each of them is a class",
    ),
    "truth values of three": (
        ["yes", "no"],
        {"classes": 3},
        "E_LABEL",
        ": column 'diagnosis' has 2 different labels, and the job is for 3 classes",
        "set train.classes: 2 in the job if each of them is a class",
    ),
    "another column": (
        [f"canary-{row}" for row in range(70)],
        {},
        "E_LABEL",
        ": column 'diagnosis' has 70 different labels, and the job is for 2 classes",
        "name the column of labels in data.label",
    ),
    "a column of numbers": (
        [f"{row + 7}.5" for row in range(1100)],
        {},
        "E_LABEL",
        ": column 'diagnosis' has more than 1,000 different labels, and the job is for 2 classes",
        "name the column of labels in data.label; numbers are no classes: "
        "to predict them say train.task: regression in the job",
    ),
    "one cell that is none": (
        ["0", "1", "canary"],
        {},
        "E_LABEL",
        ":4:diagnosis: the label is neither 0 nor 1 (1 such cell of 3)",
        "write every label as 0 or 1; the column has 3 different labels: set train.classes: 3 in the job if each of them is a "
        "class",
    ),
    "two numbers": (
        ["1", "2", "2"],
        {},
        "E_LABEL",
        ":3:diagnosis: the label is neither 0 nor 1 (2 such cells of 3)",
        "write every label as 0 or 1; say which of the two numbers is positive, data.label: {column: diagnosis, positive: …}",
    ),
    "no label": (
        ["canary", "", "bird", "NA"],
        {},
        "E_LABEL",
        ":3:diagnosis: the label is missing (2 such cells of 4)",
        "leave out rows without a label; NULL, N/A, None and the like are none: give a class another name",
    ),
    "one class": (
        ["canary", "canary"],
        {"positive": "bird"},
        "E_ONE_CLASS",
        ": all labels in column 'diagnosis' are the same",
        "a classifier needs records of both classes",
    ),
    "another positive class": (
        ["canary", "bird"],
        {"positive": "dog"},
        "E_LABEL",
        ": no label in column 'diagnosis' is the positive one that the settings name (data.label.positive)",
        "write it as the table does, in quotes",
    ),
    "another positive number": (
        ["0", "1"],
        {"positive": 2},
        "E_LABEL",
        ": no label in column 'diagnosis' is the positive one that the settings name (data.label.positive)",
        "write it as the table does, in quotes",
    ),
    "a positive class of three": (
        ["canary", "bird", "dog"],
        {"positive": "dog", "classes": 3},
        "E_CONFIG",
        ": data.label.positive is for two classes, and the job has 3 (train.classes)",
        "leave positive out, or train with classes: 2",
    ),
}


@pytest.mark.parametrize("word", ["NULL", "Null", "\\N", "#N/A", "n/a", "<NA>", "NaN", "NONE", "none", "NaT", "."])
@pytest.mark.parametrize("other", ["1", "ill"])
def test_a_word_for_a_missing_value_is_no_class(read: Read, word: str, other: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(other, word, other)
    assert (caught.value.code, ":3:diagnosis: the label is missing (1 such cell of 3)" in str(caught.value)) == (
        "E_LABEL",
        True,
    )
    label = seen_in(Data.model_validate({"path": tmp_path / "table.csv", "label": "diagnosis"}))
    assert (label.other, sum(label.counts.values()), word in label.classes) == (1, 2, False)


@pytest.mark.parametrize("label", ["-", "+", "missing", "unknown", "negative"])
def test_a_word_that_may_be_a_finding_is_a_class(read: Read, label: str) -> None:
    assert read(label, "other", "other").classes in ((label, "other"), ("other", label))


@pytest.mark.parametrize("fault", ERRORS)
def test_labels_that_cannot_be_read_are_counted_and_not_shown(read: Read, fault: str) -> None:
    labels, settings, code, message, hint = ERRORS[fault]
    with pytest.raises(DataError) as caught:
        read(*labels, **settings)
    error = caught.value
    assert (error.code, error.hint) == (code, hint)
    assert error.message.startswith("clinic: ")
    assert error.message.endswith(f"table.csv{message}")
    assert not any(word in str(error) + error.hint + str(error.for_peer) for word in ("canary", "bird", "dog"))


def test_a_long_column_of_numbers_is_not_counted_to_its_end(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_module, "MOST_VALUES", 5)
    with pytest.raises(DataError, match="column 'diagnosis' has more than 5 different labels, and the job is for 2 classes"):
        read(*(str(row) for row in range(100)))
    assert read(*["canary", "bird"] * 50).classes == ("bird", "canary")


def test_long_numbers_keep_their_digits(read: Read) -> None:
    long = tuple(f"1234567890123456{digit}" for digit in range(5))
    assert read(*reversed(long), classes=5).classes == long


def test_a_digest_notices_another_order_or_name_of_classes(read: Read) -> None:
    names = read("canary", "bird", "bird")
    assert read("canary", "bird", "bird", positive="canary").digest() == names.digest()
    assert read("canary", "bird", "bird", positive="bird").digest() != names.digest()
    assert read("canary", "aird", "aird").digest() != names.digest()
    assert read("1", "0", "0").digest() != names.digest()
    assert read("1.0", "0", "0").digest() == read("1", "0", "0").digest()


def test_a_part_of_a_table_has_its_classes(read: Read) -> None:
    table = read(*["canary", "bird"] * 20)
    part = sample(table, 30, b"key")
    assert (part.classes, part.positive_assumed) == (("bird", "canary"), True)
    assert "canary" not in repr(table)


def test_the_settings_name_a_column_alone_or_with_its_positive_class() -> None:
    head = "name: clinic\nrole: active\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"

    def labels(text: str) -> tuple[str, str | None]:
        data = parse(f"{head}data: {{path: x.csv{text}}}\n", Settings, source="node.yaml").data
        assert isinstance(data, Data)
        return data.labels.column, data.labels.positive

    assert labels("") == ("label", None)
    assert labels(", label: ill") == ("ill", None)
    assert labels(", label: {column: ill, positive: yes}") == ("ill", "true")
    assert labels(", label: {column: ill, positive: 1}") == ("ill", "1")
    assert labels(", label: {column: ill, positive: 'no'}") == ("ill", "no")
    with pytest.raises(UsageError) as caught:
        labels(", label: {column: ill, positiv: 1}")
    assert "unknown key 'data.label.positiv'" in caught.value.message
    assert "did you mean 'positive'?" in caught.value.hint
    with pytest.raises(UsageError, match=r"'data\.label\.column' is missing"):
        labels(", label: {positive: 1}")


@pytest.mark.parametrize(
    ("labels", "positive", "expected", "names"),
    [
        (["0,0", "1,0", "1"], None, [0, 1, 1], ()),
        (["0,5", "1,5"], "0,5", [1, 0], ("1.5", "0.5")),
        (["0,5", "1,5"], 1.5, [0, 1], ("0.5", "1.5")),
        (["a,b", "c"], "a,b", [1, 0], ("c", "a,b")),
    ],
)
def test_numbers_of_a_table_with_a_decimal_comma(
    tmp_path: Path, labels: list[str], positive: Any, expected: list[int], names: tuple[str, ...]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id;x;y\n" + "".join(f"r{row};{row},5;{label}\n" for row, label in enumerate(labels)))
    data = Data.model_validate({"path": path, "label": {"column": "y", "positive": positive}})
    table = read_table(data, id_form="text", needs_label=True, party="clinic")
    assert table.labels is not None
    assert (table.labels.tolist(), table.classes) == (expected, names)
    label = seen_in(data)
    assert (label.counts, label.classes) == ({0: expected.count(0), 1: expected.count(1)}, names)
