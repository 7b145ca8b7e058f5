"""A machine of a Ray cluster is lost: others do its work, with the same bytes; without others the work ends."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import numpy as np
import pytest

from tests.engines.ray_cluster import TestCluster, link_of, running
from vfl_node.crypto.build import describe_build
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.groups.contract import Exponent, block_powers
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.threads import Threads
from vfl_node.errors import VflError

pytestmark = pytest.mark.ray
GROUP = Curve25519()
POWERS = Exponent(GROUP, 1 << 250, True)


@pytest.fixture(scope="module")
def rows():
    return GROUP.hash_to_group([b"patient-%05d" % number for number in range(4096)], b"test")


def powers(engine, rows, rounds):
    """Blocks of powers, in an iterator that holds a few of them."""
    return engine.map(block_powers, (rows[start::8] for _ in range(rounds) for start in range(8)), POWERS)


def test_blocks_of_a_machine_that_is_lost_are_done_by_another(rows):
    with closing(Threads(2)) as threads:
        expected = list(powers(threads, rows, 1))
    with TestCluster(cpus=1) as cluster:
        raylet = cluster.add_machine("127.0.0.2")
        with closing(Cluster(cluster.settings_with(start_s=600), describe_build)) as engine:
            results = powers(engine, rows, 300)
            computed, workers = [next(results)], link_of(engine).workers
            while len(workers) < 2:  # one on each machine
                computed.append(next(results))
            os.kill(raylet, signal.SIGKILL)
            computed += results
            assert sum(map(running, workers)) == 1
    for number, block in enumerate(computed):
        assert block.tobytes() == expected[number % 8].tobytes()
    assert len(computed) == 2400


def test_work_ends_when_the_last_machine_is_lost(rows):
    with TestCluster(cpus=0) as cluster:
        raylet = cluster.add_machine("127.0.0.2")
        with closing(Cluster(cluster.settings_with(start_s=5), describe_build)) as engine:
            results = powers(engine, rows, 4000)
            next(results)
            os.kill(raylet, signal.SIGKILL)
            with pytest.raises(VflError, match="no worker started within 5 s") as caught:
                np.concatenate(list(results))
    assert caught.value.code == "E_WORKER"
