"""Whole jobs of every kind, played in one process, in which one message may be changed; and what each leaves.

All secrets follow from a seed, so the same job leaves the same artefacts.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Collection, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kinds
import torch
from kinds import SERVES, job_of, settings_of
from mutations import Change, Speaker, Wire

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import VflError
from vfl_node.execution import run as run_module
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.outcome import SUMS
from vfl_node.execution.run import Run, set_up
from vfl_node.execution.simulation import party_coroutines
from vfl_node.execution.trial import Trial
from vfl_node.job import Job
from vfl_node.node import predictions
from vfl_node.node.faults import returns
from vfl_node.node.partners import Partner
from vfl_node.node.store import Store
from vfl_node.prediction.requests import PredictionRequest, Requests
from vfl_node.settings.node import Settings
from vfl_node.training.glm import coordinator
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

Said = Mapping[tuple[str, str], list[str]]
"""(Sender, receiver) → the types of messages, in their order."""

Left = Mapping[str, Mapping[str, Any]]
"""Party → name of what it has for its owner → its content, but for times; nothing of a party whose part is not stored."""

TIMES = ("seconds", "started", "finished")
COSTS = ("phases", "bytes", "rounds", "decrypt", "text", "most_ahead")
"""Words in the keys of what two runs of the same job differ in; and of what a run differs in that broke off and went on."""


@dataclass(frozen=True)
class Played:
    """How a job ended.

    Attributes:
        ends: of each party's conversations: None, or why it failed.
        said: by whom to whom.
        left: what each party has for its owner.
    """

    ends: list[BaseException | None]
    said: Said
    left: Left


@dataclass(frozen=True)
class Brings:
    """What one party brings to a job, beside its channels."""

    settings: Settings
    job: Job
    folder: JobFolder
    memories: Mapping[str, Any]
    table: Any
    predicting: Any = None
    asked: tuple[PredictionRequest, ...] = ()

    @classmethod
    def of(cls, job: Job, name: str, tables: kinds.Tables, folder: Path) -> Brings:
        """To a job that predicts nothing."""
        settings, trial = settings_of(job, name, tables, folder / name), trial_of(name)
        table = read_input(settings, job) if settings.data else None
        memories = {
            peer: Partner(folder / "partners" / name, peer, trial.memory_secret(peer)) for peer in job.remembered_parties(name)
        }
        return cls(settings, job, JobFolder(folder / name, trial), memories, table)

    def run(self, attempt: int, channels: Mapping[str, Channel]) -> Run:
        """The run of this party."""
        own, progress = Randomness(self.folder.seed(first=attempt == 1)), LiveProgress("trial", Stop())
        return set_up(
            self.settings,
            self.job,
            "trial",
            self.table,
            own,
            self.folder,
            progress,
            attempt,
            self.memories,
            channels,
        )

    def sides(self, attempt: int, channels: Mapping[str, Channel]) -> list[tuple[Any, Any]]:
        """Its coroutines, each with its channels."""
        run = self.run(attempt, channels)
        return party_coroutines(run, self.predicting.conversations(run) if self.predicting else ())

    def left(self) -> dict[str, Any]:
        """What this party has for its owner once its part is stored."""
        if not self.folder.whole:
            return {}
        files = {path.name: path.read_bytes() for path in self.folder.artefacts.iterdir()}
        files |= dict.fromkeys(files.keys() & {"report.html", SUMS, "trace.json"}, b"")  # it stands in the others, or has times
        report = json.loads(files.pop("report.json", b"{}"))
        answers = {f"answer {number}": request._outcome for number, request in enumerate(self.asked)}
        return files | answers | {f"{key} of the report": value for key, value in without(report, TIMES).items()}


def trial_of(name: str) -> Trial:
    """The trial to which a party's secrets belong."""
    return Trial.from_number(1, name)


def without(of: Any, words: Collection[str]) -> Any:
    """A part of a report without the keys that have one of these words in them."""
    if isinstance(of, list):
        return [without(one, words) for one in of]
    if isinstance(of, dict):
        return {key: without(one, words) for key, one in of.items() if not any(word in key for word in words)}
    return of


class Players:
    """The parties of jobs over two small tables.

    Args:
        folder: scratch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables = kinds.tables(folder)

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for what the parties of one job store."""
        return tempfile.TemporaryDirectory(dir=self._folder)

    def play(
        self,
        kind: str,
        change: Change | None = None,
        between: tuple[str, str] | None = None,
        folder: Path | None = None,
        attempt: int = 1,
    ) -> Played:
        """A job of this kind.

        Args:
            kind: of :data:`kinds.ALL`.
            change: of one message.
            between: who sends that to whom.
            folder: where the parties store; forgotten by default.
            attempt: how often they have begun.

        Raises:
            VflError: what a party stored is seen to be damaged before it says a word.
            RuntimeError: all wait for ever.
        """
        job, sides, speakers, parties = job_of(kind), list[Any](), {}, {}
        with self.scratch() as forgotten, ExitStack() as stack:
            kept = folder or Path(forgotten)
            of_party = self._brings(kind, job, kept, stack) if kind in SERVES else {}
            if of_party:
                job = next(iter(of_party.values())).job
            for name, channels in memory_network(*job.parties.all, job_id="trial").items():
                met = {peer: channel for peer, channel in channels.items() if peer in job.parties.peers_of(name)}
                for peer, channel in met.items():
                    changed = change if (name, peer) == between else None
                    channel._pipe = Wire(channel._pipe, changed)  # type: ignore[assignment]
                    speakers[name, peer] = Speaker(channel, changed)
                brings = parties[name] = of_party.get(name) or Brings.of(job, name, self._tables, kept)
                sides += brings.sides(attempt, met)
            ends = run_together(*((telling(protocol, channels), channels) for protocol, channels in sides))
            left = {name: brings.left() for name, brings in parties.items()}
        return Played(ends, {pair: speaker.types for pair, speaker in speakers.items()}, left)

    def _brings(self, kind: str, job: Job, folder: Path, stack: ExitStack) -> dict[str, Brings]:
        """What each party of a job of predictions brings, by a copy of what it stored when the model was trained."""
        _, asker, new = SERVES[kind]
        trained = self._folder / f"trained {kind}"
        if not trained.exists():
            self._train(job, trained)
        made = {}
        shutil.copytree(trained, folder, dirs_exist_ok=True)
        stores = {name: Store(folder / name, trial_of(name)) for name in job.parties.all}
        for store in stores.values():
            stack.callback(store.close)
        predicting = predictions.job_for(stores[asker], "trained", asker, new=new)
        rows = list(kinds.ROWS[asker])[-20:]
        text = (
            "id,x,y,g\n" + "".join(f"p{row},.{row},.5,{row // 2}\n" for row in rows)
            if new
            else "id\n" + "".join(f"p{row}\n" for row in rows)
        )
        for name, store in stores.items():
            settings = settings_of(job, name, self._tables, folder / name)
            record = store.add(
                predicting, submitter=asker, job_id="trial", request=text.encode() if new and name == asker else None
            )
            requests, asked = Requests() if name == asker and not new else None, ()
            if requests:
                records = predictions.read_request(settings, store, predicting, text.encode())
                asked = (requests.ask(records), requests.ask(records))
                requests.close()
            own = store.job_folder(record)
            table, brought = predictions.prepare(settings, store, predicting, own, requests)
            memories = {peer: store.partner(peer) for peer in predicting.remembered_parties(name)}
            made[name] = Brings(settings, predicting, own, memories, table, brought, asked)
        return made

    def _train(self, job: Job, folder: Path) -> None:
        """Train the model of ``job``; each party's store lies in ``folder``."""
        runs = []
        with ExitStack() as stack:
            for name, channels in memory_network(*job.parties.all, job_id="trial").items():
                met = {peer: channel for peer, channel in channels.items() if peer in job.parties.peers_of(name)}
                store = Store(folder / name, trial_of(name))
                stack.callback(store.close)
                record = store.update(store.add(job, submitter="clinic", job_id="trained"), state="done")
                memories = {peer: store.partner(peer) for peer in job.remembered_parties(name)}
                brings = Brings.of(job, name, self._tables, folder)
                runs += replace(brings, folder=store.job_folder(record), memories=memories).sides(1, met)
            for end in run_together(*runs):
                if end is not None:
                    raise AssertionError(f"a training for predictions: {type(end).__name__}: {end}") from end


async def telling(protocol: Coroutine[Any, Any, None], channels: Collection[Channel]) -> None:
    """A party's part of a job, which tells its peers why it fails, as a node does."""
    try:
        await protocol
    except VflError as error:
        for channel in channels:
            await channel.abort(error, resumable=returns(error))
        raise


def quick() -> None:
    """Keys are made once, ciphertexts are computed in this process, and nobody says anything."""
    import structlog

    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    made = functools.lru_cache(maxsize=None)(lambda bits: keys.generate(bits, Randomness(bytes(32))))
    coordinator.keys = type("Once", (), {"generate": staticmethod(lambda bits, _: made(bits))})  # type: ignore[attr-defined]
    run_module.Processes = lambda _: Inline()  # type: ignore[attr-defined, assignment, misc]
