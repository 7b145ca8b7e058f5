"""Commands with which two owners make their nodes known to each other, and end that."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vfl_node.cli.shared import app, client_of, err, out
from vfl_node.errors import UsageError
from vfl_node.node.client import Client
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import SAYS_YES
from vfl_node.settings.reading import load_settings

if TYPE_CHECKING:
    from vfl_node.trust.cards import SignedCard
    from vfl_node.trust.pending import Pending
    from vfl_node.trust.told import Told

LOOK_S = 0.5
"""How often it is checked whether somebody has joined."""

Config = Annotated[Path, typer.Option("--config", help="The node's configuration file.")]
PeerName = Annotated[str, typer.Argument(metavar="NAME", help="The other party.")]
Reached = Annotated[str, typer.Option("--address", help="HOST:PORT at which the other node reaches this one.")]


@app.command()
def invite(
    config: Config,
    minutes: Annotated[float, typer.Option(help="How long the code holds.")] = 5,
    address: Reached = "",
    only: Annotated[str, typer.Option("--for", metavar="NAME", help="The party that may join; by default any one.")] = "",
) -> None:
    """Print a code with which one other node may join this running one, and wait for it."""
    if only:
        _check(only)
    settings = load_settings(config)
    client = client_of(settings)
    invited = client.invite(minutes, address, only)
    out.print(f"{invited['address']}/{invited['code']}")
    err.print(f"Tell it to the other owner by telephone. There: vfl-node join {invited['address']}/CODE --config FILE")
    try:
        name = _await_guest(client)
    except KeyboardInterrupt:
        with suppress(UsageError):
            client.close_invite()
        raise
    _compare(settings, name)


@app.command()
def join(
    code: Annotated[str, typer.Argument(metavar="CODE", help="HOST:PORT/CODE, as the other owner says it.")],
    config: Config,
    address: Reached = "",
) -> None:
    """Join the node whose owner has told you a code. This node may be running."""
    settings = load_settings(config)
    from vfl_node.node.pairing import join as pair  # grpc takes a while to import
    from vfl_node.transport.credentials import load_credentials

    if settings.tls is None:
        raise UsageError("in plaintext nobody pairs", code="E_CONFIG", hint="vfl-node init makes keys and settings")
    credentials = load_credentials(settings.tls, name=settings.name, federation=settings.federation)
    _compare(settings, pair(settings, credentials, code, address or None).name)


@app.command()
def confirm(name: PeerName, config: Config) -> None:
    """Compare the words of a party that was met, where `invite` or `join` was interrupted before."""
    _check(name)
    _compare(load_settings(config), name)


@app.command()
def revoke(
    name: PeerName,
    config: Config,
    reason: Annotated[str, typer.Option(help="Why; the other party is told.")] = "",
) -> None:
    """End everything with a party at once. It can come back only by pairing again.

    With this party's own name: give its keys up, because others may have them. All peers end everything with it.
    """
    from vfl_node.trust.pending import forget

    _check(name)
    settings = load_settings(config)
    if name == settings.name:
        _give_up(settings)
        return
    try:
        paused = client_of(settings).revoke(name, reason)
    except UsageError as error:
        if error.code != "E_NOT_RUNNING":
            raise
        forget(settings, name)
        paused = []
    out.print(f"{name} is no peer of {settings.name} any more")
    for job in paused:
        out.print(f"paused: {job}")


@app.command()
def renew(
    config: Config,
    authority: Annotated[
        bool, typer.Option("--authority", help="Make a new authority, too; peers learn of it within 30 days.")
    ] = False,
) -> None:
    """Sign a new certificate for this node by its own authority. A running node uses it from the next connection on."""
    from vfl_node.trust.keys import renew as sign
    from vfl_node.trust.succession import follow_up, renew_authority, switches_at

    settings = load_settings(config)
    if authority:
        made = renew_authority(settings)
        assert settings.tls
        out.print(f"wrote {settings.tls.ca}: authority SHA-256 {made.fingerprints[0]}")
        out.print(f"wrote {settings.tls.card}: card {made.card.serial}, which peers verify by the former authority")
        until = f"{switches_at(settings.tls):%Y-%m-%d}"
        out.print(f"until {until} both count: keep the node running, so that each peer meets it before then")
        return
    if follow_up(settings):
        out.print("the certificate is that of the new authority from now on")
    until = f"{sign(settings):%Y-%m-%d}"
    assert settings.tls
    out.print(f"wrote {settings.tls.certificate}: valid until {until}")


@app.command()
def card(
    config: Config,
    name: Annotated[Optional[str], typer.Argument(metavar="NAME", help="A peer.")] = None,  # noqa: UP045
    compared: Annotated[
        bool, typer.Option("--compared", help="Of a relayed peer: both owners see the same words. You are asked.")
    ] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Of a relayed peer: forget its card; it is told anew.")] = False,
) -> None:
    """Show this party's card, or that of a peer: what was signed, the fingerprints of its keys, and how the card came here."""
    from vfl_node.transport.credentials import load_credentials
    from vfl_node.trust.keys import shown_card
    from vfl_node.trust.pending import card_of
    from vfl_node.trust.told import find_told, forget_told

    settings = load_settings(config)
    if compared or forget:
        _check_relayed(settings, name)
    if forget:
        forget_told(settings, str(name))
        out.print(f"the card of {name} is forgotten; the active party tells it again with its next job")
        return
    told = None
    if name is not None:
        _check(name)
        if (peer := settings.peers.get(name)) and peer.relayed:
            told, signed = find_told(settings, name)
        else:
            signed = card_of(settings, name)
    elif settings.tls is None:
        raise UsageError("a node without tls has no card", code="E_CONFIG", hint="vfl-node init makes keys and settings")
    else:
        signed = shown_card(load_credentials(settings.tls, name=settings.name, federation=settings.federation))
    shown, fingerprints = signed.card, signed.fingerprints
    out.print(f"party:       {shown.name} of federation {shown.federation}")
    out.print(f"authority:   SHA-256 {fingerprints[0]}")
    out.print(f"signing key: SHA-256 {fingerprints[1]}")
    for until, fingerprint in signed.former:
        out.print(f"until {until:%Y-%m-%d}: SHA-256 {fingerprint}, the authority before")
    out.print(f"card {shown.serial}:      from {shown.issued:%Y-%m-%d} until {shown.expires:%Y-%m-%d}")
    if shown.revoked:
        out.print("given up:    its owner says that others may have these keys")
    if told:
        _compare_told(settings, told, signed, ask=compared)
    elif name is not None:
        peer = settings.peers[name]
        paired = f"on {datetime.fromisoformat(peer.paired):%Y-%m-%d %H:%M}" if peer.paired else "earlier"
        out.print(f"paired:      {paired}, words {'' if peer.words_compared else 'not '}compared")


def _await_guest(client: Client) -> str:
    """The party that has joined. Raises UsageError (``E_INVITE``) if the invite ends without one."""
    while True:
        status = client.invite_status()
        if status["met"]:
            return str(status["met"])
        if not status["left"]:
            raise UsageError(
                "nobody joined: the invite is too old, or was tried too often with wrong codes",
                code="E_INVITE",
                hint="make a new code: vfl-node invite; the node's log says who has tried",
            )
        time.sleep(LOOK_S)


def _give_up(settings: Settings) -> None:
    """Have the owner say that this party's keys may be in other hands; then no peer takes them any more."""
    from vfl_node.trust.succession import give_up

    if not typer.confirm(f"Give up the keys of {settings.name}? It must pair with each peer again, with new ones."):
        raise typer.Exit(2)
    made = give_up(settings)
    assert settings.tls
    out.print(f"wrote {settings.tls.card}: card {made.card.serial}, which says so")
    out.print("a running node tells it to each peer within 20 s, and to others when they connect")


def _compare(settings: Settings, name: str) -> None:
    """Have the owner compare words; then the party is a peer, or forgotten. Raises UsageError (``E_INVITE``)."""
    from vfl_node.trust.pending import accept, drop, read

    met: Pending = read(settings, name)
    out.print(f"met {name} ({met.role}). Your words: {' '.join(met.words)}")
    if not typer.confirm(f"Do you hear the same words from {name}?"):
        drop(settings, name)
        raise UsageError(
            f"not paired with {name}",
            code="E_INVITE",
            hint="other words mean that somebody stands between the two nodes: make a new code, and tell it another way",
        )
    out.print(f"wrote {accept(settings, met)}: {name} is a peer of {settings.name}")
    try:
        client_of(settings).admit(name)
    except UsageError as error:
        if error.code != "E_NOT_RUNNING":
            raise
        out.print(f"start the node to meet it: vfl-node --role {settings.role} --config FILE")
    says = {"rule": "run at once", "one": "wait for your answer", "two": "wait for the answers of two persons"}
    out.print(f"its jobs {says[SAYS_YES[settings.policy.preset]]}, unless a line of the policy says otherwise")


def _check_relayed(settings: Settings, name: str | None) -> None:
    """Raise UsageError (``E_CONFIG``) unless ``name`` is a relayed peer: words of others were compared in the pairing."""
    peer = settings.peers.get(name or "")
    if peer is None or not peer.relayed:
        known = ", ".join(sorted(name for name, peer in settings.peers.items() if peer.relayed)) or "none"
        text = f"{name or settings.name} is no relayed peer of {settings.name}"
        raise UsageError(text, code="E_CONFIG", hint=f"relayed peers: {known}; the words of others are compared in the pairing")


def _compare_told(settings: Settings, told: Told, signed: SignedCard, *, ask: bool) -> None:
    """Show how the card of a relayed peer came here, and both parties' words; if ``ask``, have the owner compare them."""
    from vfl_node.transport.credentials import load_credentials
    from vfl_node.trust.keys import own_card
    from vfl_node.trust.told import mark_compared
    from vfl_node.trust.words import spell_card

    assert settings.tls  # or no card could be told
    name = signed.card.name
    own = own_card(load_credentials(settings.tls, name=settings.name, federation=settings.federation))
    how = f"compared on {told.compared:%Y-%m-%d %H:%M}" if told.compared else "not compared"
    out.print(f"told:        by {told.by} on {told.at:%Y-%m-%d %H:%M}, {how}")
    if told.changed:
        out.print("changed:     another card was told before, and its owner has not signed this one")
    for card in sorted((own.card, signed.card), key=lambda card: card.name):
        out.print(f"words of {card.name}: {' '.join(spell_card(card.digest))}", soft_wrap=True)
    if not ask:
        return
    if not typer.confirm(f"Does the owner of {name} see the same words, of both parties?"):
        hint = f"other words mean that {told.by}, or who stands between, tells false cards: ask both owners"
        raise UsageError(f"the card of {name} is not compared", code="E_CARD", hint=hint)
    mark_compared(settings, name, told)
    out.print(f"from now on only cards of {name} count that follow on this one")


def _check(name: str) -> None:
    from vfl_node.cli.node import check_name

    check_name(name)
