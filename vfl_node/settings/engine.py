"""Where a node computes its blocks: on this machine, or also on other machines of this party (a Ray cluster)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.settings.connection import Address
from vfl_node.settings.consistent import is_loopback

_FILES = ("token_file", "ca", "cert", "key")


class EngineSettings(Frozen):
    """``engine``: the workers of group operations and ciphertexts. What they need stays inside of this party."""

    kind: Literal["local", "ray"] = Field(
        default="local", description="local: threads and processes of this machine; ray: a Ray cluster of this party"
    )
    address: Address | None = Field(default=None, description="host:port of the head of the cluster")
    token_file: Path | None = Field(default=None, description="the cluster's token, readable by this user only (0600)")
    ca: Path | None = Field(default=None, description="PEM file of the authority of all machines of the cluster")
    cert: Path | None = Field(default=None, description="PEM file of this machine's certificate in the cluster")
    key: Path | None = Field(default=None, description="its key, readable by this user only (0600)")
    workers: int | None = Field(default=None, ge=1, le=4096, description="cores of the cluster that one node uses")
    slots: int = Field(default=2, ge=1, le=16, description="blocks that each of them has at a time")
    most_in_flight_mib: int = Field(default=512, ge=1, description="largest size of all blocks that are in the cluster")
    retries: int = Field(default=3, ge=0, le=100, description="how often a block is repeated after its worker was lost")
    start_s: float = Field(default=120, gt=0, allow_inf_nan=False, description="how long workers may take to start")
    allow_plain: bool = Field(default=False, description="a cluster on loopback may go without certificates")

    @model_validator(mode="before")
    @classmethod
    def _refuse_client(cls, given: Any) -> Any:
        if isinstance(given, dict) and str(given.get("address") or "").startswith("ray://"):
            raise ValueError("address: Ray Client (ray://) is not used: write host:port of the cluster's head")
        return given

    @model_validator(mode="after")
    def _check_kind(self) -> EngineSettings:
        if self.kind == "local":
            if given := sorted(self.model_fields_set - {"kind"}):
                raise ValueError(f"{given[0]} is for a cluster: set kind: ray, or leave it out")
            return self
        for key in ("address", "workers", "token_file"):
            if getattr(self, key) is None:
                raise ValueError(f"a cluster needs engine.{key}")
        files = [key for key in _FILES[1:] if getattr(self, key)]
        if len(files) in (1, 2):
            raise ValueError("ca, cert and key belong together: set all three")
        if not files and not (self.allow_plain and is_loopback(self.address or "")):
            raise ValueError(
                "a cluster needs ca, cert and key: without them whoever is on the way reads its token. On loopback alone "
                "allow_plain: true does without"
            )
        return self

    @property
    def encrypted(self) -> bool:
        """Whether the machines of the cluster show certificates."""
        return self.ca is not None

    def relative_to(self, base: Path) -> EngineSettings:
        """The same with its relative paths resolved against the folder ``base``."""
        return self.model_copy(update={name: base / path for name in _FILES if (path := getattr(self, name))})
