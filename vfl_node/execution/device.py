"""Where tensors are computed."""

from __future__ import annotations

import torch

from vfl_node.errors import UsageError
from vfl_node.process import failpoints


def choose_device(name: str) -> torch.device:
    """The device that ``name`` stands for; ``auto`` is CUDA where there is one.

    Raises:
        UsageError: a CUDA device is asked for and absent (``E_DEVICE``); never a silent switch to the CPU.
    """
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
