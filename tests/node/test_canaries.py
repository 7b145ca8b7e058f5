"""No id, label or cell is in a log, in state at rest, in a metric, a report, an error or an answer, however jobs end."""

from __future__ import annotations

import base64
import http.client
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from canaries import Search, files_in, forms_of_number, forms_of_text
from nodes import THREE, at_least

from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.job import Job

KINDS = {"x": "numeric", "y": "numeric", "kind": "categorical"}
TWO, COORDINATED = "parties: {active: clinic, passive: lab}", "parties: {active: clinic, passive: lab, coordinator: notary}"
SPLIT = "train: {bottom: [4], top: [4], epochs: 1, batch_size: 64}\nevaluate: {share_with_passive: true}\n"
UNION = f"{TWO}\nalign: {{protocol: psu}}\n{SPLIT}"
OBFUSCATED = "align: {protocol: apsi, obfuscation: {size: 90}}"
JOBS = {
    "split over psu": f"{UNION}serve: {{batch_size: 16, to: both}}\n",
    "split over psi": f"{TWO}\nalign: {{protocol: psi}}\n{SPLIT}serve: {{batch_size: 16, to: active}}\n",
    "regression": f"{TWO}\n{OBFUSCATED}\ntrain: {{algorithm: logistic, iterations: 2, key_bits: 2048, flow: two-party}}\n",
    "regression with a coordinator": f"{COORDINATED}\n{OBFUSCATED}\n"
    "train: {algorithm: logistic, iterations: 2, key_bits: 2048, flow: coordinator, loss: taylor}\n",
}
HIDDEN = f"{TWO}\ntables: {{clinic: others, lab: others}}\nalign: {{protocol: psu, padding: 2, dummies: 20}}\n{SPLIT}"
"""Over other tables: what the jobs above told of theirs is not to be hidden afterwards, and what they hid may not change."""

OWN_MODEL = ("artefacts/model.safetensors", "serving")
"""Files of a job where a party keeps its half of the model, with the levels of its own categorical columns."""

OWN_COLUMNS = "/columns"
"""The file of a job that says how the party's own columns were: it has quantiles, which are cells, and levels, but no id."""

OWN_RESULT = "artefacts/predictions.csv"
"""The file of a job in which its owner's own records come back to it, with what was predicted."""


OWN_CLASSES = (*OWN_MODEL, OWN_RESULT, "artefacts/report.json", "artefacts/report.html")
"""Files of a job in which the party with the labels has the names of their classes."""


class Tables:
    """A clinic's and a lab's, in which every id, number and level is a canary; and some that cannot be used.

    Attributes:
        files: where each node reads its table, which may be exchanged; ``other_files``: another one.
        ids, numbers, labels: canaries.
        levels: name → those of its column ``kind``.
        classes: names of the classes of the clinic's labels.
        bad: (name, what is wrong) → a table.
    """

    def __init__(self, folder: Path) -> None:
        self._chance = random.Random("canaries")
        self.ids = [f"id-canary-{self._chance.randrange(10**9):09d}" for _ in range(200)]
        self.numbers: list[str] = []
        self.labels: list[str] = []
        self.classes = ["class-canary-benign", "class-canary-malignant"]
        self.levels = {name: [f"level-canary-{name}-{number}" for number in range(3)] for name in ("clinic", "lab")}
        self.files = {name: folder / f"{name}.csv" for name in self.levels}
        self.texts = {"clinic": self._table("clinic", self.ids[:100]), "lab": self._table("lab", self.ids[20:140])}
        self.other_files = {name: folder / f"{name}-others.csv" for name in self.levels}
        self.other_files["clinic"].write_text(self._table("clinic", self.ids[60:160]))
        self.other_files["lab"].write_text(self._table("lab", self.ids[80:]))
        self.bad = {(name, what): text for name in self.files for what, text in self._bad(name)}
        self.use(self.texts)

    def use(self, texts: dict[str, str]) -> None:
        """Have the nodes read these from now on."""
        for name, text in texts.items():
            self.files[name].write_text(text)

    def _table(self, name: str, ids: list[str]) -> str:
        rows = [["id", "x", "y", "kind", *(["label"] if name == "clinic" else [])]]
        for number, of in enumerate(ids):
            cells = [f"{self._chance.uniform(1000, 9999):.11f}" for _ in range(2)]
            self.numbers += cells
            rows.append(
                [of, *cells, self.levels[name][number % 3], *([self.classes[number // 2 % 2]] if name == "clinic" else [])]
            )
        return "".join(",".join(row) + "\n" for row in rows)

    def _bad(self, name: str) -> Iterator[tuple[str, str]]:
        lines = self.texts[name].splitlines(keepends=True)
        text, label = f"cell-canary-{name}", f"label-canary-{name}"
        self.labels += [text, label]
        of, x, *rest = lines[5].rstrip().split(",")
        variants = {
            "text in a numeric column": [",".join([of, text, *rest])],
            "an infinite cell": [",".join([of, "1e999", *rest])],
            "a ragged line": [",".join([of, x, *rest, text])],
            "an id twice": [lines[5].rstrip()] * 2,
        }
        if name == "clinic":
            variants["an unusable label"] = [",".join([of, x, *rest[:-1], label])]
        for what, instead in variants.items():
            yield what, "".join([*lines[:5], *(f"{line}\n" for line in instead), *lines[6:]])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("canaries"))


@pytest.fixture(scope="module")
def search(tables: Tables) -> Search:
    return Search([*tables.ids, *tables.labels, *tables.levels["clinic"], *tables.levels["lab"]], tables.numbers)


@pytest.fixture(scope="module")
def nodes(tables: Tables, federations: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three nodes, of which the lab's dies in the first step that it trains."""
    made = federations(tmp_path_factory.mktemp("nodes"), THREE)
    made.trial = SimpleNamespace(files=tables.files)
    for name, path in tables.files.items():
        paths = {"default": path, "others": tables.other_files[name]}
        made.configure(name, data={called: {"path": str(of), "columns": KINDS} for called, of in paths.items()})
    for name in THREE:
        made.configure(name, log={"level": "debug"})
    made.failpoints["lab"] = "updated=kill@1"
    made.start_three(everyone=at_least(10) | {"tables": "any"})
    return made


def submitted(nodes: Any, text: str, *, name: str = "trial") -> str:
    return nodes.client("clinic").submit(parse(f"name: {name}\n{text}", Job, source="job").canonical())["id"]


def ended(nodes: Any, job_id: str) -> dict[str, Any]:
    """A job's view at each party, when it has ended there."""
    parties = nodes.client("clinic").job(job_id)["parties"]
    return {name: nodes.end(name, job_id) for name in parties if nodes.view(name, job_id)}


def refused(ask: Callable[[], Any]) -> dict[str, Any]:
    """What an owner is told who asks for what there is not."""
    with pytest.raises(VflError) as caught:
        ask()
    return {"clinic": {"state": "refused", "error": {"code": caught.value.code, "text": f"{caught.value} {caught.value.hint}"}}}


@pytest.fixture(scope="module")
def played(nodes: Any, tables: Tables) -> dict[str, dict[str, Any]]:
    """Jobs of every kind, predictions, and jobs that fail; what each ended with."""
    views = {"changed": changed(nodes, tables)}
    for kind, text in JOBS.items():
        views[kind] = ended(nodes, submitted(nodes, text))
        if kind == "split over psu":  # before other jobs promise to hide what an intersection with new records tells
            views |= predicted(nodes, tables, views[kind]["clinic"]["id"])
    for (name, what), text in tables.bad.items():
        tables.use({name: text})
        views[f"{what} at {name}"] = ended(nodes, submitted(nodes, UNION))
        tables.use({name: tables.texts[name]})
    views["broken promise"] = ended(nodes, submitted(nodes, f"{TWO}\nalign: {{protocol: psu, dummies: 7}}\n"))
    views["hidden"] = ended(nodes, submitted(nodes, HIDDEN))
    return views


def changed(nodes: Any, tables: Tables) -> dict[str, Any]:
    """A job whose lab comes back with another table."""
    job_id = submitted(nodes, UNION)
    nodes.processes["lab"].wait(240)
    tables.use({"lab": "".join(tables.texts["lab"].splitlines(keepends=True)[:-1])})
    nodes.start("lab")
    views = ended(nodes, job_id)
    tables.use(tables.texts)
    nodes.wait_until(lambda: all(nodes.connected(name) for name in THREE))
    return views


def predicted(nodes: Any, tables: Tables, model: str) -> dict[str, Any]:
    """Predictions of known and new records; what those end with that cannot be made."""
    known = "id\n" + "".join(f"{of}\n" for of in tables.ids[30:34])
    for name in ("clinic", "lab"):
        answer = nodes.client(name).predict(model, known.encode(), lambda: None)
        assert tables.ids[30].encode() in answer  # to its owner
    lines = tables.texts["clinic"].splitlines(keepends=True)
    new = ["id,x,y,kind\n", *(line.rsplit(",", 1)[0] + "\n" for line in lines[1:])]
    job_id = nodes.client("clinic").predict_new(model, "".join(new).encode())["id"]
    views = {"new records": ended(nodes, job_id)}
    asked = {
        "an unknown id": f"{known}{tables.ids[150]}\n",
        "no header": f"{tables.ids[41]}\n",
        "ids twice": f"{known}{tables.ids[30]}\n",
    }
    for what, text in asked.items():
        ask = partial(nodes.client("clinic").predict, model, text.encode(), lambda: None)
        views[f"predictions of {what}"] = refused(ask)
    new[7] = new[7].replace(tables.numbers[12], tables.labels[0])
    views["predictions of text in a numeric column"] = refused(
        partial(nodes.client("clinic").predict_new, model, "".join(new).encode())
    )
    for name in ("clinic", "lab"):  # services that wait for more
        for view in nodes.client(name).jobs():
            if view["finished"] is None:
                nodes.client(name).cancel(view["id"])
                nodes.end(name, view["id"])
    return views


def answers(nodes: Any, name: str) -> dict[str, bytes]:
    """What a node answers its owner over HTTP."""
    token = (nodes.folder / name / "state" / "token").read_text()
    ids = [view["id"] for view in nodes.client(name).jobs()]
    paths = ["/", "/health", "/metrics", "/api/jobs", *(f"/api/jobs/{job}" for job in ids), *(f"/jobs/{job}" for job in ids)]
    paths += [f"/jobs/{job}/trace.json" for job in ids]
    told = {}
    for path in [*paths, "/nowhere/id", "/api/jobs/none/predictions"]:
        connection = http.client.HTTPConnection(nodes.client(name).address, timeout=240)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        told[f"{name}: GET {path}"] = str(response.getheaders()).encode() + response.read()
        connection.close()
    return told


def everything(nodes: Any) -> dict[str, bytes]:
    """Logs, state folders and answers of all nodes."""
    told: dict[str, bytes] = {}
    for name in THREE:
        told[f"{name}: log"] = nodes.log(name).encode()
        told |= {f"{name}: {path}": data for path, data in files_in(nodes.folder / name / "state").items()}
        told |= answers(nodes, name)
    return told


def test_jobs_end_as_they_should(played: dict[str, dict[str, Any]]) -> None:
    """Or the search would be of nothing."""
    well = {*JOBS, "hidden", "new records"}
    for what, views in played.items():
        assert {view["state"] for view in views.values()} <= ({"done"} if what in well else {"failed", "refused"}), (
            what,
            views,
        )
    codes = {view["error"]["code"] for what in played.keys() - well for view in played[what].values()}
    assert codes == {
        *("E_NUMERIC", "E_CSV", "E_DUP_IDS", "E_LABEL", "E_PEER"),  # tables, and what the other side hears
        *("E_INPUT_CHANGED", "E_PROMISE", "E_UNKNOWN_ID", "E_EMPTY"),
    }


def test_no_canary_is_anywhere_but_where_its_owner_keeps_it(
    nodes: Any, tables: Tables, search: Search, played: dict[str, dict[str, Any]]
) -> None:
    assert search.found_in({what: str(views).encode() for what, views in played.items()}) == {}
    assert all('"level": "debug"' in nodes.log(name) for name in THREE)  # or the search would be of fewer lines
    found = search.found_in(everything(nodes))
    models = {place: seen for place, seen in found.items() if place.endswith(OWN_MODEL)}
    for place, seen in models.items():
        levels = tables.levels[place.split(":")[0]]
        assert {of.rsplit(" (", 1)[0] for of in seen} <= set(levels), place
    assert len(models) > 4
    result = f"clinic: jobs/{played['new records']['clinic']['id']}/{OWN_RESULT}"
    noted = {place for place in found if place.endswith(OWN_COLUMNS)}
    for place in noted:
        seen = {of.rsplit(" (", 1)[0] for of in found[place]}
        own = tables.texts[party := place.split(":")[0]] + tables.other_files[party].read_text()
        assert not seen & {*tables.ids}, place
        assert all(cell in own for cell in seen), place  # and none of another party
    assert found.keys() - models.keys() - noted == {result}


def test_names_of_classes_are_with_the_owner_of_the_labels_alone(
    nodes: Any, tables: Tables, played: dict[str, dict[str, Any]]
) -> None:
    search = Search(tables.classes, ())
    assert search.found_in({what: str(views).encode() for what, views in played.items()}) == {}
    found = set(search.found_in(everything(nodes)))
    files = {place for place in found if place.startswith("clinic: jobs/") and place.endswith(OWN_CLASSES)}
    pages = {place for place in found if place.startswith("clinic: GET /jobs/")}
    assert found == files | pages
    assert {of for of in OWN_CLASSES if any(place.endswith(of) for place in files)} == set(OWN_CLASSES)


def test_a_planted_canary_is_found(nodes: Any, tables: Tables, search: Search) -> None:
    """A positive control: each form in a file of a state folder; a job called like a record, which its log line has, too."""
    planted = forms_of_text(tables.ids[7]) | {
        f"number {form}": data for form, data in forms_of_number(tables.numbers[7]).items()
    }
    place = nodes.folder / "lab" / "state" / "planted" / "file"
    place.parent.mkdir()
    noise = random.Random(1).randbytes(1000)
    try:
        for form, data in planted.items():
            place.write_bytes(noise + data + noise)
            assert len(search.found_in(files_in(place.parent))["file"]) == 1, form
    finally:
        shutil.rmtree(place.parent)
    job_id = submitted(nodes, f"{TWO}\nalign: {{protocol: psu}}\n", name=tables.ids[9])
    ended(nodes, job_id)
    wanted = {"log", "GET /api/jobs", f"GET /api/jobs/{job_id}", f"GET /jobs/{job_id}"}
    assert search.found_in(everything(nodes)).keys() >= {f"{name}: {what}" for name in ("clinic", "lab") for what in wanted}
    for of in range(3):
        told = base64.b64encode(b"x" * of + f"the id {tables.ids[9]} is not there".encode())
        assert search.found(told), of
    assert search.found(f'vfl_rows{{id="{tables.ids[11]}"}} 1.0'.encode())
    assert search.found(b"x") == search.found(noise) == []
