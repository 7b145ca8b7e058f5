"""One node's private settings: what it is, where its data lie, whom it talks to.

Nothing here is ever sent to another party.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    Tag,
    ValidationInfo,
    model_validator,
)

from vfl_node.configuration.models import Frozen
from vfl_node.job import Job, Name, Parties
from vfl_node.models.settings import ModelName, ModelPlace
from vfl_node.process.machine import count_cores
from vfl_node.roles import Role
from vfl_node.settings.connection import PEERS_DIR, Address, Authorities, HttpTls, Peer, Tls, Webhook
from vfl_node.settings.consistent import check_attacks, check_role, check_schedules, is_loopback
from vfl_node.settings.defences import DefenceParams, read_params
from vfl_node.settings.earlier import read_earlier, read_earlier_queue
from vfl_node.settings.engine import EngineSettings
from vfl_node.settings.limits import Limits
from vfl_node.settings.logs import LogSettings
from vfl_node.settings.metrics import MetricsSettings
from vfl_node.settings.policy import Policy, PolicyInForce
from vfl_node.settings.protection import AuditSettings, Compare, Protection
from vfl_node.settings.resources import QueueSettings, Resources
from vfl_node.settings.retention import Retention, read_earlier_retention
from vfl_node.settings.schedules import MOST_SCHEDULES, JobSchedule
from vfl_node.settings.table import Data

MOST_SERVICES = 16
"""Services of predictions at once, which take no place of the jobs that run."""

MOST_WAITING = 256
"""So many jobs of this owner may wait for their turn, and so many of peers be under way or wait, which must not fill a node."""

DEFAULT_TABLE = "default"
"""The table of a job that names none, at a node with several; and that of a node whose only table has no name."""


def data_form(data: object) -> str:
    """Whether ``data`` describes one table, or maps names to several: no such name is a key of a table."""
    if not isinstance(data, Mapping) or not data.keys().isdisjoint(Data.model_fields):
        return "one"
    return "by name" if any(isinstance(table, Mapping | Data) for table in data.values()) else "one"


OneOrByName = Annotated[Annotated[Data, Tag("one")] | Annotated[dict[Name, Data], Tag("by name")], Discriminator(data_form)]


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


class Settings(Frozen):
    """A node's configuration file. Relative paths are relative to the file."""

    called_elsewhere = {"policy": ("ask",)}

    name: Name
    role: Role
    federation: Name = Field(default="trial", description="trust domain in every certificate")
    data: OneOrByName | None = Field(
        default=None, description="this party's table; or several, by the names that jobs may say in `tables`"
    )
    listen: Address | None = Field(default=None, description="gRPC port; absent: this node only dials out")
    http: Address | None = Field(default="127.0.0.1:8080", description="health, metrics and jobs; keep it on loopback")
    http_tls: HttpTls | None = Field(default=None, description="certificate and key that make the HTTP port https")
    http_plain: bool = Field(
        default=False, description="the HTTP port may be plain beyond loopback: something else encrypts what goes over it"
    )
    webhook: Webhook | None = Field(
        default=None, description="a program of this owner that is told which jobs wait for an answer"
    )
    peers: Mapping[Name, Peer] = {}
    peers_dir: Path = Field(default=Path(PEERS_DIR), description="files of the peers that this node was paired with")
    policy: Policy = Field(
        default=Policy(),
        description="what this owner allows whom, and who says yes: a file (docs/reference/policy.md), or the same keys here",
    )
    tls: Tls | None = None
    insecure_loopback: bool = Field(default=False, description="plaintext, only between loopback addresses")
    state_dir: Path = Field(default=Path("state"), description="jobs, their secrets, reports; 0700")
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    threads: int = Field(default=1, ge=1, le=1024, description="threads for tensors")
    group_threads: int | None = Field(
        default=None, ge=1, le=1024, description="threads for group operations; None: one for every core this process may use"
    )
    engine: EngineSettings = EngineSettings()
    peer_wait_s: float = Field(default=3600, ge=0, description="how long a job waits for a lost or absent peer")
    retention: Retention = Retention()
    schedules: tuple[JobSchedule, ...] = Field(
        default=(), max_length=MOST_SCHEDULES, description="jobs that this node submits again and again, by a clock"
    )
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
    queue: QueueSettings = QueueSettings()
    resources: Resources = Resources()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
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

    _in_force: PolicyInForce = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, Mapping):
            return given
        return read_earlier(read_earlier_queue(read_earlier_retention(given, info), info), info)

    @model_validator(mode="after")
    def _hold_policy(self) -> Settings:
        self._in_force = PolicyInForce(self.policy)
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.http_tls and self.http_plain:
            raise ValueError("http_plain is for a port without http_tls: leave one of the two out")
        if self.name in self.peers:
            raise ValueError(f"{self.name!r} is this node's own name and cannot be its peer")
        if self.role != "passive" and len(self.connected) < len(self.peers):
            raise ValueError(
                "a relayed peer is for a passive node: an active one and a coordinator meet all parties themselves"
            )
        if (unknown := sorted(set(self.policy.partners) - set(self.peers))) and not self.pairs:
            raise ValueError(f"policy.partners names {unknown[0]!r}, which is not among peers")
        if self.listen is None and any(peer.address is None for peer in self.connected.values()):
            raise ValueError("a peer without an address must be able to dial in: set listen")
        if self.pairs and (lone := [name for name, peer in self.connected.items() if peer.authority is None]):
            raise ValueError(
                f"peers.{lone[0]} has no authority: pair with it (vfl-node invite), or set peers.{lone[0]}.authority; "
                "under tls.mode shared one authority may vouch for all"
            )
        if self.tls is None and not self.insecure_loopback:
            raise ValueError("set tls (or insecure_loopback: true for a trial on one machine)")
        if self.tls is None and (bad := [address for address in self.addresses if not is_loopback(address)]):
            raise ValueError(f"plaintext is for loopback only, and {bad[0]} is not")
        if self.role != "active" and self.obfuscation != Obfuscation():
            raise ValueError("obfuscation is for an active node: the obfuscated set hides its records")
        if self.role != "active" and self.compare != Compare():
            raise ValueError("compare is for an active node, which measures models")
        check_schedules(self.role, self.schedules)
        check_role(self.role, self.tables.values(), self.audit, self.defences)
        self.check_policy(self.policy)
        return self

    @property
    def connected(self) -> Mapping[str, Peer]:
        """The peers with which this node has a link; not the relayed ones."""
        return {name: peer for name, peer in self.peers.items() if not peer.relayed}

    @property
    def pairs(self) -> bool:
        """Whether this node comes to know its peers by pairing: each has an authority of its own."""
        return self.tls is not None and self.tls.mode != "shared"

    @property
    def authorities(self) -> Authorities:
        """Peer with which this node has a link → the file of its own authority; None: it has none."""
        return Authorities(self.peers)

    @property
    def tables(self) -> Mapping[str, Data]:
        """This party's tables by their names; an only one without a name is :data:`DEFAULT_TABLE`."""
        return {DEFAULT_TABLE: self.data} if isinstance(self.data, Data) else self.data or {}

    @property
    def rules(self) -> Policy:
        """The policy that holds now: that of the settings, or the one that its owner has put in its place since."""
        return self._in_force.policy

    @property
    def in_force(self) -> PolicyInForce:
        """Where that policy is held, for all copies of these settings."""
        return self._in_force

    def try_policy(self, policy: Policy) -> Settings:
        """The same settings with another policy, to try it."""
        tried = self.model_copy()
        tried._in_force = PolicyInForce(policy)
        return tried

    def check_policy(self, policy: Policy) -> None:
        """Raise ValueError where a policy stops trainings by attacks that this node does not run."""
        check_attacks(self.role, self.audit, policy)

    def limits_for(self, job: Job | None) -> Limits:
        """What this owner allows a job: the tightest of the limits for its other parties with data. None: for everyone."""
        return self.rules.limits_for(job.parties.others(self.name) if job else ())

    @property
    def protection(self) -> Protection:
        """What this owner does about what tensors tell."""
        return self.protection_under(self.limits_for(None))

    def protection_under(self, limits: Limits) -> Protection:
        """The same in a job with these limits."""
        attacks = limits.attacks
        return Protection(
            self.defences,
            self.audit.membership,
            attacks.rows,
            self.audit.features,
            attacks.columns if self.role == "passive" else None,
            self.audit.labels,
            attacks.labels if self.role == "active" else None,
            self.audit.linkage,
        )

    @property
    def coordinators(self) -> set[str]:
        """Peers that the policy lists as coordinators."""
        named = [self.rules.limits_of(name).coordinators for name in self.peers]
        return {name for names in named if names != "any" for name in names}

    @property
    def submitters(self) -> list[str]:
        """Peers that may submit jobs: all that have data."""
        return [name for name in self.connected if name not in self.coordinators]

    @property
    def group_workers(self) -> int:
        """Threads for group operations: ``group_threads``, or one for every core this process may use."""
        return self.group_threads or count_cores()

    def running_of(self, peer: str) -> int:
        """How many jobs of a peer run at once: ``queue``, or its share in the places that are not kept for this owner."""
        share = (self.queue.places - 1) // max(1, len(self.submitters))
        return self.queue.share_of(peer).running or max(1, share)

    def waiting_of(self, peer: str) -> int:
        """How many jobs of a peer may run or wait: ``queue``, or 64 and at most its share in :data:`MOST_WAITING`."""
        return self.queue.share_of(peer).waiting or min(64, MOST_WAITING // max(1, len(self.submitters)))

    @property
    def streams_per_party(self) -> int:
        """A link and a conversation a job, twice: those of a peer that was killed may stay a while beside its new ones."""
        return 2 * (1 + self.queue.places + MOST_SERVICES)

    @property
    def local(self) -> bool:
        """Whether this node listens on and dials this machine's loopback interface only."""
        return all(map(is_loopback, self.addresses))

    @property
    def addresses(self) -> list[str]:
        """On which this node listens, and which it dials."""
        addresses = [peer.address for peer in self.peers.values()]
        return [address for address in (self.listen, *addresses) if address]


def role_in(parties: Parties, name: str) -> Role | None:
    """The role that a job gives to ``name``; None where it does not name it."""
    if name == parties.active:
        return "active"
    if name == parties.coordinator:
        return "coordinator"
    return "passive" if name in parties.passive else None


def peers_in(parties: Parties, name: str) -> dict[str, Peer]:
    """The peers of a node ``name`` that knows the parties of one job, each in the way in which they meet; no addresses."""
    return {other: Peer(relayed=other not in parties.peers_of(name)) for other in parties.all if other != name}


__all__ = [
    "DEFAULT_TABLE",
    "Address",
    "Data",
    "Limits",
    "Obfuscation",
    "Peer",
    "Settings",
    "Tls",
    "data_form",
    "peers_in",
    "role_in",
]
