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
from vfl_node.errors import StateError, UsageError

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


def lattice_kernel() -> tuple[ModuleType, str]:
    """The compiled module, and the ending of its functions on polynomials: ``ifma`` or ``portable``.

    Those are always compiled code: no library has them. ``VFL_KERNEL`` chooses ``portable`` with any name but ``ifma``.

    Raises:
        StateError: nothing was compiled when the package was installed (``E_DEVICE``).
        UsageError: as :func:`kernel`.
    """
    native = _native()
    if native is None or not hasattr(native.lib, "vfl_ring_new"):
        raise StateError(
            "encryption with lattices needs the compiled kernels, which this installation lacks",
            code="E_DEVICE",
            hint="install a C compiler (gcc or clang), then install vfl-node again",
        )
    return native, "ifma" if kernel().name == "ifma" else "portable"


def _available() -> list[Kernel]:
    """The quickest one first."""
    compiled: list[Kernel] = []
    if native := _native():
        if _has(native, "ifma"):
            compiled.append(Ifma(native))
        if _has(native, "avx2"):
            compiled.append(Avx2(native))
    return [*compiled, Libraries()]


def _has(native: ModuleType, name: str) -> bool:
    """Whether the processor runs it; where it is no x86-64, nothing of the kind was compiled."""
    has = getattr(native.lib, f"vfl_has_{name}", None)
    return has is not None and bool(has())


def _native() -> ModuleType | None:
    """The compiled module; None where it was not compiled."""
    try:
        return importlib.import_module("vfl_node.crypto.kernels._native")
    except ImportError:
        return None
