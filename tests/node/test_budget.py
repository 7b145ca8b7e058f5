"""What a job takes, who refuses it, and what is set aside for those under way."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import PolicyError, StateError
from vfl_node.estimate import budget, memory
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import check_limits, frame_bytes, need, parameters
from vfl_node.job import Job
from vfl_node.job.costs import HEAD_BYTES, TableShape
from vfl_node.models import InputSchema, architecture_of
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.settings.defences import read_params
from vfl_node.settings.limits import Limits, SizeLimits
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.training.split.config import Train
from vfl_node.transport.bounds import MAX_FRAME_BYTES

MIB = 1 << 20
TABLE = TableShape(rows=1000, numeric=5, cardinalities=(3, 7))


def job(train: dict[str, Any] | None, **sections: Any) -> Job:
    parties = {"active": "clinic", "passive": ["lab"]}
    return Job.model_validate({"name": "trial", "parties": parties, "train": train, **sections})


@pytest.mark.parametrize("model", ["mlp", "wide_deep"])
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("top", [[], [9, 4]])
def test_weights_are_counted_exactly(model: str, classes: int, top: list[int]) -> None:
    of = job({"model": model, "classes": classes, "bottom": [11, 6], "active_bottom": [8], "top": top, "embedding_size": 3})
    train, architecture, schema = of.train, architecture_of(model), InputSchema(5, (3, 7))
    assert isinstance(train, Train)
    bottom = build_bottom(architecture, train, schema, train.bottom)
    joint = build_classifier(architecture, train, schema, [6 + (train.outputs if model == "wide_deep" else 0)])
    alone = build_classifier(architecture, train, schema, [])
    count = [sum(each.numel() for each in module.parameters()) for module in (bottom, joint, alone)]
    assert parameters(of, "passive", TABLE) == count[0]
    assert parameters(of, "active", TABLE) == count[1] + count[2]


def test_a_network_larger_than_the_owner_allows_is_refused_before_a_table_is_known() -> None:
    large = job({"bottom": [24_000, 24_000]})
    with pytest.raises(PolicyError, match=r"576,0\d\d,\d+ weights.* limit is 20,000,000") as caught:
        check_limits(large, "passive", Limits())
    assert "size.parameters" in caught.value.hint
    assert caught.value.for_peer == "its policy does not allow the job (size)"
    check_limits(large, "active", Limits())  # whose own half is small
    check_limits(job({}), "active", Limits())


def test_more_steps_than_the_owner_allows_are_refused() -> None:
    with pytest.raises(PolicyError, match="training steps"):
        check_limits(job({"epochs": 100_000}, evaluate={"repeats": 1000}), "passive", Limits())
    long = job({"epochs": 1000, "batch_size": 1})
    with pytest.raises(PolicyError, match=r"800,000 training steps.* limit is 500,000"):
        memory.check_steps(long, 1000, Limits(size=SizeLimits(steps=500_000)))
    memory.check_steps(long, 600, Limits(size=SizeLimits(steps=500_000)))


def test_a_message_may_be_as_large_as_the_job_makes_it() -> None:
    assert frame_bytes(job(None)) == 2 * MIB
    assert frame_bytes(job({})) == 2 * MIB
    assert frame_bytes(job({"batch_size": 16384})) == 4 * 16384 * 128 + HEAD_BYTES
    assert frame_bytes(job({"batch_size": 1_000_000})) == MAX_FRAME_BYTES
    told = job({"epochs": 100_000}, evaluate={"share_with_passive": True})
    assert frame_bytes(told) > 9 * MIB


def test_a_job_that_only_aligns_is_not_counted_as_one_that_trains() -> None:
    rows = TableShape(rows=1_000_000)
    assert need(job(None), "passive", rows).rows == 80 * 1_000_000
    assert need(job({}), "passive", rows).rows == 512 * 1_000_000


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    machine = {"free": 1000.0 * MIB, "used": 200 * MIB}
    monkeypatch.setattr(budget, "free_bytes", lambda: machine["free"])
    monkeypatch.setattr(budget, "used_bytes", lambda: machine["used"])
    return machine


def test_a_job_that_needs_more_than_is_free_is_refused_with_the_numbers(free: dict[str, float]) -> None:
    large = job({"bottom": [4000, 4000]})
    with pytest.raises(StateError) as caught:
        Budget(None).reserve("job", large, "passive", None, Limits())
    assert caught.value.code == "E_MEMORY"
    needed = need(large, "passive", TableShape()).bytes // MIB
    assert f"about {needed:,} MiB" in caught.value.message.replace(f"{needed + 1:,}", f"{needed:,}")
    assert "1,000 MiB are free" in caught.value.message
    assert "MiB" not in caught.value.for_peer
    free["free"] = 2000 * MIB
    Budget(None).reserve("job", large, "passive", None, Limits())


def test_what_other_jobs_have_reserved_is_not_free_until_they_end(free: dict[str, float]) -> None:
    large, free["free"] = job({"bottom": [2000, 2000]}), 700 * MIB
    kept = Budget(None)
    kept.reserve("first", large, "passive", None, Limits())
    kept.reserve("first", large, "passive", None, Limits())  # once more: after a restart of the attempt
    kept.reserve("second", large, "passive", None, Limits())
    with pytest.raises(StateError, match="other jobs have reserved") as caught:
        kept.reserve("third", large, "passive", None, Limits())
    assert caught.value.code == "E_MEMORY"
    kept.release("first")
    kept.release("first")
    kept.reserve("third", large, "passive", None, Limits())
    taken = need(large, "passive", TableShape()).bytes * 2  # by now those two hold what they reserved: it is not free twice
    free["used"], free["free"] = 200 * MIB + taken, 400 * MIB
    kept.reserve("fourth", large, "passive", None, Limits())


def test_as_many_jobs_fit_as_are_like_the_largest_that_runs(free: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = job({"bottom": [1000, 1000]}), job({"bottom": [2000, 2000]})
    size = need(large, "passive", TableShape()).bytes
    free["free"] = 3.5 * size
    kept = Budget(None)
    assert kept.count_fitting() == math.inf  # nothing runs by which to count
    kept.reserve("small", small, "passive", None, Limits())
    kept.reserve("large", large, "passive", None, Limits())
    assert kept.count_fitting() == 3.5
    free["free"] = size / 9  # others have taken it meanwhile
    assert kept.count_fitting() >= 1
    free["free"] = 3.5 * size
    service = SimpleNamespace(is_service=True)
    with monkeypatch.context() as patched:
        patched.setattr(kept, "fit", lambda *_: 9 * size)
        kept.reserve("service", service, "passive", None, Limits())  # type: ignore[arg-type] # as far as it is asked
        assert kept.count_fitting() == (kept.free_bytes + need(small, "passive", TableShape()).bytes + size) / size
    kept.release("service")
    assert kept.count_fitting() == 3.5
    kept.release("large")
    free["free"] = math.inf  # where the system does not tell
    assert kept.count_fitting() == math.inf
    bounded = Budget(10_000)
    bounded.reserve("large", large, "passive", None, Limits())
    assert bounded.count_fitting() == (10_000 << 20) / size


def test_the_owner_may_allow_less_than_is_free(free: dict[str, float]) -> None:
    Budget(100).reserve("job", job({}), "passive", None, Limits())
    with pytest.raises(StateError, match="20 MiB are free"):
        Budget(20).reserve("job", job({}), "passive", None, Limits())


@pytest.mark.parametrize(
    ("settings", "train"),
    [
        ({"features": FeatureAuditSettings(columns="all")}, {"bottom": [4, 65536]}),
        ({"features": FeatureAuditSettings(columns="all")}, {"unaligned": {"method": "fedhssl", "projection": 8192}}),
        ({"defences": (read_params({"name": "fbs", "columns": "all"}),)}, {"bottom": [4, 65536]}),
        ({"defences": (read_params({"name": "nopeek", "columns": "all", "strength": 1}),)}, {"batch_size": 65536}),
    ],
)
def test_what_audits_and_defends_columns_of_a_peers_wide_or_large_job_is_reserved(
    free: dict[str, float], settings: dict[str, Any], train: dict[str, Any]
) -> None:
    large, table = job(train, align={"protocol": "psi"}), TableShape(rows=20_000, numeric=10)
    free["free"] = 1.1 * need(large, "passive", table).bytes
    Budget(None).fit(large, "passive", table, Limits())
    with pytest.raises(StateError, match=r"protection [0-9,]+ MiB") as caught:
        Budget(None, protection=Protection(**settings)).fit(large, "passive", table, Limits())
    assert caught.value.code == "E_MEMORY"
    assert "protection" not in caught.value.for_peer
    Budget(None, protection=Protection(**settings)).fit(job(None), "passive", table, Limits())
    usual = need(job({}), "passive", table, protection=Protection(**settings))
    assert 0 < usual.protection < 256 * MIB
