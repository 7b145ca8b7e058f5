"""What a partner hears when a policy refuses its job: one of five words. This node's owner reads which line it was."""

from __future__ import annotations

from typing import Literal

from vfl_node.errors import PolicyError

Why = Literal["partner", "kind", "size", "budget", "time"]
"""What is wrong with a job: who takes part, what it does or tells, how large it is, how often it was done, or when."""

SILENT = "its policy does not allow the job"
"""All that a partner hears of a policy with ``preset: strict``."""


def refusal(why: Why, message: str, hint: str) -> PolicyError:
    """The error of a job that a policy does not allow (``E_POLICY``).

    Args:
        why: the word for the partner.
        message: for this node's owner, with the line of the policy.
        hint: likewise.
    """
    return PolicyError(message, hint=hint, for_peer=tell_why(why))


def tell_why(why: Why) -> str:
    """What a partner hears."""
    return f"{SILENT} ({why})"
