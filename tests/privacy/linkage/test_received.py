"""The attacks on what the parties of a job in fact receive, all defences on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.linkage import anchors
from experiments.linkage.partition import record_similarities
from tests.alignment.linkage.worlds import A, B, C, World, numbers
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.space import KeySpace
from vfl_node.transport.generated.vfl.v1 import linkage_pb2, session_pb2

FINE = {"encoding": {"epsilon": 0.05, "delta": 0.05}, "candidates": 10}
CHANCE = 15.0
"""A guess at random of a number of 0 to 100 is farther off than this, in the median."""


def median(guess: np.ndarray, truth: np.ndarray) -> float:
    return float(np.median(np.abs(guess.ravel() - truth)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), {A: numbers(120, 1), B: numbers(40, 2)})


@pytest.fixture(scope="module")
def results(world: World) -> dict[str, Any]:
    found = world.job(**FINE)
    assert isinstance(found[A], Alignment)
    return found


@pytest.fixture(scope="module")
def space(world: World, results: dict[str, Any]) -> KeySpace:
    assert world.align.keys is not None
    return KeySpace(world.align.keys, world.align.encoding)


def seed(world: World) -> Randomness:
    return Randomness(world.partner(A, B).recall("pivot-seed"))


def test_the_active_party_locates_keys(world: World, results: dict[str, Any], space: KeySpace) -> None:
    (scale,) = [message for message in world.received(A) if isinstance(message, linkage_pb2.Scale)]
    pairs = record_similarities(results[A].similarities, results[B].rows)  # which it finds in training (test_partition.py)
    used = np.flatnonzero((~np.isnan(pairs)).any(axis=1))
    own = world.filters(A)[results[A].rows]

    def error(of: np.ndarray) -> float:
        guess = multilateration.locate(pairs[of], own, scale.mean, scale.deviation, space, seed(world))
        return median(guess, world.keys[B][used])

    assert error(used) < 2
    assert error(np.random.default_rng(0).permutation(used)) > CHANCE


def test_the_passive_party_locates_keys(world: World, results: dict[str, Any], space: KeySpace) -> None:
    own, truth = world.keys[B][:, None], world.keys[A][results[A].rows]
    assert median(cells.locate(results[B].rows, own, space, seed(world), most=20_000), truth) < 2
    mixed = np.random.default_rng(0).permutation(results[B].rows)
    assert median(cells.locate(mixed, own, space, seed(world), most=20_000), truth) > CHANCE


def test_the_coordinator_locates_keys(world: World, results: dict[str, Any], space: KeySpace) -> None:
    """It knows eight records of the passive party, and which of the filters are theirs."""
    received = [message.rows for message in world.received(C) if isinstance(message, session_pb2.Chunk)]
    width, of_a = world.filters(A).shape[1], world.filters(A)[results[A].rows]
    columns = {len(rows) // width: np.frombuffer(rows, dtype=np.uint8).reshape(-1, width) for rows in received}
    np.testing.assert_array_equal(columns[120], of_a)
    known, truth = world.keys[B][:8, None], world.keys[A][results[A].rows]
    in_column = {filters.tobytes() for filters in columns[40]}
    of_known = world.filters(B)[:8]
    assert all(filters.tobytes() in in_column for filters in of_known)
    assert median(anchors.locate(columns[120], of_known, known, space), truth) < 3
    assert median(anchors.locate(columns[120], of_known, np.random.default_rng(0).permutation(known), space), truth) > CHANCE


def test_few_uses_of_a_record_are_refused_or_tell_little(tmp_path: Path) -> None:
    """``linkage.max_reuse``: the active party has no similarity at all of a set whose records would be used more often."""
    own = {A: numbers(120, 1), B: numbers(40, 2)}
    refused = World(tmp_path, own, limits={B: {"linkage": {"max_reuse": 20}}}).job(**FINE)
    assert refused[B].code == "E_REUSE"
    assert not isinstance(refused[A], Alignment)
