"""Torch in this process. It takes two seconds and 200 MiB, so a process loads it when a job first needs it, and only then.

A module that a node loads at its start, or that a job without training loads, does not import torch. It may name torch's types
(``TYPE_CHECKING``). Whatever trains, predicts or audits is loaded with the trainer of a job, and imports torch as usual.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vfl_node.errors import UsageError
from vfl_node.process import failpoints

if TYPE_CHECKING:
    import torch

_DRIVERS = (
    "/dev/nvidiactl",
    "/dev/dxg",
    "/dev/kfd",
    "/sys/module/nvidia",
    "/usr/bin/nvidia-modprobe",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvgpu",
)
"""Marks of drivers under Linux: without any, torch finds no accelerator. NVIDIA's may make its devices at first use."""


TORCH_BYTES = 180 << 20
"""What a process takes in addition once torch is loaded."""


def torch_is_loaded() -> bool:
    """Whether it is there, and not only on its way."""
    module = sys.modules.get("torch")
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def begin_loading() -> None:
    """Load torch on a thread of its own, so that it is there when a job that reads its table and waits for others needs it."""
    if "torch" not in sys.modules:
        with suppress(RuntimeError):  # no thread to spare: it is loaded later
            threading.Thread(target=_try_to_load, name="torch", daemon=True).start()


def _try_to_load() -> None:
    with suppress(Exception):  # who needs it meets the error again
        importlib.import_module("torch")


def load_torch(threads: int) -> None:
    """Load torch, if it is not loaded yet, and have it compute with ``threads``. Raises UsageError (``E_EXTENSION``)."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of it is missing
        hint = "install vfl-node and torch again, then restart the node"
        raise UsageError(f"torch cannot be loaded: {error}", code="E_EXTENSION", hint=hint) from None
    torch.set_num_threads(threads)


def choose_device(name: str) -> torch.device:
    """The device that ``name`` stands for; ``auto`` is CUDA where there is one. Loads torch.

    Raises:
        UsageError: a CUDA device is asked for and absent (``E_DEVICE``); never a silent switch to the CPU.
    """
    import torch

    failpoints.reach("device")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda:0" if count else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise UsageError(
            f"device {name} is not on this machine ({count} CUDA devices)", code="E_DEVICE", hint="set device: auto or cpu"
        )
    return device


def settle_device(name: str) -> str:
    """``name`` of a device; ``cpu`` in place of ``auto`` on a machine that surely has no other. Loads torch for a CUDA device.

    Raises: as :func:`choose_device`.
    """
    if name == "auto":
        return "auto" if sys.platform != "linux" or any(Path(driver).exists() for driver in _DRIVERS) else "cpu"
    return name if name == "cpu" else str(choose_device(name))


def device_name(device: torch.device) -> str:
    """The accelerator's name, or ``cpu``."""
    if device.type != "cuda":
        return str(device)
    import torch

    return torch.cuda.get_device_name(device)
