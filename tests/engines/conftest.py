"""A Ray cluster for the tests of this folder, started once."""

from __future__ import annotations

import os

import pytest

import vfl_node
from tests.engines.ray_cluster import TestCluster


@pytest.fixture(scope="session")
def cluster():
    """A cluster whose workers have the operations of ``vfl_node.tasks_for_tests``, as has this process."""
    with TestCluster() as started:
        more = str(started.folder / "more")
        vfl_node.__path__.append(more)
        os.environ["VFL_TEST_OPERATIONS"] = more
        yield started
        vfl_node.__path__.remove(more)
        del os.environ["VFL_TEST_OPERATIONS"]
