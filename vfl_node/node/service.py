"""One node from start to stop: settings, certificates, store, peers, jobs, board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structlog

from vfl_node.configuration.models import parse
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.crypto.kernels import kernel
from vfl_node.execution.outcome import ARTEFACTS
from vfl_node.execution.trial import read_trial
from vfl_node.job import Job
from vfl_node.node.approvals import Approvals
from vfl_node.node.budgets import budgets
from vfl_node.node.cards import Cards
from vfl_node.node.extensions import Extensions
from vfl_node.node.faults import starting
from vfl_node.node.health import Health
from vfl_node.node.jobs import Jobs
from vfl_node.node.ledgers import describe_all, partners_met
from vfl_node.node.measuring import NodeMeter
from vfl_node.node.membership import Membership
from vfl_node.node.offers import Offers
from vfl_node.node.pairing import Pairing
from vfl_node.node.peers import Peers
from vfl_node.node.policies import Policies
from vfl_node.node.schedules import Schedules
from vfl_node.node.services import list_services
from vfl_node.node.start_check import StartCheck
from vfl_node.node.store import Store
from vfl_node.node.webhook import WebhookSender
from vfl_node.node.works import Works
from vfl_node.prediction.play import PREDICTIONS
from vfl_node.prediction.requests import PredictionRequest
from vfl_node.process.machine import machine_state, utc_now
from vfl_node.process.tensors import settle_device
from vfl_node.report.timeline import TRACE, tell
from vfl_node.report.words import SEEDED
from vfl_node.settings.connection import Roster
from vfl_node.settings.node import Settings
from vfl_node.settings.retention import Retention
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.recorder import Recorder
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.signers import Signers
from vfl_node.trust.succession import follow_up
from vfl_node.trust.tokens import Tokens, node_token
from vfl_node.version import VERSION
from vfl_node.web.wanted import Wanted

log = structlog.get_logger()

STOP_S = 5.0
"""Time that running jobs get to pause; the whole node ends within 10 s."""


class Node:
    """A party's service. Also the ``NodeView`` that the board shows."""

    def __init__(self, settings: Settings, *, recorder: Recorder | None = None) -> None:
        """Read certificates and open the store.

        Args:
            settings: this party's.
            recorder: hears everything that this node sends; for tests and benchmarks.

        Raises:
            UsageError: a certificate, key or device cannot be used.
            StateError: the state folder cannot be used.
        """
        self._roster = Roster(settings.peers)
        self.settings = settings = settings.model_copy(update={"peers": self._roster})
        self._started = utc_now()
        credentials = None
        if settings.tls:
            follow_up(settings)
            credentials = load_credentials(
                settings.tls, name=settings.name, federation=settings.federation, peers=settings.authorities
            )
            for warning in credentials.warnings:
                log.warning(warning)
        else:
            log.warning("plaintext between loopback addresses: for trials on one machine only")
        self._device = settle_device(settings.device)
        trial = read_trial(settings)
        if trial.seeded:
            log.warning(SEEDED)
        self._store = Store(settings.state_dir, trial, Signers(settings))
        self._works = Works(settings, self._store)
        self._jobs = Jobs(settings, self._store, self._works)
        self.tokens = Tokens(settings.state_dir)
        self.schedules = Schedules(settings, self._store, self._jobs.submit)
        self._approvals = Approvals(settings, self._store, self._works, self.tokens)
        self.policies, self._webhook = Policies(settings, self._store, self.tokens), WebhookSender(settings, self._store)
        self._data = StartCheck(settings)
        self._offers = Offers(settings, self._store, self._works)
        self._pairing = Pairing(settings, credentials)
        self._bound: str | None = None
        guests = self._pairing if settings.pairs else None
        cards = Cards(settings, self._roster)
        self.extensions = Extensions(settings, self._store, self.tokens)
        voices = (cards, self.extensions)
        self.peers = Peers(settings, credentials, self._offers.hear, self._works.expects, recorder, guests, voices)
        self.extensions.tell, self.peers.news = self.peers.tell, cards.show_changed
        self._health = Health(
            settings, self._store, self.peers, self._data, self.policies, self._works.draining, self.schedules
        )
        self._meter = NodeMeter(
            settings, self._store, self._jobs, self._works, self.peers, self._data, self._health, self.schedules
        )
        self.tick, self.is_live, self.list_faults = self._health.tick, self._health.is_live, self._health.list_faults
        self.find_status = self._health.find_status
        self._membership = Membership(settings, self._roster, self._works, self.peers)
        cards.on_given_up = self._membership.take_leave
        with starting(settings.state_dir):
            self.token = node_token(settings.state_dir)
        self.audit = AuditLog(settings.state_dir)

    def start(self) -> str | None:
        """Listen, dial, go on with unfinished jobs; returns the bound gRPC address.

        Raises:
            UsageError: ``VFL_KERNEL`` names a kernel that this machine does not have (``E_CONFIG``), among others.
        """
        kernel()
        self._works.attach(self.peers)
        self._works.on_hour = self._approvals.expire
        self.peers.on_up = self._offers.link_up
        self._webhook.start()
        bound = self._bound = self.peers.start()
        self._works.start()
        self._data.start()
        self.schedules.start()
        log.info(
            "node up",
            party=self.settings.name,
            role=self.settings.role,
            version=VERSION,
            kernel=kernel().name,
            listen=bound,
            device=self._device,
            threads=self.settings.threads,
        )
        if not self.settings.connected:
            hint = (
                "pair with one: vfl-node invite, vfl-node join" if self.settings.pairs else "add one, then start the node again"
            )
            log.warning("no peer is configured, so no job can run", hint=hint)
        return bound

    def stop(self) -> None:
        """Pause jobs, tell the peers, close everything."""
        self.schedules.stop()
        self._webhook.stop()
        self._works.stop(STOP_S)
        self.peers.stop()
        self.audit.flush()
        self._store.close()
        log.info("node down", party=self.settings.name)

    def health(self) -> dict[str, Any]:
        """Which node this is, whether its peers, table and machine are fit for jobs, and what is left of places and limits."""
        return {
            **self._health.describe(),
            "party": self.settings.name,
            "role": self.settings.role,
            "version": VERSION,
            "kernel": kernel().name,
            "started": self._started,
            "peers": self.peers.status(),
            "data": self._data.health(),
            "places": self._works.places(),
            "draining": bool(self._works.draining),
            "certificate_days": self.peers.certificates.days if self.peers.certificates else None,
            **machine_state(self.settings.state_dir),
            "budgets": budgets(self.settings, self._store),
            "services": list_services(self.settings, self._store),
            "schedules": self.schedules.outline(),
        }

    def jobs(self) -> list[dict[str, Any]]:
        """Every job, newest first."""
        return self._jobs.views()

    def find_jobs(self, *asked: Wanted) -> list[dict[str, Any]]:
        """For each of those ``asked`` the jobs that are wanted."""
        return self._jobs.find(*asked)

    def job(self, job_id: str) -> dict[str, Any] | None:
        """One job, or None."""
        return self._jobs.view(job_id)

    def submit(self, job_yaml: str, person: str | None = None, priority: int = 0) -> dict[str, Any]:
        """Register a job of the owner, or of a ``person`` here. Raises UsageError."""
        job = parse(job_yaml, Job, source="the job", context=LASTING_NAMES)
        record = self._jobs.submit(job, person=person, priority=priority)
        return self._jobs.view(record.id) or {}

    def cancel(self, job_id: str) -> dict[str, Any]:
        """End a job. Raises UsageError."""
        self._jobs.cancel(job_id)
        return self._jobs.view(job_id) or {}

    def resume(self, job_id: str) -> dict[str, Any]:
        """Go on with a job whose peer was lost. Raises UsageError."""
        self._works.resume(job_id)
        return self._jobs.view(job_id) or {}

    def asks(self) -> list[dict[str, Any]]:
        """As :meth:`vfl_node.node.approvals.Approvals.asks`."""
        return self._approvals.asks()

    def show(self, job_id: str) -> dict[str, Any]:
        """As :meth:`vfl_node.node.approvals.Approvals.show`."""
        return self._approvals.show(job_id)

    def approve(self, job_id: str, digits: str, note: str, person: str | None = None) -> dict[str, Any]:
        """Let a job of a peer run. Raises VflError as :meth:`vfl_node.node.approvals.Approvals.approve`."""
        self._approvals.approve(job_id, digits, note, person)
        return self._jobs.view(job_id) or {}

    def refuse(self, job_id: str, reason: str, note: str, person: str | None = None) -> dict[str, Any]:
        """Refuse a job of a peer. Raises VflError as :meth:`vfl_node.node.approvals.Approvals.refuse`."""
        self._approvals.refuse(job_id, reason, note, person)
        return self._jobs.view(job_id) or {}

    def policy(self) -> dict[str, Any]:
        """As :meth:`vfl_node.node.policies.Policies.show`."""
        return self.policies.show()

    def ledgers(self, since: str = "") -> list[dict[str, Any]]:
        """As :func:`vfl_node.node.ledgers.describe_all`."""
        return describe_all(self.settings, partners_met(self.settings), since)

    def check_policy(self, text: str) -> dict[str, Any]:
        """As :meth:`vfl_node.node.policies.Policies.check`."""
        return self.policies.check(text)

    def apply_policy(self, text: str, person: str | None) -> dict[str, Any]:
        """As :meth:`vfl_node.node.policies.Policies.apply`."""
        return self.policies.apply(text, person)

    def drain(self, *, on: bool) -> None:
        """As :meth:`vfl_node.node.draining.Draining.set`."""
        self._works.draining.set(on=on)

    def prune(self, limits: Retention, *, models: bool, dry: bool) -> list[str]:
        """Remove jobs that have ended. Raises VflError."""
        return self._works.prune(limits, models=models, dry=dry)

    def predict(self, model: str, request: bytes) -> PredictionRequest:
        """Ask for predictions of known records, a CSV file. Raises VflError."""
        return self._jobs.predict(model, request)

    def predict_new(self, model: str, request: bytes, person: str | None = None) -> dict[str, Any]:
        """Register a job of a ``person`` that aligns and predicts new records, a CSV file. Raises VflError."""
        record = self._jobs.predict_new(model, request, person=person)
        return self._jobs.view(record.id) or {}

    def invite(self, minutes: float, address: str, only: str) -> dict[str, Any]:
        """As :meth:`vfl_node.node.pairing.Pairing.invite`."""
        return self._pairing.invite(minutes, address, only=only, bound=self._bound or "")

    def invite_status(self) -> dict[str, Any]:
        """As :meth:`vfl_node.node.pairing.Pairing.status`."""
        return self._pairing.status()

    def close_invite(self) -> None:
        """As :meth:`vfl_node.node.pairing.Pairing.close`."""
        self._pairing.close()

    def admit(self, name: str) -> None:
        """As :meth:`vfl_node.node.membership.Membership.admit`."""
        self._membership.admit(name)

    def revoke(self, name: str, reason: str) -> list[str]:
        """As :meth:`vfl_node.node.membership.Membership.revoke`."""
        return self._membership.revoke(name, reason)

    def artefact(self, job_id: str, name: str) -> Path | None:
        """A file that a job left for its owner, or None. Raises StateError if it is damaged."""
        record = self._store.get(job_id)
        if record is None or name not in (*ARTEFACTS, PREDICTIONS) or not self._store.has_report(record):
            return None
        folder = self._store.job_folder(record)
        return folder.artefact(name) if (folder.artefacts / name).exists() else None

    def trace(self, job_id: str) -> bytes | None:
        """The trace of a job, kept with its report or of this process; None without. Raises StateError if it is damaged."""
        path, work = self.artefact(job_id, TRACE), self._works.latest(job_id)
        if path:
            return path.read_bytes()
        return tell(work.trace, job_id, self.settings.name).to_json() if work else None

    def metrics_text(self) -> bytes:
        """Figures for Prometheus."""
        return self._meter.write()
