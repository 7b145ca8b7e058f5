"""Who sends whom which message, and what it tells: tables of docs/explanations/privacy, and docs/reference/messages.

    python -m benchmarks.messages             runs one small job of each kind, records it and writes all, about a minute
    python -m benchmarks.messages --as-is     writes them from what was recorded before

What a message tells stands in proto/messages.yaml, what a field holds beside it in proto/vfl/v1/*.proto. What the jobs
sent is kept in proto/recorded.json; tests/test_messages.py compares the three.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import logging
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import structlog
import yaml

from vfl_node.configuration.models import parse
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.node.pairing import introduce
from vfl_node.node.service import Node
from vfl_node.node.setup import init
from vfl_node.roles import Role
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.generated.vfl.v1.session_pb2 import CardShown, ExtensionSaid, Notice
from vfl_node.transport.recorder import Entry, Recorder
from vfl_node.trust.pairing import Inviter, Joiner

ROOT = Path(__file__).parents[1]
PROTOS, SPEC, RECORDED = ROOT / "proto/vfl/v1", ROOT / "proto/messages.yaml", ROOT / "proto/recorded.json"
PRIVACY, MESSAGES = ROOT / "docs/explanations/privacy", ROOT / "docs/reference/messages"
BEGIN, END = "<!-- by benchmarks/messages.py: begin -->\n", "<!-- by benchmarks/messages.py: end -->\n"
OF_PREDICTIONS = "predictions"
BEFORE_TRAINING = ("pair", "probe", "link", "any", "preflight", "agreement", "align")

PAGES = {
    "session": ("Messages of links and conversations", "before a job, around every message, and at its end", ("session",)),
    "alignment": ("Messages of alignment", "in the phase of alignment, linkage included", ("alignment", "linkage")),
    "training": (
        "Messages of training",
        "in training in the open, under encryption and in its evaluation",
        ("training", "decryption", "matched"),
    ),
    "shares": ("Messages of shares and predictions", "in training in shares and in predictions", ("shares", "prediction")),
}
"""Page below docs/reference/messages → its title, when its messages are sent, and the protos that have them."""

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive", "hub": "coordinator"}
SEVERAL = "several passive parties"
LOGISTIC = "align: {protocol: psi}\nevaluate: {test_fraction: 0}\ntrain: {algorithm: logistic, iterations: 1, key_bits: 2048"
LINKAGE = (
    "align: {protocol: linkage, keys: {u: {kind: number, low: -9, high: 9, reach: 3}}, encoding: {epsilon: 0.2, delta: 0.1}, "
    "candidates: 3, noise: {sigma: 0.4}}"
)
HIDDEN = "train: {algorithm: hidden, epochs: 1}\nevaluate: {metrics: [auc]}"
TREES = "train: {algorithm: trees, trees: 2, depth: 2, bins: 4}\nevaluate: {metrics: [auc]}"
SPLIT = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"

KINDS = {
    "psu": "align: {protocol: psu}",
    "psi": "align: {protocol: psi}",
    "apsi": "align: {protocol: apsi, obfuscation: {fraction: 0.9}}",
    "upsi": "align: {protocol: upsi}",
    f"psu, {SEVERAL}": "align: {protocol: psu}",
    f"psi, {SEVERAL}": "align: {protocol: psi}",
    f"psi-pairs, {SEVERAL}": "align: {protocol: psi-pairs}",
    "linkage": LINKAGE,
    "linkage, shares": LINKAGE.replace("candidates: 3", "candidates: 3, comparison: shares"),
    "split": SPLIT + "evaluate: {share_with_passive: true}",
    "split, validation": SPLIT + "evaluate: {validation_fraction: 0.2}",
    "split, sweep": SPLIT + "evaluate: {validation_fraction: 0.2}\nsweep: {over: {learning_rate: [0.001, 0.01]}}",
    "split, halves": SPLIT + "export: {joint: active}",
    "split, halves to the passive party": SPLIT + "export: {joint: passive}",
    "split, last rows": f"align: {{protocol: psi}}\n{SPLIT}evaluate: {{hold_out: {{last: 0.2}}}}",
    "split, projections": "align: {protocol: psi}\n" + SPLIT.replace("}", ", unaligned: {method: fedhssl}}"),
    "matched": SPLIT + "evaluate: {matched: true, test_fraction: 0.9}",
    "linkage, linked": LINKAGE
    + "\ntrain: {algorithm: candidates, bottom: [4], active_bottom: [4], top: [4], merge_hidden: [4], epochs: 1}\n"
    + "evaluate: {share_with_passive: true, validation_fraction: 0.2}",
    "hidden": HIDDEN.replace("epochs: 1", "epochs: 1, dealer_audit: 0.05"),
    "hidden, no coordinator": HIDDEN.replace("epochs: 1", "epochs: 1, randomness: parties"),
    f"hidden, {SEVERAL}": HIDDEN,
    "trees": TREES,
    f"trees, {SEVERAL}": TREES,
    "statistics": "statistics: {bins: 4}",
    "logistic, two-party": LOGISTIC + "}",
    "logistic, coordinator-open-scores": LOGISTIC + ", flow: coordinator-open-scores}",
    "logistic, coordinator": LOGISTIC + ", flow: coordinator, loss: taylor}",
    "logistic, labels at the passive party": LOGISTIC + ", flow: coordinator, loss: taylor, labels: passive}",
}
"""Kind of job → what it says beside its parties. Nodes run the others: predictions, jobs that fail."""

Seen = set[tuple[str, str, str, str]]
"""Phase, message, sender's and receiver's role."""


# What the protos say.


@dataclass
class Message:
    """A message of the protos: the comment before it, and for each field the one beside it."""

    name: str
    comment: str
    proto: str
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → (type, comment)."""


def messages(folder: Path = PROTOS) -> dict[str, Message]:
    """All messages of the protos, in the order of files and lines; of services nothing."""
    found: dict[str, Message] = {}
    for path in sorted(folder.glob("*.proto")):
        comment: list[str] = []
        message = None
        for line in path.read_text().splitlines():
            code, _, said = (part.strip() for part in line.partition("//"))
            if not code:
                comment = [*comment, said] if said else []
            elif begins := re.match(r"message (\w+) \{(\})?", code):
                message = found[begins[1]] = Message(begins[1], " ".join(comment), path.stem)
                comment = []
            elif message and (field := re.match(r"(repeated )?([\w.]+) (\w+) = \d+;", code)):
                message.fields[field[3]] = (field[1] or "") + field[2], " ".join([*comment, said]).strip()
                comment = []
    return found


# What the table says.


@dataclass(frozen=True)
class Row:
    """One row of proto/messages.yaml."""

    phase: str
    messages: tuple[str, ...]
    to: tuple[str, ...]
    content: str
    tells: str
    jobs: tuple[str, ...] = ()
    """Kinds of job, by the beginnings of their names; all by default."""

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Row:
        cells: dict[str, Any] = {name: value if isinstance(value, str) else tuple(value) for name, value in given.items()}
        return cls(**cells)

    def covers(self, kind: str, seen: tuple[str, str, str, str]) -> bool:
        phase, message, _, to = seen
        right = not self.jobs or kind.startswith(self.jobs)
        return right and self.phase in (phase, "any") and message in self.messages and to in self.to


def rows() -> list[Row]:
    return [Row.from_json(given) for given in yaml.safe_load(SPEC.read_text())["rows"]]


def find_containers() -> dict[str, list[str]]:
    """Message that only stands in others → these."""
    return yaml.safe_load(SPEC.read_text())["within"]


def tables() -> dict[Path, list[Row]]:
    """Page → the rows of its table; each row stands on one page."""
    pages: dict[str, list[Row]] = {"alignment": [], "training": [], "predictions": []}
    for row in rows():
        if row.phase in BEFORE_TRAINING:
            pages["alignment"].append(row)
        elif row.jobs and all(job.startswith(OF_PREDICTIONS) for job in row.jobs):
            pages["predictions"].append(row)
        else:
            pages["training"].append(row)
    return {PRIVACY / f"messages-of-{name}.md": page for name, page in pages.items()}


def privacy_table(rows: Iterable[Row]) -> str:
    lines = ["| phase | message | receiver | content | what it learns |", "|---|---|---|---|---|"]
    for row in rows:
        jobs = f" ({'; '.join(row.jobs)})" if row.jobs else ""
        to = (
            "all"
            if set(row.to) == set(ROLES.values())
            else "both"
            if set(row.to) == {"active", "passive"}
            else ", ".join(row.to)
        )
        names = ", ".join(f"`{name}`" for name in row.messages)
        lines.append(f"| {row.phase} | {names}{jobs} | {to} | {row.content} | {row.tells} |")
    return "\n".join(lines).replace("|I|", r"\|I\|") + "\n"


def message_index(messages: Mapping[str, Message], recorded: Mapping[str, list[list[str]]]) -> str:
    """docs/reference/messages/index.md."""
    text = [
        "# Messages, field by field",
        "",
        "What every message between nodes holds. For reviewers of what leaves a node.",
        "",
        "`make docs` writes these pages from proto/vfl/v1, proto/messages.yaml and one recorded job of each kind.",
        "The table in [who sees what](../../explanations/privacy/who-sees-what.md) says what each message reveals.",
        "",
        "| page | sent | messages |",
        "|---|---|---|",
    ]
    for page, (title, sent, protos) in PAGES.items():
        count = sum(message.proto in protos for message in messages.values())
        text.append(f"| [{title}]({page}.md) | {sent} | {count} |")
    text += ["", "## Messages by name", ""]
    text += [f"- [{name}]({_page_of(messages[name])}.md#{name.lower()})" for name in sorted(messages)]
    text += ["", "## Kinds of recorded jobs", "", *(f"- {kind}" for kind in recorded)]
    return "\n".join(text) + "\n"


def _page_of(message: Message) -> str:
    return next(page for page, (_, _, protos) in PAGES.items() if message.proto in protos)


def message_page(page: str, messages: Mapping[str, Message], recorded: Mapping[str, list[list[str]]]) -> str:
    """One of docs/reference/messages."""
    sent: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for entries in recorded.values():
        for _, kind, sender, to in entries:
            sent[kind][sender, to] = None
    title, when, _ = PAGES[page]
    text = [
        f"# {title}",
        "",
        f"Every message that is sent {when}, field by field. For reviewers of what leaves a node.",
        "",
        "`make docs` writes this page; [messages](index.md) says from what, and lists all pages.",
    ]
    inside = find_containers()
    for message in messages.values():
        if _page_of(message) != page:
            continue
        if message.name not in sent and message.name not in inside:
            raise SystemExit(f"no recorded job sends {message.name}, nor stands it within another (proto/messages.yaml)")
        ways = sorted(f"{sender} → {to}" for sender, to in sent[message.name])
        where = f"Sent {', '.join(ways)}." if ways else f"Within {', '.join(f'`{name}`' for name in inside[message.name])}."
        text += ["", f"## {message.name}", "", *([_sentence(message.comment), ""] if message.comment else []), where]
        if message.fields:
            text += ["", "| field | type | what it is |", "|---|---|---|"]
            text += [
                f"| `{name}` | {kind} | {said.replace('|', chr(92) + '|')} |" for name, (kind, said) in message.fields.items()
            ]
    return "\n".join(text) + "\n"


def _sentence(comment: str) -> str:
    return comment if comment.endswith((".", ":")) else comment + "."


def written() -> dict[Path, str]:
    """What all documents should be."""
    explained, recorded = messages(), json.loads(RECORDED.read_text())
    found = {MESSAGES / f"{page}.md": message_page(page, explained, recorded) for page in PAGES}
    found[MESSAGES / "index.md"] = message_index(explained, recorded)
    for page, text in tables().items():
        head, _, rest = page.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        found[page] = head + BEGIN + privacy_table(text) + END + tail
    return found


# What jobs send.


def record() -> dict[str, Seen]:
    """One small job of each kind → what it sent. About a minute."""
    found: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for kind, text in KINDS.items():
            passive = ("lab", "insurer") if SEVERAL in kind else ("lab",)
            tables = _tables(folder, passive, passive_labels="labels: passive" in text, times=10 if kind == "matched" else 1)
            found[kind] = _simulated(text, tables, folder / "out")
        found |= _record_nodes(_tables(folder), folder)
        found |= _record_shares(_tables(folder), folder)
        found["pairing"] = _record_pairing(folder / "pairing")
        found["probe"] = {("probe", "ProbeMessage", *way) for way in itertools.permutations(sorted(set(ROLES.values())), 2)}
    return found


def _record_pairing(folder: Path) -> Seen:
    """The messages of a clinic that has invited a lab."""
    own = {}
    for name in ("clinic", "lab"):
        init(name, cast(Role, ROLES[name]), folder / name)
        settings = load_settings(folder / name / "node.yaml")
        assert settings.tls
        credentials = load_credentials(settings.tls, name=name, federation=settings.federation)
        own[name] = introduce(settings, credentials, None)
    inviter, joiner = Inviter(b"12345", own["clinic"], leaf=b""), Joiner(b"12345", own["lab"], leaf=b"")
    second = inviter.answer(joiner.begin())
    last, _ = inviter.meet(joiner.confirm(second))
    joiner.meet(last)
    shown = Notice(card=CardShown(envelope=own["clinic"].card.envelope))  # what a link begins with after that
    asked = Notice(extension=ExtensionSaid())  # what owners who were paired may ask each other for
    kinds = (("pair", type(last).__name__), *(("link", type(each).__name__) for each in (shown.card, asked.extension)))
    return {(*kind, *way) for kind in kinds for way in (("active", "passive"), ("passive", "active"))}


def _simulated(text: str, tables: Mapping[str, Path], out: Path) -> Seen:
    hub = (
        ", coordinator: hub"
        if "randomness: parties" not in text
        and any(word in text for word in ("coordinator", "linkage", "hidden,", "trees,", "statistics"))
        else ""
    )
    passive = ", ".join(name for name in tables if ROLES[name] == "passive")
    job = parse(f"name: recorded\nparties: {{active: clinic, passive: [{passive}]{hub}}}\n{text}\n", Job, source="job")
    recorder = Recorder()
    own: dict[str, dict[str, Any]] = {"clinic": {"order": "c0"}} if job.evaluate.hold_out else {}
    if job.align.keys:
        own = {"clinic": {"keys": {"u": "c0"}}, "lab": {"keys": {"u": "c3"}}}
    given = {name: private_settings({"data": data}, source="settings") for name, data in own.items()}
    simulate(job, {}, out, wrap=recorder.wrap, settings=trial_settings(job, tables, given=given))
    return set().union(*map(_seen, recorder.entries))


def _seen(entry: Entry) -> Seen:
    """One message, and what it is wrapped in; signs of life come when work takes long, and are those of the link."""
    ways = ROLES[entry.sender], ROLES[entry.receiver]
    if entry.kind == "Notice":
        notice = cast(session_pb2.Notice, entry.message)
        within = type(getattr(notice, notice.WhichOneof("body"))).__name__
        return {("link", name, *ways) for name in (within, "Notice")}
    return set() if entry.kind == "Beat" else {("any", "Frame", *ways), (entry.frame.phase, entry.kind, *ways)}


def _beats(recorder: Recorder) -> Seen:
    """The signs of life of a standing link, which come every few seconds."""
    notices = [_seen(entry) for entry in list(recorder.entries) if entry.kind == "Notice"]
    return {seen for each in notices for seen in each if seen[1] in ("Beat", "Echo")}


def _record_nodes(tables: Mapping[str, Path], folder: Path) -> dict[str, Seen]:
    """Predictions and failing jobs by two nodes in this process, and the standing link's messages."""
    kinds = {"": "two nodes"}  # what belongs to no job
    recorder = Recorder()
    lab = _node("lab", tables, folder, recorder, listen="127.0.0.1:0", peers={"clinic": {}})
    clinic = _node("clinic", tables, folder, recorder, peers={"lab": {"address": lab.start()}})
    try:
        clinic.start()
        text = "name: recorded\nparties: {active: clinic, passive: lab}\n"
        for node in (clinic, lab):
            endless = clinic.submit(text + "train: {bottom: [4], top: [4], epochs: 100000}\n")["id"]
            kinds[endless] = "cancelled"
            _wait_until(lambda endless=endless: (lab.job(endless) or {"phase": ""})["phase"] == "train")
            node.cancel(endless)
        model = clinic.submit(text + SPLIT + "serve: {to: both, batch_size: 16}\n")["id"]
        kinds[model] = "split, kept for predictions"
        for node in (clinic, lab):
            _wait_until(lambda node=node: (node.job(model) or {"state": ""})["state"] == "done")
        for node, name in ((clinic, "clinic"), (lab, "lab")):
            asked = node.predict(model, _ids(tables[name]))
            _wait_until(asked.ready)
        for reuse in (model, "auto"):
            again = clinic.submit(f"{text}align: {{reuse: {reuse}}}\n")["id"]
            kinds[again] = "an alignment used again"
            for node in (clinic, lab):
                _wait_until(lambda node=node, again=again: (node.job(again) or {"state": ""})["state"] == "done")
        fails = clinic.submit(text + SPLIT)["id"]
        kinds[fails] = "stopped by limits"  # the fourth training
        for node in (clinic, lab):
            _wait_until(lambda node=node: (node.job(fails) or {"state": ""})["state"] == "failed")
        new = clinic.predict_new(model, tables["clinic"].read_bytes())["id"]
        _wait_until(lambda: (clinic.job(new) or {})["state"] == "done")
        kinds[new] = "predictions of new records"
        for node, role in ((clinic, "active"), (lab, "passive")):
            known = {"rows": "known", "to": role}.items()
            (service,) = (view["id"] for view in node.jobs() if known <= (view["predict"] or {}).items())
            kinds[service] = "predictions"
            node.cancel(service)
            for each in (clinic, lab):
                _wait_until(lambda each=each, service=service: (each.job(service) or {"state": ""})["state"] == "done")
        _wait_until(lambda: len({(kind, sender) for _, kind, sender, _ in _beats(recorder)}) == 4)
    finally:
        clinic.stop()
        lab.stop()
    merged: dict[str, Seen] = defaultdict(set)
    for entry in recorder.entries:
        merged[kinds[entry.frame.job_id]] |= _seen(entry)
    del merged["cancelled"]  # what it sends depends on when it was
    return dict(sorted(merged.items()))


def _record_shares(tables: Mapping[str, Path], folder: Path) -> dict[str, Seen]:
    """Predictions in shares, by three nodes in this process; without the standing link's messages."""
    recorder, kinds = Recorder(), {}
    (folder := folder / "in shares").mkdir()
    hub = _node("hub", tables, folder, recorder, listen="127.0.0.1:0", peers={"clinic": {}, "lab": {}})
    at_hub = {"address": hub.start()}
    lab = _node("lab", tables, folder, recorder, listen="127.0.0.1:0", peers={"clinic": {}, "hub": at_hub})
    clinic = _node("clinic", tables, folder, recorder, peers={"lab": {"address": lab.start()}, "hub": at_hub})
    nodes = (clinic, lab, hub)
    try:
        clinic.start()
        parties = "parties: {active: clinic, passive: lab, coordinator: hub}\n"
        model = clinic.submit(f"name: recorded\n{parties}align: {{protocol: psi}}\n{HIDDEN}\nserve: {{to: both}}\n")["id"]
        for node in nodes:
            _wait_until(lambda node=node: (node.job(model) or {"state": ""})["state"] == "done")
        for node, name in ((clinic, "clinic"), (lab, "lab")):
            shared = "".join(f"{record}\n" for record in ("id", *range(20, 80))).encode()
            _wait_until(node.predict(model, shared).ready)
            new = node.predict_new(model, tables[name].read_bytes())["id"]
            kinds[new] = "predictions in shares of new records"
            for each in nodes:
                _wait_until(lambda each=each, new=new: (each.job(new) or {"state": ""})["state"] == "done")
        for node, role in ((clinic, "active"), (lab, "passive")):
            known = {"rows": "known", "to": role}.items()
            (service,) = (view["id"] for view in node.jobs() if known <= (view["predict"] or {}).items())
            kinds[service] = "predictions in shares"
            node.cancel(service)
            for each in nodes:
                _wait_until(lambda each=each, service=service: (each.job(service) or {"state": ""})["state"] == "done")
    finally:
        for node in nodes:
            node.stop()
    merged: dict[str, Seen] = defaultdict(set)
    for entry in recorder.entries:
        if entry.frame.job_id in kinds and entry.kind != "Notice":
            merged[kinds[entry.frame.job_id]] |= _seen(entry)
    return dict(sorted(merged.items()))


def _node(name: str, tables: Mapping[str, Path], folder: Path, recorder: Recorder, **rest: Any) -> Node:
    given = {
        "name": name,
        "role": ROLES[name],
        **({"data": {"path": tables[name]}} if name in tables else {}),
        "insecure_loopback": True,
        "http": None,
        "policy": {"preset": "trial", "everyone": {"budgets": {"trainings": 3}}},
        "state_dir": folder / f"{name}-state",
        **rest,
    }
    return Node(Settings.model_validate(given), recorder=recorder)


def _wait_until(happened: Any) -> None:
    for _ in range(6000):
        if happened():
            return
        time.sleep(0.01)
    raise SystemExit("a recorded job did not end")


def _tables(
    folder: Path, passive: Sequence[str] = ("lab",), *, passive_labels: bool = False, times: int = 1
) -> dict[str, Path]:
    """Tables of 80 records each, of which all have 60; or so many times as many."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(100 * times, 6))
    labels = (values.sum(axis=1) > 0).astype(int)
    written = {}
    for name, records, columns, labelled in (
        ("clinic", range(80 * times), (0, 1, 2), not passive_labels),
        *((name, range(20 * times, 100 * times), (3, 4, 5), passive_labels) for name in passive),
    ):
        written[name] = folder / f"{name}.csv"
        with written[name].open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"c{c}" for c in columns), *(["label"] if labelled else [])])
            for record in records:
                writer.writerow([record, *values[record, columns].tolist(), *([labels[record]] if labelled else [])])
    return written


def _ids(table: Path) -> bytes:
    return "".join(line.split(",")[0] + "\n" for line in table.read_text().splitlines()).encode()


def to_json(found: Mapping[str, Seen]) -> str:
    """proto/recorded.json: one line an entry, in a fixed order."""

    def lines() -> Iterator[str]:
        for kind, seen in found.items():
            entries = ",\n".join(f"  {json.dumps(entry)}" for entry in sorted(seen))
            yield f"{json.dumps(kind)}: [\n{entries}\n ]"

    return "{\n " + ",\n ".join(lines()) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-is", action="store_true", help="record nothing anew")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if not parser.parse_args().as_is:
        RECORDED.write_text(to_json(record()))
    for path, text in written().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
