"""What training over candidates costs is counted before it runs: beside what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Evaluate
from vfl_node.job.costs import Beside, TableShape
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import Dropout
from vfl_node.models.schema import InputSchema
from vfl_node.training.candidates.costs import cost
from vfl_node.training.candidates.network import ActiveNetwork
from vfl_node.transport.generated.vfl.v1 import training_pb2


def resident(key: str) -> int:
    """Bytes of this process, by the kernel's count."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


@pytest.mark.parametrize("said", [{"dropout": 0.0}, {"dropout": 0.3}, {"merge": "mean", "similarity_hidden": 1024}])
def test_a_step_takes_at_most_the_memory_that_is_counted(small: Any, said: dict[str, Any]) -> None:
    """Of a kernel that is much longer than a row has candidates, and of a wide gate."""
    update = {"batch_size": 4096, "channels": 16, "kernel": 63, "merge_hidden": ()}
    train, beside = small.model_copy(update={**update, **said}), Beside(2)
    rows, schema = train.batch_size, InputSchema(1, ())
    network = ActiveNetwork(train, schema, np.array([[-1, 1]], np.float32))
    initialise(network, Randomness(bytes(32)))
    for layer in network.modules():
        if isinstance(layer, Dropout):
            layer.draw_from(Randomness(bytes(32)))
    own = ModelInput(torch.ones(rows, 1), torch.zeros(rows, 0, dtype=torch.int64))
    received, similarities = torch.randn(2 * rows, train.bottom[-1], requires_grad=True), torch.randn(rows, 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    network(own, received, torch.arange(2 * rows).view(rows, 2), similarities).sum().backward()
    taken = resident("VmHWM") - before
    assert 30 << 20 < taken < train.make_plan(1, beside).batch_bytes("active", TableShape(rows, 1))


def test_the_mean_record_is_counted_beside_all_others(linked: Any, linked_run: Any, small: Any) -> None:
    linkage = linked(300, 8, 6).without(np.random.default_rng(1).random((300, 6)) < 0.3)
    train, evaluate = small.model_copy(update={"bottom": (100,), "epochs": 1}), Evaluate(metrics=("rmse",))
    both = linked_run(train=train, evaluate=evaluate)
    both(linkage)
    expected = cost(train, evaluate, 300, Beside(6, among=8))
    passive, active = (
        sum(of.ByteSize() for of in both.sent(kind)) for kind in (training_pb2.LinkedEmbeddings, training_pb2.Gradient)
    )
    assert 0.95 * expected.passive_bytes < passive <= expected.passive_bytes
    assert 0.95 * expected.active_bytes < active <= expected.active_bytes
