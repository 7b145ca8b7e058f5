"""The audit log: what stands in it, what a change of it shows, and what a crash or a stranger does to it."""

from __future__ import annotations

import json
import os
import random
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vfl_node.trust import audit_log
from vfl_node.trust.audit_log import BEGIN, AuditLog, Deed, list_files, verify_log

SUBMIT = Deed("anna", "token", "10.0.0.7", "POST", "/api/jobs", "trial-1", 201)
REFUSED = Deed("", "", "10.0.0.8", "GET", "/api/jobs", "", 401)


def a_log(folder: Path, lines: int = 5) -> AuditLog:
    log = AuditLog(folder, clock=lambda: 1_800_000_000.0)
    for number in range(lines):
        log.add(Deed("anna", "token", "10.0.0.7", "POST", "/api/jobs", f"trial-{number}", 201))
    return log


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in list_files(folder) for line in path.read_bytes().splitlines()]


def test_a_line_says_who_did_what_and_follows_on_the_one_before(tmp_path: Path) -> None:
    log = a_log(tmp_path, 1)
    log.add(SUBMIT)
    first, second = read(tmp_path)
    assert (first["n"], first["before"], second["n"], second["before"]) == (1, BEGIN, 2, first["sha256"])
    said = {key: second[key] for key in ("at", "person", "how", "address", "method", "route", "object", "result")}
    assert said == {
        "at": "2027-01-15T08:00:00.000+00:00",
        "person": "anna",
        "how": "token",
        "address": "10.0.0.7",
        "method": "POST",
        "route": "/api/jobs",
        "object": "trial-1",
        "result": 201,
    }
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600
    verdict = verify_log(tmp_path)
    assert (verdict.lines, verdict.first, verdict.last, verdict.digest, verdict.faults) == (2, 1, 2, second["sha256"], ())
    assert [line["n"] for line in log.newest(10)] == [2, 1]
    assert [line["n"] for line in log.newest(10, before=2)] == [1]


def test_lines_that_are_written_together_are_one_chain_and_refusals_are_counted(tmp_path: Path) -> None:
    deed = Deed("anna", "token", "127.0.0.1", "POST", "/api/jobs", "j", 201)
    log = AuditLog(tmp_path)
    log.add_all([deed, *[replace(deed, result=403)] * 3, replace(deed, object="k")])
    log.flush()
    lines = read(tmp_path)
    assert [(line["object"], line["result"], line.get("count")) for line in lines] == [
        ("j", 201, None),
        ("k", 201, None),
        ("j", 403, 1),
        ("j", 403, 2),
    ]
    assert verify_log(tmp_path).faults == ()


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    assert verify_log(tmp_path).lines == 0
    assert AuditLog(tmp_path).newest(10) == []


def test_each_changed_byte_is_found_and_its_line_named(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = tmp_path / "audit.log"
    whole, draw = path.read_bytes(), random.Random(7)
    for place in draw.sample(range(len(whole)), 200):
        line = whole[:place].count(b"\n") + 1
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :])
        faults = verify_log(tmp_path).faults
        assert faults, place
        assert f"audit.log, line {line}:" in faults[0]


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_lines_that_are_taken_out_or_swapped_are_found(tmp_path: Path, taken: int) -> None:
    a_log(tmp_path)
    path = tmp_path / "audit.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:taken] + lines[taken + 1 :]))
    assert verify_log(tmp_path).faults == (
        f"audit.log, line {taken + 1}: it does not follow on the line before, number {taken}",
    )
    path.write_bytes(b"".join([*lines[:taken], lines[taken + 1], lines[taken], *lines[taken + 2 :]]))
    assert verify_log(tmp_path).faults
    path.write_bytes(b"".join([*lines[:taken], lines[0], *lines[taken:]]))
    assert verify_log(tmp_path).faults


def test_a_line_with_a_new_digest_no_longer_fits_the_next_one(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = tmp_path / "audit.log"
    lines = path.read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[2]) | {"person": "ben"}
    entry["sha256"] = audit_log._digest(entry)
    lines[2] = audit_log._canonical(entry)
    path.write_bytes(b"".join(lines))
    assert verify_log(tmp_path).faults == ("audit.log, line 4: it does not follow on the line before, number 3",)


def test_a_torn_last_line_is_cut_and_noted(tmp_path: Path) -> None:
    a_log(tmp_path, 2)
    path = tmp_path / "audit.log"
    path.write_bytes(path.read_bytes()[:-10])
    assert verify_log(tmp_path).faults == ("audit.log, line 2: it is not what was written",)
    AuditLog(tmp_path).add(SUBMIT)
    first, note, last = read(tmp_path)
    assert (note["n"], note["note"], note["before"]) == (
        2,
        f"a torn line of {len(json.dumps(first, separators=(',', ':'))) - 9} bytes was cut",
        first["sha256"],
    )
    assert (last["n"], last["object"]) == (3, "trial-1")
    assert verify_log(tmp_path).faults == ()


def test_a_file_that_lost_lines_while_the_node_runs_keeps_the_gap(tmp_path: Path) -> None:
    log = a_log(tmp_path, 4)
    path = tmp_path / "audit.log"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    log.add(SUBMIT)
    assert [line["n"] for line in read(tmp_path)] == [1, 2, 5, 6]
    assert verify_log(tmp_path).faults == ("audit.log, line 3: it does not follow on the line before, number 2",)


def test_a_large_file_is_put_away_and_the_chain_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 1500)
    log = a_log(tmp_path, 20)
    paths = list_files(tmp_path)
    assert len(paths) > 2
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths)
    assert [line["n"] for line in read(tmp_path)] == list(range(1, 21))
    assert verify_log(tmp_path).faults == ()
    assert [line["n"] for line in log.newest(20)] == list(range(20, 0, -1))
    a_log(tmp_path, 1)
    assert read(tmp_path)[-1]["n"] == 21
    paths[1].rename(tmp_path / "elsewhere")
    assert verify_log(tmp_path).faults
    paths[0].unlink()  # moved away from the beginning on
    verdict = verify_log(tmp_path)
    assert verdict.first > 1
    assert verdict.faults == ()
    for path in list_files(tmp_path)[-1:]:  # a crash between two files
        path.unlink()
    a_log(tmp_path, 1)
    assert verify_log(tmp_path).faults == ()


def test_a_stranger_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("vfl_node.trust.audit_log.time.monotonic", lambda: now[0])
    log = AuditLog(tmp_path)
    for _ in range(1000):
        log.add(REFUSED)
    assert [line["count"] for line in read(tmp_path)] == [1]
    log.add(SUBMIT)  # what is no refusal is written at once
    assert len(read(tmp_path)) == 2
    now[0] += 1
    log.add(REFUSED)
    assert [line.get("count") for line in read(tmp_path)] == [1, None, 1000]
    log.add(REFUSED)
    log.flush()
    assert sum(line.get("count", 0) for line in read(tmp_path)) == 1002
    log.flush()
    assert len(read(tmp_path)) == 4


def test_strangers_do_not_hide_what_a_person_was_refused(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for _ in range(10):
        log.add(REFUSED)
    log.add(Deed("anna", "token", "10.0.0.7", "POST", "/api/prune", "", 403))
    log.flush()
    counts: dict[str, int] = {}
    for line in read(tmp_path):
        counts[line["person"]] = counts.get(line["person"], 0) + line["count"]
    assert counts == {"": 10, "anna": 1}


def test_what_was_only_counted_is_written_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "REFUSALS_S", 0.1)
    log, written = AuditLog(tmp_path), threading.Event()
    flush = log.flush
    monkeypatch.setattr(log, "flush", lambda: (flush(), written.set() if threading.current_thread() is not main else None))
    main = threading.current_thread()
    for _ in range(3):
        log.add(REFUSED)
    assert written.wait(20)
    assert [line["count"] for line in read(tmp_path)] == [1, 2]


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    threads = [threading.Thread(target=a_log, args=(tmp_path, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["n"] for line in read(tmp_path)] == list(range(1, 41))
    assert verify_log(tmp_path).faults == ()


def test_a_disk_that_refuses_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = a_log(tmp_path, 1), os.write

    def refuse(descriptor: int, text: bytes) -> int:
        if len(text) < 50:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(text)[: len(text) - 20])

    monkeypatch.setattr("vfl_node.trust.audit_log.os.write", refuse)
    log.add(SUBMIT)
    monkeypatch.undo()
    assert len(read(tmp_path)) == 1
    log.add(SUBMIT)
    assert verify_log(tmp_path).faults == ()


def test_where_no_next_file_can_be_made_none_is_closed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, opened, closed = a_log(tmp_path, 1), list[int](), list[int]()
    open_file, close_file = os.open, os.close

    def refuse_new(path: Path, flags: int, mode: int) -> int:
        if flags & os.O_EXCL:
            raise OSError(28, "No space left on device")
        opened.append(open_file(path, flags, mode))
        return opened[-1]

    def close(descriptor: int) -> None:  # a second time it may be the file of somebody else
        closed.append(descriptor)
        close_file(descriptor)

    monkeypatch.setattr(audit_log, "MOST_BYTES", 1)
    monkeypatch.setattr("vfl_node.trust.audit_log.os.open", refuse_new)
    monkeypatch.setattr("vfl_node.trust.audit_log.os.close", close)
    log.add(SUBMIT)
    monkeypatch.undo()
    assert sorted(closed) == sorted(opened)
    log.add(SUBMIT)
    assert [line["n"] for line in read(tmp_path)] == [1, 2]
    assert verify_log(tmp_path).faults == ()


def test_text_of_strangers_is_short_and_can_be_shown(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.add(Deed("", "", "", "POST", "/api/jobs/{job_id}/cancel", "\x1b[31m\n" + "x" * 10_000, 404))
    (line,) = read(tmp_path)
    assert line["object"].startswith("[31mxxx")
    assert len(line["object"]) <= 200
