"""Talk to a running node over its owner's socket or its HTTP port, as the command line does."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from vfl_node.errors import UsageError, VflError
from vfl_node.node.running import OWNERS_SOCKET, running
from vfl_node.node.states import STANDING
from vfl_node.process.files import short_name
from vfl_node.settings.node import Settings
from vfl_node.settings.retention import Retention

ANSWER_S = 10.0
"""How long a node may take to answer anything but a request to predict."""

JOB_ID = re.compile(r"[a-z0-9-]{1,100}")
"""An id that a job may have."""

LOOK_S = 0.5
"""How often it is checked meanwhile what such a request waits for."""


class Client:
    """One node's HTTP interface.

    Args:
        address: ``host:port``; empty where there is none but the socket.
        token: secret of the node, which lies in its state folder; the socket needs none.
        owners: the owner's socket in the state folder, used instead of the address.
        https: whether the address speaks TLS. Its certificate is verified by the authorities that this machine trusts, or those
            that the environment variable ``SSL_CERT_FILE`` names.
    """

    def __init__(self, address: str, token: str = "", *, owners: Path | None = None, https: bool = False) -> None:
        self.address = address
        self._scheme = "https" if https else "http"
        self._token = token
        self._owners = owners

    @classmethod
    def from_settings(cls, settings: Settings) -> Client:
        """The client of the running node with these settings. Raises UsageError (``E_NOT_RUNNING``)."""
        place = running(settings)
        return cls(place["http"] or "", owners=settings.state_dir / OWNERS_SOCKET, https=place.get("https", False))

    def health(self) -> dict[str, Any]:
        """The node's health."""
        return self._call("GET", "/health")

    def link(self, path: str = "/", *, board: str = "") -> str:
        """An address that opens the board in a browser, once.

        Args:
            path: the page.
            board: how the browser reaches the port, ``http://host:port``, where that is not the address the node has.

        Raises:
            UsageError: there is no HTTP port (``E_NOT_RUNNING``).
        """
        if not (board or self.address):
            raise UsageError("this node has no HTTP port", code="E_NOT_RUNNING", hint="set http in its configuration")
        ticket = self._call("POST", "/api/tickets")["ticket"]
        return f"{board.rstrip('/') or f'{self._scheme}://{self.address}'}/login#ticket={ticket}&to={path}"

    def jobs(self) -> list[dict[str, Any]]:
        """Every job of the node, newest first."""
        return self._call("GET", "/api/jobs")["jobs"]

    def job(self, job_id: str) -> dict[str, Any]:
        """One job."""
        return self._call("GET", _job_path(job_id))

    def report(self, job_id: str) -> dict[str, Any]:
        """The report of a job that has ended."""
        return self._call("GET", f"{_job_path(job_id)[len('/api') :]}/report.json")

    def trace(self, job_id: str) -> bytes:
        """When the node sent, received and waited in a job (:mod:`vfl_node.report.timeline`)."""
        return self._fetch("GET", f"{_job_path(job_id)[len('/api') :]}/trace.json")

    def report_path(self, job_id: str) -> Path | None:
        """Where that report lies as a page; None where the state folder is not known here."""
        return self._owners.parent / "jobs" / job_id / "artefacts" / "report.html" if self._owners else None

    def submit(self, job_yaml: str, priority: int = 0) -> dict[str, Any]:
        """Submit a job; returns its first view."""
        return self._call("POST", f"/api/jobs?priority={priority}" if priority else "/api/jobs", job_yaml.encode())

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job."""
        return self._call("POST", f"{_job_path(job_id)}/cancel")

    def asks(self) -> list[dict[str, Any]]:
        """The jobs of peers that wait for the owner."""
        return self._call("GET", "/api/asks")["asks"]

    def manifest(self, job_id: str) -> dict[str, Any]:
        """What a job asks for (:func:`vfl_node.node.asked_words.describe`)."""
        return self._call("GET", f"{_job_path(job_id)}/manifest")

    def approve(self, job_id: str, digest: str, note: str = "") -> dict[str, Any]:
        """Let a job of a peer run (:meth:`vfl_node.node.approvals.Approvals.approve`)."""
        return self._call("POST", f"{_job_path(job_id)}/approve", json.dumps({"digest": digest, "note": note}).encode())

    def refuse(self, job_id: str, reason: str, note: str = "") -> dict[str, Any]:
        """Refuse a job of a peer (:meth:`vfl_node.node.approvals.Approvals.refuse`)."""
        return self._call("POST", f"{_job_path(job_id)}/refuse", json.dumps({"reason": reason, "note": note}).encode())

    def extensions(self) -> list[dict[str, Any]]:
        """Requests for more of a budget (:meth:`vfl_node.node.extensions.Extensions.list`)."""
        return self._call("GET", "/api/extensions")["extensions"]

    def ask_extension(self, partner: str, budget: str, more: float, until: str, reason: str) -> dict[str, Any]:
        """Ask a partner's owner for more of a budget (:meth:`vfl_node.node.extensions.Extensions.ask`)."""
        asked = {"partner": partner, "budget": budget, "more": more, "until": until, "reason": reason}
        return self._call("POST", "/api/extensions", json.dumps(asked).encode())

    def answer_extension(self, request_id: str, answer: str) -> dict[str, Any]:
        """``approve`` or ``refuse`` a request (:class:`vfl_node.node.extensions.Extensions`)."""
        return self._call("POST", f"/api/extensions/{quote(request_id, safe='')}/{answer}")

    def policy(self) -> dict[str, Any]:
        """The policy that holds (:func:`vfl_node.settings.policy_view.describe`)."""
        return self._call("GET", "/api/policy")

    def check_policy(self, text: str) -> dict[str, Any]:
        """What another policy would change (:meth:`vfl_node.node.policies.Policies.check`)."""
        return self._call("POST", "/api/policy/check", text.encode())

    def apply_policy(self, text: str) -> dict[str, Any]:
        """Put another policy in force (:meth:`vfl_node.node.policies.Policies.apply`)."""
        return self._call("POST", "/api/policy", text.encode())

    def resume(self, job_id: str) -> dict[str, Any]:
        """Go on with a job whose peer was lost."""
        return self._call("POST", f"{_job_path(job_id)}/resume")

    def drain(self, *, on: bool) -> None:
        """Have the node begin nothing new, or begin again (:meth:`vfl_node.node.draining.Draining.set`)."""
        self._call("POST" if on else "DELETE", "/api/drain")

    def schedules(self) -> list[dict[str, Any]]:
        """The node's schedules (:meth:`vfl_node.node.schedules.Schedules.describe`)."""
        return self._call("GET", "/api/schedules")["schedules"]

    def change_schedule(self, name: str, act: str) -> dict[str, Any]:
        """``pause``, ``resume`` or ``run`` a schedule (:class:`vfl_node.node.schedules.Schedules`)."""
        return self._call("POST", f"/api/schedules/{quote(name, safe='')}/{act}")

    def prune(self, limits: Retention, *, models: bool, dry: bool) -> list[str]:
        """Remove jobs that have ended; their ids (:meth:`vfl_node.node.store.Store.prune`)."""
        asked = {"days": limits.jobs_days, "keep": limits.jobs_keep, "models_days": limits.models_days}
        asked |= {"models": models or None, "dry": dry or None}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return self._call("POST", f"/api/prune?{query}")["jobs"]

    def invite(self, minutes: float, address: str, only: str = "") -> dict[str, Any]:
        """Open an invite: its ``address`` and ``code`` (:meth:`vfl_node.node.pairing.Pairing.invite`)."""
        return self._call("POST", f"/api/invite?{urlencode({'minutes': minutes, 'address': address, 'for': only})}")

    def invite_status(self) -> dict[str, Any]:
        """What became of it (:meth:`vfl_node.node.pairing.Pairing.status`)."""
        return self._call("GET", "/api/invite")

    def close_invite(self) -> None:
        """End it."""
        self._call("DELETE", "/api/invite")

    def admit(self, name: str) -> None:
        """Take up a peer whose file pairing has written."""
        self._call("POST", f"/api/peers/{name}")

    def revoke(self, name: str, reason: str) -> list[str]:
        """End everything with a peer that the node was paired with; the jobs that are paused."""
        return self._call("POST", f"/api/peers/{name}/revoke?{urlencode({'reason': reason})}")["paused"]

    def create_token(self, name: str, roles: Sequence[str], days: int) -> str:
        """A new token (:meth:`vfl_node.trust.tokens.Tokens.create`)."""
        asked = urlencode({"name": name, "roles": ",".join(roles), "days": days})
        return self._call("POST", f"/api/tokens?{asked}")["token"]

    def tokens(self) -> list[dict[str, Any]]:
        """What may be seen of each token (:meth:`vfl_node.trust.tokens.Tokens.tokens`)."""
        return self._call("GET", "/api/tokens")["tokens"]

    def revoke_token(self, name: str) -> None:
        """End the token of a person."""
        self._call("DELETE", f"/api/tokens/{quote(name, safe='')}")

    def predict(self, model: str, request: bytes, waiting: Callable[[], None]) -> bytes:
        """Predictions of known records by the model of job ``model``, as CSV.

        Args:
            model: the job that trained it.
            request: the records, as CSV.
            waiting: called again and again until the answer comes.
        """
        return self._fetch("POST", f"{_job_path(model)}/predictions", request, waiting)

    def predict_new(self, model: str, request: bytes) -> dict[str, Any]:
        """Submit a job that aligns and predicts new records; returns its first view, when the node has read them."""
        return self._call("POST", f"{_job_path(model)}/predictions?rows=new", request, lambda: None)

    def predictions(self, job_id: str) -> bytes:
        """What a job of :meth:`predict_new` found, as CSV."""
        return self._fetch("GET", f"{_job_path(job_id)}/predictions")

    def watch(self, job_id: str, *, interval_s: float = 0.2) -> Iterator[dict[str, Any]]:
        """The job's view again and again until it has ended, without what only its page shows."""
        while True:
            view = {key: value for key, value in self.job(job_id).items() if key not in ("spec", "live")}
            yield view
            if view["state"] not in STANDING:
                return
            time.sleep(interval_s)

    def _call(self, method: str, path: str, body: bytes | None = None, waiting: Callable[[], None] | None = None) -> Any:
        text = self._fetch(method, path, body, waiting)
        try:
            return json.loads(text)
        except ValueError:
            raise self._stranger() from None

    def _fetch(self, method: str, path: str, body: bytes | None = None, waiting: Callable[[], None] | None = None) -> bytes:
        """The body of the answer; with ``waiting``, whenever it comes."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection = self._connection()
        try:
            connection.request(method, path, body=body, headers=headers)
            look = select.poll()  # select has no file descriptors from 1,024 on
            look.register(connection.sock, select.POLLIN)
            while waiting and not look.poll(1000 * LOOK_S):
                waiting()
            if waiting and isinstance(connection, http.client.HTTPSConnection):
                connection.sock.settimeout(None)  # what came may be of TLS, and no answer yet
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise UsageError(
                f"no node answers at {self._place}: {getattr(error, 'strerror', None) or error}",
                code="E_NOT_RUNNING",
                hint="is it running? name it by --config FILE, or --node HOST:PORT and --token-file FILE",
            ) from None
        finally:
            connection.close()
        if response.status >= 400:
            raise self._refusal(response.status, text)
        return text

    def _connection(self) -> http.client.HTTPConnection:
        if self._owners:
            return _OverSocket(self._owners)
        if self._scheme == "https":
            return http.client.HTTPSConnection(self.address, timeout=ANSWER_S)
        return http.client.HTTPConnection(self.address, timeout=ANSWER_S)

    def _refusal(self, status: int, text: bytes) -> VflError:
        try:
            answer = json.loads(text)
        except ValueError:
            return self._stranger()
        kind = UsageError if status in (400, 404, 409, 422) else VflError
        return kind(answer.get("message", "refused"), code=answer.get("code", "E_HTTP"), hint=answer.get("hint", ""))

    def _stranger(self) -> UsageError:
        return UsageError(f"{self._place} is not a vfl-node", code="E_NOT_RUNNING")

    @property
    def _place(self) -> str:
        return str(self._owners or f"{self._scheme}://{self.address}")


def _job_path(job_id: str) -> str:
    """The path of one job. Raises UsageError (``E_UNKNOWN_JOB``) where no job can have this id: its path would be another."""
    if not JOB_ID.fullmatch(job_id):
        raise UsageError(f"no job {job_id!r} here", code="E_UNKNOWN_JOB", hint="`vfl-node jobs` lists them")
    return f"/api/jobs/{job_id}"


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short_name(self._path) as name:
            self.sock.connect(name)
