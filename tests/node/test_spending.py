"""What hidden trainings spend is counted before their first message, with every other data party, for each table."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import at_least
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, PolicyError, StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.execution.simulation import party_coroutines
from vfl_node.gdp import epsilon_of, mu_of
from vfl_node.job import Job
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.partners import Partner, accept_loss
from vfl_node.node.spending import check_budget
from vfl_node.report.summary import summary
from vfl_node.session.memory import JointMemory, MemoryOfOneRun
from vfl_node.session.spent import Expense, Spent
from vfl_node.settings.node import Data, Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead
from vfl_node.transport.memory import memory_network, run_together

ROLES = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
PARTIES = "name: trial\nparties: {active: clinic, passive: lab, coordinator: notary}\n"
TRAIN = "train: {algorithm: hidden, epsilon: 1}\n"
FIT = 12
"""So many jobs of ε 1 fit into an ε of 4."""


def expense(
    job_id: str, epsilon: float = 1, *, table: str = "default", limit: float | None = 4, unbounded: str = ""
) -> Expense:
    return Expense(table, job_id, mu_of(epsilon), unbounded, limit, about="psu")


def filled(memory: PartnerCounts, jobs: int = FIT) -> None:
    for number in range(jobs):
        memory.spend(expense(f"job-{number}"))


class Spending:
    """Attempts at hidden jobs in memory; what each party remembers of the other lies on the disk."""

    def __init__(self, trial: Any, folder: Path) -> None:
        self.files, self.folder = dict(trial.files), folder
        self.sent = 0

    def run(self, job_id: str, text: str = TRAIN, *, attempt: int = 1, dies: bool = False, **budgets: Any) -> dict[str, Any]:
        """Both parties' results; ``budgets`` are the lab's, which dies before its first message if it ``dies``."""
        job, runs, self.sent = parse(PARTIES + text, Job, source="job"), {}, 0
        for name, channels in memory_network(*ROLES, job_id=job_id).items():
            if name == "lab":
                for channel in channels.values():
                    self._tap(channel._pipe, dies=dies)
            settings = self.settings(name, **budgets if name == "lab" else {})
            memories = {peer: Partner(self.folder / name, peer) for peer in job.remembered_parties(name)}
            runs[name] = set_up(
                settings,
                job,
                job_id,
                read_input(settings, job) if name in self.files else None,
                Randomness(f"{job_id} {name}".encode().ljust(32)),
                JobFolder(self.folder / job_id / name),
                LiveProgress(job_id, Stop()),
                attempt,
                memories,
                channels,
            )
        played = [(name, protocol) for name, run in runs.items() for protocol in party_coroutines(run)]
        results = run_together(*(protocol for _, protocol in played))
        return {name: result for (name, _), result in zip(played, results, strict=True)}

    def settings(self, name: str, **budgets: Any) -> Settings:
        data = Data(path=self.files[name], label="label" if name == "clinic" else None) if name in self.files else None
        policy = {"everyone": at_least(1) | {"unbounded_models": ["exact"], "budgets": budgets}}
        peers: Any = {peer: {} for peer in ROLES if peer != name}
        listen = {"listen": "127.0.0.1:0", "state_dir": self.folder / f"state of {name}"}
        return Settings(
            name=name, role=ROLES[name], data=data, peers=peers, insecure_loopback=True, device="cpu", policy=policy, **listen
        )

    def report(self, job_id: str, name: str) -> dict[str, Any]:
        return json.loads((self.folder / job_id / name / "artefacts" / "report.json").read_text())

    def partner(self, name: str, of: str) -> Partner:
        return Partner(self.folder / name, of)

    def _tap(self, pipe: Any, *, dies: bool) -> None:
        put = pipe.put

        async def counted(frame: Any) -> None:
            self.sent += 1
            await put(frame)

        async def cut_off(*_: Any) -> Any:
            raise PeerLost("cut off by the test")

        pipe.put = cut_off if dies else counted
        pipe.get = cut_off if dies else pipe.get


@pytest.fixture
def spending(trial: Any, ram: Path) -> Spending:
    return Spending(trial, ram)


def test_a_job_is_charged_at_both_and_one_too_many_sends_nothing_whatever_set_it_is_over(spending: Spending) -> None:
    lab = spending.partner("lab", "clinic")
    filled(lab, FIT - 1)
    assert set(spending.run("last").values()) == {None}
    assert spending.sent > 0
    report = spending.report("last", "lab")
    privacy = report["training"]["hidden"]["privacy"]
    assert (privacy["epsilon"], privacy["spent"]) == pytest.approx((1, 3.904), abs=1e-3)
    said = "Of 4.0 this job spends 1.0; with earlier ones 3.9. Whoever has all that was opened"
    assert said in privacy["text"]
    for name in spending.files:
        assert [entry["text"] for entry in report["learnt"][name] if entry["what"] == "privacy"] == [privacy["text"]]
    assert privacy["text"] in summary(report)
    assert spending.report("last", "notary")["training"]["hidden"]["privacy"] is None
    assert spending.partner("clinic", "lab").account().total("default") == Spent(mu_of(1))
    assert epsilon_of(lab.account().total("default").mu) == pytest.approx(3.904, abs=1e-3)

    lines = spending.files["lab"].read_text().splitlines()
    fewer, all_rows = spending.folder / "fewer.csv", spending.files["lab"]
    fewer.write_text("\n".join(lines[:-1]))
    for job_id, path in (("another", all_rows), ("over-another-set", fewer)):
        spending.files["lab"] = path
        refused = spending.run(job_id)["lab"]
        assert isinstance(refused, PolicyError)
        assert refused.code == "E_BUDGET"
        assert "would have spent ε 4.08 with this job, 3.90 without it, and this node allows 4" in refused.message
        assert refused.for_peer == "its policy does not allow the job (budget)"
        assert spending.sent == 0
    assert len(lab.account().lines) == FIT

    spending.files["lab"] = all_rows
    assert set(spending.run("last", attempt=2).values()) == {None}  # is counted already
    assert set(spending.run("more", epsilon=None).values()) == {None}
    assert len(lab.account().lines) == FIT + 1


def test_a_failed_job_counts_and_another_attempt_of_it_does_not(spending: Spending) -> None:
    for attempt in (1, 2):
        failed = spending.run("failing", attempt=attempt, dies=True)
        assert isinstance(failed["lab"], PeerLost)
        assert spending.sent == 0
        assert len(spending.partner("lab", "clinic").account().lines) == 1


def test_a_job_without_epsilon_spends_what_its_metrics_spend_and_stays_remembered_as_unbounded(spending: Spending) -> None:
    text = "train: {algorithm: hidden, epsilon: null}\nevaluate: {epsilon: 2}\n"
    spending.run("unbounded", text, dies=True)
    assert spending.partner("lab", "clinic").account().total("default") == Spent(mu_of(2), unbounded=1)


def test_what_would_be_refused_is_refused_when_it_is_submitted_or_offered_and_counted_then_by_nobody(
    spending: Spending,
) -> None:
    settings, job = spending.settings("lab"), parse(PARTIES + TRAIN, Job, source="job")
    check_budget(settings, job)
    assert not settings.state_dir.exists()  # a look makes no memory
    memory = Partner(settings.state_dir / "partners", "clinic")
    filled(memory, FIT - 1)
    for _ in range(2):
        check_budget(settings, job)
    filled(memory)
    with pytest.raises(PolicyError) as caught:
        check_budget(settings, job)
    assert caught.value.code == "E_BUDGET"
    check_budget(spending.settings("lab", epsilon=None), job)


def test_each_table_and_each_partner_has_a_count_of_its_own(tmp_path: Path) -> None:
    lab, insurer = (Partner(tmp_path, name) for name in ("lab", "insurer"))
    filled(lab)
    with pytest.raises(PolicyError):
        lab.spend(expense("more"))
    lab.spend(expense("more", table="loans"))
    insurer.spend(expense("more"))
    assert lab.account().tables == ["default", "loans"]


def test_each_data_party_of_a_job_is_charged_in_full_and_none_if_one_refuses(tmp_path: Path) -> None:
    lab, insurer = (Partner(tmp_path, name) for name in ("lab", "insurer"))
    both = JointMemory([insurer, lab])
    assert both.spend(expense("first", 2)) == Spent(mu_of(2))
    assert lab.account() == insurer.account()
    filled(lab, 7)
    assert both.spend(expense("second")).mu == pytest.approx((mu_of(2) ** 2 + 8 * mu_of(1) ** 2) ** 0.5)
    before = insurer.account()
    with pytest.raises(PolicyError, match="with lab"):
        both.spend(expense("third", 3))
    assert insurer.account() == before


def test_two_jobs_at_the_limit_do_not_both_fit(tmp_path: Path) -> None:
    for number in range(10):
        lab = Partner(tmp_path / str(number), "lab")
        filled(lab, FIT - 1)
        together, results = threading.Barrier(4), []

        def spend(job_id: str, lab: Partner = lab, together: Any = together, results: Any = results) -> None:
            together.wait()
            try:
                results.append(lab.spend(expense(job_id)))
            except PolicyError as error:
                results.append(error.code)

        threads = [threading.Thread(target=spend, args=(f"at-once-{of}",)) for of in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results.count("E_BUDGET") == 3
        assert len(Partner(tmp_path / str(number), "lab").account().lines) == FIT


def test_the_limit_itself_fits(tmp_path: Path) -> None:
    for epsilon in (0.1, 0.5, 1, 2, 3.3, 4, 8, 100):
        Partner(tmp_path, "lab").spend(expense("only", epsilon, table=f"t{epsilon}".replace(".", "-"), limit=epsilon))


def test_a_damaged_count_is_no_empty_one(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    filled(lab, 2)
    lab.forget()
    path = tmp_path / "lab" / "ledger.log"
    path.write_bytes(path.read_bytes().replace(b"spent", b"spend", 1))
    for act in (lambda: lab.spend(expense("next")), lambda: lab.check_expense(expense("next")), lab.usage, lab.forget):
        with pytest.raises(StateError) as caught:
            act()
        assert caught.value.code == "E_STATE_CORRUPT"


def test_an_owner_begins_a_new_count_and_what_was_counted_stays_listed(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    with pytest.raises(UsageError, match="nothing is spent with lab"):
        lab.forget()
    filled(lab)
    assert PartnerCounts(tmp_path / "lab", "lab").forget() == FIT  # as a command does beside the node
    assert lab.account().total("default") == Spent()
    assert len(lab.account().expenses("default", forgotten=True)) == FIT
    filled(lab)  # attempts of jobs that were counted
    assert lab.spend(expense("new")) == Spent(mu_of(1))
    assert lab.account().tables == ["default"]


def test_after_a_loss_nothing_is_left_to_spend_until_the_owner_begins_a_new_count(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    with pytest.raises(StateError, match="has seen entry 3"):
        lab.heads("job", {}).prove(LedgerHead(entries=3, link=b"l" * 32))
    accept_loss(lab)
    for _ in range(2):
        with pytest.raises(PolicyError) as caught:
            lab.spend(expense("first"))
        assert caught.value.code == "E_BUDGET"
        assert "vfl-node budget --forget lab" in caught.value.hint
    assert lab.spend(expense("unlimited", limit=None)) == Spent(mu_of(1))
    assert lab.forget() == 2
    assert lab.spend(expense("first")) == Spent(mu_of(1))


def test_a_trial_counts_nothing() -> None:
    memory = MemoryOfOneRun(Randomness(bytes(32)))
    for number in range(FIT + 5):
        memory.check_expense(expense(f"job-{number}"))
        assert memory.spend(expense(f"job-{number}", 8, unbounded="exact")) == Spent(mu_of(8), unbounded=1)
