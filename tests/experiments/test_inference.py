"""What embeddings tell without a defence: the harness with its controls, what the page says, and small runs of the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.inference import figure_2, paper, table_2, table_5
from experiments.inference.attacker import (
    ADAPTIVE,
    ATTACKS,
    JOINED,
    PASS,
    STATIC,
    Poison,
    attack,
    imputations,
    own_columns,
    summary,
)
from experiments.inference.data import ACTIVE, SPLITS, Split, made_up, made_up_three
from experiments.inference.experiment import Plan, Work
from experiments.inference.run import EXPERIMENTS, pages, results
from experiments.inference.training import SMALL as SMALL_TRAIN
from experiments.inference.training import Heard, train
from vfl_node import run
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn
from vfl_node.privacy.features.attacks import rebuild
from vfl_node.privacy.features.measures import measure

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "inference.json"
NOWHERE = Path("/nowhere")
SMALL = Plan(seeds=1, small=True)
OURS = {"table-2": table_2, "figure-2": figure_2, "table-5": table_5}
RANDOM = Randomness(bytes(32))


@cache
def heard() -> Heard:
    return train("made_up", made_up(NOWHERE, 0), 0)


def shuffled(of: Heard) -> Heard:
    """The same, but the embeddings of each batch belong to other rows of it."""
    received = {
        party: [replace(batch, rows=batch.rows.roll(1, 0)) for batch in batches] for party, batches in of.received.items()
    }
    return replace(of, received=received)


def found(of: Heard, attacks: Sequence[str] = ATTACKS) -> dict[str, Any]:
    return attack(of, "victim", 0.1, RANDOM.derive("attacker"), attacks=attacks, epochs=(6,))


def test_embeddings_tell_far_more_than_the_attackers_own_columns() -> None:
    every = found(heard())
    assert every["constant"]["success"] < 0.3
    assert every["imputation"]["success"] < 0.4
    for name in ATTACKS:
        assert every[name]["success"] > every["imputation"]["success"] + (0.1 if name == ADAPTIVE else 0.25), name
    assert every["worst"]["success"] >= max(every[name]["success"] for name in ATTACKS) - 0.1


def test_embeddings_of_other_rows_tell_nothing() -> None:
    """The control: what an attack finds it finds in the embedding of the very row."""
    every = found(shuffled(heard()), (STATIC, ADAPTIVE))
    for name in (STATIC, ADAPTIVE):
        assert every[name]["success"] < every["constant"]["success"] + 0.05


def test_what_is_joined_is_no_worse_than_either_part() -> None:
    of = found(shuffled(heard()), (STATIC, JOINED))
    assert of[JOINED]["success"] > of["imputation"]["success"] - 0.05
    assert of[JOINED]["success"] < of["imputation"]["success"] + 0.05


def test_imputation_is_what_the_own_columns_say() -> None:
    """Of a category that the attacker has itself it is sure; of columns that it has not, near to a constant."""
    split = made_up(NOWHERE, 0)
    victim = split.tables["victim"]
    copied = replace(split.tables[ACTIVE], columns={"mine": victim.columns["kind"]})
    unrelated = replace(copied, columns={"mine": victim.columns["x4"]}, labels=np.zeros(len(split), np.float32))

    def best(active: Any) -> float:
        of = replace(heard(), split=replace(split, tables={ACTIVE: active, "victim": victim}))
        poison = Poison.draw(of, "victim", 0.1, RANDOM)
        own = own_columns(of.split)[torch.from_numpy(of.training)]
        return max(poison.judge(outputs)[1]["success"] for outputs in imputations(poison, own).values())

    assert best(copied) > 0.95
    assert best(unrelated) < 0.3


def test_no_row_that_equals_a_known_one_is_attacked() -> None:
    split = made_up(NOWHERE, 0)
    twice = np.arange(len(split)) // 2
    columns = {name: _taken(column, twice) for name, column in split.tables["victim"].columns.items()}
    tables = {**split.tables, "victim": replace(split.tables["victim"], columns=columns)}
    of = replace(heard(), split=replace(split, tables=tables))
    poison = Poison.draw(of, "victim", 0.2, RANDOM)
    known, others = (set(twice[of.training[places]].tolist()) for places in (poison.known, poison.others))
    assert not known & others
    assert len(poison.others) < len(of.training) - len(poison.known)
    assert len(Poison.draw(heard(), "victim", 0.2, RANDOM).others) == len(of.training) - len(poison.known)


def _taken(column: Any, rows: Any) -> Any:
    return replace(column, **{"codes" if isinstance(column, CategoricalColumn) else "values": _values(column)[rows]})


def _values(column: Any) -> Any:
    return column.codes if isinstance(column, CategoricalColumn) else column.values


def test_one_half_chooses_and_the_other_is_reported() -> None:
    poison = Poison.draw(heard(), "victim", 0.1, RANDOM)
    truth = torch.nn.functional.one_hot(poison.targets.columns[0].truth[poison.others_at], 6).float()
    outputs = torch.where(torch.from_numpy(poison.halves)[:, None], truth, -truth)
    choosing, reported = poison.judge(outputs)
    assert (choosing["success"], reported["success"]) == (1, 0)
    assert abs(int(poison.halves.sum()) * 2 - len(poison.others)) <= 1
    constant = summary(measure(poison.targets, outputs, poison.others_at), constant=True)
    assert constant["success"] == pytest.approx(1 - constant["error"])


def test_what_was_heard_belongs_to_the_rows() -> None:
    """The last epoch's embeddings are near to those by the trained weights, row by row, and those of other rows are not."""
    last, final = heard().epoch("victim", 5), heard().final("victim")
    assert last.shape == final.shape == (len(heard().training), 12)
    near = (last - final).norm(dim=1)
    assert near.median() < 0.5 * (last.roll(1, 0) - final).norm(dim=1).median()


def test_trials_of_a_seed_are_paired() -> None:
    again, other = train("made_up", made_up(NOWHERE, 0), 0), train("made_up", made_up(NOWHERE, 0), 1)
    assert again.losses == heard().losses != other.losses
    assert torch.equal(again.final("victim"), heard().final("victim"))
    assert not np.array_equal(other.training, heard().training)


@pytest.mark.slow
def test_the_harness_hears_what_a_run_of_the_product_records(tmp_path: Path) -> None:
    """The same attack on the transcript of ``run`` with aligned files succeeds as well."""
    split = made_up(NOWHERE, 0)
    files = {party: _write(split, party, tmp_path / f"{party}.csv") for party in split.tables}
    job = {
        "parties": {"active": ACTIVE, "passive": "victim"},
        "align": {"protocol": "psi"},
        "train": {**SMALL_TRAIN, "batch_size": 64},
    }
    received = tmp_path / "received"
    run(job, files[ACTIVE], {"victim": files["victim"]}, seed=1, transcript=received, progress=False)
    with np.load(received / f"{ACTIVE}.npz") as transcript:
        last = transcript["step"] >= transcript["step"].max() - 11  # of 12 batches an epoch
        rows, embeddings = transcript["rows"][last], torch.from_numpy(transcript["embeddings"][last])
    assert len(np.unique(rows)) == len(rows) == len(heard().training)
    poison = Poison.draw(replace(heard(), training=rows), "victim", 0.1, RANDOM)
    imputed = found(heard(), (STATIC,))["imputation"]["success"]
    mixed = embeddings[torch.from_numpy(RANDOM.derive("mixed").permutation(len(embeddings)))]
    of_its_row, of_another = (
        poison.judge(rebuild(*poison.parts(of), poison.targets, RANDOM))[1]["success"] for of in (embeddings, mixed)
    )
    assert of_another < imputed < of_its_row - 0.15  # .60 to .87 with other first weights


def _write(split: Split, party: str, file: Path) -> Path:
    table = split.tables[party]
    columns = {
        name: [of.levels[code] for code in of.codes] if isinstance(of, CategoricalColumn) else of.values.tolist()
        for name, of in table.columns.items()
    }
    if table.labels is not None:
        columns["label"] = table.labels.astype(int).tolist()
    lines = [",".join(["id", *columns])]
    lines += [",".join([f"r{row}", *map(str, cells)]) for row, cells in enumerate(zip(*columns.values(), strict=True))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@cache
def outcome(work: str) -> Any:
    works = {one.name: one for module in OURS.values() for one in module.works(SMALL)}
    return works[work].run(NOWHERE)


def small(works: Sequence[Work]) -> dict[str, Any]:
    return {work.name: outcome(work.name) for work in works}


@pytest.mark.slow
def test_a_small_table_2() -> None:
    of = small(table_2.works(SMALL))
    gains = [one for one in table_2.check(SMALL, of) if "imputation" in one.what]
    assert len(gains) == len(table_2.BATCHES[True])
    assert all(one.holds for one in gains)
    lines = table_2.page(SMALL, of)
    assert sum(line.startswith(f"| {PASS} |") for line in lines) == 5
    for values in paper.TABLE_2["Adult, error"].values():
        assert any(all(f"{value:.4f}" in line for value in values) for line in lines)


@pytest.mark.slow
def test_a_small_figure_2() -> None:
    of = small(figure_2.works(SMALL))
    rises = [one for one in figure_2.check(SMALL, of) if STATIC in one.what and "size of" not in one.what]
    assert len(rises) == 2
    assert all(one.holds for one in rises)
    (svg,) = figure_2.drawings(SMALL, of).values()
    assert svg.count("<polyline") >= 2 * 2 * 4
    assert figure_2.page(SMALL, of)


@pytest.mark.slow
def test_a_small_table_5() -> None:
    of = small(table_5.works(SMALL))
    assert len(table_5.check(SMALL, of)) == 2 * len(table_5.FORMS)
    assert len({tuple(sorted(outcome["victims"])) for outcome in of.values()}) == 3
    assert table_5.page(SMALL, of)


def test_every_victim_of_three_parties_is_the_one_of_two() -> None:
    three = made_up_three(NOWHERE, 0)
    for name, victim in (("made_up_one", "victim"), ("made_up_other", "other")):
        two = SPLITS[name](NOWHERE, 0)
        assert two.passive == (victim,)
        assert two.attacked == three.attacked_of(victim) == tuple(three.tables[victim].columns)
        assert np.array_equal(two.features(ACTIVE), three.features(ACTIVE))


def test_the_page_shows_what_was_measured() -> None:
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert not stored["small"]
    assert stored["experiments"].keys() == EXPERIMENTS.keys()
    plan = Plan(stored["seeds"])
    written = pages(plan, stored["experiments"])
    for name, text in written.items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == text
    assert written.keys() == {path.name for path in RESULTS.parent.glob("inference*.md")}
    for name, experiment in EXPERIMENTS.items():
        of, _ = results(stored["experiments"][name])
        assert of.keys() == {work.name for work in experiment.works(plan)}
        for drawing, svg in experiment.drawings(plan, of).items():
            assert RESULTS.with_name(drawing).read_text(encoding="utf-8") == svg


def test_attacks_beat_imputation_and_rise_with_the_known_rows() -> None:
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    plan, kept = Plan(stored["seeds"]), stored["experiments"]
    gains = [one for one in table_2.check(plan, results(kept["table-2"])[0]) if "imputation" in one.what]
    rises = [one for one in figure_2.check(plan, results(kept["figure-2"])[0]) if "size of" not in one.what]
    assert (len(gains), len(rises)) == (3, 4)
    assert all(one.holds for one in (*gains, *rises))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sizes", "attacked", "classes"),
    [
        ("adult", (8000, 7, 7), 1, 2),
        ("default_credit", (8000, 13, 10), 1, 2),
        ("location30", (5010, 223, 223), 223, 30),
        ("location30-three", (5010, 148, 149, 149), 298, 30),
    ],
)
def test_real_tables(shared_data: Path, name: str, sizes: tuple[int, ...], attacked: int, classes: int) -> None:
    split = SPLITS[name](shared_data, 0)
    assert (len(split), *(len(table.columns) for table in split.tables.values())) == sizes
    assert (len(split.attacked), split.classes) == (attacked, classes)


@pytest.mark.data
@pytest.mark.slow
def test_occupation_is_rebuilt_from_embeddings(shared_data: Path) -> None:
    """Table 2 for one seed, B = 128: imputation is right for a fifth of the rows, the attack for three quarters."""
    of = train("adult", SPLITS["adult"](shared_data, 0), 0)
    every = attack(of, "victim", 0.05, RANDOM, epochs=(20,), attacks=(STATIC, PASS))
    assert every["imputation"]["success"] == pytest.approx(0.2, abs=0.05)
    assert every[STATIC]["success"] > every["imputation"]["success"] + table_2.GAIN
