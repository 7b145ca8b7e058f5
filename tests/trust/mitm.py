"""Six attacks on pairing, on real servers over loopback: ``python tests/trust/mitm.py``.

Each line says what was tried, and how it ended at the party that had invited and at the one that wanted to join. The exit
status is 0 if every attack was refused at both. With ``--no-binding`` the pairing is not bound to the certificate that answers:
then the first attack succeeds, which shows that it is the binding that stops it; the exit status is 0 if it does.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust.nodes import Host, Relay, failure, guess_at_once
from tests.trust.parties import Party
from vfl_node.errors import VflError
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.guests import GuestCall
from vfl_node.trust.invites import Invites
from vfl_node.trust.pairing import Joiner

Outcome = tuple[bool, bool]
"""Whether somebody was met where the invite came from, and where one wanted to join."""


class Stage:
    """A clinic that invites, a lab that wants to join, and eve.

    Args:
        folder: for their keys.
        binding: whether pairings are bound to the certificate that answers.
    """

    def __init__(self, folder: Path, *, binding: bool) -> None:
        self.clinic, self.lab, self.eve = (Party(name, folder / name) for name in ("clinic", "lab", "eve"))
        self.binding = binding

    def relay(self) -> Outcome:
        """Eve relays all messages; the lab dials her."""
        return self._relayed(lambda number, message: message)

    def exchange_card(self) -> Outcome:
        """Eve relays, and says that the card that follows is hers."""

        def change(number: int, message: PairMessage) -> PairMessage:
            if number == 1:
                return PairMessage(element=message.element, card_sha256=self.eve.own.digest)
            return message

        return self._relayed(change)

    def change_code(self) -> Outcome:
        """The lab was told another code."""
        return self._hosted(lambda host, code: [failure(self.lab, host.address, secrets.token_bytes(5))])

    def replay(self) -> Outcome:
        """Eve sends what the lab has sent in an earlier pairing."""

        def attack(host: Host, code: bytes) -> list[str]:
            with GuestCall(host.address) as call:
                joiner = Joiner(code, self.lab.own, leaf=host.leaf)
                first = joiner.begin()
                third = joiner.confirm(call.ask(first))
                call.ask(third)
            host.met.clear()
            host.invites = Invites(lambda size: code)
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
            assert failure(self.lab, host.address, code, binding=self.binding) == ""
            host.met.clear()
            return [failure(self.eve, host.address, code, binding=self.binding)]

        return self._hosted(attack)

    def guess(self) -> Outcome:
        """Eve tries twelve codes at the same time."""
        return self._hosted(
            lambda host, code: guess_at_once(self.eve, host.address, [secrets.token_bytes(5) for _ in range(12)])
        )

    def _relayed(self, change: Callable[[int, PairMessage], PairMessage]) -> Outcome:
        def attack(host: Host, code: bytes) -> list[str]:
            between = Relay(self.eve, host.address, change)
            try:
                return [failure(self.lab, between.address, code, binding=self.binding)]
            finally:
                between.stop()

        return self._hosted(attack)

    def _hosted(self, attack: Callable[[Host, bytes], list[str]]) -> Outcome:
        host = Host(self.clinic, binding=self.binding)
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


def main() -> int:
    """Run all attacks; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-binding", action="store_true", help="the control: without it the relay wins")
    binding = not parser.parse_args().no_binding
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), binding=binding)
        for name, attack in ATTACKS.items():
            outcomes.append(attack(stage))
            words = ["met" if met else "refused" for met in outcomes[-1]]
            print(f"{name:30} inviter: {words[0]:8} joiner: {words[1]}", flush=True)
    if binding:
        return int(any(any(outcome) for outcome in outcomes))
    print("without the binding the relay " + ("wins" if outcomes[0] == (True, True) else "does not win"))
    return int(outcomes[0] != (True, True))


if __name__ == "__main__":
    sys.exit(main())
