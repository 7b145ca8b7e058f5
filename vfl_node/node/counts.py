"""What is counted with one partner over all jobs, and how much its owner allows.

Each count is a checked file (:mod:`vfl_node.files`) in the partner's folder with a line for everything that counts: digests and
names of jobs, no identifier. ``check_`` raises what ``count_`` would and counts nothing, so that a job which would be refused
in the end is refused before its alignment.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vfl_node.errors import PolicyError
from vfl_node.files import read_checked, write_checked

LOSS = b"loss "
"""Before the number of an accepted loss among linkages: it counts for every set, as noise may be drawn anew after it."""


class PartnerCounts:
    """What was counted with one peer. Safe to use from several threads; one object for a folder.

    Args:
        folder: of this peer.
        peer: its name.
    """

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder, self._peer = folder, peer
        self._lock = threading.Lock()

    def used(self) -> dict[str, int]:
        """Name of the limit → how much of it is used: of one over a set, of the set of which most is used.

        Raises:
            StateError: a file is damaged (``E_STATE_CORRUPT``).
        """
        linkages = self._lines("linkages")
        losses = sum(line.startswith(LOSS) for line in linkages)
        return {
            "inputs_per_peer": len(self._lines("inputs")),
            "changes_per_peer": max(0, len(self._lines("changes")) - 1),
            "trainings_per_set": _most_over_one_set(self._lines("trainings")),
            "linkages_per_set": losses + _most_over_one_set([line for line in linkages if not line.startswith(LOSS)]),
        }

    def check_inputs(self, digest: bytes, limit: int) -> None:
        """Raise what :meth:`count_inputs` would, and count nothing."""
        self._new_input(self._lines("inputs"), digest, limit)

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Count a pair of sets of ids, ours and the peer's, before any list of an alignment leaves; a known pair is free.

        A second alignment in which either set differs by one id is a differencing attack on that id.

        Args:
            digest: of both sets, of which the peer's is only claimed.
            limit: how many different pairs this node's owner allows.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            counted = self._lines("inputs")
            self._append("inputs", counted, self._new_input(counted, digest, limit))

    def check_changes(self, digest: bytes, limit: int) -> None:
        """Raise what :meth:`count_changes` would, and count nothing."""
        self._new_change(self._lines("changes"), digest, limit)

    def count_changes(self, digest: bytes, limit: int) -> None:
        """Count a pair of sets for an alignment that hides how many ids are shared; a known pair is free.

        What hides it (the number of dummies, the obfuscated set) is drawn anew whenever either set changes, or the peer claims
        that its set has changed. Each draw over almost the same sets narrows the number down.

        Args:
            digest: of both sets.
            limit: how many changes this node's owner allows.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            counted = self._lines("changes")
            self._append("changes", counted, self._new_change(counted, digest, limit))

    def check_trainings(self, digest: bytes, job_id: str, limit: int) -> None:
        """Raise what :meth:`count_trainings` would, and count nothing."""
        self._new_training(self._lines("trainings"), digest, job_id, limit)

    def count_trainings(self, digest: bytes, job_id: str, limit: int) -> int:
        """Count a training with synthetic rows over a set of our own, before anything of it leaves; a job is counted once.

        Synthetic rows are drawn anew in each training: they could only stay the same if the shared positions of the other
        party's records did, and these are blinded anew. Real rows stay the same, so a peer that compares trainings can tell
        synthetic rows from real ones.

        Args:
            digest: of our own set, so that a peer cannot begin a new count by changing its set.
            job_id: of the training.
            limit: how many of them this node's owner allows over one set.

        Returns:
            The number of this training over these records with this partner, from 1.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            counted = self._lines("trainings")
            line, number = self._new_training(counted, digest, job_id, limit)
            self._append("trainings", counted, line)
            return number

    def check_linkages(self, records: bytes, linkage: bytes, limit: int) -> None:
        """Raise what :meth:`count_linkages` would, and count nothing."""
        self._new_linkage(self._lines("linkages"), records, linkage, limit)

    def count_linkages(self, records: bytes, linkage: bytes, limit: int) -> None:
        """Count a linkage over a set of records, before anything of it leaves; the same one again is free.

        Noise on similarities is the same in every job on the same terms, and drawn anew on others. Another set of the peer asks
        for similarities of other pairs.

        Args:
            records: stand for the set, so that a peer cannot begin a new count by changing its own.
            linkage: stands for the other set and the terms.
            limit: how many of them this node's owner allows over one set.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            counted = self._lines("linkages")
            self._append("linkages", counted, self._new_linkage(counted, records, linkage, limit))

    # The line of what is not counted yet; None of what is. Each raises PolicyError where it would be one too many.

    def _new_input(self, counted: Sequence[bytes], digest: bytes, limit: int) -> bytes | None:
        line = digest.hex().encode()
        if line in counted:
            return None
        if len(counted) >= limit:
            raise PolicyError(
                f"{len(counted)} different pairs of sets have been aligned with {self._peer}, "
                f"and this node allows {limit} (limits.inputs_per_peer)",
                code="E_BUDGET",
                hint="align one of the earlier sets again, or raise limits.inputs_per_peer: "
                "from sets that differ in a few ids both parties may learn about those",
                for_peer="its owner's settings do not allow this alignment",
            )
        return line

    def _new_change(self, counted: Sequence[bytes], digest: bytes, limit: int) -> bytes | None:
        line = digest.hex().encode()
        if line in counted:
            return None
        if len(counted) > limit:
            raise PolicyError(
                f"sets have changed {len(counted) - 1} times between alignments with {self._peer} that hide how many are "
                f"shared, and this node allows {limit} changes (limits.changes_per_peer)",
                code="E_BUDGET",
                hint="align one of the earlier sets again, or raise limits.changes_per_peer: c changes leave about "
                "2/(c + 2) of what dummies hide, and what obfuscated sets have in common comes closer to what is shared",
                for_peer="its owner's settings do not allow this alignment",
            )
        return line

    def _new_training(self, counted: Sequence[bytes], digest: bytes, job_id: str, limit: int) -> tuple[bytes | None, int]:
        """The line, and the number of the training."""
        records = f"{digest.hex()} ".encode()
        line = records + job_id.encode()
        over = [entry for entry in counted if entry.startswith(records)]
        if line in over:
            return None, over.index(line) + 1
        if len(over) >= limit:
            raise PolicyError(
                f"there were {len(over)} trainings with {self._peer} over this node's records in which rows were made up "
                f"for those that a party lacks, or weights or sums opened, and this node allows {limit} "
                "(limits.trainings_per_set)",
                code="E_BUDGET",
                hint="align by psi, where no row is made up; train hidden with reveal: none and metrics_by: none; or "
                "raise limits.trainings_per_set: such rows, first weights and the records held out are drawn anew in each "
                "training, and whoever compares trainings sees through them",
                for_peer="its owner's settings do not allow this training",
            )
        return line, len(over) + 1

    def _new_linkage(self, counted: Sequence[bytes], records: bytes, linkage: bytes, limit: int) -> bytes | None:
        over = f"{records.hex()} ".encode()
        line = over + linkage.hex().encode()
        if line in counted:
            return None
        if (count := sum(entry.startswith((over, LOSS)) for entry in counted)) >= limit:
            raise PolicyError(
                f"this node's records were linked with those of {self._peer} in {count} different ways (other terms, or "
                f"another set), and this node allows {limit} (limits.linkages_per_set)",
                code="E_BUDGET",
                hint="link the same sets on the terms of an earlier job, or raise limits.linkages_per_set: noise is drawn "
                "anew on other terms, and the mean of several similarities of a pair tells its distance",
                for_peer="its owner's settings do not allow this linkage",
            )
        return line

    def _append(self, name: str, counted: Sequence[bytes], line: bytes | None) -> None:
        if line is not None:
            write_checked(self._folder / name, b"\n".join([*counted, line]))

    def _lines(self, name: str) -> list[bytes]:
        return (self._read(self._folder / name) or b"").splitlines()

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_checked(path, hint="put the newest copy of state/partners back")
        except FileNotFoundError:
            return None


def _most_over_one_set(lines: Sequence[bytes]) -> int:
    """Of lines that begin with the digest of a set and a space, how many there are over one set at most."""
    return max(Counter(line.partition(b" ")[0] for line in lines).values(), default=0)
