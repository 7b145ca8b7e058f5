"""The end of a job: nobody is done, and nobody forgets anything, before all parties are known to have stored their parts.

Each party dies, or has a full disk, at each point of the end; it is back at once, or later than the others wait for it.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from tests.node.several import SeveralTrial
from tests.node.stage import Stage
from vfl_node.errors import UsageError
from vfl_node.node.store import Store
from vfl_node.settings.retention import Retention

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive", "notary": "coordinator"}
CASTS = {"two": ("clinic", "lab"), "two and a coordinator": ("clinic", "lab", "notary"), "three": ("clinic", "lab", "insurer")}
CASTS |= {"all": tuple(ROLES)}
POINTS = ("before its report", "store", "confirm", "confirmed", "finished", "forget")
WAIT_S = 2.0
AT_REST = ("unconfirmed", "failed", "done", "cancelled")

QUICK = [
    ("late", "insurer", "before its report"),
    ("late", "clinic", "confirmed"),
    ("late", "notary", "confirm"),
    ("at once", "lab", "confirm"),
    ("full", "insurer", "before its report"),
]
HOWS = ("at once", "late", "full")
ALL = [(how, victim, point) for how in HOWS for victim in ROLES for point in POINTS]
FEWER = [
    (cast, how, victim, point) for cast in CASTS if cast != "all" for how in HOWS for victim in CASTS[cast] for point in POINTS
]


def job_of(cast: tuple[str, ...]) -> str:
    passive = ", ".join(name for name in cast if ROLES[name] == "passive")
    coordinator = ", coordinator: notary" if "notary" in cast else ""
    train = "{algorithm: logistic, flow: coordinator-open-scores}" if coordinator else "{epochs: 1}"
    return f"""\
name: trial
parties: {{active: clinic, passive: [{passive}]{coordinator}}}
align: {{protocol: psi}}
train: {train}
"""


@pytest.fixture(scope="module")
def stages(
    federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Stage]:
    @cache
    def make(cast: str) -> Stage:
        names = CASTS[cast]
        federation = federations(tmp_path_factory.mktemp("end"), {name: ROLES[name] for name in names}, several)
        stage = Stage(federation, forked, job_of(names))
        federation.peer_wait_s = WAIT_S
        federation.start_several()
        return stage

    return make


@pytest.fixture
def stage(request: pytest.FixtureRequest, stages: Callable[[str], Stage]) -> Iterator[Stage]:
    """All parties, or the cast that a test names."""
    stage = stages(getattr(request, "param", "all"))
    stage.ready()
    yield stage
    stage.cancel_all()


def state(stage: Stage, name: str, job_id: str) -> str:
    return str(stage.federation.view(name, job_id).get("state"))


def at_rest(stage: Stage, name: str, job_id: str) -> dict[str, Any]:
    """The job once it stands still, though a peer may have it go on again a moment later."""
    views: list[dict[str, Any]] = []

    def looked() -> bool:
        views.append(stage.federation.view(name, job_id))
        return views[-1].get("state") in AT_REST

    stage.federation.wait_until(looked, 60)
    return views[-1]


def sealed(stage: Stage, name: str, job_id: str) -> bool:
    return bool((stage.federation.job_folder(name, job_id) / "artefacts" / "SHA256SUMS").exists())


def all_end_well(stage: Stage, job_id: str) -> None:
    """Perhaps after some were unconfirmed, and without a word of their owners."""
    for name in stage.federation.roles:
        stage.federation.wait_until(lambda name=name: state(stage, name, job_id) == "done", 120)
    stage.all_done(job_id)


def none_is_done_too_early(stage: Stage, job_id: str) -> None:
    alive = (name for name, process in stage.federation.processes.items() if process.poll() is None)
    if any(state(stage, name, job_id) == "done" for name in alive):
        assert all(sealed(stage, name, job_id) for name in stage.federation.roles)


def all_end_well_once_resumed(stage: Stage, at: str, job_id: str) -> None:
    """Perhaps more than once: nodes are so impatient here that the others may be at rest again by then."""

    def ended() -> bool:
        if stage.federation.view(at, job_id)["resumable"]:
            with suppress(UsageError):  # it goes on already
                stage.federation.client(at).resume(job_id)
        return all(state(stage, name, job_id) == "done" for name in stage.federation.roles)

    try:
        stage.federation.wait_until(ended, 120)
    except AssertionError:
        stuck = {name: stage.federation.view(name, job_id) for name in stage.federation.roles}
        raise AssertionError({name: (of["state"], of["error"], of["note"]) for name, of in stuck.items()}) from None
    stage.all_done(job_id)


def others_wait(stage: Stage, victim: str, job_id: str) -> None:
    """Until they have waited too long: nobody is done unless all have stored theirs, and who is not done has its secrets."""
    for name in stage.federation.roles.keys() - {victim}:
        view = at_rest(stage, name, job_id)
        none_is_done_too_early(stage, job_id)
        if view["state"] == "done":
            continue
        code = view["error"]["code"]
        assert code == "E_UNCONFIRMED" if sealed(stage, name, job_id) else code in ("E_PEER_LOST", "E_PEER_ABSENT"), view
        assert (view["state"] == "unconfirmed") == (code == "E_UNCONFIRMED")
        assert view["resumable"]
        assert (stage.federation.job_folder(name, job_id) / "seed").exists()


def cancelled_everywhere(stage: Stage, job_id: str) -> None:
    """With no report or model left."""
    for name in stage.federation.roles:
        stage.federation.wait_until(lambda name=name: state(stage, name, job_id) == "cancelled", 60)
        folder = stage.federation.job_folder(name, job_id)
        stage.federation.wait_until(lambda folder=folder: not list(folder.iterdir()))


@pytest.mark.parametrize(("how", "victim", "point"), QUICK)
def test_the_end(stage: Stage, how: str, victim: str, point: str) -> None:
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell(f"{victim}-{'full' if how == 'full' else 'death'}", point)
    stage.let_it_end()
    if how == "full":
        view = at_rest(stage, victim, job_id)
        done = point in ("confirmed", "finished", "forget")
        assert view["state"] == "done" if done else view["error"]["code"] == "E_DISK_FULL", view
        none_is_done_too_early(stage, job_id)  # they may try again and again, since the victim is there
        (stage.shared / f"{victim}-full").unlink()
        if view["state"] == "done":
            federation.kill(victim, signal.SIGTERM)  # what could not be removed is removed when the node starts
            federation.start(victim)
        else:
            federation.client(victim).resume(job_id)
    else:
        federation.dies_in(victim, job_id)
        if how == "late":
            others_wait(stage, victim, job_id)
        federation.start(victim)
    all_end_well(stage, job_id)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "victim", "point"), [case for case in ALL if case not in QUICK])
def test_the_end_anywhere(stage: Stage, how: str, victim: str, point: str) -> None:
    test_the_end(stage, how, victim, point)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "how", "victim", "point"), FEWER, indirect=["stage"])
def test_the_end_of_fewer(stage: Stage, how: str, victim: str, point: str) -> None:
    test_the_end(stage, how, victim, point)


@pytest.mark.parametrize("owner", ["lab", pytest.param("notary", marks=pytest.mark.slow)])
def test_who_has_stored_its_part_asks_the_active_party_to_cancel(stage: Stage, owner: str) -> None:
    """It may be too late: all have stored theirs, and the active party has noted that and died before it said so."""
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell("clinic-death", "confirmed")
    stage.let_it_end()
    federation.dies_in("clinic", job_id)
    federation.client(owner).cancel(job_id)
    federation.start("clinic")
    all_end_well(stage, job_id)


@pytest.mark.parametrize("name", ["lab", pytest.param("notary", marks=pytest.mark.slow)])
def test_a_party_whose_part_fails_once_all_have_stored_theirs_ends_it_for_nobody(stage: Stage, name: str) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.tell(f"{name}-fails", "confirm")
    stage.let_it_end()
    all_end_well(stage, job_id)


def test_the_only_one_that_has_not_stored_its_part_cancels(stage: Stage) -> None:
    """Who has stored its own does not believe it, but the active party, which passes it on."""
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell("notary-full", "before its report")
    stage.let_it_end()
    assert at_rest(stage, "notary", job_id)["error"]["code"] == "E_DISK_FULL"
    federation.client("notary").cancel(job_id)
    cancelled_everywhere(stage, job_id)


@pytest.mark.parametrize("owner", ["insurer", pytest.param("clinic", marks=pytest.mark.slow)])
def test_cancelled_before_all_have_stored_it_is_cancelled_everywhere(stage: Stage, owner: str) -> None:
    """Those who had stored theirs leave no model either."""
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell("lab-death", "before its report")
    stage.let_it_end()
    federation.dies_in("lab", job_id)
    federation.wait_until(lambda: all(sealed(stage, name, job_id) for name in ("clinic", "insurer")), 60)
    federation.client(owner).cancel(job_id)
    federation.start("lab")
    cancelled_everywhere(stage, job_id)


def dies_late(stage: Stage, victim: str, place: str, *waiting: str) -> str:
    """A job whose ``victim`` is dead at ``place``; the job's id. Those ``waiting`` have waited too long by then."""
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.tell(f"{victim}-death", place)
    stage.let_it_end()
    stage.federation.dies_in(victim, job_id)
    for name in waiting:
        assert at_rest(stage, name, job_id)["state"] == "unconfirmed"
    return job_id


def end_elsewhere(stage: Stage, at: str, job_id: str, wanted: str) -> None:
    for name in stage.federation.roles.keys() - {at}:
        stage.federation.wait_until(lambda name=name: state(stage, name, job_id) == wanted, 60)


def test_a_late_party_hears_of_a_cancellation_that_the_others_have_pruned(stage: Stage) -> None:
    job_id = dies_late(stage, "lab", "store")
    stage.federation.client("clinic").cancel(job_id)
    end_elsewhere(stage, "lab", job_id, "cancelled")
    assert job_id in stage.federation.client("clinic").prune(Retention(jobs_keep=0), models=False, dry=False)
    stage.federation.start("lab")
    stage.federation.wait_until(lambda: state(stage, "lab", job_id) == "cancelled", 60)
    assert not list(stage.federation.job_folder("lab", job_id).iterdir())


def test_who_has_written_its_model_and_not_sealed_it_cancels(stage: Stage) -> None:
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell("lab-full", "before its seal")
    stage.let_it_end()
    assert at_rest(stage, "lab", job_id)["error"]["code"] == "E_DISK_FULL"
    assert list((federation.job_folder("lab", job_id) / "artefacts").iterdir())
    federation.client("lab").cancel(job_id)
    cancelled_everywhere(stage, job_id)


@pytest.mark.parametrize("place", ["in a round", "store"])
def test_another_version_at_one_party_ends_the_job_for_nobody(stage: Stage, place: str) -> None:
    """The others wait; once it has its old version back, the job goes on."""
    federation = stage.federation
    if place == "store":
        job_id = dies_late(stage, "insurer", place)
    else:
        job_id = stage.submit()
        stage.in_a_round(job_id)
        stage.tell("insurer-death", place)
        federation.dies_in("insurer", job_id)
    stage.tell("insurer-other-greeting")
    federation.start("insurer")

    def ends_for_the_version() -> bool:
        code = (federation.view("clinic", job_id)["error"] or {}).get("code")
        if code in (
            "E_PEER_LOST",
            "E_PEER_ABSENT",
            "E_UNCONFIRMED",
        ):  # a busy machine started it later than the others wait here
            federation.client("clinic").resume(job_id)
        return bool(code == "E_VERSION")

    federation.wait_until(ends_for_the_version)
    for name in federation.roles.keys() - {"insurer"}:
        view = federation.view(name, job_id)
        assert view["resumable"] or view["state"] in ("waiting", "running"), (name, view)
    federation.kill("insurer")
    (stage.shared / "insurer-other-greeting").unlink()
    federation.start("insurer")
    federation.wait_until(lambda: federation.connected("clinic"))
    stage.let_it_end()
    all_end_well_once_resumed(stage, "clinic", job_id)


@pytest.mark.parametrize("why", ["no thread", "a job that this version cannot read"])
def test_what_is_confirmed_is_done_though_the_node_can_not_begin_the_job_any_more(stage: Stage, why: str) -> None:
    job_id = dies_late(stage, "clinic", "finished")
    end_elsewhere(stage, "clinic", job_id, "done")
    if why == "no thread":
        stage.tell("clinic-no-thread")
    else:
        store = Store(stage.federation.folder / "clinic" / "state")
        record = store.record(job_id)
        store.update(record, spec=json.dumps(json.loads(record.spec) | {"gone": 1}))
        store.close()
    stage.federation.start("clinic")
    stage.federation.wait_until(lambda: state(stage, "clinic", job_id) == "done", 60)
    with pytest.raises(UsageError, match="has already ended"):
        stage.federation.client("clinic").cancel(job_id)
    stage.federation.kill("clinic")


def test_an_active_party_that_has_lost_its_word_hears_from_all_others_that_the_job_is_done(stage: Stage) -> None:
    """As after its state folder was restored from a backup."""
    job_id = dies_late(stage, "clinic", "finished")
    end_elsewhere(stage, "clinic", job_id, "done")
    (stage.federation.job_folder("clinic", job_id) / "confirmed").unlink()
    stage.federation.start("clinic")
    all_end_well(stage, job_id)


@pytest.mark.parametrize("owner", ["lab", "clinic"])
def test_a_table_that_is_gone_when_only_the_last_word_is_missing_ends_it_for_nobody(stage: Stage, owner: str) -> None:
    federation = stage.federation
    job_id = dies_late(stage, "insurer", "store", "lab", "clinic")
    table = federation.trial.files[owner]
    away = table.rename(table.with_suffix(".away"))
    try:
        federation.start("insurer")
        message = lambda: str((federation.view(owner, job_id).get("error") or {}).get("message"))  # noqa: E731
        federation.wait_until(lambda: table.name in message(), 60)
        for name in federation.roles:
            view = federation.view(name, job_id)
            assert view["resumable"] or view["state"] in ("waiting", "running"), (name, view)
    finally:
        away.rename(table)
    all_end_well_once_resumed(stage, owner, job_id)


@pytest.mark.parametrize("owner", ["lab", "clinic"])
def test_a_cancellation_while_the_active_party_stores_that_it_waits(stage: Stage, owner: str) -> None:
    federation, job_id = stage.federation, stage.submit()
    stage.in_a_round(job_id)
    stage.tell("insurer-death", "before its report")
    stage.tell("clinic-holds", "finished")
    stage.let_it_end()
    federation.dies_in("insurer", job_id)
    federation.wait_until(lambda: "job unconfirmed" in federation.log("lab").rsplit(job_id, 1)[-1], 60)
    asking = threading.Thread(target=federation.client(owner).cancel, args=(job_id,))
    asking.start()
    asking.join(1.0)
    (stage.shared / "clinic-holds").unlink()
    asking.join()
    federation.wait_until(lambda: state(stage, "clinic", job_id) == "cancelled", 60)
    federation.start("insurer")
    cancelled_everywhere(stage, job_id)


def test_a_party_that_waits_cancels_though_its_disk_is_full(stage: Stage) -> None:
    job_id = dies_late(stage, "insurer", "store", "lab")
    stage.tell("lab-full", "index")
    stage.federation.client("lab").cancel(job_id)
    (stage.shared / "lab-full").unlink()
    stage.federation.start("insurer")
    cancelled_everywhere(stage, job_id)


def test_the_active_party_hears_a_wish_to_cancel_before_it_goes_on_with_its_jobs(stage: Stage) -> None:
    job_id = dies_late(stage, "clinic", "store")
    stage.federation.client("lab").cancel(job_id)
    stage.tell("clinic-holds", "works")
    before = stage.federation.log("clinic").count('"peer connected"')
    starting = threading.Thread(target=stage.federation.start, args=("clinic",))
    starting.start()
    stage.federation.wait_until(lambda: stage.federation.log("clinic").count('"peer connected"') >= before + 3)
    kept = stage.federation.job_folder("clinic", job_id)
    stage.federation.wait_until(lambda: not list(kept.iterdir()))  # it has heard the wish
    (stage.shared / "clinic-holds").unlink()
    starting.join()
    cancelled_everywhere(stage, job_id)
