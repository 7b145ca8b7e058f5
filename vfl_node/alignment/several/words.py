"""What reports say of an alignment with several passive parties."""

from __future__ import annotations

from vfl_node.alignment.spec import ReportedAlignment


def overlap_text(of: ReportedAlignment) -> str:
    """What the party that forms the shared order learns besides, as a sentence."""
    return f"{of.active} also learns how many records exactly some of the parties have, for each choice of parties."
