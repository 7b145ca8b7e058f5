"""One node's private settings: what it is, where its data lie, whom it talks to.

Nothing here is ever sent to another party.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, StringConstraints, field_validator, model_validator

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.comparison import Compare
from vfl_node.configuration import Frozen, load
from vfl_node.data.declared import Declared
from vfl_node.data_source import DataSource
from vfl_node.errors import UsageError
from vfl_node.job import Name, Parties, ProtocolName
from vfl_node.label_source import LabelAsWritten, LabelSource
from vfl_node.models.names import ModelName, ModelPlace
from vfl_node.privacy.defences.registry import DEFENCES, read_params
from vfl_node.privacy.defences.spec import DefenceParams, Direction

Role = Literal["active", "passive", "coordinator"]
Address = Annotated[str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}$")]

SENT_BY: dict[Role, Direction] = {"passive": "embeddings", "active": "gradients"}
"""Role → the tensors that it sends in training; a coordinator sends none."""

MOST_SERVICES = 16
"""Services of predictions at once, which take no place of the jobs that run."""


class Data(DataSource):
    """This party's table."""

    id: str | Annotated[tuple[str, ...], Field(min_length=2, max_length=16)] = Field(
        default="id", description="column that identifies a record; a list if several columns identify it together"
    )
    label: LabelAsWritten | None = Field(default=None, description="column of labels, where a job needs them (default 'label')")
    columns: dict[str, Declared] = Field(
        default={}, description="kind per column, or kind and scaling; undeclared ones are detected"
    )
    check: bool = Field(default=True, description="whether the node looks at the first rows of the table when it starts")

    @field_validator("id")
    @classmethod
    def _distinct(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not isinstance(value, str) and len(set(value)) != len(value):
            raise ValueError("a column may identify a record once only")
        return value

    @property
    def labels(self) -> LabelSource:
        """The column of labels, where labels are read."""
        return self.label or LabelSource(column="label")


class Peer(Frozen):
    """Another party. Without an address this node waits until it connects."""

    address: Address | None = None


class Tls(Frozen):
    """PEM files of this node. The key must not be readable by others."""

    ca: Path
    certificate: Path
    key: Path


class Limits(Frozen):
    """What this node's owner allows any job."""

    min_set_size: int = Field(
        default=50,
        ge=1,
        description="smallest number of ids of either party. The size of an intersection that is empty or the whole set "
        "reveals membership; if one record in ten is shared, the intersection of 50 random ids is empty once in 200 jobs "
        "(0.9^50), that of 10 in every third",
    )
    protocols: tuple[ProtocolName, ...] = Field(
        default_factory=lambda: tuple(ALIGNMENTS),
        min_length=1,
        description="alignment protocols that a job may use; a peer that may submit jobs chooses among them what is revealed",
    )
    max_set_size: int = Field(
        default=100_000_000, ge=1, description="largest number of ids that a peer may announce, random ones included"
    )
    inputs_per_peer: int = Field(
        default=20,
        ge=1,
        description="how many different pairs of sets (this node's and a peer's) may ever be aligned; "
        "from two pairs that differ in a few ids either party may learn about these ids",
    )
    changes_per_peer: int = Field(
        default=4,
        ge=0,
        description="how often a set (this node's or a peer's) may ever change between alignments that hide from the peer "
        "how many records are shared (dummies, obfuscated sets); c changes leave about 2/(c + 2) of what dummies hide",
    )
    trainings_per_set: int = Field(
        default=20,
        ge=1,
        description="how many trainings with synthetic rows a peer may ever have over the same records of this node; "
        "synthetic rows are drawn again in each training, real ones are not, so comparing a few trainings separates them",
    )
    rows_per_model: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="about how many different rows of one model a peer may ever learn about by predictions. All rows of a "
        "batch count. All of them are computed with the same weights, so a copy among them is equal to its source",
    )
    jobs_per_peer: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="how many jobs submitted by one peer this node stores, ended ones included; more are refused until "
        "some are pruned (keep_days, keep_jobs, vfl-node prune)",
    )
    max_attack_auc: float | None = Field(
        default=None,
        gt=0.5,
        le=1,
        description="this node attacks what it sends itself. Training stops when the AUC of an attack on its synthetic rows "
        "exceeds this (folded: .3 counts as .7), on the average of the last epochs; predictions stop before that. None: the "
        "AUCs are only shown",
    )

    allow_matched: bool = Field(
        default=False,
        description="whether a job may count, under encryption, which held-out rows both parties own (evaluate.matched); an "
        "active party that departs from the protocol can read flags of single rows instead, a bit for every 8 rows",
    )
    max_model_parameters: int = Field(
        default=20_000_000,
        ge=1,
        description="largest number of weights of a job's networks at this node; each takes about 64 bytes during training",
    )
    max_steps: int = Field(default=10_000_000, ge=1, description="largest number of batches, or iterations, of a job")
    max_memory_mib: int | None = Field(
        default=None, ge=1, description="largest estimated memory of all jobs together; None: what is free"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Limits:
        if self.min_set_size > self.max_set_size:
            raise ValueError("min_set_size is above max_set_size")
        return self


class Obfuscation(Frozen):
    """The active party's own wishes for the obfuscated set of an asymmetric intersection (job: ``obfuscation: private``)."""

    security_number: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="ξ: the set has |I|^(1-ξ)·n_s^ξ records, rounded up to a public size; 0: the intersection I, "
        "1: the passive party's whole set of n_s. None: jobs that leave it to this node are refused",
    )
    min_intersection: int = Field(
        default=1,
        ge=0,
        description="the obfuscated set is sized for at least this many shared records; with fewer this node stops after "
        "the alignment",
    )


class AuditSettings(Frozen):
    """Which attacks this node runs on what it sends itself."""

    membership: bool = Field(
        default=True,
        description="whether it attacks what it sends to see how well its synthetic rows are told from real ones; without, "
        "limits.max_attack_auc cannot be kept",
    )


@dataclass(frozen=True)
class Protection:
    """What this node's owner does about what tensors tell that leave in training and predictions.

    Attributes:
        defences: change each tensor before it leaves, in this order.
        membership: whether the attacks on membership run.
        max_attack_auc: training and predictions stop if these attacks do better, folded; None: they go on.
    """

    defences: tuple[DefenceParams, ...] = ()
    membership: bool = True
    max_attack_auc: float | None = None


class Settings(Frozen):
    """A node's configuration file. Relative paths are relative to the file."""

    name: Name
    role: Role
    federation: Name = Field(default="trial", description="trust domain in every certificate")
    data: Data | None = None
    listen: Address | None = Field(default=None, description="gRPC port; absent: this node only dials out")
    http: Address | None = Field(default="127.0.0.1:8080", description="health, metrics and jobs; keep it on loopback")
    peers: dict[Name, Peer] = {}
    accept_jobs_from: tuple[Name, ...] = Field(
        default=(), description="peers whose jobs run without asking the owner; nobody by default"
    )
    tls: Tls | None = None
    insecure_loopback: bool = Field(default=False, description="plaintext, only between loopback addresses")
    state_dir: Path = Field(default=Path("state"), description="jobs, their secrets, reports; 0700")
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    threads: int = Field(default=1, ge=1, le=1024, description="threads for tensors")
    group_threads: int | None = Field(
        default=None, ge=1, le=1024, description="threads for group operations; None: one for every core this process may use"
    )
    jobs_at_once: int = Field(default=16, ge=1, le=64, description="how many jobs run at a time; more jobs wait for their turn")
    peer_wait_s: float = Field(default=3600, ge=0, description="how long a job waits for a lost or absent peer")
    keep_days: float | None = Field(
        default=None,
        ge=0,
        description="for how many days an ended job is kept, with its report and model; None: for ever",
    )
    keep_jobs: int | None = Field(default=None, ge=0, description="how many ended jobs are kept; None: all")
    quarantine_after: int = Field(
        default=2,
        ge=1,
        description="how often this node's process may die during a job; after that it no longer starts the job by itself",
    )
    stall_s: float = Field(
        default=1800,
        gt=0,
        description="how long a connected peer may make no progress, neither compute nor send, while a job waits for it",
    )
    limits: Limits = Limits()
    obfuscation: Obfuscation = Obfuscation()
    compare: Compare = Compare()
    models: dict[ModelName, ModelPlace] = Field(
        default={}, description="this owner's own architectures, by the name that a job says: name → module:Class"
    )
    audit: AuditSettings = AuditSettings()
    defences: tuple[Annotated[SerializeAsAny[DefenceParams], BeforeValidator(read_params)], ...] = Field(
        default=(),
        max_length=8,
        description="what changes the embeddings (passive node) or gradients (active node) that this node sends, in this order",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.name in self.peers:
            raise ValueError(f"{self.name!r} is this node's own name and cannot be its peer")
        if unknown := sorted(set(self.accept_jobs_from) - set(self.peers)):
            raise ValueError(f"accept_jobs_from names {unknown[0]!r}, which is not among peers")
        if self.listen is None and any(peer.address is None for peer in self.peers.values()):
            raise ValueError("a peer without an address must be able to dial in: set listen")
        if self.tls is None and not self.insecure_loopback:
            raise ValueError("set tls (or insecure_loopback: true for a trial on one machine)")
        if self.tls is None and (bad := [a for a in self._addresses() if not is_loopback(a)]):
            raise ValueError(f"plaintext is for loopback only, and {bad[0]} is not")
        if self.role != "active" and self.obfuscation != Obfuscation():
            raise ValueError("obfuscation is for an active node: the obfuscated set hides its records")
        if self.role != "active" and self.compare != Compare():
            raise ValueError("compare is for an active node, which measures models")
        if self.role == "coordinator" and self.data is not None:
            raise ValueError("a coordinator has no data: leave it out")
        if self.limits.max_attack_auc is not None and not self.audit.membership:
            raise ValueError(
                "limits.max_attack_auc needs the attacks that audit.membership: false switches off; remove one of the two"
            )
        for defence in self.defences:
            if SENT_BY.get(self.role) not in DEFENCES[defence.name].directions:
                raise ValueError(f"the defence {defence.name!r} changes nothing that this node sends: its role is {self.role}")
        return self

    @property
    def protection(self) -> Protection:
        """What this owner does about what tensors tell."""
        return Protection(self.defences, self.audit.membership, self.limits.max_attack_auc)

    @property
    def group_workers(self) -> int:
        """Threads for group operations: ``group_threads``, or one for every core this process may use."""
        return self.group_threads or len(os.sched_getaffinity(0))

    @property
    def streams_per_party(self) -> int:
        """A link and a conversation a job, twice: those of a peer that was killed may stay a while beside its new ones."""
        return 2 * (1 + self.jobs_at_once + MOST_SERVICES)

    @property
    def local(self) -> bool:
        """Whether this node listens on and dials this machine's loopback interface only."""
        return all(map(is_loopback, self._addresses()))

    def _addresses(self) -> list[str]:
        addresses = [peer.address for peer in self.peers.values()]
        return [address for address in (self.listen, *addresses) if address]


def role_in(parties: Parties, name: str) -> Role | None:
    """The role that a job gives to ``name``; None where it does not name it."""
    if name == parties.active:
        return "active"
    if name == parties.coordinator:
        return "coordinator"
    return "passive" if name in parties.passive else None


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` names this machine's loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(path: Path) -> Settings:
    """Read a node's configuration and resolve its relative paths against the file's folder.

    Raises:
        UsageError: the file is missing or not a valid configuration.
    """
    settings = load(path, Settings)
    base = path.resolve().parent
    update: dict[str, object] = {"state_dir": base / settings.state_dir}
    if settings.data:
        update["data"] = settings.data.relative_to(base)
    if settings.tls:
        update["tls"] = Tls(ca=base / settings.tls.ca, certificate=base / settings.tls.certificate, key=base / settings.tls.key)
    return settings.model_copy(update=update)


__all__ = [
    "Data",
    "Limits",
    "Obfuscation",
    "Peer",
    "Role",
    "Settings",
    "Tls",
    "UsageError",
    "is_loopback",
    "load_settings",
    "role_in",
]
