"""An ONNX file says what the half says, for every kind of column and network; a wrong number in it is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.export.needs import needs_onnx
from tests.export.worlds import evidence_of, hidden_half, mixed_table, regression_half, split_half, unseen
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import UsageError
from vfl_node.export.card import held
from vfl_node.export.checks import BOUND, check_file, compare, largest_difference, made_up_parts
from vfl_node.export.exporting import to_onnx
from vfl_node.export.loaded import LoadedHalf
from vfl_node.halves.half import OwnHalf

pytestmark = needs_onnx

NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "no top": {"top": []},
    "embeddings of 1": {"embedding_size": 1, "least_rows": 0},
    "wide": {"model": "wide_deep"},
    "batch norm, dropout": {"batch_norm": True, "dropout": 0.2},
    "layer norm": {"layer_norm": True},
    "three classes": {"classes": 3},
    "three classes, wide": {"classes": 3, "model": "wide_deep"},
    "regression": {"task": "regression"},
    "poisson": {"task": "poisson"},
    "cnn without an image": {"model": "cnn"},
    "youtube_dnn without lists": {"model": "youtube_dnn"},
}


def assert_equal(half: OwnHalf, table: Table, bound: float = BOUND) -> None:
    model = to_onnx(half)
    loaded = LoadedHalf(model, "it")
    for rows in (table, unseen(table)):
        difference, largest = compare(half, loaded, rows, most=100.0)
        assert difference <= bound
        assert largest > 0.1
    checked = check_file(half, model, table)
    assert checked.own_rows == len(table)
    assert checked.probes > 20


@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize("network", NETWORKS)
def test_split_halves(network: str, role: str) -> None:
    train = NETWORKS[network]
    target = {"regression": {"mean": 40.0, "deviation": 3.5}, "poisson": {"mean": 0.0, "deviation": 3.5}}.get(train.get("task"))
    scoring = {"target": target} if target else {}
    assert_equal(split_half(mixed_table(), role, train, **scoring), mixed_table())


def test_several_passive_parties_and_no_columns() -> None:
    half = split_half(mixed_table(), "active", {}, passive=("lab", "bank"))
    assert half.about.others == ("lab", "bank")
    assert_equal(half, mixed_table())
    empty = Table(mixed_table().ids, {})
    alone = split_half(empty, "active", {})
    parts = made_up_parts(alone, 50)
    few = empty.take(np.arange(50))
    loaded = LoadedHalf(to_onnx(alone), "it")
    assert largest_difference(alone.predicted(few, parts), loaded.predicted(None, parts)) <= BOUND
    assert check_file(alone, to_onnx(alone), None).probes == 50
    np.testing.assert_array_equal(loaded.score(None, {"lab": parts[0]}), loaded.predicted(None, parts))


@pytest.mark.parametrize(
    ("calibration", "train"),
    [
        ('{"name": "test", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": 0.3}', {}),
        ('{"name": "test", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": "model"}', {}),
        ('{"name": "train", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": 0.3}', {}),
        ('{"name": "test", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": 0.3}', {"task": "regression"}),
        ('{"name": "train", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": 0.3}', {"task": "regression"}),
    ],
)
def test_calibrations_of_made_up_rows(calibration: str, train: dict[str, Any]) -> None:
    scoring: dict[str, Any] = {"target": {"mean": 40.0, "deviation": 3.5}} if train else {}
    missing = {"missing": {"calibration": "test"}}
    half = split_half(mixed_table(), "active", {**train, **missing}, calibration=calibration, **scoring)
    assert_equal(half, mixed_table())


def test_a_vote_of_neighbours_is_refused() -> None:
    said = '{"name": "test", "composition": {"w11": 0.6, "w10": 0.2, "w01": 0.2}, "rate": "vote"}'
    half = split_half(mixed_table(), "active", {"missing": {"calibration": "test"}}, calibration=said)
    with pytest.raises(UsageError, match="neighbors") as refused:
        to_onnx(half)
    assert refused.value.code == "E_EXPORT"


@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize("scaling", ["standard", "auto", "quantile", "log"])
def test_logistic_halves(scaling: str, role: str) -> None:
    assert_equal(regression_half(mixed_table(), role, {}, scaling), mixed_table(), 1e-12)


@pytest.mark.parametrize("train", [{"classes": 3}, {"algorithm": "linear"}], ids=["three classes", "linear"])
def test_other_regressions(train: dict[str, Any]) -> None:
    table = mixed_table(transforms=False)
    for role in ("active", "passive"):
        assert_equal(regression_half(table, role, train), table, 1e-12)


@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize(
    "train",
    [{"epsilon": None}, {"epsilon": 1.0}, {"epsilon": None, "layers": [6]}, {"epsilon": None, "layers": [6, 4], "classes": 3}],
    ids=["unbounded", "bounded", "a layer", "two layers"],
)
def test_hidden_halves(train: dict[str, Any], role: str) -> None:
    assert_equal(hidden_half(mixed_table(), role, train), mixed_table())


@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize("train", [None, {"epsilon": None}, {"epsilon": 1.0}], ids=["logistic", "unbounded", "bounded"])
def test_halves_of_weights_of_evidence(train: dict[str, Any] | None, role: str) -> None:
    """Of numbers, categories and dates."""
    table = mixed_table()
    evidence = evidence_of(table)
    assert {"date", "numeric", "categorical"} == set(evidence.kinds.values())
    make: Any = regression_half if train is None else hidden_half
    half = make(table, role, train or {}, evidence=evidence)
    assert_equal(half, table)
    assert {"evidence", "quantiles", "levels"} <= set(held(half))
    assert "evidence" not in held(regression_half(table, role, {}))


@pytest.mark.parametrize("place", ["knot", "weight", "level"])
def test_one_wrong_number_is_found(place: str) -> None:
    half = split_half(mixed_table(), "passive", {})
    graph = half.graph()
    emitted = half.emit(graph, half.raw(graph))
    if place == "level":
        node = next(each for each in graph.operations if each.kind == "LabelEncoder")
        codes = node.attributes["values_int64s"]
        codes[1], codes[2] = codes[2], codes[1]
    else:
        constants = [
            value for value in graph.constants.values() if value.dtype == (np.float64 if place == "knot" else np.float32)
        ]
        wrong = max(constants, key=np.size)
        wrong.flat[wrong.size // 2] += 1e-3 * max(1, abs(wrong.flat[wrong.size // 2]))
    half.emit = lambda graph_, raw: emitted  # type: ignore[method-assign]
    half.graph = lambda: graph  # type: ignore[method-assign]
    half.raw = lambda graph_: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(UsageError, match="differ by") as refused:
        check_file(half, to_onnx(half), None)
    assert refused.value.code == "E_EXPORT"


@pytest.mark.parametrize(("large", "refused"), [(True, False), (False, True)])
def test_a_small_sum_of_large_numbers_may_lose_as_many_digits_as_a_large_one(large: bool, refused: bool) -> None:
    half, table = split_half(mixed_table(), "passive", {}), mixed_table()
    encoded = half.encoded(table)
    sizes = np.max([np.abs(each).max(axis=1) for each in encoded.values() if each.dtype.kind == "f"], axis=0)
    row = int(sizes.argmax() if large else sizes.argmin())
    assert sizes.min() < 2 < 5 < sizes.max()
    said = half.part(table)
    said[row] += 3e-6 * np.sign(said[row])
    file = SimpleNamespace(encoded=lambda _: encoded, part=lambda _: said)
    assert (compare(half, file, table)[0] > BOUND) == refused  # type: ignore[arg-type]


def test_a_column_may_be_called_as_an_output() -> None:
    table = mixed_table()
    columns = {"embedding": NumericColumn(np.linspace(0, 1, len(table))), "from_lab": table.columns["plain"]}
    renamed = Table(table.ids, {**columns, "value_1": table.columns["colour"], "constant_0": table.columns["whole"]})
    for role in ("active", "passive"):
        assert_equal(split_half(renamed, role, {}), renamed)


def test_encoded_columns_are_those_of_the_encoder() -> None:
    half = split_half(mixed_table(), "passive", {})
    expected, found = half.encoded(unseen(mixed_table())), LoadedHalf(to_onnx(half), "it").encoded(unseen(mixed_table()))
    assert expected["numeric"].shape == found["numeric"].shape == (600, 9)
    assert np.abs(expected["numeric"]).max() == float(1 << 24)
    np.testing.assert_allclose(found["numeric"], expected["numeric"], rtol=2e-7, atol=1e-9)
    np.testing.assert_array_equal(found["codes"], expected["codes"])
