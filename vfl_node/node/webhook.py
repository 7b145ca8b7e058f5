"""Tell a program of this owner that a job asks for an answer, was approved, or has ended: which job, and nothing of it.

Nothing that it answers changes anything here: who decides looks at the job and says so at this node.
"""

from __future__ import annotations

import hmac
import http.client
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import structlog

from vfl_node.errors import UsageError, VflError
from vfl_node.node.consents import Consents
from vfl_node.node.record import Record
from vfl_node.node.states import UNFINISHED
from vfl_node.node.store import Store
from vfl_node.settings.connection import Webhook, WebhookEvent
from vfl_node.settings.node import Settings

log = structlog.get_logger()

MOST_WAITING = 1000
"""How many events wait to be sent at most, while the program is away."""

TRIES, TIMEOUT_S, PAUSE_S = 3, 5.0, 2.0
"""How often one event is sent at most, how long each time may take, and how long it waits between them."""

SIGNATURE = "X-Vfl-Signature"

LEAST_SECRET = 16
"""Bytes of the secret, at least: whoever guesses it signs events as this node."""


class WebhookSender:
    """Hears of each job that the store of a node writes, and sends what happens; what waits for the owner at a start, again.

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
        self._waiting = queue.Queue[tuple[WebhookEvent, Record, int] | None](MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Begin to hear, where the settings name an address. Raises StateError where the index cannot be read."""
        if self._settings.webhook:
            for record in self._store.standing("asked"):
                self._hear(None, record)
            self._store.on_written = self._hear
            self._thread.start()

    def stop(self) -> None:
        """End. What was not sent yet is not sent any more."""
        self._stopping.set()
        with suppress(queue.Full):  # then the thread has no need to be woken
            self._waiting.put_nowait(None)

    def _hear(self, before: Record | None, now: Record) -> None:
        hook = self._settings.webhook
        assert hook
        for event in find_events(before, now):
            try:
                if event in hook.events:
                    self._waiting.put_nowait((event, now, int(time.time())))
            except queue.Full:
                log.warning("the webhook has too many events to send: this one is not sent", event_of=event, job=now.id)

    def _run(self) -> None:
        while (told := self._waiting.get()) and not self._stopping.is_set():
            try:
                self._send(*told)
            except Exception:
                log.exception("internal error")  # the thread must outlive it

    def _send(self, event: WebhookEvent, record: Record, at: int) -> None:
        hook = self._settings.webhook
        assert hook
        body = json.dumps(self._describe(event, record) | {"at": at}).encode()
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

    def _describe(self, event: WebhookEvent, record: Record) -> dict[str, Any]:
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
        }


def find_events(before: Record | None, now: Record) -> Iterator[WebhookEvent]:
    """What has happened to a job that was as ``before``, None where it is new, and is as ``now``."""
    if now.state == "asked" and before is None:
        yield "asked"
    if now.state in UNFINISHED and before is not None and before.state == "asked":
        yield "approved"
    if now.over and not (before and before.over):
        yield "ended"


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
