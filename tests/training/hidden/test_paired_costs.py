"""What training without a coordinator is said to send is what it sends, to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crypto.lattice.variants import compiled
from tests.training.hidden.test_paired import PARTIES
from vfl_node.training.hidden.paired_costs import exchange


@compiled
@pytest.mark.parametrize(
    ("protocol", "train", "evaluate"),
    [
        ("psu", {}, {}),
        ("psi", {"loss": "taylor", "metrics_by": "none"}, {"test_fraction": 0.2}),
        ("apsi", {"reveal": "none"}, {"test_fraction": 0.3, "share_with_passive": False}),
        ("psu", {"classes": 3, "epsilon": 1.0, "epochs": 3, "batch_size": None, "learning_rate": None, "momentum": None}, {}),
    ],
    ids=["psu", "taylor", "apsi", "noised"],
)
def test_it_is_counted(world: Any, attempt: Any, protocol: str, train: dict[str, Any], evaluate: dict[str, Any]) -> None:
    over = world(2, protocol, people=700, classes=train.get("classes", 2))
    run = attempt({**PARTIES, **train}, **({"evaluate": evaluate} if evaluate else {}))
    results = run(over)
    plan = run.plan(over)
    counted = exchange(
        plan.form,
        plan.bins if train.get("metrics_by") != "none" else 0,
        plan.reveals,
        plan.told,
        plan.descent.deviation is not None,
        {"psu": (False, False), "psi": (True, True), "apsi": (False, True)}[protocol],
        trained=len(plan.training),
        batch=plan.batch_rows,
        steps=len(plan.batches(0)),
        epochs=plan.epochs,
        tested=len(plan.layout) - len(plan.training),
    )
    for place, result in enumerate(results):
        phases = result.section.phases
        for name in ("setup", "offline", "online"):
            said = getattr(counted, name)
            assert (phases[name].rounds, phases[name].bytes) == (said.rounds, said[1 + place]), name
