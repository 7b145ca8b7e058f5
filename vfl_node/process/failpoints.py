"""Named places where a node can be told to die, stop, hang or meet an error of the system: for tests, and for nothing else.

::

    VFL_FAILPOINT=checkpoint=kill@2,write=enospc@5+ vfl-node --role passive --config node.yaml

kills the process when it passes ``checkpoint`` for the second time, and has no room on the
disk from the fifth time on that it writes a file. A node arms them when it starts, from its
environment alone, and does not start where it listens or dials beyond this machine; a job, a peer or a
configuration file cannot reach them. Unarmed, a passing costs the call of a function that returns at once.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vfl_node.errors import UsageError

VARIABLE = "VFL_FAILPOINT"

POINTS: Mapping[str, str] = {
    # A job begins.
    "submit": "the owner's job is to be stored",
    "offer": "the job is to be offered to a peer",
    "accept": "a peer's job is accepted, and to be stored",
    "accepted": "it is stored, and the peer not answered yet",
    "ask": "a peer's job is to be stored until this node's owner has answered",
    "asked": "it is stored, and the peer not answered yet",
    "decide": "the owner's answer to a peer's job is to be stored",
    "consents": "signed consents of others are to be stored",
    "decided": "it is stored, and the job has not begun or ended yet",
    "met": "all conversations of an attempt have begun",
    "preflight": "this party's preflight is to be sent",
    "lane": "an entry of a ledger is to be written",
    "laned": "it is on the disk",
    "head": "the head of a ledger is to be shown to the peer",
    "headed": "the heads of both ledgers are stored",
    "agreed": "both sides of a conversation agree on where to begin",
    # Alignment.
    "align-size": "the number of identifiers is to be sent",
    "align-list": "a list is to be sent",
    "align-store": "a chunk of a list is to be stored",
    "align-synced": "a list has arrived whole and is durable, but not pinned",
    "align-stored": "a list has arrived whole, is durable and pinned",
    "align-keep": "the finished alignment is to be stored",
    "aligned": "it is stored, and the peer does not know yet",
    # Training.
    "toss": "this party's word in the coin toss is to be sent",
    "held-out": "the last rows are named as those held out, and not yet used",
    "batches": "batches are planned",
    "trial": "a trial of a sweep has ended",
    "pretrain": "a batch without labels begins",
    "projection": "a projection is computed and to be sent",
    "pretrained": "an epoch without labels is over, and no checkpoint holds it yet",
    "local-batch": "a batch of rows outside of the alignment has changed the weights",
    "fill": "rows outside of the alignment are to get embeddings",
    "key": "the Paillier key is made, and to be sent",
    "plan": "the plan of decryptions is to be sent",
    "forward": "an embedding, or linear scores, are computed and to be sent",
    "minimax": "a round of Minimax begins, in which a defence moves the weights",
    "settled": "the defences have prepared weights that stay",
    "rebuilt": "the feature audit of an epoch, or of rows held out, has made its attacks",
    "backward": "a gradient is computed and to be sent",
    "updated": "a step has changed the weights",
    "dealt": "the randomness of an epoch is dealt to one party",
    "columns": "a block of the other party's encrypted columns has arrived",
    "made-ahead": "both parties have made what a later step needs, and not used it yet",
    "residual": "encrypted residuals are to be sent",
    "mask": "a mask is drawn and its tensor to be sent",
    "decrypt": "decryptions are counted, and not answered yet",
    "decrypted": "decryptions are to be sent",
    "unmask": "a tensor came back decrypted and is to be unmasked",
    "validated": "an epoch's validation rows are through, and the decision to go on or stop is to be exchanged",
    "checkpoint": "a checkpoint is to be written",
    "checkpointed": "a checkpoint is written",
    "evaluate": "the rows held out are to be measured on",
    # Halves handed over.
    "half": "the own half is made, and to be sent",
    "halves": "the halves of others have arrived, and are to be looked through",
    # Predictions.
    "predict": "rows are asked for, or embeddings of rows asked for to be sent",
    # The end.
    "keep": "model and report are to be written",
    "kept": "both are written",
    "store": "the others are to be told that both are written",
    "confirm": "all are known to have written theirs, and this is to be noted",
    "confirmed": "it is noted, and not passed on yet by the active party",
    "finished": "the job's end is to be stored in the index",
    "forget": "secrets are to be destroyed",
    # Keys and cards.
    "staged": "a renewal of the authority is decided on, and no file of it written yet",
    "succeed": "a file of it is written",
    "card": "a peer's newer card is written, and not pinned yet",
    "carded": "it is pinned, and the one before it not removed yet",
    # Anything.
    "send": "a message of a conversation is to be sent",
    "receive": "a message of a conversation is to be waited for",
    "write": "a file is to be written",
    "rename": "a file is written under its temporary name",
    "index": "the job index is to be written",
    "device": "the device is looked for",
}
"""Name → what has just been done, or is about to be."""


def _raise(number: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


def _signal(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _hang() -> None:
    threading.Event().wait()


def _exhaust_memory() -> None:
    import torch

    raise torch.cuda.OutOfMemoryError("CUDA out of memory (told to by a failpoint)")


ACTIONS: Mapping[str, Callable[[], None]] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGTERM),
    "pause": _signal(signal.SIGSTOP),
    "hang": _hang,
    "enospc": _raise(errno.ENOSPC),
    "emfile": _raise(errno.EMFILE),
    "eio": _raise(errno.EIO),
    "gpu-memory": _exhaust_memory,
    "slow": lambda: time.sleep(0.1),
    "tell": lambda: None,
}
"""What may happen: the process is killed, asked to stop, or frozen until SIGCONT; the thread never goes on, or sleeps for a
tenth of a second; the system or the device refuses.

``tell`` does nothing beyond what all do first: a line on stderr, ``failpoint NAME ACTION``.
"""

_RULE = re.compile(r"(?P<name>[a-z-]+|\*)=(?P<action>[a-z-]+)(@(?P<at>[1-9][0-9]*)(?P<on>\+?))?")


@dataclass(frozen=True)
class Rule:
    """What happens at a point: at its ``at``-th passing, and at every later one where it goes ``on``."""

    action: str
    at: int
    on: bool


_rules: Mapping[str, Rule] = {}
_passed: Counter[str] = Counter()
_lock = threading.Lock()


def reach(name: str) -> None:
    """Say that this process passes the point ``name`` of :data:`POINTS`."""
    if _rules:
        _reach(name)


def _reach(name: str) -> None:
    rule = _rules.get(name) or _rules.get("*")
    if rule is None:
        return
    with _lock:
        _passed[name] += 1
        passed = _passed[name]
    if passed == rule.at or (rule.on and passed > rule.at):
        os.write(2, f"failpoint {name} {rule.action}\n".encode())
        ACTIONS[rule.action]()


def arm(text: str, *, local: bool) -> None:
    """Have happen what ``text`` says, ``NAME=ACTION@N`` with commas between; ``@N+``: from then on, no ``@``: always.

    Args:
        text: as in the environment.
        local: whether this node listens on and dials this machine only.

    Raises:
        UsageError: it is not local, or ``text`` names no point or action (``E_FAILPOINT``).
    """
    global _rules
    rules = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        rule = _RULE.fullmatch(part)
        if not rule or rule["action"] not in ACTIONS or rule["name"] not in (*POINTS, "*"):
            raise UsageError(
                f"{VARIABLE} has {part[:60]!r}, expected NAME=ACTION@N with one of {', '.join(ACTIONS)}",
                code="E_FAILPOINT",
                hint=f"unset {VARIABLE}: it is for tests; its names are in vfl_node/process/failpoints.py",
            )
        rules[rule["name"]] = Rule(rule["action"], int(rule["at"] or 1), bool(rule["on"]) or not rule["at"])
    if rules and not local:
        raise UsageError(
            f"{VARIABLE} is set, and this node listens or dials beyond this machine",
            code="E_FAILPOINT",
            hint=f"unset {VARIABLE}: it makes a node fail, for tests on one machine",
        )
    _passed.clear()
    _rules = rules
