"""Whether the head of a cluster speaks to this machine, as one connection tells at once. Ray itself would go on trying."""

from __future__ import annotations

import socket
import ssl

from vfl_node.settings.engine import EngineSettings

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What gRPC says first: the preface of HTTP/2 and empty settings (RFC 9113). A server answers with settings of its own."""

_SETTINGS_FRAME = b"\x04"
_UNFIT = "its certificates and this machine's do not fit"
_KEYS = "(engine.ca, cert, key)"


def find_fault(settings: EngineSettings, timeout_s: float) -> str:
    """What keeps this machine from speaking with the head of a cluster. No token is sent.

    Args:
        settings: of kind ``ray``.
        timeout_s: how long each step may take.

    Returns:
        A part of a sentence. Empty: nothing was found, also where nobody answers, which may be a matter of patience.
    """
    host, _, port = (settings.address or "").rpartition(":")
    host = host.strip("[]")
    try:
        context = _context(settings) if settings.encrypted else None
    except OSError as error:
        return f"engine.ca, cert and key cannot be used together ({getattr(error, 'reason', None) or error.strerror})"
    try:
        with socket.create_connection((host, int(port)), timeout_s) as plain:
            if context is None:
                return "" if _answers(plain) else f"it answers, but not without certificates {_KEYS}"
            with context.wrap_socket(plain, server_hostname=host) as secure:
                return "" if _answers(secure) else f"{_UNFIT}: it hangs up on engine.cert {_KEYS}"
    except ssl.SSLCertVerificationError as error:
        return f"{_UNFIT}: {error.verify_message.rstrip('.')} {_KEYS}"
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return f"{_UNFIT}: it refuses engine.cert {_KEYS}"
        return "it does not ask for certificates (RAY_USE_TLS=1 on each of its machines)"
    except (OSError, UnicodeError, OverflowError):
        return ""


def _context(settings: EngineSettings) -> ssl.SSLContext:
    """As strict as the gRPC of Ray. Raises OSError: the files are no certificates, or the key is of another one."""
    assert settings.ca
    assert settings.cert
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(settings.ca)
    context.load_cert_chain(settings.cert, settings.key, password="")  # so that nobody is asked for one
    return context


def _answers(connection: socket.socket) -> bool:
    """Whether a server of gRPC is there, which lets this machine in."""
    try:
        connection.sendall(_PREFACE)
        return connection.recv(4)[3:] == _SETTINGS_FRAME
    except (ConnectionError, ssl.SSLEOFError):
        return False
