"""Tell a program of this owner that a job asks for an answer, was approved, or has ended: which job, and nothing of it.

Nothing that it answers changes anything here: who decides looks at the job and says so at this node.
"""

from __future__ import annotations

import hmac
import http.client
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog

from vfl_node.errors import UsageError, VflError
from vfl_node.node.consents import Consents
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.settings.connection import Webhook, WebhookEvent
from vfl_node.settings.node import Settings

log = structlog.get_logger()

LOOK_S = 2.0
"""How often it looks which jobs have another state."""

TRIES, TIMEOUT_S, PAUSE_S = 3, 5.0, 2.0
"""How often one event is sent at most, how long each time may take, and how long it waits between them."""

SIGNATURE = "X-Vfl-Signature"

LEAST_SECRET = 16
"""Bytes of the secret, at least: whoever guesses it signs events as this node."""


class WebhookSender:
    """Watches the jobs of a node, and sends what happens. What was asked before the node started is told again.

    Args:
        settings: of this node.
        store: its jobs.

    Raises:
        UsageError: as :func:`read_secret`.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        if settings.webhook:
            read_secret(settings.webhook)
        self._settings, self._store = settings, store
        self._consents = Consents(settings, store)
        self._open: dict[str, Record] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Begin to watch, where the settings name an address."""
        if self._settings.webhook:
            self._open = {record.id: record for record in self._store.list_unfinished()}
            self._thread.start()

    def stop(self) -> None:
        """End. What was not sent yet is not sent any more."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                for event, record in self._find_events():
                    self._send(event, record)
            except VflError as error:  # the index cannot be read at the moment
                log.warning("the webhook cannot look at the jobs", code=error.code, reason=error.message)
            except Exception:
                log.exception("internal error")  # the thread must outlive it

    def _find_events(self) -> list[tuple[WebhookEvent, Record]]:
        """What has happened since it looked last."""
        now = {record.id: record for record in (*self._store.asked(), *self._store.list_unfinished())}
        events: list[tuple[WebhookEvent, Record]] = []
        for job_id, record in now.items():
            before = self._open.get(job_id)
            if record.state == "asked" and before is None:
                events.append(("asked", record))
            if record.state != "asked" and before is not None and before.state == "asked":
                events.append(("approved", record))
        gone = (self._store.get(job_id) for job_id in self._open.keys() - now.keys())
        events += [("ended", record) for record in gone if record is not None and record.over]
        self._open = now
        return events

    def _send(self, event: WebhookEvent, record: Record) -> None:
        hook = self._settings.webhook
        assert hook
        if event not in hook.events:
            return
        body = json.dumps(self._describe(event, record)).encode()
        reason = ""
        for number in range(TRIES):
            if self._stopping.wait(PAUSE_S if number else 0):
                return
            try:
                if 200 <= (status := post(hook, body)) < 300:
                    return
                reason = f"status {status}"
            except (OSError, http.client.HTTPException, UsageError) as error:
                reason = type(error).__name__
        log.warning("the webhook did not take an event", event_of=event, job=record.id, reason=reason)

    def _describe(self, event: WebhookEvent, record: Record) -> Mapping[str, Any]:
        """What is sent: nothing that a peer or a job says."""
        scheme, address = "https" if self._settings.http_tls else "http", self._settings.http
        try:
            manifest = self._consents.manifest(record.id)
        except VflError:  # it is damaged: the job's page says so
            manifest = None
        return {
            "event": event,
            "job_id": record.id,
            "partner": record.peer(self._settings.name),
            "digest": manifest and manifest.digest,
            "link": f"{scheme}://{address}/jobs/{record.id}" if address else None,
            "at": int(time.time()),
        }


def read_secret(hook: Webhook) -> bytes:
    """The secret with which events are signed.

    Raises:
        UsageError: its file cannot be read (``E_FILE``), or it is too short (``E_CONFIG``).
    """
    try:
        secret = hook.secret_file.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"cannot read webhook.secret_file {hook.secret_file}: {error.strerror}", code="E_FILE") from None
    if len(secret) < LEAST_SECRET:
        text = f"the secret in webhook.secret_file has fewer than {LEAST_SECRET} bytes"
        raise UsageError(text, code="E_CONFIG", hint=f"openssl rand -hex 32 > {hook.secret_file}")
    return secret


def post(hook: Webhook, body: bytes) -> int:
    """Send a signed body once; returns the status of the answer. Redirections are not followed.

    Raises:
        UsageError: as :func:`read_secret`.
        OSError: the address does not answer.
        http.client.HTTPException: it answers something else than HTTP.
    """
    place = urlsplit(hook.url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(str(place.hostname), place.port, timeout=TIMEOUT_S)
    proof = hmac.new(read_secret(hook), body, "sha256").hexdigest()
    headers = {"Content-Type": "application/json", SIGNATURE: f"sha256={proof}"}
    try:
        connection.request("POST", place.path or "/", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
