"""Which kernel runs: the quickest that this machine has, or the one that ``VFL_KERNEL`` names."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

from vfl_node.crypto.kernels.compiled import Avx2
from vfl_node.crypto.kernels.contract import Kernel
from vfl_node.crypto.kernels.ifma import Ifma
from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.errors import UsageError

VARIABLE = "VFL_KERNEL"


@cache
def kernel() -> Kernel:
    """That of this process.

    Raises:
        UsageError: ``VFL_KERNEL`` names one that this machine does not have (``E_CONFIG``).
    """
    return find_kernel(os.environ.get(VARIABLE, ""))


def find_kernel(name: str) -> Kernel:
    """A kernel by its name; the quickest for an empty one. Raises as :func:`kernel`."""
    kernels: dict[str, Kernel] = {kernel.name: kernel for kernel in _available()}
    if name and name not in kernels:
        raise UsageError(
            f"{VARIABLE} is {name!r}, and this machine has {' and '.join(kernels)}",
            code="E_CONFIG",
            hint=f"unset {VARIABLE}, or choose one of these",
        )
    return kernels[name] if name else next(iter(kernels.values()))


def names() -> list[str]:
    """The kernels that this machine has, the quickest one first."""
    return [kernel.name for kernel in _available()]


def _available() -> list[Kernel]:
    """The quickest one first."""
    compiled: list[Kernel] = []
    if native := _native():
        if native.lib.vfl_has_ifma():
            compiled.append(Ifma(native))
        if native.lib.vfl_has_avx2():
            compiled.append(Avx2(native))
    return [*compiled, Libraries()]


def _native() -> ModuleType | None:
    """The compiled module; None where it was not compiled."""
    try:
        return importlib.import_module("vfl_node.crypto.kernels._native")
    except ImportError:
        return None
