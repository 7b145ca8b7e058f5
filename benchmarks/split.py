"""What a step of split training costs between two nodes over mutual TLS, beside the same network in one process.

    python -m benchmarks.split [--rounds 5] [--batch 256 8192] [--cut 16 64 128] [--out FILE]

The passive party has 64 columns and 64→256→cut, the active party labels and cut→256→64→1; Adam, one thread each. There are
three processes: two parties on loopback with the product's trainer, audits and transport, and one with both halves and the same
optimiser. They take turns: in each round one training of a few epochs between the parties, then as many steps of the joint
model. Every row is real at both parties (``psi``).

A step's wall time is that between the ends of two steps of one epoch; what stands between epochs is left out. An epoch's wall
time goes from the end of its first step to that of the next epoch's, and so includes what both parties do at its end. The table
shows medians over all steps of all rounds, CPU time of each process in a step, and the quotients of the two wall times: of a
step and of an epoch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import machine
from benchmarks.sessions import BY_ROLE, session
from benchmarks.tables import head, line
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.updates import Updates
from vfl_node.progress import Advanced, Event, Silent
from vfl_node.settings.node import Tls
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.credentials import load_credentials, write_private
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import StreamPipe

FEDERATION, COLUMNS = "bench", 64
ROLES = ("active", "passive")
EPOCHS = 4
STEPS = {256: 100, 8192: 8}
"""Batch size → steps of an epoch."""

GOALS: dict[tuple[float, float], float] = {
    (256, 16): 2.0,
    (256, 64): 1.8,
    (256, 128): 1.7,
    (8192, 16): 1.25,
    (8192, 64): 1.25,
    (8192, 128): 1.25,
}
"""Batch size and width of the cut → wall time of a step at most, times that of the joint model."""


@dataclass(frozen=True)
class Size:
    """What is trained in a round."""

    batch: int
    cut: int

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.batch * STEPS[self.batch]

    @property
    def train(self) -> Train:
        """The job's section."""
        return Train(bottom=(256, self.cut), top=(256, 64), batch_size=self.batch, epochs=EPOCHS)


@dataclass
class Times(Silent):
    """Wall and CPU time of the steps of one training.

    Attributes:
        steps: of an epoch.
        wall: seconds of each step but the first of an epoch.
        cpu: mean seconds of these steps, of all threads of the process; an entry for each epoch.
        epochs: seconds of each epoch with its end, but the last.
    """

    steps: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)
    _cpu: float = 0.0
    _began: float = 0.0

    def emit(self, event: Event) -> None:
        """Note the end of a step. CPU time is read twice an epoch: it can take a millisecond while other threads run."""
        if not isinstance(event, Advanced) or event.steps != 1:
            return
        self._ends.append(time.perf_counter())
        if len(self._ends) == 1:
            if self._began:
                self.epochs.append(self._ends[0] - self._began)
            self._began, self._cpu = self._ends[0], time.process_time()
        if len(self._ends) == self.steps:
            self.cpu.append((time.process_time() - self._cpu) / (self.steps - 1))
            self.wall += np.diff(self._ends).tolist()
            self._ends = []


def table(rows: int, *, labels: bool) -> Table:
    """Columns of the passive party, or the labels of the active one; nothing can be learnt, which costs as much."""
    rng = np.random.default_rng(0)
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))
    if labels:
        return Table(ids, {}, rng.integers(0, 2, rows).astype(np.float32))
    return Table(ids, {f"c{c}": NumericColumn(rng.normal(size=rows)) for c in range(COLUMNS)}, None)


def party(role: str, talk: Connection, folder: Path) -> None:
    """One party: trains as often as it is asked to, over a new conversation each time."""
    torch.set_num_threads(1)
    with _conversations(role, talk, folder) as converse:
        for number, size in enumerate(iter(talk.recv, None)):
            peer, times = ROLES[role == "active"], Times(STEPS[size.batch])
            channel = Channel(converse(f"job-{number}"), peer=peer, job_id=f"job-{number}")
            facts = PeerFacts(size.rows, intersection=size.rows, missing=0)
            view = Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(size.rows), size.rows, {peer: facts})
            own = session(
                role,
                {peer: channel},
                Randomness(role.ljust(32).encode()),
                train=size.train,
                evaluate=Evaluate(test_fraction=0.0, metrics=("nll",)),
                parties=BY_ROLE,
                progress=times,
            )
            data = TrainingData(view, table(size.rows, labels=role == "active"))
            run(SplitTrainer().run(own, data, MemoryCheckpoints(), None))
            channel.close()
            talk.send(times)


def joint(talk: Connection) -> None:
    """The same network with all columns in one place, as often as it is asked to."""
    torch.set_num_threads(1)
    for size in iter(talk.recv, None):
        own, train, times = table(size.rows, labels=False), size.train, Times(STEPS[size.batch])
        labels, every = torch.from_numpy(table(size.rows, labels=True).labels), np.arange(size.rows)
        inputs = PositionedInput.from_features(Encoder.fit(own, every).transform(own), every, torch.device("cpu"))
        whole = train.model_copy(update={"active_bottom": train.bottom})
        model = build_classifier(architecture_of(train.model), whole, inputs.schema, [])
        initialise(model, Randomness(bytes(32)))
        optimizer, schedule = Updates(model, train.optimizer, train), Schedule(bytes(32), size.rows, 0)
        for epoch in range(train.epochs):
            for batch in schedule.batches(0, epoch, every, train.batch_size):
                optimizer.zero_grad()
                loss = binary_cross_entropy_with_logits(model(inputs.take(batch)), labels[torch.from_numpy(batch)])
                loss.backward()
                optimizer.step()
                times.emit(Advanced(1))
        talk.send(times)


@contextmanager
def _conversations(role: str, talk: Connection, folder: Path) -> Iterator[Callable[[str], StreamPipe]]:
    """Opens the conversation about a job: the active party answers, the passive one dials."""
    tls = Tls(ca=folder / "ca.crt", certificate=folder / f"{role}.crt", key=folder / f"{role}.key")
    credentials, peer = load_credentials(tls, name=role, federation=FEDERATION), ROLES[role == "active"]
    if role == "passive":
        dialer = Dialer(talk.recv(), own=role, peer=peer, federation=FEDERATION, credentials=credentials)
        yield dialer.converse
        dialer.close()
        return
    arrived = SimpleQueue[StreamPipe]()
    server = NodeServer(
        "127.0.0.1:0",
        own=role,
        federation=FEDERATION,
        credentials=credentials,
        peers=frozenset({peer}),
        on_converse=lambda _party, _job, pipe: arrived.put(pipe),
        on_link=lambda _party, _link: None,
    )
    talk.send(server.start())
    yield lambda _job: arrived.get()
    server.stop()


def _certify(folder: Path) -> None:
    """Write TLS material of both parties."""
    authority, authority_key = make_authority(FEDERATION)
    (folder / "ca.crt").write_bytes(authority)
    for role in ROLES:
        key, request = make_key_and_request(role, FEDERATION)
        (folder / f"{role}.crt").write_bytes(sign(authority, authority_key, request))
        write_private(folder / f"{role}.key", key)


@contextmanager
def _processes() -> Iterator[dict[str, Connection]]:
    """Both parties and the joint model, a process each; each trains what is sent to it and answers with :class:`Times`."""
    context, talks = get_context("spawn"), dict[str, Connection]()
    with tempfile.TemporaryDirectory(prefix="vfl-bench-split-") as folder:
        _certify(Path(folder))
        for name in (*ROLES, "joint"):
            talks[name], theirs = context.Pipe()
            work, arguments = (joint, (theirs,)) if name == "joint" else (party, (name, theirs, Path(folder)))
            context.Process(target=work, args=arguments, daemon=True).start()
            theirs.close()
        talks["passive"].send(talks["active"].recv())
        yield talks
        for talk in talks.values():
            talk.send(None)


def measure(sizes: Sequence[Size], rounds: int) -> dict[Size, dict[str, Times]]:
    """For each size the times at both parties and of the joint model, all rounds together."""
    found = {size: {name: Times(STEPS[size.batch]) for name in (*ROLES, "joint")} for size in sizes}
    with _processes() as talks:
        for turn, size in ((turn, size) for turn in range(rounds + 1) for size in sizes):
            for names in (ROLES, ("joint",)):
                for name in names:
                    talks[name].send(size)
                for name in names:
                    times = talks[name].recv()
                    if turn:  # the first warms caches up
                        found[size][name].wall += times.wall
                        found[size][name].cpu += times.cpu
                        found[size][name].epochs += times.epochs
    return found


def row(size: Size, found: Mapping[str, Times]) -> dict[str, float]:
    """Medians of one size, in milliseconds, and the quotients of the wall times: of a step, and of an epoch with its end."""
    step, alone = (1e3 * statistics.median(found[name].wall) for name in ("active", "joint"))
    epoch, epoch_alone = (statistics.median(found[name].epochs) for name in ("active", "joint"))
    spent = {f"cpu_{name}_ms": 1e3 * statistics.median(times.cpu) for name, times in found.items()}
    walls = {"split_ms": step, "joint_ms": alone, "ratio": step / alone, "epoch_ratio": epoch / epoch_alone}
    return {"batch": size.batch, "cut": size.cut, **walls, **spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch", type=int, nargs="+", choices=STEPS, default=list(STEPS), help="default: all")
    parser.add_argument("--cut", type=int, nargs="+", default=[16, 64, 128], help="default: 16 64 128")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    sizes = [Size(batch, cut) for batch in chosen.batch for cut in chosen.cut]
    rows = [row(size, times) for size, times in measure(sizes, chosen.rounds).items()]
    names = ("batch", "cut", "split step, ms", "joint, ms", "split / joint", "of an epoch", "CPU ms active", "passive", "joint")
    print(*head(*names), sep="\n")
    for found in rows:
        print(line(f"{found['batch']:,.0f}", f"{found['cut']:.0f}", *(f"{found[name]:.2f}" for name in list(found)[2:])))
    print("", *head("goal", "measured", "at most", ""), sep="\n")
    for found in rows:
        if most := GOALS.get((found["batch"], found["cut"])):
            name = f"split step / joint, batch {found['batch']:,.0f}, cut {found['cut']:.0f}"
            print(line(name, f"{found['ratio']:.2f}", f"{most:g}", "met" if found["ratio"] <= most else "missed"))
    if chosen.out:
        about = {"machine": machine(), "rounds": chosen.rounds, "epochs": EPOCHS, "steps": STEPS}
        chosen.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
