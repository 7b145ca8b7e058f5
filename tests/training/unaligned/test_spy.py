"""Rows outside of the alignment, their labels, and what is made of them stay at the active party, and end with the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.node.canaries import files_in
from tests.training.outside_rows import intersected
from tests.training.unaligned.caught import FILLING, QUICK, SILENT, Scan, catch, rows_of
from vfl_node.api import Result
from vfl_node.data.features import Encoder
from vfl_node.execution import simulation
from vfl_node.execution.extras import Extras
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.job import Evaluate, Job
from vfl_node.job.unaligned import unaligned_of
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training import checkpoints
from vfl_node.training.network import journal
from vfl_node.transport.generated.vfl.v1 import training_pb2

ROWS, SHARED = 240, 80
MADE = {"heuristic": ("filled",), "jpl": ("filled", "generator"), "diffusion": ("filled", "generator")}
"""Method → what is made of rows outside."""

LABELS = 40
"""So many labels in a row are told from other zeros and ones."""


def settings(run: Any, method: str, **keys: Any) -> dict[str, Any]:
    chosen = {"method": method, **QUICK.get(method, {})}
    update = {"epochs": 4, "batch_size": 16, "unaligned": unaligned_of(chosen)(**chosen), **keys}
    return {"train": run().train.model_copy(update=update), "evaluate": Evaluate(test_fraction=0.5, metrics=("auc",))}


def parties() -> Any:
    return intersected(ROWS, SHARED, groups=np.arange(ROWS) % 20)


def labels_in(federation: Any, data: bytes) -> set[str]:
    """Whether labels of rows outside stand in ``data`` one after the other, in any usual form."""
    labels = federation.clinic.labels[SHARED:]
    forms = {name: labels.astype(name).tobytes() for name in ("<f4", "<f8", "<i8", "<i4", "u1")}
    return {
        f"labels as {name}"
        for name, whole in forms.items()
        for size in (len(whole) // len(labels),)
        for start in range(0, len(whole) - LABELS * size + 1, size)
        if whole[start : start + LABELS * size] in data
    }


def cells(federation: Any, encoder: str) -> dict[str, Any]:
    """The columns of rows outside: as the table has them, as float32, and as the bottom reads them."""
    raw = np.stack([column.values for column in federation.clinic.columns.values()], axis=1)[SHARED:]
    encoded = Encoder.from_json(encoder).transform(federation.clinic).numeric[SHARED:]
    return {"cells": raw, "cells as float32": raw.astype(np.float32), "encoded cells": encoded}


@pytest.mark.parametrize(
    "method", [of if of in ("diffusion", "fedcvt", "ssl") else pytest.param(of, marks=pytest.mark.slow) for of in SILENT]
)
def test_what_is_sent_has_nothing_of_rows_outside(run: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    federation, caught = parties(), catch(monkeypatch)
    both, without = run(**settings(run, method)), run(**settings(run, "none"))
    active, _ = both(federation)
    arrays = cells(federation, active.encoder)
    made = [array for name in ("generator", "filled", "estimator") for array in rows_of(caught.get(name, []))]
    arrays |= {f"made {number}": array for number, array in enumerate(made)}
    assert bool(made) == (method != "ssl")
    scan, sent = Scan(arrays), [message.SerializeToString() for message in both.transcript]
    assert not scan.found(b"".join(sent)) | labels_in(federation, b"".join(sent))
    plain, _ = without(federation)
    entries = [{entry.what for entry in of.disclosures["lab"]} for of in (active, plain)]
    assert entries[0] - entries[1] == {"pace"}
    shapes = [[(type(message), message.ByteSize()) for message in of.transcript] for of in (both, without)]
    assert shapes[0] == shapes[1]
    for name, array in arrays.items():  # the control: each of them would be found
        whole = b"..." + np.ascontiguousarray(array[-1]).tobytes()
        assert not (np.asarray(array[-1]) != 0).all() or name in scan.found(sent[3] + whole)
    assert labels_in(federation, sent[3] + federation.clinic.labels[SHARED : SHARED + LABELS].tobytes())


def test_a_row_that_is_put_into_a_message_is_found(run: Any) -> None:
    """The control, over the channel: a gradient in which the active party hides a row outside."""
    federation, both = parties(), run(**settings(run, "none"))
    row = np.stack([column.values for column in federation.clinic.columns.values()], axis=1)[-1].astype(np.float32).tobytes()

    def hide(message: Any) -> None:
        if isinstance(message, training_pb2.Gradient):
            message.tensor.data = row + message.tensor.data[len(row) :]

    both.tamper = hide
    active, _ = both(federation)
    scan = Scan(cells(federation, active.encoder))
    assert scan.found(b"".join(message.SerializeToString() for message in both.transcript)) == {"cells as float32"}


@pytest.mark.parametrize("method", ["none", "ssl"])
def test_only_the_perturbed_gradient_leaves_and_the_clean_one_updates_the_active_half(run: Any, method: str) -> None:
    """One step: the active party's weights are those without a defence, and the passive party's are not."""
    noise = Protection(defences=(read_params({"name": "isotropic", "noise": 4.0}),))
    how = settings(run, method, epochs=1, batch_size=SHARED)
    clean, defended = run(**how), run(**how, protections=(noise, Protection()))
    (ours, theirs), (defended_ours, defended_theirs) = clean(parties()), defended(parties())

    def same(one: Any, other: Any) -> bool:
        return all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)

    assert same(ours, defended_ours)
    assert not same(theirs, defended_theirs)
    gradients = [
        [of.tensor.data for of in both.transcript if isinstance(of, training_pb2.Gradient)] for both in (clean, defended)
    ]
    assert [len(of) for of in gradients] == [1, 1]
    assert gradients[0] != gradients[1]


def written(folder: Path) -> dict[str, Path]:
    """Both parties' tables as files."""
    federation, files = parties(), {}
    for name, table in (("clinic", federation.clinic), ("lab", federation.lab)):
        frame = pd.DataFrame({"id": [bytes(of).decode() for of in table.ids]})
        frame = frame.assign(**{column: of.values for column, of in table.columns.items()})
        if table.labels is not None:
            frame = frame.assign(label=table.labels.astype(int), user=table.groups)
        files[name] = folder / f"{name}.csv"
        frame.to_csv(files[name], index=False)
    return files


@pytest.mark.parametrize("method", [of if of == "diffusion" else pytest.param(of, marks=pytest.mark.slow) for of in FILLING])
def test_filled_in_embeddings_and_the_generator_are_in_no_file_that_is_left(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In what a trial leaves, and in what a node keeps of the job, with what predictions need of it."""
    while_training: list[bytes] = []
    kept: dict[str, bytes] = {}
    save, copy = checkpoints.FileCheckpoints.save, simulation.copy_artefacts

    def saved(self: Any, name: str, *rest: Any) -> None:
        save(self, name, *rest)
        while_training.append(self._path(name).read_bytes())

    def copied(source: Path, target: Path) -> None:
        copy(source, target)
        JobFolder(source.parent).destroy_secrets()  # as a node does
        kept.update({f"{source.parents[1].name}/{name}": data for name, data in files_in(source.parent).items()})

    monkeypatch.setattr(checkpoints.FileCheckpoints, "save", saved)
    monkeypatch.setattr(simulation, "copy_artefacts", copied)
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    caught = catch(monkeypatch)
    train = {"bottom": [8], "active_bottom": [8], "top": [], "epochs": 4, "batch_size": 16}
    job = Job.model_validate(
        {
            "name": "trial",
            "parties": {"active": "clinic", "passive": "lab"},
            "align": {"protocol": "psi"},
            "train": {**train, "unaligned": {"method": method, **QUICK[method]}},
            "evaluate": {"test_fraction": 0.5},
            "serve": {"batch_size": 16, "to": "active"},
        }
    )
    files = written(tmp_path)
    settings = trial_settings(job, files, given={"clinic": private_settings({"data": {"group": "user"}}, source="clinic")})
    folders = simulation.simulate(job, files, tmp_path / "out", settings=settings, extras=Extras(seed=1))
    result = Result(folders)
    theirs = result.report("lab").figures
    assert result.local_aligned_metrics is not None
    assert (result.local_aligned_metrics["trained_rows"], theirs["local_aligned_metrics"]) == (SHARED // 2, None)
    said = {entry["what"]: entry for entry in theirs["learnt"]["lab"]}
    assert said["intersection"]["text"] == f"which {SHARED} of its own {SHARED} records are also held by clinic"
    assert said["pace"]["text"].startswith("from clinic no message about its records outside of the alignment")
    left = kept | {str(folder / name): data for folder in folders.values() for name, data in files_in(folder).items()}
    assert {"clinic/artefacts/model.safetensors", "lab/artefacts/model.safetensors", "clinic/serving"} <= set(left)
    scans = {name: Scan({name: np.concatenate([of.ravel() for of in rows_of(caught[name])])[None]}) for name in MADE[method]}
    assert not {(file, name) for name, scan in scans.items() for file, data in left.items() if scan.found(data)}
    found = {name for name, scan in scans.items() for data in while_training if scan.found(data)}
    assert found == {"filled"}  # the control; of the generator there is nothing even there
