"""The experiment with obfuscated sets of growing size: its data, equal curves, and that unequal ones would be noticed."""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.job import Job
from vfl_node.models import storage

ROOT = Path(__file__).parents[2]
WEAK, STRONG = 40, 160
XIS = ("0", "0.5", "1")
TINY = ("--xi", *XIS, "--iterations", "3", "--threads", "1")


def ran(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def experiment(data: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return ran("-m", "experiments.asymmetric_mnist.run", "--data", data, "--out", out, *options)


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or []), list(reader)


def idx(path: Path, values: np.ndarray, *head: int) -> None:
    path.write_bytes(gzip.compress(b"".join(number.to_bytes(4, "big") for number in head) + values.astype(np.uint8).tobytes()))


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten patterns and noise, in MNIST's files."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("idx")
    digits = random.integers(0, 10, 2 * STRONG)
    patterns = random.uniform(0, 255, (10, 28, 28)) * (random.uniform(size=(10, 28, 28)) < 0.3)
    images = np.clip(patterns[digits] + random.normal(0, 40, (len(digits), 28, 28)), 0, 255)
    idx(folder / "train-images-idx3-ubyte.gz", images, 2051, len(images), 28, 28)
    idx(folder / "train-labels-idx1-ubyte.gz", digits, 2049, len(digits))
    return folder


def made(source: Path, folder: Path) -> Path:
    rows = ("--rows", str(WEAK), str(STRONG), "--pool", "7")
    assert ran("experiments/asymmetric_mnist/make_data.py", source, folder, *rows).returncode == 0
    return folder


@pytest.fixture(scope="module")
def tables(synthetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(synthetic, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def finished(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("finished")
    done = experiment(tables, out, *TINY)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def results(out: Path) -> list[dict[str, Any]]:
    return [json.loads((out / f"xi-{xi}.json").read_text()) for xi in XIS]


def weights(out: Path, xi: str) -> np.ndarray:
    tensors = [storage.load(out / f"xi-{xi}" / path / "model.safetensors")[0] for path in (".", "strong")]
    return np.concatenate([of[name].numpy().ravel() for of in tensors for name in sorted(of)])


def check_curves(out: Path) -> None:
    found = results(out)
    assert [result["size"] for result in found] == [WEAK, 2 * WEAK, STRONG]  # 40^½ · 160^½ = 80
    assert all(result["genuine"] == WEAK for result in found)
    for result in found:
        assert len(result["losses"]) == len(result["aucs"]) == 3
        assert result["losses"][0] > result["losses"][1] > result["losses"][2]
        assert result["difference"] < 1e-6
        assert result["bytes"] > 512 * result["size"]  # a ciphertext of 4096 bits a row
        assert (result["detection"] is None) == (result["size"] == WEAK)  # no dummies, none to tell
        for of in ("losses", "aucs"):
            np.testing.assert_allclose(result[of], found[0][of], rtol=0, atol=1e-6)
        np.testing.assert_allclose(weights(out, f"{result['xi']:g}"), weights(out, "0"), rtol=0, atol=1e-6)


def test_halves_of_the_same_images(tables: Path) -> None:
    columns, weak = read(tables / "weak.csv")
    others, strong = read(tables / "strong.csv")
    assert (columns[0], columns[-1], others[0], len(columns), len(others)) == ("id", "label", "id", 10, 9)
    ours, theirs = {row["id"] for row in weak}, {row["id"] for row in strong}
    assert ours < theirs
    assert (len(weak), len(ours), len(strong), len(theirs)) == (WEAK, WEAK, STRONG, STRONG)
    assert {row["label"] for row in weak} == {"0", "1"}
    pixels = [int(row[name]) for row in strong for name in others[1:]]
    assert min(pixels) >= 0
    assert 20 < max(pixels) <= 255


def test_pixels_and_labels_are_the_images(synthetic: Path, tmp_path: Path) -> None:
    assert (
        ran("experiments/asymmetric_mnist/make_data.py", synthetic, tmp_path, "--rows", "9", "20", "--pool", "1").returncode
        == 0
    )
    images = np.frombuffer(gzip.decompress((synthetic / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8)[16:].reshape(
        -1, 784
    )
    digits = np.frombuffer(gzip.decompress((synthetic / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8)[8:]
    for name, half in (("strong", slice(392)), ("weak", slice(392, 784))):
        columns, rows = read(tmp_path / f"{name}.csv")
        for row in rows:
            number = int(row["id"])
            assert [int(row[column]) for column in columns if column.startswith("pixel")] == images[number, half].tolist()
            assert row.get("label", str(int(digits[number] >= 5))) == str(int(digits[number] >= 5))


def test_data_are_the_same_every_time(synthetic: Path, tables: Path, tmp_path: Path) -> None:
    again = made(synthetic, tmp_path)
    assert all((again / name).read_bytes() == (tables / name).read_bytes() for name in ("weak.csv", "strong.csv"))


def test_more_rows_than_images(synthetic: Path, tmp_path: Path) -> None:
    done = ran("experiments/asymmetric_mnist/make_data.py", synthetic, tmp_path, "--rows", "9", "9999")
    assert done.returncode != 0
    assert f"{2 * STRONG} images" in done.stderr


@pytest.mark.slow
def test_curves_of_all_sizes_coincide(finished: tuple[Path, str]) -> None:
    out, said = finished
    check_curves(out)
    assert said.startswith("largest difference between two ξ")
    assert "| 0.5 | 80 | 0.500 |" in said
    assert (out / "curves.svg").read_text(encoding="utf-8").count("<polyline") == 3 * (2 + 1)  # two panels and the key


@pytest.mark.slow
@pytest.mark.data
def test_curves_of_mnist_coincide(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "mnist").is_dir():
        pytest.skip("no mnist")
    done = experiment(made(shared_data / "mnist", tmp_path / "data"), tmp_path / "out", *TINY)
    assert done.returncode == 0, done.stderr
    check_curves(tmp_path / "out")


@pytest.mark.slow
def test_what_is_finished_is_kept(tables: Path, finished: tuple[Path, str], tmp_path: Path) -> None:
    out = shutil.copytree(finished[0], tmp_path / "out")
    (out / "xi-1.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("xi-*.json")}
    again = experiment(tables, out, *TINY)
    assert again.returncode == 0, again.stderr
    assert len(before) == 2
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    check_curves(out)
    assert experiment(tables, out, *TINY, "--learning-rate", "0.2").stderr.endswith("choose another --out\n")


@pytest.mark.slow
def test_one_changed_label_shows(tables: Path, finished: tuple[Path, str], tmp_path: Path) -> None:
    """The control: what a single record does to weights and losses is far above the tolerance that the others keep."""
    head, first, *rest = (tables / "weak.csv").read_text().splitlines()
    changed = first[:-1] + str(1 - int(first[-1]))
    (tmp_path / "weak.csv").write_text("\n".join([head, changed, *rest]) + "\n")
    (tmp_path / "strong.csv").write_bytes((tables / "strong.csv").read_bytes())
    done = experiment(tmp_path, tmp_path / "out", "--xi", "0.5", *TINY[len(XIS) + 1 :])
    assert done.returncode == 0, done.stderr
    out, _ = finished
    assert np.abs(weights(tmp_path / "out", "0.5") - weights(out, "0.5")).max() > 1e-4
    losses = [json.loads((folder / "xi-0.5.json").read_text())["losses"] for folder in (tmp_path / "out", out)]
    assert np.abs(np.subtract(*losses)).min() > 1e-4


@pytest.mark.slow
def test_a_run_on_other_records_is_not_taken_for_equal(
    tables: Path, finished: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the assertion itself: plaintext on all but one record lies beyond the tolerance."""
    monkeypatch.syspath_prepend(ROOT)
    comparison, halves, plaintext = (
        importlib.import_module(f"experiments.asymmetric_mnist.{name}") for name in ("comparison", "halves", "plaintext")
    )
    out, _ = finished
    folders = {"weak": out / "xi-1", "strong": out / "xi-1" / "strong"}
    job = Job.model_validate(json.loads((out / "xi-1" / "report.json").read_text())["job"]["spec"], context=LASTING_NAMES)
    found = comparison.gathered(job, folders, 0)
    tables_ = halves.tables_of(job, {name: tables / f"{name}.csv" for name in folders})
    equal, losses = plaintext.Plaintext.from_job(job, tables_, found.dropped).advance(3)
    assert comparison.check(found.model.distance(equal.model), "weights") < 1e-6
    np.testing.assert_allclose(losses, [iteration["loss"] for iteration in found.iterations], rtol=0, atol=1e-9)
    weak = tables_["weak"]
    columns = {name: NumericColumn(column.values[1:]) for name, column in weak.columns.items()}
    fewer = Table(Identifiers.from_items(weak.ids[1:]), columns, weak.labels[1:])
    other, _ = plaintext.Plaintext.from_job(job, tables_ | {"weak": fewer}, found.dropped).advance(3)
    with pytest.raises(SystemExit, match="weights differ by"):
        comparison.check(found.model.distance(other.model), "weights")
