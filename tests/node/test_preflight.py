from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import PeerError, ProtocolError, StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.node.partners import Partner
from vfl_node.session import preflight as module
from vfl_node.session.preflight import NO_MARKS, Agreement, ConsentMarks, preflight
from vfl_node.transport.memory import memory_channels, run_together


def job(epochs: int = 3) -> Job:
    return parse(f"name: t\nparties: {{active: a, passive: b}}\ntrain: {{epochs: {epochs}}}", Job, source="j")


def meet(tmp_path: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> list[Any]:
    channels = memory_channels("a", "b")
    runs = []
    for name, channel, changes in zip("ab", channels, (ours, theirs), strict=True):
        defaults = {
            "job": job(),
            "own": name,
            "attempt": 1,
            "checkpoints": [],
            "input_digest": b"1" * 32,
            "salt": name.encode() * 32,
            "inputs": JobFolder(tmp_path / name),
        }
        runs.append((preflight(channel, **(defaults | changes)), channel))
    results = run_together(*runs)
    return [*results, *(channel.attempt for channel in channels)]


def test_they_agree_on_the_newest_common_checkpoint_and_the_later_attempt(tmp_path: Path) -> None:
    ours = {"attempt": 3, "checkpoints": ["aligned", "r000-e0001", "r000-e0002"]}
    a, b, *attempts = meet(tmp_path, ours, {"attempt": 1, "checkpoints": ["aligned", "r000-e0001"]})
    assert a == b == Agreement(3, ("aligned", "r000-e0001"))
    assert attempts == [3, 3]


def test_a_peer_that_shows_no_ledger_is_refused_and_two_that_do_go_on(tmp_path: Path) -> None:
    keep = {name: {"heads": Partner(tmp_path / "partners" / name, peer).heads("job", {})} for name, peer in ("ab", "ba")}
    one, _, *_ = meet(tmp_path / "one", keep["a"], {})
    assert isinstance(one, ProtocolError)
    assert one.code == "E_LEDGER"
    both = meet(tmp_path / "both", keep["a"], keep["b"])
    assert both[0] == both[1] == Agreement(1, ())


def test_nothing_in_common_begins_anew(tmp_path: Path) -> None:
    a, b, *_ = meet(tmp_path, {"checkpoints": ["aligned"]}, {})
    assert a.checkpoint is b.checkpoint is None


def test_another_job_names_the_field_at_both_sides(tmp_path: Path) -> None:
    for error in meet(tmp_path, {}, {"job": job(epochs=4)})[:2]:
        assert isinstance(error, PeerError)
        assert error.code == "E_MANIFEST"
        assert "train.epochs" in error.message


def test_another_version_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = memory_channels("a", "b")

    async def older() -> None:
        async with channels[1].phase("preflight"):
            await channels[1].send(module.session_pb2.Preflight(party="b", protocol_version=0, software_version="0.0.1"))
            await channels[1].receive(module.session_pb2.Preflight)

    current = preflight(
        channels[0], job(), own="a", attempt=1, checkpoints=[], input_digest=b"", salt=b"s", inputs=JobFolder(tmp_path)
    )
    error, _ = run_together((current, channels[0]), (older(), channels[1]))
    assert isinstance(error, PeerError)
    assert error.code == "E_VERSION"
    assert "version 0 (vfl-node 0.0.1)" in error.message


def test_a_changed_input_is_refused_at_home_and_at_the_peer(tmp_path: Path) -> None:
    assert isinstance(meet(tmp_path, {}, {})[0], Agreement)
    ours, _, *_ = meet(tmp_path, {"input_digest": b"2" * 32}, {})
    assert isinstance(ours, StateError)
    assert ours.code == "E_INPUT_CHANGED"
    # the same party with its own memory wiped: the peer still notices
    _, theirs, *_ = meet(tmp_path, {"input_digest": b"2" * 32, "inputs": JobFolder(tmp_path / "wiped")}, {})
    assert isinstance(theirs, StateError)
    assert theirs.code == "E_INPUT_CHANGED"


def test_the_peer_sees_no_digest_of_the_input(tmp_path: Path) -> None:
    """What is sent depends on a secret salt: the peer cannot test guesses about the table."""

    def sent(salt: bytes, folder: str) -> bytes:
        channels = memory_channels("a", "b")
        heard = []

        async def listen() -> None:
            async with channels[1].phase("preflight"):
                heard.append((await channels[1].receive(module.session_pb2.Preflight)).input_digest)

        inputs = JobFolder(tmp_path / folder)
        ours = preflight(
            channels[0], job(), own="a", attempt=1, checkpoints=[], input_digest=b"1" * 32, salt=salt, inputs=inputs
        )
        run_together((ours, channels[0]), (listen(), channels[1]))
        return heard[0]

    assert sent(b"x" * 32, "x") != sent(b"y" * 32, "y")
    assert sent(b"x" * 32, "x") == sent(b"x" * 32, "again")
    assert sent(b"x" * 32, "x") != b"1" * 32


@pytest.mark.parametrize(
    ("theirs", "code", "what"),
    [
        (ConsentMarks(b"1" * 32, b"3" * 32), "E_CONSENT", "set of consents"),
        (ConsentMarks(b"2" * 32, b"2" * 32), "E_MANIFEST", "manifest"),
        (NO_MARKS, "E_MANIFEST", "manifest"),
    ],
)
def test_another_manifest_or_other_consents_are_refused_at_both(
    tmp_path: Path, theirs: ConsentMarks, code: str, what: str
) -> None:
    ours = ConsentMarks(b"1" * 32, b"2" * 32)
    assert isinstance(meet(tmp_path, {"marks": ours}, {"marks": ours})[0], Agreement)
    for error in meet(tmp_path, {"marks": ours}, {"marks": theirs})[:2]:
        assert isinstance(error, PeerError)
        assert error.code == code
        assert f"another {what} of this job" in error.message
