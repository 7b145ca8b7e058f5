from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vfl_node.errors import StateError
from vfl_node.training.checkpoints import Checkpoints, FileCheckpoints, MemoryCheckpoints
from vfl_node.training.network.journal import is_due


@pytest.fixture(params=["memory", "file"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoints:
    return MemoryCheckpoints() if request.param == "memory" else FileCheckpoints(tmp_path / "checkpoints")


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"half.w": torch.randn(3, 2, generator=generator), "optimizer.0.step": torch.tensor(float(seed))}


def test_what_is_saved_comes_back_with_the_same_bits(checkpoints: Checkpoints) -> None:
    meta = {"loss": 0.1 + 0.2, "epochs": [{"loss": None}]}
    saved = tensors(1)
    checkpoints.save("r000-e000001", saved, meta)
    expected = {name: tensor.clone() for name, tensor in saved.items()}
    saved["half.w"].zero_()  # training goes on and changes its weights in place
    found = checkpoints.load("r000-e000001")
    assert found.meta == meta
    assert all(torch.equal(found.tensors[name], expected[name]) for name in expected)


def test_the_two_newest_are_kept_in_order(checkpoints: Checkpoints) -> None:
    for name in ("r000-e000009", "r000-e000010", "r001-e000001"):
        checkpoints.save(name, tensors(1), {})
    assert checkpoints.names() == ("r000-e000010", "r001-e000001")
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        checkpoints.load("r000-e000009")


def test_a_new_process_finds_them(tmp_path: Path) -> None:
    FileCheckpoints(tmp_path).save("r000-e000001", tensors(1), {"a": 1})
    assert FileCheckpoints(tmp_path).load("r000-e000001").meta == {"a": 1}


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    checkpoints = FileCheckpoints(tmp_path)
    checkpoints.save("r000-e000001", tensors(1), {})
    path = tmp_path / "r000-e000001.checkpoint"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x80
    path.write_bytes(bytes(data))
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        checkpoints.load("r000-e000001")


def test_a_checkpoint_that_was_not_finished_does_not_exist(tmp_path: Path) -> None:
    checkpoints = FileCheckpoints(tmp_path)
    checkpoints.save("r000-e000001", tensors(1), {})
    (tmp_path / "r000-e000002.checkpoint.tmp").write_bytes(b"half")
    assert checkpoints.names() == ("r000-e000001",)
    checkpoints.save("r000-e000002", tensors(2), {})
    assert checkpoints.names() == ("r000-e000001", "r000-e000002")


def test_a_kill_while_a_name_is_used_again_leaves_what_it_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    class KilledError(Exception):
        pass

    checkpoints = FileCheckpoints(tmp_path)
    checkpoints.save("r000-e000001", tensors(1), {})
    checkpoints.save("r000-e000002", tensors(2), {})
    with monkeypatch.context() as patch:
        patch.setattr("vfl_node.process.files.os.fsync", killed)
        with pytest.raises(KilledError):
            checkpoints.save("r000-e000002", tensors(2), {})
    again = FileCheckpoints(tmp_path)
    assert again.names() == ("r000-e000001", "r000-e000002")
    assert torch.equal(again.load("r000-e000002").tensors["half.w"], tensors(2)["half.w"])


@pytest.mark.parametrize("damage", ["changed", "truncated", "gone"])
def test_a_damaged_newest_one_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    checkpoints = FileCheckpoints(tmp_path)
    checkpoints.save("r000-e000001", tensors(1), {})
    checkpoints.save("r000-e000002", tensors(2), {})
    path = tmp_path / "r000-e000002.checkpoint"
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage == "changed" else data[:-1])
    assert checkpoints.names() == ("r000-e000001",)
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        checkpoints.load("r000-e000002")
    checkpoints.save("r000-e000002", tensors(2), {})
    checkpoints.save("r000-e000003", tensors(3), {})
    assert checkpoints.names() == ("r000-e000002", "r000-e000003")


def test_a_name_with_a_path_in_it_is_only_a_missing_name(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        FileCheckpoints(tmp_path / "a").load("../secret")


def test_checkpoints_are_agreed_from_the_job_alone() -> None:
    assert [epoch for epoch in range(1, 11) if is_due(epoch, 10, 100)] == list(range(1, 11))
    assert [epoch for epoch in range(1, 11) if is_due(epoch, 10, 15)] == [4, 8, 10]
    assert [epoch for epoch in range(1, 11) if is_due(epoch, 10, 1)] == [10]
