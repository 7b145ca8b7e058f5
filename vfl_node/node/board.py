"""The HTTP port of a node, as its owner has configured it."""

from __future__ import annotations

import structlog

from vfl_node.errors import UsageError
from vfl_node.settings.consistent import is_loopback
from vfl_node.settings.node import Settings
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.tokens import Tokens
from vfl_node.web.access import Access
from vfl_node.web.app import create_app
from vfl_node.web.handshakes import list_names, load_context
from vfl_node.web.server import Server
from vfl_node.web.view import NodeView

log = structlog.get_logger()


def check_http(settings: Settings) -> None:
    """Raises UsageError (``E_PLAINTEXT``) if the HTTP port would be plain beyond loopback, and the owner has not allowed it."""
    if settings.http and not (settings.http_tls or settings.http_plain or is_loopback(settings.http)):
        raise UsageError(
            f"http {settings.http} is not on loopback, and without http_tls whoever is on the way reads tokens and predictions",
            code="E_PLAINTEXT",
            hint="set http_tls: {certificate, key}; or http_plain: true if something else encrypts what goes over it",
        )


def open_board(settings: Settings, view: NodeView, access: Access, *, tokens: Tokens, audit: AuditLog) -> Server:
    """The HTTP port, not started yet.

    Args:
        settings: of the node, with an address for this port.
        view: the node.
        access: its keys.
        tokens: of people.
        audit: where it is recorded who did what.

    Raises:
        UsageError: its certificate or key cannot be used (:func:`vfl_node.web.handshakes.load_context`).
    """
    assert settings.http
    host, _, port = settings.http.rpartition(":")
    host, files = host.strip("[]"), settings.http_tls
    context = load_context(files.certificate, files.key) if files else None
    if context is None and not is_loopback(settings.http):
        log.warning("the HTTP port is plain: whoever is on the way reads the tokens and what is shown", http=settings.http)
    names = {"localhost", host, *(list_names(files.certificate) if files else ())}
    return Server(create_app(view, token=access, names=names, tokens=tokens, audit=audit), host, int(port), tls=context)
