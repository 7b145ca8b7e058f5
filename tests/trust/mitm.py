"""Six attacks on pairing, on real servers over loopback: ``python tests/trust/mitm.py``.

Each line says what was tried, and how it ended at the party that had invited and at the one that wanted to join. The exit
status is 0 if every attack was refused at both. ``--without PROTECTION`` takes one protection out. Then the attack that it
stops succeeds, which shows that nothing else would have stopped it; the exit status is 0 if it does. ``--no-binding`` is the
same as ``--without binding``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust.nodes import PROTECTIONS, CarelessInvites, CarelessJoiner, Host, Relay, failure, guess_at_once
from tests.trust.parties import Party
from vfl_node.errors import VflError
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.guests import GuestCall
from vfl_node.trust.pairing import Joiner

Outcome = tuple[bool, bool]
"""Whether somebody was met where the invite came from, and where one wanted to join."""


class Stage:
    """A clinic that invites, a lab that wants to join, and eve.

    Args:
        folder: for their keys.
        without: the protection that all pairings lack; empty: none.
    """

    def __init__(self, folder: Path, *, without: str) -> None:
        self.clinic, self.lab, self.eve = (Party(name, folder / name) for name in ("clinic", "lab", "eve"))
        self.without = without

    def relay(self) -> Outcome:
        """Eve relays all messages; the lab dials her."""
        return self._relayed(lambda number, message: message)

    def exchange_card(self) -> Outcome:
        """Eve has the key of the clinic's certificate, so she can relay. She announces her own card for the lab's."""

        def change(number: int, message: PairMessage) -> PairMessage:
            if number == 1:
                return PairMessage(element=message.element, card_sha256=self.eve.own.digest)
            return message

        return self._relayed(change, shows=self.clinic)

    def change_code(self) -> Outcome:
        """Eve knows all of the code but its last bit."""

        def attack(host: Host, code: bytes) -> list[str]:
            return [failure(self.eve, host.address, code[:-1] + bytes([code[-1] ^ 1]), without=self.without)]

        return self._hosted(attack)

    def replay(self) -> Outcome:
        """Eve sends what the lab has sent in an earlier pairing."""

        def attack(host: Host, code: bytes) -> list[str]:
            with GuestCall(host.address) as call:
                kind = CarelessJoiner if self.without == "card" else Joiner
                joiner = kind(b"" if self.without == "code" else code, self.lab.own, leaf=host.leaf)
                first = joiner.begin()
                third = joiner.confirm(call.ask(first))
                call.ask(third)
            host.met.clear()
            host.invites = CarelessInvites(lambda size: code)
            host.invites.without = self.without
            host.invites.open(5)  # even of the same code
            try:
                with GuestCall(host.address) as call:
                    call.ask(first)
                    call.ask(third)
            except VflError as error:
                return [error.code]
            return [""]

        return self._hosted(attack)

    def use_again(self) -> Outcome:
        """Eve uses the code after the lab has."""

        def attack(host: Host, code: bytes) -> list[str]:
            assert failure(self.lab, host.address, code, without=self.without) == ""
            host.met.clear()
            return [failure(self.eve, host.address, code, without=self.without)]

        return self._hosted(attack)

    def guess(self) -> Outcome:
        """Eve tries eleven codes at the same time, and then the right one: she has guessed well, and too late."""

        def attack(host: Host, code: bytes) -> list[str]:
            wrong = [bytes([code[0] ^ number]) + code[1:] for number in range(1, 12)]
            return [*guess_at_once(self.eve, host.address, wrong), failure(self.eve, host.address, code, without=self.without)]

        return self._hosted(attack)

    def _relayed(self, change: Callable[[int, PairMessage], PairMessage], shows: Party | None = None) -> Outcome:
        def attack(host: Host, code: bytes) -> list[str]:
            between = Relay(shows or self.eve, host.address, change)
            try:
                return [failure(self.lab, between.address, code, without=self.without)]
            finally:
                between.stop()

        return self._hosted(attack)

    def _hosted(self, attack: Callable[[Host, bytes], list[str]]) -> Outcome:
        host = Host(self.clinic, without=self.without)
        try:
            failures = attack(host, host.invite())
            return bool(host.met), "" in failures
        finally:
            host.stop()


ATTACKS: dict[str, Callable[[Stage], Outcome]] = {
    "relay with an own certificate": Stage.relay,
    "relay that exchanges the card": Stage.exchange_card,
    "another code": Stage.change_code,
    "a recorded pairing once more": Stage.replay,
    "a used code": Stage.use_again,
    "twelve guesses at once": Stage.guess,
}

STOPS = dict(zip(PROTECTIONS, ATTACKS, strict=True))
"""Protection → the attack that it alone stops."""


def main() -> int:
    """Run all attacks; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", choices=PROTECTIONS, default="", help="the control: then the attack that it stops wins")
    parser.add_argument("--no-binding", action="store_const", const="binding", dest="without", help="as --without binding")
    without = parser.parse_args().without
    attacks = {STOPS[without]: ATTACKS[STOPS[without]]} if without else ATTACKS
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), without=without)
        for name, attack in attacks.items():
            outcomes.append(attack(stage))
            words = ["met" if met else "refused" for met in outcomes[-1]]
            print(f"{name:30} inviter: {words[0]:8} joiner: {words[1]}", flush=True)
    won = any(any(outcome) for outcome in outcomes)
    if not without:
        return int(won)
    print(f"without its protection, {without!r}, the attack " + ("wins" if all(outcomes[0]) else "does not win"))
    return int(not all(outcomes[0]))


if __name__ == "__main__":
    sys.exit(main())
