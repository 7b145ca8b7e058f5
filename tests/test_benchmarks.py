"""The benchmarks run, and what they write has the shape and the ranges it should have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hidden, nodes
from vfl_node.crypto.kernels import names

ROOT = Path(__file__).parents[1]
TINY = ("--ids", "200", "--start-up", "100", "--repeats", "1")
WAN = os.environ.get("VFL_BENCH_WAN", "")  # a tool as benchmarks.nodes.wan needs one
LINK = os.environ.get("VFL_BENCH_LINK", "")  # a program as benchmarks.nodes.slow_triangle needs one


def ran(*arguments: str | Path) -> str:
    command: list[str | Path] = [sys.executable, *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.slow
def test_a_split_step_is_measured_beside_the_joint_model(tmp_path: Path) -> None:
    out = tmp_path / "split.json"
    text = ran("-m", "benchmarks.split", "--rounds", "1", "--batch", "256", "--cut", "16", "--out", out)
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["batch"], row["cut"]) == (256, 16)
    assert row["ratio"] == pytest.approx(row["split_ms"] / row["joint_ms"])
    assert all(row[name] > 0 for name in row)
    assert "| split step / joint, batch 256, cut 16 |" in text


@pytest.mark.slow
def test_the_thread_of_the_job_is_measured_beside_all() -> None:
    text = ran("-m", "benchmarks.main_thread", "--ids", "2000")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("| ps")]
    assert [row[0] for row in rows] == ["psi", "psu"]
    for _, everywhere, _, here, _ in rows:
        assert 0 < float(here) < float(everywhere)


@pytest.mark.slow
def test_what_viewers_cost_a_job_is_measured_in_pairs(tmp_path: Path) -> None:
    out = tmp_path / "board.json"
    text = ran("-m", "benchmarks.board", "--viewers", "2", "--pairs", "2", "--window", "1", "--out", out)
    (row,) = json.loads(out.read_text())["rows"]
    assert "| processor time of the node |" in text
    assert row["viewers"] == 2
    assert row["cpu_least"] <= row["cpu_ratio"] <= row["cpu_most"]
    assert all(value > 0 for value in row.values())


@pytest.fixture(scope="module")
def leakage(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("leakage") / "leakage.json"
    return ran("-m", "benchmarks.leakage", "--epochs", "2", "--jobs", "1", "--out", out), json.loads(out.read_text())


def results(leakage: tuple[str, dict[str, Any]], attack: str) -> list[dict[str, list[float | None]]]:
    return [row["results"] for row in leakage[1]["tables"][0]["rows"] if row["attack"] == attack]


@pytest.mark.slow
def test_leakage_writes_a_table_and_json_of_the_same_rows(leakage: tuple[str, dict[str, Any]]) -> None:
    text, made = leakage
    (table,) = made["tables"]
    assert table["sizes"] == {"active": 512, "passive": 512, "union": 564, "shared": 460}
    assert {row["attacker"] for row in table["rows"]} == {"active", "passive"}
    for row in table["rows"]:
        assert f"| {row['attacker']} | {row['after']} | {row['attack']} |" in text
        assert list(row["results"]) == ["1 ep.", "2 ep.", "whole job"]
        for stage, (result,) in row["results"].items():
            if row["attack"] == "longitudinal" and stage == "1 ep.":
                assert result is None  # it compares epochs
            else:
                assert 0 <= result <= 1


@pytest.mark.slow
def test_a_gradient_gives_the_label_away_and_with_it_who_is_known(leakage: tuple[str, dict[str, Any]]) -> None:
    (found,) = results(leakage, "gradient direction")
    assert all(value > 0.9 for (value,) in found.values())
    (given_away,), (right,) = results(leakage, "share given away by the label"), results(leakage, "share the peer holds")
    assert all(0.3 < value < 0.45 for (value,) in given_away.values())  # the clinic's rate of positives is .365
    assert all(value > 0.95 for (value,) in right.values())


@pytest.mark.slow
def test_fixed_draws_stay_hidden_from_one_attack_and_not_from_another(leakage: tuple[str, dict[str, Any]]) -> None:
    active, *_ = results(leakage, "longitudinal")
    assert active["whole job"][0] == pytest.approx(0.5, abs=0.1)
    twin, *_ = results(leakage, "same_step_twin")
    assert twin["1 ep."][0] < twin["2 ep."][0] < twin["whole job"][0]
    assert twin["whole job"][0] > 0.9
    lacked, held = results(leakage, "share with an exact twin")
    assert lacked["whole job"][0] > 0.9
    assert held["whole job"][0] < 0.2


@pytest.mark.slow
def test_inversion_needs_public_weights_and_a_cut_wider_than_the_columns(leakage: tuple[str, dict[str, Any]]) -> None:
    recovered = {(tuple(row["bottom"]), row["weights"]): row["recovered"] for row in leakage[1]["inversion"]}
    assert recovered.pop(((128, 128), "public")) > 0.95
    assert recovered == {((128, 128), "private"): 0, ((16,), "public"): 0, ((16,), "private"): 0}


@pytest.fixture
def align(tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    """``align(arguments …)``: the text and the JSON."""

    def run(*arguments: str) -> tuple[str, dict[str, Any]]:
        out = tmp_path / "new" / "align.json"
        text = ran("-m", "benchmarks.align", *arguments, "--out", out)
        for table in text.split("\n\n"):
            assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) < 2
        return text, json.loads(out.read_text())

    return run


@pytest.mark.slow
def test_align_in_memory(align: Callable[..., tuple[str, dict[str, Any]]]) -> None:
    kernels = list(dict.fromkeys((names()[0], names()[-1])))
    text, made = align(*TINY, "--kernels", *kernels)
    rows = {(row["system"].partition(" ")[0], row["kernel"], row["protocol"]): row for row in made["rows"]}
    elements = {"psu": (900, 1100), "psi": (400, 400), "apsi": (480, 540)}  # by the active and by the passive party
    for kernel, (protocol, sent) in product(kernels, elements.items()):
        row = rows.pop(("vfl-node", kernel, protocol))
        assert f"| memory | vfl-node | {kernel} | {protocol} | curve25519 | 200 |" in text
        assert row["ladder_us"] > 0
        assert (row["start_up"]["ids"], row["run"]["ids"]) == (100, 200)
        assert row["run"]["operations"] == 2 * row["start_up"]["operations"]
        assert row["run"]["cpu_s"]["both"] > 0
        assert row["run"]["peak_bytes"]["both"] > 2**20
        for role, count in zip(("active", "passive"), sent, strict=True):
            assert 32 * count < row["run"]["sent_bytes"][role] < 32 * count + 4000
    for other, goal in (("openmined-psi", "openmined-psi, 200 ids, libsodium"), ("spu", "spu ECDH, 200 ids, ifma")):
        row = rows.pop((other, "", "psi"), None)
        assert row or f"| {other} |  | not installed" in text
        assert not row or row["run"]["operations"] is None
        assert (f"CPU of psi / {goal}" in text) == (row is not None and goal.rpartition(" ")[2] in names())
    assert not rows
    assert all(f"CPU of psu / psi, 200 ids, {kernel}" in text for kernel in kernels)
    assert [group["kernel"] for group in made["groups"]] == kernels
    assert all(group["hash_us"] > 0 for group in made["groups"])


@pytest.mark.slow
def test_align_between_nodes(align: Callable[..., tuple[str, dict[str, Any]]]) -> None:
    text, made = align(*TINY, *(["--wan", WAN] if WAN else ["--processes"]))
    assert WAN not in made["command"] or not WAN
    wheres = ["loopback", "20 ms, 100 Mbit/s"] if WAN else ["loopback"]
    assert [row["where"] for row in made["rows"]] == wheres
    assert ("alignment / max(loopback, transfer)" in text) == bool(WAN)
    for row in made["rows"]:
        run = row["run"]
        assert run["wall_s"] > run["align_s"] > 0
        for role, elements in (("active", 900), ("passive", 1100)):
            assert run["cpu_s"][role] >= run["align_cpu_s"][role] >= 0
            assert run["peak_bytes"][role] > 2**20
            assert 32 * elements < run["sent_bytes"][role] < 32 * elements + 4000


@pytest.mark.slow
def test_align_in_stages(align: Callable[..., tuple[str, dict[str, Any]]]) -> None:
    text, made = align("--stages", "500")
    stages = {stage["stage"]: stage["elements"] for stage in made["stages"]["stages"]}
    assert stages["hash to the group and spill"] == 500
    assert stages["order the union"] == 750
    assert all(f" | {name} | " in text for name in stages)
    assert "peak of all stages, 500 ids, GiB" in text


@pytest.mark.slow
def test_audit(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    text = ran("-m", "benchmarks.audit", "--rows", "1000", "--steps", "6", "--rounds", "1", "--out", out)
    assert [line.split(" of ")[0] for line in text.splitlines()] == ["median", "mean"]
    (found,) = json.loads(out.read_text())["rounds"]
    assert set(found) == {f"{name} {of}" for name in ("audited", "plain") for of in ("median", "mean")}
    assert all(seconds > 0 for seconds in found.values())


@pytest.mark.slow  # tests/node/test_predictions.py predicts by two nodes
def test_predictions() -> None:
    text = ran("-m", "benchmarks.predictions", "--records", "80", "--requests", "3", "--batch-size", "8")
    for role in ("active", "passive"):
        for records, requests in ((1, 3), (80, 2)):
            (row,) = [line for line in text.splitlines() if line.startswith(f"| loopback | {role} | {records} | {requests} |")]
            latencies = [float(cell) for cell in row.strip("| ").split(" | ")[4:]]
            assert latencies == sorted(latencies)
            assert latencies[0] > 0
            counted = text.partition(f"to {role}, {records} of 80 records:\n")[2].partition("\n\n")[0]
            assert sum(int(line.split()[-1]) for line in counted.splitlines()) == requests


@pytest.mark.slow
def test_serving() -> None:
    text = ran("-m", "benchmarks.serving", "--records", "80", "--requests", "3", "--batch-size", "8", "--clients", "2")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| active", "| passive"))]
    kinds = ["one record, first touch", "one record, again", "80 records", "one record, 2 clients at once"]
    assert [row[:2] for row in rows] == [[role, kind] for role in ("active", "passive") for kind in kinds]
    for _, kind, requests, median, *_ in rows:
        assert int(requests) == {kinds[2]: 2, kinds[3]: 6}.get(kind, 3)
        assert float(median.removesuffix("/s")) > 0


def row_of(protocol: str, ids: int, seconds: float, *, where: str = "memory", system: str = "vfl-node") -> dict[str, Any]:
    """A row that took ``seconds`` of everything and as many bytes, and a tenth to start up."""

    def run(share: float) -> dict[str, Any]:
        by = dict.fromkeys(("both",) if where == "memory" else ("active", "passive"), share * seconds)
        walls = {"wall_s": share * seconds, "align_s": share * seconds}
        sent = dict.fromkeys(("active", "passive"), round(1e6 * seconds))
        operations = None if system != "vfl-node" else round(share * 10_000)
        peak = dict.fromkeys(by, 2**30)
        return {
            "ids": ids,
            **walls,
            "cpu_s": by,
            "align_cpu_s": by,
            "peak_bytes": peak,
            "sent_bytes": sent,
            "operations": operations,
        }

    rate = None if where in ("memory", "loopback") else 100
    group = "curve25519" if system == "vfl-node" else "P-256"
    head = {
        "system": system,
        "where": where,
        "mbit_s": rate,
        "kernel": "ifma" if system == "vfl-node" else "",
        "protocol": protocol,
    }
    return {**head, "group": group, "ladder_us": 100.0, "run": run(1.0), "start_up": run(0.1)}


def printed(tmp_path: Path, *rows: dict[str, Any]) -> str:
    machine = {"cpu": "a", "cores": 2, "memory_gib": 8, "python": "3", "numpy": "2", "vfl_node": "0"}
    path = tmp_path / "made.json"
    path.write_text(json.dumps({"command": "made", "machine": machine, "rows": rows}))
    return ran("-m", "benchmarks.tables", path)


def test_tables_take_medians_without_start_up_and_say_what_is_missed(tmp_path: Path) -> None:
    other = row_of("psi", 1000, 20, system="openmined-psi 2")
    text = printed(tmp_path, *(row_of("psi", 1000, seconds) for seconds in (9, 10, 99)), row_of("psu", 1000, 40), other)
    # 9 s without start-up are 90,000 ladders of 100 µs, for 9,000 operations
    assert "| memory | vfl-node | ifma | psi | curve25519 | 1,000 | 9 | 9 | 9 | 9 | 90 | 10 | 10 | 10 | 1,024 | 1 | 1 |" in text
    assert "| CPU of psi / openmined-psi, 1,000 ids, ifma | 0.50 | 0.55 | met |" in text
    assert "| CPU of psu / psi, 1,000 ids, ifma | 4.00 | 3.3 | missed |" in text
    assert "apsi /" not in text
    assert "| openmined-psi |  | not installed" not in text
    assert "| spu |  | not installed" in text
    assert "| openmined-psi |  | not installed" in printed(tmp_path, row_of("psi", 1000, 10))


def test_tables_hold_the_kernel_for_ifma_to_that_of_spu(tmp_path: Path) -> None:
    spu = row_of("psi", 1000, 5, where="two processes", system="spu 1 ECDH") | {"group": "curve25519"}
    other = row_of("psi", 1000, 1, where="two processes", system="spu 1 RR22") | {"group": "oblivious transfer"}
    text = printed(tmp_path, row_of("psi", 1000, 12), row_of("psi", 1000, 30) | {"kernel": "libsodium"}, spu, other)
    assert text.count("| CPU of psi / spu") == 1
    assert "| CPU of psi / spu ECDH, 1,000 ids, ifma | 1.20 | 1.1 | missed |" in text


def test_tables_compare_nodes_and_estimate_ten_million(tmp_path: Path) -> None:
    near = [row_of("psu", ids, seconds, where="loopback") for ids, seconds in ((100_000, 20), (1_000_000, 240))]
    text = printed(tmp_path, *near, row_of("psu", 100_000, 25, where="slow"))
    assert "| psu of 1,000,000 ids, loopback: alignment, times that of a tenth | 12.00 | 11 | missed |" in text
    assert "| psu of 1,000,000 ids, loopback: minutes, tables read and start-up included | 4.00 | 2.5 | missed |" in text
    assert "| psu of 1,000,000 ids, loopback: MB, the busier way | 240.00 | 200 | missed |" in text
    assert "| psu of 100,000 ids, slow: alignment / max(loopback, transfer) | 1.25 | 1.15 | missed |" in text
    assert "psu of 10,000,000 ids a party" in text
    assert "alignment 37 min" in text  # 216 s and 9 times the 220 s · 0.9 of 900,000 ids


@pytest.mark.slow
def test_readers_of_every_format_read_the_same_rows(tmp_path: Path) -> None:
    out = tmp_path / "readers.json"
    text = ran("-m", "benchmarks.readers", "--rows", "2000", "--base-rows", "1000", "--out", out)
    results = json.loads(out.read_text())
    assert {name: result["rows"] for name, result in results.items()} == dict.fromkeys(results, 2000) | {"row by row": 1000}
    assert len(results) == 11 == len(text.splitlines()) - 2
    assert all(result["cpu_s"] > 0 and result["peak_bytes"] > 0 for result in results.values())


@pytest.mark.slow
def test_label_defences_compares_defended_steps_and_the_meter(tmp_path: Path) -> None:
    out = tmp_path / "labels.json"
    text = ran("-m", "benchmarks.label_defences", "--steps", "4", "--rows", "64", "--batch", "32", "--out", out)
    names = ["dp", "marvell", "mixpro", "maxnorm", "isotropic"]
    assert text.startswith(f"| cut | {' | '.join(names)} |")
    rows = json.loads(out.read_text())["rows"]
    assert [(row["width"], row["what"]) for row in rows] == [(width, name) for width in (32, 128) for name in names]
    assert all(row["ratio"] > 0 for row in rows)


@pytest.mark.slow
def test_embeddings_compares_the_same_case_dense_and_sparse(tmp_path: Path) -> None:
    out = tmp_path / "embeddings.json"
    case = ("--levels", "3000", "--width", "2", "--batch", "64", "--steps", "3")
    text = ran("-m", "benchmarks.embeddings", *case, "--json", out)
    (line,) = [line for line in text.splitlines() if line.startswith("| adam | 3,000 | 2 | 64 | ")]
    dense, sparse = json.loads(out.read_text())["rows"]
    assert (dense.pop("sparse"), sparse.pop("sparse")) == (False, True)
    assert {key: of for key, of in dense.items() if key in ("levels", "width", "batch", "optimizer")} == {
        "levels": 3000,
        "width": 2,
        "batch": 64,
        "optimizer": "adam",
    }
    assert min(dense["step_ms"], sparse["step_ms"], sparse["initial_s"]) > 0
    assert f"{sparse['step_ms']:.1f} ms" in line


@pytest.mark.slow
def test_rows_outside_take_about_what_the_estimate_says(tmp_path: Path) -> None:
    out = tmp_path / "estimate.json"
    methods = ("heuristic", "fedcvt", "mpd", "fedhssl")
    sizes = ("--rows", "400", "--aligned", "200", "--epochs", "2")
    text = ran("-m", "benchmarks.estimate", *sizes, "--method", *methods, "--out", out)
    found = json.loads(out.read_text())["found"]
    assert [(row["network"], row["method"]) for row in found] == [
        (network, method) for network in ("small", "FedAds") for method in methods
    ]
    assert all(row["estimated_s"] > 0 and row["measured_s"] > 0 for row in found)
    assert len(text.splitlines()) == 2 + len(found)


@pytest.mark.slow  # half a minute, of a benchmark alone
def test_memory_of_clicks_without_an_alignment(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    sizes, methods = ("--rows", "3000", "--aligned", "1500", "--epochs", "1"), ("--method", "fedcvt", "none")
    text = ran("-m", "benchmarks.unaligned", "--memory", "--given", *sizes, *methods, "--out", out)
    runs = json.loads(out.read_text())["runs"]
    assert [run["method"] for run in runs] == ["fedcvt", "none"]
    for run in runs:
        assert [peak["phase"] for peak in run["peaks"]] == ["read, active", "read, passive", "train", "done"]
        held = [peak["active"] for peak in run["peaks"]]
        assert 0 < held[0] <= held[-1] == max(held)
    assert "GiB, at most 8: met" in text


@pytest.mark.slow
def test_clicks_between_two_nodes_beside_one_network(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    text = ran("-m", "benchmarks.unaligned", "--rows", "9000", "--rounds", "1", "--epochs", "2", "--out", out)
    found = json.loads(out.read_text())
    assert {name: len(seconds) for name, seconds in found["seconds"].items()} == {"joint": 1, "split": 1}
    assert found["ratio"] == pytest.approx(found["rows_s"]["joint"] / found["rows_s"]["split"])
    assert "joint / split" in text
    text = ran("-m", "benchmarks.unaligned", "--memory", "--rows", "3000", "--aligned", "1500", "--method", "fedcvt")
    phases = [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| fedcvt")]
    assert phases[-1] == "train"  # a shorter one may pass between two looks


@pytest.mark.slow  # tests/crypto/nearest compares with brute force
def test_linkage_searches_beside_others_where_they_are_installed(tmp_path: Path) -> None:
    out = tmp_path / "linkage.json"
    case = ("--rows", "300", "--candidates", "5", "--others", "50", "--anonlink", "100", "--workers", "2")
    text = ran("-m", "benchmarks.linkage", *case, "--out", out)
    made = json.loads(out.read_text())
    assert text.startswith("K = 5, filters of 2,000 bytes, 2 threads\n")
    of = {row["system"].partition(" ")[0]: row for row in made["rows"]}
    assert [row["system"] for row in made["rows"][:3]] == ["vfl-node, encoding"] * 2 + ["vfl-node, search"]
    sizes = {"vfl-node,": (300, 300), "faiss-cpu": (50, 300), "anonlink": (100, 100)}
    assert {name: (row["queries"], row["base"]) for name, row in of.items()} == {name: sizes[name] for name in of}
    for name, module in (("faiss-cpu", "faiss"), ("anonlink", "anonlink")):
        assert (name in of) != (f"{module} is not installed" in text)
    assert all(2**22 < row["peak_bytes"] < 2**30 for row in made["rows"])
    assert all(each > 0 for each in made["distances_ns"].values())
    assert len(made["distances_ns"]) >= 3
    assert "| vfl-node, search | 300 | 300 |" in text


@pytest.mark.slow
def test_three_nodes_train_in_shares(tmp_path: Path) -> None:
    hidden.write_tables(tmp_path, 200, (3, 2))
    train = {**hidden.HIDDEN, "epochs": 2, "batch_size": 50}
    with nodes.Three(dict.fromkeys(nodes.WITH_COORDINATOR, nodes.LOOPBACK["active"])) as three:
        tables = {role: tmp_path / f"{role}.parquet" for role in nodes.ROLES}
        report = three.run(hidden.job_of(train, "coordinator"), tables)
    declared = hidden.declared(200, (3, 2), train)
    assert report["training"]["hidden"]["rounds"] > 8 * declared["rounds a step"] > 0
    assert len(report["training"]["epochs"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(not LINK, reason="no program for slow links here (VFL_BENCH_LINK)")
def test_training_in_shares_over_slow_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {**hidden.HIDDEN, "epochs": 3, "batch_size": 50}
    monkeypatch.setattr(hidden, "SLOW", {"tiny": (200, (3, 2), train)})
    found = hidden.run_over_slow_links(tmp_path, LINK)
    rounds = 4 * hidden.declared(200, (3, 2), train)["rounds a step"]
    assert found["tiny, s a pass"] > rounds * nodes.RTT_MS / 2000  # no message is quicker than the link
    assert found["tiny, loopback, s"] < found["tiny, s a pass"]
