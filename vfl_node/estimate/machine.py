"""What this machine does in a second, measured in about a second; the peer's is taken to be like it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from vfl_node.crypto.groups import Group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import RowIndex, Rows
from vfl_node.engines.threads import Threads
from vfl_node.errors import UsageError
from vfl_node.process.files import temporary_place
from vfl_node.process.machine import count_cores
from vfl_node.settings.node import Settings

_BLOCK = bytes(1 << 22)


@dataclass(frozen=True)
class Machine:
    """What this machine does.

    Attributes:
        cores: threads for group operations.
        hash_s: CPU seconds to hash an identifier into the group.
        power_s: CPU seconds of a group operation.
        decode_s: CPU seconds to check an element.
        find_s: CPU seconds to sort an element and find it again.
        sha256_s: CPU seconds to hash a byte.
        disk_bytes_per_s: written, and durable.
        hashes_beside: whether several cores hash and check at the same time.
    """

    cores: int
    hash_s: float
    power_s: float
    decode_s: float
    find_s: float
    sha256_s: float
    disk_bytes_per_s: float
    hashes_beside: bool = False


def measure_node(group: Group, settings: Settings | None) -> Machine:
    """What the machine does for the node with these settings; without them for one with all cores. As :func:`measure`."""
    if settings is None:
        return measure(group, count_cores(), temporary_place())
    return measure(group, settings.group_workers, settings.state_dir)


def measure(group: Group, cores: int, folder: Path) -> Machine:
    """What this machine does; takes about a second.

    Args:
        group: the job's.
        cores: how many group operations would use.
        folder: where lists would lie; it need not be there yet.

    Raises:
        UsageError: nothing can be written there (``E_FILE``).
    """
    randomness, engine = Randomness(os.urandom(32)), Threads(1)
    scalar = group.draw(randomness.derive("scalar"))
    ids = [b"%d" % i for i in range(min(512, group.chunk_rows))]
    elements = group.hash_to_group(ids, b"estimate")
    data = randomness.bytes(group.width << 14)
    return Machine(
        cores=cores,
        hash_s=_cpu_s(lambda some: group.hash_to_group(some, b"estimate"), ids, 0.1),
        power_s=_cpu_s(lambda some: group.power(some, scalar, engine), elements, 0.25),
        decode_s=_cpu_s(group.decode, elements, 0.1),
        find_s=_cpu_s(_find, np.frombuffer(data, dtype=np.uint8).reshape(-1, group.width), 0.05),
        sha256_s=_cpu_s(sha256, data, 0.05),
        disk_bytes_per_s=_disk_bytes_per_s(folder),
        hashes_beside=group.hashes_beside,
    )


def _cpu_s(operation: Callable[[Any], object], items: Sequence[Any] | Rows, budget_s: float) -> float:
    """CPU seconds an item, over ever more items until the budget is spent."""
    done, some, began = 0, 1, time.process_time()
    while (spent := time.process_time() - began) < budget_s:
        operation(items[:some])
        done, some = done + some, min(2 * some, len(items))
    return spent / done


def _find(rows: Rows) -> object:
    return RowIndex(rows).find(rows)


def _disk_bytes_per_s(folder: Path) -> float:
    there = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_dir())
    written, began = 0, time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            while (spent := time.monotonic() - began) < 0.2:
                file.write(_BLOCK)
                file.flush()
                os.fsync(file.fileno())
                written += len(_BLOCK)
    except OSError as error:
        raise UsageError(
            f"cannot write in {there} ({error.strerror})", code="E_FILE", hint="set state_dir to where this user can write"
        ) from None
    return written / spent
