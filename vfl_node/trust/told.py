"""Cards of parties that this node never meets: an active party tells them, and the owners of both sides may compare them.

::

    state/relayed/NAME    the card of NAME, who told it, and when its words were compared; a checked file

Whoever tells a card could tell another one in its place. Until its words are compared, a signature under it says only what the
active party says, and another card takes its place. From then on only a card does that the compared one's authority has signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.job import Name
from vfl_node.process.files import locked_folder, private_folder, read_checked, remove, write_checked
from vfl_node.settings.node import Settings
from vfl_node.trust.cards import SignedCard, check_newer, read_card
from vfl_node.trust.pending import writing

FOLDER = "relayed"


class Told(BaseModel):
    """A card that was told.

    Attributes:
        card: its envelope, as it came.
        by: the active party that told it.
        at: when.
        compared: when two owners compared the words of this card, or of one on which it follows; None: they have not.
        changed: whether another card was told before, on which this one does not follow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    card: str
    by: Name
    at: AwareDatetime
    compared: AwareDatetime | None = None
    changed: bool = False


def read_told(settings: Settings, name: str) -> tuple[Told, SignedCard] | None:
    """What was told of the card of ``name``, and the card; None where none was.

    Raises:
        StateError: the file is damaged (``E_STATE_CORRUPT``), or of another version (``E_STATE_VERSION``).
        PolicyError: the card cannot be used any more (``E_CARD``, ``E_SIGNATURE``).
        UsageError: it cannot be read (``E_FILE``).
    """
    path, hint = settings.state_dir / FOLDER / name, f"forget it, and have it told again: vfl-node card {name} --forget"
    try:
        told = Told.model_validate_json(read_checked(path, hint=hint))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="E_FILE") from None
    except ValidationError:
        raise StateError(f"{path} was written by another version", code="E_STATE_VERSION", hint=hint) from None
    signed = read_card(told.card.encode(), federation=settings.federation, stored=True)
    if signed.card.name != name:
        raise PolicyError(f"{path} is the card of {signed.card.name}", code="E_CARD", hint=hint)
    return told, signed


def find_told(settings: Settings, name: str) -> tuple[Told, SignedCard]:
    """As :func:`read_told`, of a party whose card was told. Raises UsageError (``E_UNKNOWN_PEER``) where none was."""
    if known := read_told(settings, name):
        return known
    hint = "the active party tells it with a job in which both take part"
    raise UsageError(f"nobody has told this node a card of {name}", code="E_UNKNOWN_PEER", hint=hint)


def keep_told(settings: Settings, by: str, shown: SignedCard) -> Told | None:
    """Keep a card that ``by`` has told, if it says something else than the one that is here.

    Args:
        settings: of this node.
        by: the active party.
        shown: the card, which was verified by itself.

    Returns:
        What is kept from now on; None where nothing is new.

    Raises:
        PolicyError: it does not follow on a card that was compared (``E_CARD``).
        StateError: what is here is damaged.
        UsageError: the disk refuses (``E_FILE``).
    """
    name = shown.card.name
    with _alone(settings):
        known, compared, changed = read_told(settings, name), None, False
        if known:
            before, card = known
            if shown.says_what(card):
                return None
            follows = _follow(card, shown)
            if before.compared and not follows:
                raise _differing(name, by, before.compared)
            compared, changed = before.compared, before.changed or not follows
        told = Told(card=shown.envelope.decode(), by=by, at=_now(), compared=compared, changed=changed)
        _write(settings, name, told)
    return told


def mark_compared(settings: Settings, name: str, seen: Told) -> None:
    """The owners of both sides see the same words, of the card that was ``seen``.

    Raises:
        UsageError: another one was told meanwhile (``E_CARD``), or the disk refuses (``E_FILE``).
        PolicyError: the card cannot be used any more.
        StateError: what is here is damaged.
    """
    with _alone(settings):
        known = read_told(settings, name)
        if known is None or known[0] != seen:
            hint = f"compare the words of that one: vfl-node card {name} --compared"
            raise UsageError(f"another card of {name} was told meanwhile", code="E_CARD", hint=hint)
        _write(settings, name, seen.model_copy(update={"compared": _now(), "changed": False}))


def forget_told(settings: Settings, name: str) -> None:
    """Forget the card of a party; the next one that is told takes its place. Raises UsageError (``E_FILE``)."""
    with _alone(settings):
        remove(settings.state_dir / FOLDER / name)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """A context in which nobody else writes into the folder of told cards, which is made."""
    folder = settings.state_dir / FOLDER
    with writing():
        private_folder(settings.state_dir)
        private_folder(folder)
        with locked_folder(folder):
            yield


def _write(settings: Settings, name: str, told: Told) -> None:
    write_checked(settings.state_dir / FOLDER / name, told.model_dump_json().encode())


def _follow(card: SignedCard, shown: SignedCard) -> bool:
    """Whether the authority of ``card`` has signed the ``shown`` one, as a later one of the same party."""
    try:
        check_newer(card.card, shown)
    except PolicyError:
        return False
    return True


def _differing(name: str, by: str, compared: datetime) -> PolicyError:
    return PolicyError(
        f"{by} tells another card of {name} than the one whose words were compared on {compared:%Y-%m-%d}",
        code="E_CARD",
        hint=f"ask {name}'s owner by telephone; if its keys are new: vfl-node card {name} --forget",
        for_peer=f"it has compared another card of {name} than it is told",
    )


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)
