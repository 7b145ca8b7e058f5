"""Which rows of a model a peer was told about: kept whole, counted once, and never begun anew."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from vfl_node.errors import PolicyError, StateError
from vfl_node.training.prediction import stored
from vfl_node.training.prediction.stored import FileShown


@pytest.fixture(name="path")
def path_fixture(tmp_path: Path) -> Path:
    FileShown.begin(tmp_path / "shown", rows())
    return tmp_path / "shown"


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_rows_are_counted_once_and_outlive_the_process(path: Path) -> None:
    assert len(FileShown(path, 5).rows()) == 0
    FileShown(path, 5).add(rows(3, 1, -(2**63)))
    FileShown(path, 5).add(rows(1, 7, 7))
    assert FileShown(path, 5).rows().tolist() == [-(2**63), 1, 3, 7]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_rows_beyond_what_is_allowed_are_refused_whole(path: Path) -> None:
    shown = FileShown(path, 3)
    shown.add(rows(1, 2))
    for refuse in (shown.check, shown.add):
        with pytest.raises(PolicyError) as caught:
            refuse(rows(2, 3, 4))
        assert (caught.value.code, caught.value.for_peer) == (
            "E_BUDGET",
            "its policy does not allow the job (budget)",
        )
        assert "budgets.predicted_rows" in str(caught.value)
    assert shown.rows().tolist() == [1, 2]
    shown.check(rows(1, 2))
    shown.add(rows(2, 3))
    FileShown(path, 1).add(rows(1))  # a limit that was lowered: what was told is told


def test_new_records_are_refused_before_their_alignment_where_no_room_is_left(path: Path) -> None:
    FileShown(path, 3).check_room()
    FileShown(path, 3).add(rows(1, 2))
    FileShown(path, 3).check_room()
    with pytest.raises(PolicyError) as caught:
        FileShown(path, 2).check_room()
    assert caught.value.code == "E_BUDGET"
    assert "told about 2 rows of this model beside those held out" in caught.value.message
    assert FileShown(path, 2).told == 2


def test_the_file_is_read_again_only_where_it_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read = stored.read_checked

    def count(path: Path, *, hint: str) -> bytes:
        reads.append(path)
        return read(path, hint=hint)

    monkeypatch.setattr(stored, "read_checked", count)
    one, other = FileShown(path, 9), FileShown(path, 9)
    for _ in range(5):
        assert one.rows().tolist() == []
        one.check(rows(1, 2))
    assert len(reads) == 1
    other.add(rows(1, 2))
    assert one.rows().tolist() == [1, 2]
    assert one.told == 2
    reads.clear()
    before = path.stat().st_mtime_ns
    one.add(rows(2, 1))  # all of them are known: nothing is written
    assert (path.stat().st_mtime_ns, reads) == (before, [])


def test_services_at_once_forget_none(path: Path) -> None:
    def tell(first: int) -> None:
        for number in range(first, first + 10):
            FileShown(path, 100).add(rows(number))

    threads = [threading.Thread(target=tell, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert FileShown(path, 100).rows().tolist() == list(range(40))


@pytest.mark.parametrize("place", [0, 5, 20, -1])
def test_a_damaged_count_is_named(path: Path, place: int) -> None:
    FileShown(path, 5).add(rows(1, 2))
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(StateError) as caught:
        FileShown(path, 5).rows()
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_lost_count_is_not_begun_anew(path: Path) -> None:
    path.unlink()
    for use in (FileShown(path, 5).rows, lambda: FileShown(path, 5).add(rows(1))):
        with pytest.raises(StateError) as caught:
            use()
        assert caught.value.code == "E_STATE_LOST"
    assert not path.exists()


def test_rows_held_out_in_training_are_known_and_free(tmp_path: Path) -> None:
    FileShown.begin(tmp_path / "shown", rows(9, 4, 5))
    shown = FileShown(tmp_path / "shown", 2)
    assert shown.rows().tolist() == [4, 5, 9]
    shown.add(rows(4, 1, 2))
    shown.check(rows(9, 5))
    with pytest.raises(PolicyError, match="told about 2 rows of this model beside those held out"):
        shown.add(rows(3))
    assert FileShown(tmp_path / "shown", 2).rows().tolist() == [1, 2, 4, 5, 9]
