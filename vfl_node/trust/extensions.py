"""More of a budget than the policies of two nodes allow, until a day: one owner asks for it, the other one approves it.

Both say so under a signature. Each stands in an envelope (:mod:`vfl_node.trust.dsse`) and in the ledgers of both parties.

What the peer learns: which budget is short, for how long, and why its owner says that more is needed.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from vfl_node.errors import PolicyError, peer_text
from vfl_node.job import Name
from vfl_node.job.names import Purpose
from vfl_node.trust import dsse

EXTEND = "extend"
"""Kind of the entries of ledgers that say what was agreed on."""

REQUEST = "application/vnd.vfl.extension-request+json"
APPROVAL = "application/vnd.vfl.extension-approval+json"

ANSWER_DAYS = 7
"""How long a request may wait for the other owner."""

MOST_DAYS = 366
"""How far ahead the last day may be."""

MOST_MORE = 1000

LEEWAY_S = 120
"""By how much the clocks of two nodes may differ."""

HEARD_DAYS = 14
"""How long after it was asked an answer is still heard, which may have been on its way while a link was down."""

ID_DIGITS = 32
"""Digits of the digest of a request that are its id: so many that nobody can make two requests of the same id."""

MOST_REQUEST_BYTES = 4 << 10

_LAST_YEAR = 3000

Extendable = Literal["alignments", "changes", "trainings", "trainings_in_clear", "models_served", "linkages", "epsilon"]
"""Budgets of which there may be more."""

EPSILON = "epsilon"
"""The budget that is no number of times."""


class Signed(BaseModel):
    """What both documents have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    at: AwareDatetime

    def to_bytes(self) -> bytes:
        """Canonical JSON: keys sorted, UTF-8, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


Document = TypeVar("Document", bound=Signed)


class Wish(Signed):
    """What an owner asks for.

    Attributes:
        v: version of this form.
        at: when, UTC.
        federation: of both parties.
        by: who asks.
        to: who is asked.
        budget: of which there shall be more, at both.
        more: how much.
        until: the last day, UTC, on which there is.
        reason: why, for people.
        salt: so that no two requests are the same.
    """

    federation: Name
    by: Name
    to: Name
    budget: Extendable
    more: Annotated[float, Field(gt=0, le=MOST_MORE, allow_inf_nan=False)]
    until: date
    reason: Purpose
    salt: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")] = Field(default_factory=lambda: secrets.token_hex(8))

    @model_validator(mode="after")
    def _check(self) -> Wish:
        if self.at.year >= _LAST_YEAR:
            raise ValueError("it is of another age")
        if self.budget != EPSILON and self.more != int(self.more):
            raise ValueError(f"of {self.budget} there is a whole number more")
        if not 0 <= (self.until - self.at.date()).days <= MOST_DAYS:
            raise ValueError(f"the last day is today or later, and at most {MOST_DAYS} days away")
        return self

    @property
    def expires(self) -> datetime:
        """Until when it may be answered."""
        return self.at + timedelta(days=ANSWER_DAYS)


class Approval(Signed):
    """The yes of who was asked.

    Attributes:
        v: version of this form.
        at: when, UTC.
        request_sha256: digest of the wish.
        by: who says yes.
    """

    request_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    by: Name


@dataclass(frozen=True)
class ExtensionRequest:
    """A wish as it was signed.

    Attributes:
        envelope: both.
        wish: what it says.
        digest: SHA-256 of that, in hex.
    """

    envelope: bytes
    wish: Wish
    digest: str

    @property
    def id(self) -> str:
        """What owners call it."""
        return self.digest[:ID_DIGITS]

    @property
    def has_expired(self) -> bool:
        """Whether it is too late to answer it."""
        return utc() > self.wish.expires or utc().date() > self.wish.until

    @property
    def is_over(self) -> bool:
        """Whether it is too late even for an answer that was on its way."""
        return utc() > self.wish.at + timedelta(days=HEARD_DAYS)


def sign_request(wish: Wish, key: Ed25519PrivateKey) -> ExtensionRequest:
    """The wish under the signature of who asks."""
    return parse_request(dsse.sign(REQUEST, wish.to_bytes(), key))


def parse_request(envelope: bytes) -> ExtensionRequest:
    """A request as this node has stored it; no signature is verified. Raises PolicyError (``E_EXTEND``, ``E_SIGNATURE``)."""
    payload = dsse.parse(envelope, REQUEST)
    return ExtensionRequest(envelope, _parse(Wish, payload), hashlib.sha256(payload).hexdigest())


def read_request(envelope: bytes, *, federation: str, own: str, peer: str, key: Ed25519PublicKey) -> ExtensionRequest:
    """A request that ``peer`` has sent to ``own``, signed by ``key``.

    Raises:
        PolicyError: it is not signed so (``E_SIGNATURE``); it is between other parties, too long, too old, or of the future
            (``E_EXTEND``).
    """
    if len(envelope) > MOST_REQUEST_BYTES:
        raise unusable(f"it has {len(envelope)} bytes, at most {MOST_REQUEST_BYTES} are read")
    dsse.verify(envelope, REQUEST, [key])
    request = parse_request(envelope)
    wish = request.wish
    if (wish.federation, wish.by, wish.to) != (federation, peer, own):
        raise unusable("it is of other parties")
    if request.has_expired or (wish.at - utc()).total_seconds() > LEEWAY_S:
        now = f"the clock here says {utc():%Y-%m-%d %H:%M}"
        raise unusable(f"it is of {wish.at:%Y-%m-%d %H:%M} UTC, and holds for {ANSWER_DAYS} days; {now}")
    return request


def sign_approval(request: ExtensionRequest, key: Ed25519PrivateKey) -> bytes:
    """The yes of who was asked."""
    return dsse.sign(APPROVAL, Approval(at=utc(), request_sha256=request.digest, by=request.wish.to).to_bytes(), key)


def check_approval(envelope: bytes, request: ExtensionRequest, key: Ed25519PublicKey | None) -> None:
    """Refuse what is no approval of this request by the party that was asked, whose signing key is ``key``.

    Raises:
        PolicyError: it is not signed by it (``E_SIGNATURE``; None: that is not verified); or it is of another request, or too
            late, or too long (``E_EXTEND``).
    """
    if len(envelope) > MOST_REQUEST_BYTES:
        raise unusable(f"the answer has {len(envelope)} bytes, at most {MOST_REQUEST_BYTES} are read")
    approval = _parse(Approval, dsse.verify(envelope, APPROVAL, [key]) if key else dsse.parse(envelope, APPROVAL))
    if (approval.request_sha256, approval.by) != (request.digest, request.wish.to):
        raise unusable("the answer is to another one")
    if (approval.at - request.wish.expires).total_seconds() > LEEWAY_S:
        raise unusable(f"it was approved after {request.wish.expires:%Y-%m-%d %H:%M} UTC")


def make_entry(request: ExtensionRequest, approval: bytes) -> dict[str, Any]:
    """What a ledger says of a request that was approved."""
    agreed = request.wish.model_dump(mode="json", include={"by", "to", "budget", "more", "until", "reason"})
    return {"id": request.id, **agreed, "request": request.envelope.decode(), "approval": approval.decode()}


def check_entry(body: Mapping[str, Any], own: str, peer: str, keys: Mapping[str, Ed25519PublicKey | None]) -> tuple[str, str]:
    """What is wrong with such an entry in the ledger of ``own`` about ``peer``, and what an auditor should know besides.

    Args:
        body: of the entry.
        own: the ledger's owner.
        peer: the partner.
        keys: party → with which it signs by its card; None where that is not known.

    Returns:
        Two texts; empty if there is nothing to say.
    """
    unverified = []
    try:
        request, approval = parse_request(body["request"].encode()), body["approval"].encode()
        if make_entry(request, approval) != body:
            return "it says something else than what was asked for", ""
        if {request.wish.by, request.wish.to} != {own, peer}:
            return "it is an agreement of other parties", ""
        for envelope, kind, party in ((request.envelope, REQUEST, request.wish.by), (approval, APPROVAL, request.wish.to)):
            key = keys.get(party)
            if key is None or dsse.key_id(key) not in dsse.list_signers(envelope, kind):
                unverified.append(party)
                key = None
            if kind == APPROVAL:
                check_approval(envelope, request, key)
            elif key:
                dsse.verify(envelope, kind, [key])
    except PolicyError as error:
        return error.message, ""
    except (KeyError, TypeError, AttributeError):
        return "what was agreed on cannot be read", ""
    note = f"the signature of {' and '.join(unverified)} is not by the key on its card, or that is not here: not verified"
    return "", note if unverified else ""


def utc() -> datetime:
    """Now, to the second."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def unusable(what: str) -> PolicyError:
    """The error of a request or an answer that does not count."""
    text = f"a request for more of a budget cannot be used: {what}"
    return PolicyError(text, code="E_EXTEND", for_peer=text)


def _parse(kind: type[Document], payload: bytes) -> Document:
    try:
        return kind.model_validate_json(payload)
    except ValidationError as error:
        raise unusable(peer_text(str(error.errors()[0]["msg"]))) from None
