"""The pages of hidden training: its job is valid, its settings are all there are, and its figures are those of the code."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from vfl_node.configuration.models import parse
from vfl_node.crypto.lattice.sizes import terms_answer_bytes, terms_bytes
from vfl_node.crypto.shares.paired.blocks import LARGEST_BLOCK, block_rows, fill
from vfl_node.crypto.shares.tallies import score_levels
from vfl_node.gdp import mu_of
from vfl_node.job import Evaluate, Job
from vfl_node.job.costs import Beside
from vfl_node.settings.policy import Policy
from vfl_node.training.hidden import costs
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.paired_costs import exchange
from vfl_node.training.hidden.terms import most_measured
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.shares.metric_noise import MetricNoise

ROOT = Path(__file__).parents[3]
PAGES = ("guides/train-hidden.md", "reference/hidden-training.md", "explanations/training/hidden.md")
PAGE = "\n".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8") for page in (*PAGES, "explanations/training/hidden-coordinator.md")
)
JOB, PAIRED, LOOK, SCORECARD, POLICY = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SHOWN = {"algorithm": "", "layers": "[]", "weight_decay": "0", "dealer_audit": "0"} | dict.fromkeys(
    ("shared_fraction", "target_range", "epochs", "batch_size", "learning_rate", "momentum"), "null"
)
"""Defaults that are shown otherwise than Python writes them."""
COMMAND = next(line for line in PAGE.splitlines() if line.startswith("vfl-node estimate"))


def table(head: str) -> list[list[str]]:
    """The rows of the table whose head begins with ``head``."""
    rows = PAGE[PAGE.index(f"| {head}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def trained(said: str) -> Hidden:
    """The section that a cell of code describes."""
    keys = ", ".join(["algorithm: hidden", *re.findall(r"`([^`]+)`", said)])
    text = JOB.replace("algorithm: hidden", keys).replace("[auc, nll]", "[rmse]" if "regression" in keys else "[auc]")
    job = parse(text, Job, source="docs/guides/train-hidden.md")
    assert isinstance(job.train, Hidden)
    return job.train


def test_the_jobs_of_a_scorecard_are_valid() -> None:
    """And the second one may use the alignment of the first."""
    look, scorecard = (parse(text, Job, source="docs/guides/train-hidden.md") for text in (LOOK, SCORECARD))
    assert look.train is not None
    assert (look.train.algorithm, look.align.protocol) == ("statistics", scorecard.align.protocol)
    assert isinstance(scorecard.train, Hidden)
    assert scorecard.train.reads_evidence
    assert look.parties == scorecard.parties


def test_its_job_is_valid() -> None:
    job = parse(JOB, Job, source="docs/guides/train-hidden.md")
    assert isinstance(job.train, Hidden)
    assert job.train.epsilon == 1
    assert parse(POLICY, Policy, source="policy").everyone.unbounded_models == ("networks", "taylor", "exact")


def test_its_job_without_a_coordinator_is_valid() -> None:
    job = parse(PAIRED, Job, source="docs/guides/train-hidden.md")
    assert isinstance(job.train, Hidden)
    assert not job.train.coordinated
    assert job.parties.coordinator is None


def test_the_settings_are_all_there_are() -> None:
    named: list[str] = []
    for key, default, _ in table("key |"):
        names = re.findall(r"`(\w+)`", key)
        said = re.split(r", (?![^\[]*\])", default) if default else [""]
        assert len(said) == len(names)
        for name, shown in zip(names, said, strict=True):
            assert shown.strip("`") == SHOWN.get(name) or shown.strip("`") == str(Hidden.model_fields[name].default)
        named += names
    assert sorted(named) == sorted(Hidden.model_fields)


@pytest.mark.parametrize("row", table("model, two parties of 23 columns"), ids=lambda row: row[0])
def test_rounds_and_bytes_of_a_step(row: list[str]) -> None:
    train = trained(row[0])
    form = Form((24, 23), train.layers, train.outputs, train.form_loss)
    of = costs.parts(form, train.bins, False, False, False, train.epsilon is not None)
    piece = max(of.piece.active, of.piece.passive)
    said = [int(cell.replace(",", "")) for cell in row[1:]]
    assert of.step_row.active == of.step_row.passive
    assert of.step.rounds == 1
    assert said == [of.piece.rounds, of.step_row.active, of.step_row.dealt, piece, of.measured_row.dealt]


@pytest.mark.parametrize("row", table("150,000 rows in the union"), ids=lambda row: row[0])
def test_what_the_command_says(row: list[str]) -> None:
    said = dict(re.findall(r"--(\w+) (\d+)", COMMAND))
    columns = tuple(int(of) for of in re.findall(r"--columns \w+=(\d+)", COMMAND))
    rows = int(said["active"]) + int(said["passive"]) - int(said["shared"])
    assert rows == 150_000
    assert shlex.split(COMMAND)[2] in " ".join(PAGE.split()).split("Save the job as")[1]
    beside = Beside(common=int(said["shared"]), columns=columns)
    cost = (
        trained(row[0].replace("`epochs: 40`, as by rule", ""))
        .make_plan(1, beside)
        .cost(Evaluate(test_fraction=0.2), rows, "psu")
    )
    assert cost is not None
    for cell, count in zip(row[1:3], (cost.bytes, cost.coordinator_bytes), strict=True):
        number, unit = cell.split()
        assert float(number) == pytest.approx(count / {"MiB": 2**20, "GiB": 2**30}[unit], abs=0.5 if unit == "MiB" else 0.05)
    assert int(row[3].replace(",", "")) == 2 * cost.steps
    assert float(row[4].removesuffix(" MiB")) == pytest.approx(cost.coordinator_memory / 2**20, abs=0.5)


@pytest.mark.parametrize("row", table("without a coordinator | setup"), ids=lambda row: row[0])
def test_what_two_parties_send(row: list[str]) -> None:
    keys = ["algorithm: hidden", "randomness: parties", *re.findall(r"`([^`]+)`", row[0])]
    job = parse(PAIRED.replace("algorithm: hidden, randomness: parties", ", ".join(keys)), Job, source="the page")
    assert isinstance(job.train, Hidden)
    beside = Beside(common=50_000, columns=(23, 23))
    cost = job.train.make_plan(1, beside).cost(Evaluate(test_fraction=0.2), 150_000, "psu")
    assert cost is not None
    assert re.findall(r"(?:setup|offline|online) ([\d,]+ MB)", cost.said[0]) == row[1:4]
    assert abs(int(row[4].replace(",", "")) - 2 * cost.steps) <= 1  # both send at the same time: halves, rounded up


def test_bytes_of_two_parties() -> None:
    """What the page on trust says of a pass over 100,000 records of 330 columns, and the reference of a row."""
    said = (ROOT / "docs" / "explanations" / "whom-must-i-trust.md").read_text(encoding="utf-8")
    size = block_rows(4096, 166)
    rows = fill(100_000, size)
    for loss in ("taylor", "exact"):
        counted = exchange(
            *(Form((166, 165), (), 1, loss), 0, False, False, False, (True, True)),
            trained=rows,
            batch=4096,
            steps=rows // 4096,
            epochs=1,
            tested=0,
        )
        each_pass = max(counted.offline.active + counted.online.active, counted.offline.passive + counted.online.passive)
        assert f"{each_pass / 1e6:.0f} MB ({loss})" in said
        assert f"{counted.setup.active / 1e6:.0f} MB each way once" in said
    active, passive = terms_bytes(18, 4096), terms_answer_bytes(4096)
    assert f"2K · 19 = {active / 4096:.0f} a row by the active party, {passive / 4096:.0f} by the other" in PAGE
    assert f"{LARGEST_BLOCK:,} rows" in PAGE
    train = Hidden.model_validate({"algorithm": "hidden"})
    assert f"**{most_measured(train):,} rows are measured on**" in PAGE


@pytest.mark.parametrize("row", table("`dealer_audit` | sent"), ids=lambda row: row[0])
def test_what_a_check_costs(row: list[str]) -> None:
    share, steps = float(row[0]), 40
    checks = round(share * steps)
    said = costs.exchange(
        *(Form((166, 165), (), 1, "exact"), 256, False, False, share > 0, True),
        rows=100_000,
        batch=100_000,
        steps=steps - checks,
        tested=0,
        checks=checks,
    )
    assert row[1] == f"{(said.active + said.passive) / 1e6:.1f} MB"
    assert row[2] == f"{said.dealt / 1e6:.1f} MB"
    assert row[3] == f"{said.rounds:,}"


@pytest.mark.parametrize("row", table("half of a 95 % interval")[:-1], ids=lambda row: row[0])
def test_how_wide_intervals_of_an_area_are_by_noise(row: list[str]) -> None:
    epsilon, protocol = re.findall(r"ε (\d), `(\w+)`", row[0])[0]
    noise = MetricNoise(mu_of(float(epsilon)), worlds=2 if protocol == "psu" else 1)
    for records, cell in zip((500, 2_000, 20_000, 200_000), row[1:], strict=True):
        counts = [round(0.22 * records), records - round(0.22 * records)]
        pairs = noise.order(noise.reach(counts)) / (2 * counts[0] * counts[1])
        labels = 0.25 * math.hypot(*(noise.counts / count for count in counts))
        assert float(cell) == pytest.approx(1.96 * math.hypot(pairs, labels), rel=0.05, abs=5e-5)


def test_odds_of_steps_that_are_spoilt() -> None:
    for steps, odds in re.findall(r"(\d+) steps? with (\.\d+)", PAGE):
        assert round(0.95 ** int(steps), 2) == float(odds)
    assert re.findall(r"(\d+) steps? with (\.\d+)", PAGE)


def test_bytes_of_the_regression_under_encryption() -> None:
    cost = Logistic(algorithm="logistic", iterations=1).make_plan().cost(Evaluate(test_fraction=0), 10_000, "apsi")
    assert cost is not None
    assert f"It sends {round((cost.bytes - 8 * 10_000) / 10_000)} bytes a row" in PAGE  # without the scores measured on


def counted_at(z: np.ndarray, bins: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers for which the bins stand that scores count in: of each level, that of a score or the next one, by a coin."""
    at, left = np.empty_like(z), np.ones(len(z), np.bool_)
    for level in score_levels(bins):
        place = np.floor(z / level.width + rng.random(len(z))) + level.bins / 2 - 1
        index = place.astype(int) % level.bins
        here = left & level.outer[index]
        at[here] = level.kept[np.cumsum(level.outer)[index[here]] - 1]
        left &= ~here
    return at


def test_how_far_the_histogram_is_off() -> None:
    def error(deviation: float, bins: int, size: float = 1.0) -> float:
        rng, found = np.random.default_rng(0), []
        for _ in range(20):
            z = rng.normal(0, deviation, 20_000)
            y = rng.random(len(z)) < 1 / (1 + np.exp(-z))
            found.append(roc_auc_score(y, counted_at(z * size, bins, rng)) - roc_auc_score(y, z))
        return float(-np.mean(found))

    for deviation, coarse, fine in ((1.0, 0.0005, 0.0001), (0.3, 0.002, 0.0001), (0.1, 0.0045, 0.0004)):
        assert error(deviation, 256) == pytest.approx(coarse, abs=0.0004)
        assert error(deviation, 1024) == pytest.approx(fine, abs=0.0001)
        assert f"{coarse}".lstrip("0").rstrip("0") in PAGE
    assert all(error(1.0, 256, size) < 0.0015 for size in (10.0, 30.0, 100.0, 1000.0, 20_000.0))
