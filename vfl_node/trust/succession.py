"""A party that is its own authority gets a new one, without pairing again; or it gives its keys up.

::

    day 0    card N+1 names the new authority, and the former one, whose certificate now ends on day 31. Both keys sign it.
             The certificate is signed by the former authority once more, for peers that do not know the new one yet.
    day 30   the certificate that the new authority signed on day 0 takes its place: next.crt becomes node.crt
    day 31   nobody trusts the former authority any more: its certificate has ended

A peer that meets this node within 30 days gets the card, and verifies it by the authority that it has pinned. A peer that was
away for longer must pair again.

Five files change. They are first written into one, ``renewal.json``, and that one decides: a crash before it leaves all files
as they were, and after it :func:`follow_up` goes on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from cryptography import x509

from vfl_node.errors import UsageError
from vfl_node.process import failpoints
from vfl_node.process.files import locked_folder, remove, write_whole
from vfl_node.settings.connection import Tls
from vfl_node.settings.node import Settings
from vfl_node.transport.authority import make_authority, request_for, shorten, sign
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.trust.cards import SignedCard, make_card
from vfl_node.trust.keys import LEAF_DAYS, check_renewed, own_card, own_files, read_authority_key, read_signing_key

BOTH_DAYS = 30
"""How long peers have to learn of a new authority."""

SPARE = timedelta(days=1)
"""For so long the former authority is trusted after nothing shows its certificates any more: clocks differ."""


def renew_authority(settings: Settings, *, now: datetime | None = None) -> SignedCard:
    """Make a new authority for this party, and a card that names it beside the former one; returns the card.

    Raises:
        UsageError: this party has no authority of its own (``E_CONFIG``), the authority's key is not here (``E_FILE``), it is
            another's (``E_CERTIFICATE``), or peers still learn of the authority before (``E_EXISTS``).
        PolicyError: this party has given its keys up (``E_REVOKED``), or its card cannot be used.
    """
    files, now = own_files(settings), now or datetime.now(timezone.utc)
    follow_up(settings, now)
    if files.next_certificate.exists():
        raise UsageError(
            f"peers still learn of the authority in {files.ca}, until {switches_at(files):%Y-%m-%d}",
            code="E_EXISTS",
            hint=f"wait until then; if its key is stolen: vfl-node revoke {settings.name}",
        )
    credentials = _load(settings, now)
    former, former_key = credentials.authority, read_authority_key(files)
    request = request_for(settings.name, settings.federation, credentials.key)
    shown = sign(former, former_key, request, days=LEAF_DAYS, now=now)
    check_renewed(files, former, shown, now)
    authority, key = make_authority(settings.federation, now=now)
    both = authority + shorten(former, former_key, now + timedelta(days=BOTH_DAYS) + SPARE)
    card = make_card(
        replace(credentials, authority=both),
        read_signing_key(files),
        key,
        former=former_key,
        serial=own_card(credentials).card.serial + 1,
        now=now,
    )
    _stage(
        files,
        {
            "ca": both,
            "card": card.envelope,
            "certificate": shown,
            "next_certificate": sign(authority, key, request, days=LEAF_DAYS + BOTH_DAYS, now=now),
            "authority_key": key,
        },
    )
    follow_up(settings, now)
    return card


def give_up(settings: Settings, *, now: datetime | None = None) -> SignedCard:
    """Write a card that says that this party's keys are given up; a running node tells it to all peers.

    Raises:
        UsageError: this party has no authority of its own (``E_CONFIG``), or the authority's key is not here (``E_FILE``).
        PolicyError: they are given up already (``E_REVOKED``), or the card cannot be used.
    """
    files, now = own_files(settings), now or datetime.now(timezone.utc)
    follow_up(settings, now)
    credentials = _load(settings, now)
    serial = own_card(credentials).card.serial + 1
    key = read_authority_key(files)
    card = make_card(credentials, read_signing_key(files), key, serial=serial, revoked=True, now=now)
    _stage(files, {"card": card.envelope})
    follow_up(settings, now)
    return card


def follow_up(settings: Settings, now: datetime | None = None) -> bool:
    """Finish a renewal that was decided on, and show the certificate of a new authority when its time has come. Idempotent.

    Returns:
        Whether this party shows that certificate from now on.

    Raises:
        UsageError: the disk refuses (``E_FILE``).
    """
    files, now = settings.tls, now or datetime.now(timezone.utc)
    if files is None or files.mode != "own" or not (files.staged.exists() or files.next_certificate.exists()):
        return False
    try:
        with locked_folder(files.key.parent):
            if files.staged.exists():
                for name, text in json.loads(files.staged.read_bytes()).items():
                    write_whole(getattr(files, name), text.encode())
                    failpoints.reach("succeed")
                remove(files.staged)
            if not files.next_certificate.exists() or now < switches_at(files):
                return False
            files.next_certificate.replace(files.certificate)
            return True
    except OSError as error:
        text = f"cannot renew the keys beside {files.key}: {error.strerror or error}"
        raise UsageError(text, code="E_FILE", hint="mend that, and start the command or the node again") from None


def switches_at(files: Tls) -> datetime:
    """From when on the certificate of the new authority is shown; the past where no former one is trusted any more."""
    *_, last = x509.load_pem_x509_certificates(files.ca.read_bytes())
    return last.not_valid_after_utc - SPARE


def _stage(files: Tls, contents: dict[str, bytes]) -> None:
    """Decide on new contents of files: name of the property of ``files`` → content."""
    try:
        write_whole(files.staged, json.dumps({name: data.decode() for name, data in contents.items()}).encode())
    except OSError as error:
        raise UsageError(f"cannot write {files.staged}: {error.strerror or error}", code="E_FILE") from None
    failpoints.reach("staged")


def _load(settings: Settings, now: datetime) -> Credentials:
    assert settings.tls
    return load_credentials(settings.tls, name=settings.name, federation=settings.federation, now=now)
