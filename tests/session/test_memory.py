"""What a node remembers of several other parties, as one memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.alignment.lists.promises import part_seed
from vfl_node.errors import PolicyError
from vfl_node.node.partners import Partner
from vfl_node.session.counted import aligned_sets, changed_sets, telling_training
from vfl_node.session.memory import JointMemory, join_memories


def partners(folder: Path) -> list[Partner]:
    return [Partner(folder, name) for name in ("lab", "insurer")]


def test_an_only_memory_is_itself(tmp_path: Path) -> None:
    only, _ = partners(tmp_path)
    assert join_memories([only]) is only


def test_the_secret_is_the_same_in_every_job_and_that_of_no_single_partner(tmp_path: Path) -> None:
    each = partners(tmp_path)
    secret = join_memories(each).secret.bytes(16)
    assert join_memories(partners(tmp_path)).secret.bytes(16) == secret
    assert secret not in [memory.secret.bytes(16) for memory in each]
    for lost in each:
        others = [Partner(tmp_path / "elsewhere", "anew") if memory is lost else memory for memory in each]
        assert join_memories(others).secret.bytes(16) != secret


def test_what_is_promised_to_one_holds_for_all(tmp_path: Path) -> None:
    lab, insurer = partners(tmp_path)
    both = JointMemory([lab, insurer])
    assert both.recall("part") is None
    assert both.keep("part", b"100") == b"100"
    assert [lab.recall("part"), insurer.recall("part"), both.recall("part")] == [b"100"] * 3
    insurer.keep("padding", b"2")  # in an earlier job of two
    assert both.recall("padding") == b"2"
    assert both.keep("padding", b"0") == b"2"
    assert lab.recall("padding") is None  # a job that is refused promises nothing
    assert both.keep("padding", b"2") == b"2"
    assert lab.recall("padding") == b"2"


def test_a_budget_used_up_with_one_refuses_the_job_with_all(tmp_path: Path) -> None:
    lab, insurer = partners(tmp_path)
    both = JointMemory([lab, insurer])
    insurer.count(aligned_sets(b"first", 2))
    both.check(aligned_sets(b"all", 2))  # and counts nothing
    both.count(aligned_sets(b"all", 2))
    both.count(aligned_sets(b"all", 2))  # known pairs are free
    with pytest.raises(PolicyError, match="aligned with insurer") as caught:
        both.count(aligned_sets(b"other", 2))
    assert caught.value.code == "E_BUDGET"
    insurer.count(changed_sets("table", b"first", 0))
    for refuse in (both.check, both.count):
        with pytest.raises(PolicyError):
            refuse(changed_sets("table", b"second", 0))
    with pytest.raises(PolicyError):
        both.check(aligned_sets(b"other", 2))
    assert lab.usage()["alignments"] == 2  # one that only the other's budget refuses, too


def test_a_training_has_the_largest_number_that_a_partner_counts(tmp_path: Path) -> None:
    lab, insurer = partners(tmp_path)
    both = JointMemory([lab, insurer])
    insurer.count(telling_training("set", b"set", "of two", 9))
    assert both.count(telling_training("set", b"set", "of three", 9)) == 2
    assert both.count(telling_training("set", b"set", "of three", 9)) == 2
    assert lab.count(telling_training("set", b"set", "of three", 9)) == 1
    for refuse in (both.check, both.count):
        with pytest.raises(PolicyError, match="trainings with insurer"):
            refuse(telling_training("set", b"set", "another", 2))
    both.check(telling_training("set", b"set", "of three", 1))  # it was counted


def test_a_part_of_a_table_is_the_same_in_jobs_with_one_and_with_several(tmp_path: Path) -> None:
    lab, insurer = partners(tmp_path)
    seed = part_seed(lab, b"table")
    assert part_seed(JointMemory([lab, insurer]), b"table") == seed
    assert part_seed(insurer, b"table") == seed
    assert part_seed(insurer, b"a later table") == seed  # so it has almost the same part
    bank = Partner(tmp_path, "bank")
    assert part_seed(bank, b"table") != seed
    with pytest.raises(PolicyError, match="different parts") as caught:
        part_seed(JointMemory([lab, bank]), b"table")
    assert caught.value.code == "E_PROMISE"
