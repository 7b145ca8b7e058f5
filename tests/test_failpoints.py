"""Failpoints: their names are those of the code, a passing is counted, and nobody arms them on a real node."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vfl_node.errors import UsageError
from vfl_node.node.serving import serve
from vfl_node.process import failpoints
from vfl_node.process.files import write_whole
from vfl_node.settings.reading import load_settings

PACKAGE = Path(failpoints.__file__).parents[1]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("", local=True)


def test_every_name_is_reached_somewhere_and_no_other_is() -> None:
    reached: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoints.reach":
                assert isinstance(node.args[0], ast.Constant), path
                reached.add(node.args[0].value)
    assert reached == set(failpoints.POINTS)


def test_it_happens_at_the_passing_named(tmp_path: Path) -> None:
    failpoints.arm("write=enospc@2, rename=eio@3+", local=True)
    write_whole(tmp_path / "first", b"")
    with pytest.raises(OSError, match="No space") as failure:
        write_whole(tmp_path / "second", b"")
    assert failure.value.errno == errno.ENOSPC
    write_whole(tmp_path / "third", b"")
    for name in ("fourth", "fifth"):
        with pytest.raises(OSError, match=r"[Ii]nput/output"):
            write_whole(tmp_path / name, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "third"]


def test_unarmed_nothing_happens_whatever_the_environment_says(tmp_path: Path) -> None:
    """A library or a command that is no node arms nothing."""
    program = (
        "import sys; from pathlib import Path; from vfl_node.process.files import write_whole; "
        "write_whole(Path(sys.argv[1]), b'')"
    )
    environment = os.environ | {failpoints.VARIABLE: "write=kill@1"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], env=environment, check=True, cwd=PACKAGE.parent)
    assert (tmp_path / "file").exists()


def test_it_kills_as_kill_9_does(tmp_path: Path) -> None:
    arm = "from vfl_node.process import failpoints as f; f.arm('keep=kill@2', local=True); "
    program = arm + "[f.reach('keep') for _ in range(9)]"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=PACKAGE.parent, check=False)
    assert (made.returncode, made.stderr) == (-9, b"failpoint keep kill\n")


@pytest.mark.parametrize("text", ["nowhere=kill@1", "keep=explode@1", "keep=kill@0", "keep", "keep=kill@1;finish=kill@1"])
def test_what_names_no_point_or_action_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        failpoints.arm(text, local=True)
    assert refusal.value.code == "E_FAILPOINT"


@pytest.mark.parametrize(
    "settings",
    ["listen: 0.0.0.0:0\npeers: {clinic: {}}", "peers: {clinic: {address: 'clinic.example:7001'}}"],
)
def test_a_node_that_others_reach_does_not_start_with_one(
    tmp_path: Path, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything else of the node is looked at."""
    (tmp_path / "node.yaml").write_text(
        f"name: lab\nrole: passive\ntls: {{certificate: none, key: none, ca: none}}\n{settings}\n"
    )
    monkeypatch.setenv(failpoints.VARIABLE, "keep=kill")
    with pytest.raises(UsageError) as refusal:
        serve(load_settings(tmp_path / "node.yaml"))
    assert refusal.value.code == "E_FAILPOINT"
