"""Tokens of people: who has one, until when, and what is left of them on the disk."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from vfl_node.errors import StateError, UsageError
from vfl_node.process.files import read_checked, write_checked
from vfl_node.trust.people import Person
from vfl_node.trust.tokens import DAY_S, MOST_TOKENS, PREFIX, Tokens

NOW = 1_800_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return Tokens(tmp_path, clock=clock)


def test_a_token_is_found_by_itself_alone(tokens: Tokens) -> None:
    token = tokens.create("anna", ["submitter", "viewer"], 90)
    assert token.startswith(PREFIX)
    assert len(token) == len(PREFIX) + 43  # 256 bits in base64url
    person = tokens.find(token)
    assert person == tokens.get("anna")
    assert isinstance(person, Person)
    assert (person.name, person.roles) == ("anna", frozenset(("viewer", "submitter")))
    for other in ("", PREFIX, token[:-1], token + "x", token.upper(), "é"):
        assert tokens.find(other) is None
    assert tokens.create("ben", ["viewer"], 1) != token


def test_the_disk_has_the_digest_and_no_token(tokens: Tokens, tmp_path: Path) -> None:
    token = tokens.create("anna", ["viewer"], 90)
    tokens.find(token)
    for path in tmp_path.iterdir():
        assert token.encode() not in path.read_bytes()
        assert token[len(PREFIX) :].encode() not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (kept,) = json.loads(read_checked(tmp_path / "tokens"))
    assert kept["sha256"] not in repr(tokens.find(token))
    assert "sha256" not in tokens.tokens()[0]


def test_a_token_ends_by_its_date_and_when_it_is_revoked(tokens: Tokens, clock: Clock) -> None:
    token, other = tokens.create("anna", ["viewer"], 2), tokens.create("ben", ["viewer"], 365)
    clock.now = NOW + 2 * DAY_S - 1
    assert tokens.find(token)
    clock.now += 1
    assert tokens.find(token) is tokens.get("anna") is None
    tokens.revoke("ben")
    assert tokens.find(other) is tokens.get("ben") is None
    with pytest.raises(UsageError) as caught:
        tokens.revoke("ben")
    assert caught.value.code == "E_UNKNOWN_PERSON"


def test_another_process_that_revokes_is_heard_at_once(tokens: Tokens, tmp_path: Path, clock: Clock) -> None:
    token = tokens.create("anna", ["viewer"], 90)
    assert tokens.find(token)
    Tokens(tmp_path, clock=clock).revoke("anna")
    assert tokens.find(token) is None
    again = Tokens(tmp_path, clock=clock).create("anna", ["viewer"], 90)
    assert tokens.find(token) is None
    assert tokens.find(again)


def test_a_new_token_of_a_name_has_another_mark(tokens: Tokens) -> None:
    """By which the cookies of the old one end."""
    first = tokens.find(tokens.create("anna", ["viewer"], 90))
    tokens.revoke("anna")
    second = tokens.find(tokens.create("anna", ["viewer"], 90))
    assert first
    assert second
    assert first.mark != second.mark


@pytest.mark.parametrize(
    ("name", "roles", "days", "said"),
    [
        ("Anna", ["viewer"], 1, "no name"),
        ("a.b", ["viewer"], 1, "no name"),
        ("", ["viewer"], 1, "no name"),
        ("owner", ["viewer"], 1, "own token"),
        ("anna", ["root"], 1, "no role"),
        ("anna", [], 1, "no role"),
        ("anna", ["viewer"], 0, "1 to 365"),
        ("anna", ["viewer"], 366, "1 to 365"),
    ],
)
def test_what_no_token_can_have(tokens: Tokens, name: str, roles: list[str], days: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tokens.create(name, roles, days)
    assert tokens.tokens() == []


def test_a_name_has_one_token_until_that_ends(tokens: Tokens, clock: Clock) -> None:
    tokens.create("anna", ["viewer"], 1)
    with pytest.raises(UsageError) as caught:
        tokens.create("anna", ["admin"], 1)
    assert caught.value.code == "E_EXISTS"
    clock.now += DAY_S
    assert tokens.create("anna", ["admin"], 1)


def test_there_are_not_too_many(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.trust.tokens.MOST_TOKENS", 2)
    assert MOST_TOKENS > 2
    for name in ("a", "b"):
        tokens.create(name, ["viewer"], 1)
    with pytest.raises(UsageError, match="2 tokens already"):
        tokens.create("c", ["viewer"], 1)


def test_a_list_says_when_each_was_last_used(tokens: Tokens, clock: Clock) -> None:
    token = tokens.create("anna", ["viewer"], 90)
    assert tokens.tokens()[0]["used"] is None
    tokens.find(token)
    assert tokens.tokens() == [
        {
            "name": "anna",
            "roles": ["viewer"],
            "created": "2027-01-15T08:00:00+00:00",
            "expires": "2027-04-15T08:00:00+00:00",
            "used": "2027-01-15",
        }
    ]
    clock.now += DAY_S
    tokens.find(token)
    assert tokens.tokens()[0]["used"] == "2027-01-16"


def test_use_is_written_once_a_day_and_a_full_disk_keeps_nobody_out(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    token, tried = tokens.create("anna", ["viewer"], 90), []

    def refuse(path: Path, data: bytes) -> None:
        tried.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vfl_node.trust.tokens.write_checked", refuse)
    assert all(tokens.find(token) for _ in range(5))
    assert len(tried) == 1
    with pytest.raises(StateError) as caught:
        tokens.create("ben", ["viewer"], 1)
    assert caught.value.code == "E_DISK_FULL"
    assert [kept["name"] for kept in tokens.tokens()] == ["anna"]


def test_a_damaged_file_lets_nobody_in_and_is_not_replaced(tokens: Tokens, tmp_path: Path, clock: Clock) -> None:
    token = tokens.create("anna", ["viewer"], 90)
    path = tmp_path / "tokens"
    damaged = path.read_bytes()[:-1] + b"?"
    path.write_bytes(damaged)
    for _ in range(2):
        assert tokens.find(token) is None
        for ask in (lambda: tokens.create("ben", ["viewer"], 1), lambda: Tokens(tmp_path, clock=clock), tokens.tokens):
            with pytest.raises(StateError) as caught:
                ask()
            assert caught.value.code == "E_STATE_CORRUPT"
    assert path.read_bytes() == damaged
    path.unlink()
    assert tokens.tokens() == []


@pytest.mark.parametrize("found", [b'{"v": 2}', b'[{"name": "anna"}]', b'["anna"]', b"7"])
def test_a_file_of_another_release_says_so(tmp_path: Path, found: bytes) -> None:
    write_checked(tmp_path / "tokens", found)
    with pytest.raises(StateError, match="another release") as caught:
        Tokens(tmp_path)
    assert caught.value.code == "E_STATE_VERSION"


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    made: dict[str, Any] = {}

    def make(name: str) -> None:
        made[name] = Tokens(tmp_path).create(name, ["viewer"], 1)

    threads = [threading.Thread(target=make, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Tokens(tmp_path)
    assert {name: (kept.find(token) or Person("", frozenset())).name for name, token in made.items()} == {n: n for n in made}
