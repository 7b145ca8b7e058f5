from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save as serialise

from vfl_node.errors import StateError
from vfl_node.models import storage


def test_tensors_and_metadata_come_back_with_the_same_bits(tmp_path: Path) -> None:
    shared = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    tensors = {"a": shared, "b": shared.T, "step": torch.tensor(3.0), "codes": torch.arange(4)}
    data = storage.save(tmp_path / "m.safetensors", tensors, {"encoder": "{}"})
    loaded, metadata = storage.load(tmp_path / "m.safetensors")
    assert metadata == {"encoder": "{}"}
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert data == (tmp_path / "m.safetensors").read_bytes()


def test_a_file_is_private_and_nothing_temporary_stays(tmp_path: Path) -> None:
    storage.save(tmp_path / "m.safetensors", {"a": torch.zeros(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]
    assert (tmp_path / "m.safetensors").stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    storage.save(path, {"a": torch.zeros(1)})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vfl_node.process.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.save(path, {"a": torch.ones(1)})
    monkeypatch.undo()
    assert storage.load(path)[0]["a"] == 0


def test_a_file_says_its_version_one_without_is_of_version_1_and_a_later_one_is_refused(tmp_path: Path) -> None:
    path, tensors = tmp_path / "m.safetensors", {"a": torch.zeros(1)}
    storage.save(path, tensors)
    assert b'{\\"version\\": \\"1\\"}' in path.read_bytes()
    path.write_bytes(serialise(tensors, {"about": '{"encoder": "{}"}'}))
    assert storage.load(path) == (tensors, {"encoder": "{}"})
    for version, code in (("2", "E_STATE_VERSION"), ("x", "E_STATE_CORRUPT")):
        storage.save(path, tensors, {"version": version})
        with pytest.raises(StateError) as caught:
            storage.load(path)
        assert caught.value.code == code


@pytest.mark.parametrize("content", [b"", b"not a tensor file", b"\xff" * 64])
def test_a_damaged_or_missing_file_is_a_state_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        storage.load(path)
    path.write_bytes(content)
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        storage.load(path)


def test_parts_come_back_and_an_only_part_needs_no_name() -> None:
    parts = {"lab": {"0.seen": 1}, "lab-2": {"0.seen": 2, "1.seen": 3}, "shop": {}}
    stored = storage.join_parts(parts)
    assert stored == {"lab.0.seen": 1, "lab-2.0.seen": 2, "lab-2.1.seen": 3}
    assert storage.split_parts(stored, parts) == parts
    assert storage.join_parts({"lab": {"0.seen": 1}}) == {"0.seen": 1}
    assert storage.split_parts({"0.seen": 1}, ["lab"]) == {"lab": {"0.seen": 1}}
