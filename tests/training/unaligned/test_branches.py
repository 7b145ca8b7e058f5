"""The federated and the local branch change what is theirs, and of each other's nothing but the weights that they share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.outside_rows import intersected
from tests.training.unaligned.caught import QUICK
from vfl_node.job import Evaluate
from vfl_node.job.unaligned import unaligned_of
from vfl_node.models.initial_weights import NORMS
from vfl_node.training.split import local_branch
from vfl_node.training.split.filled_rows import FilledRows
from vfl_node.training.split.local_branch import LocalBranch

METHODS = ("diffusion", "jpl", "fedcvt")


def state(of: Any) -> dict[str, Tensor]:
    """What a branch has, as ``PART KIND.NAME``: of ``bottom`` and ``top``, weights, and what belongs to a norm."""
    norms = {name for name, layer in of.named_modules() if isinstance(layer, NORMS)}
    kinds = {
        name: f"{'bottom' if name.startswith('bottom.') else 'top'} {'norm' if name.rpartition('.')[0] in norms else 'weights'}"
        for name in of.state_dict()
    }
    return {f"{kinds[name]}.{name}": tensor.detach().clone() for name, tensor in of.state_dict().items()}


class Watch:
    """Notes what each batch changes.

    Attributes:
        federated: of each federated batch: what it changed, as ``BRANCH PART KIND``.
        local: the same of each local one.
        filling: the same of the filling, which should change nothing.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.federated: list[set[str]] = []
        self.local: list[set[str]] = []
        self.filling: list[set[str]] = []
        self._seen: dict[str, Tensor] = {}
        step, done, ends = LocalBranch._step, LocalBranch.step_done, FilledRows.epoch_ends
        begins = LocalBranch._begin_local

        def began(branch: Any, *arguments: Any, **named: Any) -> None:
            begins(branch, *arguments, **named)
            self._changed(branch)

        def stepped(branch: Any, index: int) -> None:
            self._changed(branch)
            step(branch, index)
            self.local.append(self._changed(branch))

        def ended(branch: Any, seen: Any) -> None:
            self.federated.append(self._changed(branch))
            done(branch, seen)
            self._changed(branch)

        def filled(branch: Any) -> Any:
            self._changed(branch)
            found = ends(branch)
            self.filling.append(self._changed(branch))
            return found

        monkeypatch.setattr(LocalBranch, "_begin_local", began)
        monkeypatch.setattr(LocalBranch, "_step", stepped)
        monkeypatch.setattr(LocalBranch, "step_done", ended)
        monkeypatch.setattr(FilledRows, "epoch_ends", filled)

    def _changed(self, branch: Any) -> set[str]:
        """What has changed since it was asked last."""
        now = {f"{name} {key}": of for name, model in self._models(branch) for key, of in state(model).items()}
        before, self._seen = self._seen, now
        return {key.partition(".")[0] for key, tensor in now.items() if key in before and not torch.equal(tensor, before[key])}

    @staticmethod
    def _models(branch: Any) -> tuple[tuple[str, Any], ...]:
        return ("joint", branch._active.model), ("local", branch._branch)


SHARED = {"joint bottom weights", "local bottom weights"}


def watched(run: Any, method: str, monkeypatch: pytest.MonkeyPatch, *, norm: bool = True, **keys: Any) -> Watch:
    watch, chosen = Watch(monkeypatch), {"method": method, **QUICK[method], **keys}
    update = {"epochs": 4, "batch_size": 32, "batch_norm": norm, "unaligned": unaligned_of(chosen)(**chosen)}
    run(train=run().train.model_copy(update=update), evaluate=Evaluate(test_fraction=0.5))(intersected(400, 160))
    return watch


@pytest.mark.parametrize("method", METHODS)
def test_each_branch_changes_its_own_and_the_shared_weights_alone(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watched(run, method, monkeypatch)
    assert len(watch.federated) == 4 * 3
    assert len(watch.local) >= 2 * 8
    local = SHARED | {"local bottom norm", "local top weights", "local top norm"}
    assert all(of == local for of in watch.local)
    federated = SHARED | {"joint bottom norm", "joint top weights", "joint top norm"}
    assert all(of == federated for of in watch.federated)


def test_filling_rows_in_changes_nothing_of_the_model_and_beginning_anew_all_of_the_active_half(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = watched(run, "jpl", monkeypatch, anew=False)
    assert goes_on.filling == [set()] * 4
    anew = watched(run, "jpl", monkeypatch, anew=True)
    assert {of for changed in anew.filling for of in changed} >= SHARED | {"joint top weights"}


@pytest.mark.parametrize("shared", ["norms", "tops"])
def test_a_branch_that_shares_more_would_be_seen(run: Any, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    if shared == "norms":
        monkeypatch.setattr(local_branch, "NORMS", ())
    else:
        whole = LocalBranch._build_branch

        def built(branch: Any) -> Any:
            made = whole(branch)
            local_branch.share_weights(made, branch._active.model)
            return made

        monkeypatch.setattr(LocalBranch, "_build_branch", built)
    watch = watched(run, "jpl", monkeypatch)
    more = {"norms": "joint bottom norm", "tops": "joint top weights"}[shared]
    assert all(more in of for of in watch.local)
    assert all(more.replace("joint", "local") in of for of in watch.federated)
