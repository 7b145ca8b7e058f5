"""Every message and field that leaves a node stands in the tables of docs/, with what it tells, and nothing else does."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool

ROOT = Path(__file__).parents[1]
WHERE = "proto/messages.yaml says how; then run: make docs"


@pytest.fixture(scope="module")
def messages() -> Any:
    """benchmarks/messages.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield importlib.import_module("benchmarks.messages")


@pytest.fixture(scope="module")
def recorded(messages: Any) -> dict[str, list[list[str]]]:
    return json.loads(messages.RECORDED.read_text())


def types() -> dict[str, list[str]]:
    """Message → fields, of the generated code."""
    for path in (ROOT / "proto/vfl/v1").glob("*.proto"):
        importlib.import_module(f"vfl_node.transport.generated.vfl.v1.{path.stem}_pb2")
    pool = descriptor_pool.Default()
    found = {}
    for path in sorted((ROOT / "proto/vfl/v1").glob("*.proto")):
        for name, message in pool.FindFileByName(f"vfl/v1/{path.name}").message_types_by_name.items():
            found[name] = [field.name for field in message.fields]
    return found


def test_every_message_has_a_row_and_every_row_a_message(messages: Any) -> None:
    with_row = {name for row in messages.rows() for name in row.messages} | messages.find_containers().keys()
    assert types().keys() - with_row == set(), f"these messages have no row: {WHERE}"
    assert with_row - types().keys() == set(), f"there are no such messages: {WHERE}"


def test_every_message_and_field_is_explained_in_the_protos(messages: Any) -> None:
    explained = messages.messages()
    assert {name: list(message.fields) for name, message in explained.items()} == types()
    silent = [name for name, message in explained.items() if not message.comment]
    silent += [
        f"{name}.{field}" for name, message in explained.items() for field, (_, said) in message.fields.items() if not said
    ]
    assert silent == [], "write a comment before the message, or beside the field, in proto/vfl/v1; then run: make docs"


def test_what_was_recorded_has_its_row(messages: Any, recorded: dict[str, list[list[str]]]) -> None:
    rows = messages.rows()
    uncovered = {
        (kind, *seen)
        for kind, entries in recorded.items()
        for seen in entries
        if not any(row.covers(kind, seen) for row in rows)
    }
    assert uncovered == set(), f"no row says what these tell: {WHERE}"


def test_every_row_was_recorded(messages: Any, recorded: dict[str, list[list[str]]]) -> None:
    never = [
        (row.phase, name, to, row.jobs)
        for row in messages.rows()
        for name in row.messages
        for to in row.to
        if not any(
            row.covers(kind, seen) and seen[1] == name and seen[3] == to
            for kind, entries in recorded.items()
            for seen in entries
        )
    ]
    assert never == [], f"no recorded job sends these: {WHERE}"


def test_a_message_within_others_stands_in_them(messages: Any) -> None:
    for name, inside in messages.find_containers().items():
        for outer in inside:
            assert any(kind.removeprefix("repeated ") == name for kind, _ in messages.messages()[outer].fields.values())


def test_the_documents_are_current(messages: Any) -> None:
    for path, text in messages.written().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is not what the protos and rows give; run: make docs"


def test_a_row_that_nothing_sends_and_a_message_without_one_are_noticed(messages: Any) -> None:
    row = messages.Row("train", ("Gradient",), ("passive",), "", "", ("split",))
    assert row.covers("split, kept", ("train", "Gradient", "active", "passive"))
    assert not row.covers("split", ("train", "Gradient", "passive", "active"))
    assert not row.covers("split", ("predict", "Gradient", "active", "passive"))
    assert not row.covers("psi", ("train", "Gradient", "active", "passive"))


@pytest.mark.slow
def test_jobs_send_what_was_recorded(messages: Any) -> None:
    assert messages.to_json(messages.record()) == messages.RECORDED.read_text(), "run: make docs"
