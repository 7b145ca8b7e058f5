"""Architectures that a node's owner declares."""

from __future__ import annotations

import re

import pytest
import torch

import vfl_node.models
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError, UsageError
from vfl_node.models import Architecture, InputSchema, architecture_of, check_version, cut_width
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.training.split.config import Train

SCHEMA = InputSchema(3, (4, 6))
TRAIN = Train(model="own", bottom=(16, 8), active_bottom=(8,), top=(4,))


def declared(name: str) -> dict[str, str]:
    return {"own": f"tests.models.own_models:{name}"}


def own(name: str) -> Architecture:
    return architecture_of("own", declared(name))


def rows(schema: InputSchema, count: int = 5) -> ModelInput:
    draw = torch.Generator().manual_seed(3)
    image = None if schema.image is None else torch.randn(count, *schema.image, generator=draw)
    sequence = None
    if schema.sequence is not None:
        length, vocabulary = schema.sequence
        sequence = torch.randint(vocabulary, (count, length), generator=draw)
    codes = [torch.randint(k, (count,), generator=draw) for k in schema.cardinalities]
    categorical = torch.stack(codes, dim=1) if codes else torch.empty(count, 0, dtype=torch.int64)
    return ModelInput(torch.randn(count, schema.numeric, generator=draw), categorical, image, sequence)


@pytest.mark.parametrize("name", ["Gated", "Everything"])
def test_a_declared_architecture_is_built_with_weights_of_the_stream(name: str) -> None:
    before = torch.get_rng_state()
    models = [build_classifier(own(name), TRAIN, SCHEMA, [cut_width(TRAIN)]) for _ in range(3)]
    for model, seed in zip(models, (b"a", b"a", b"b"), strict=True):
        initialise(model, Randomness(seed * 32))
    assert torch.equal(before, torch.get_rng_state())
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    drawn = [key for key in states[0] if not torch.equal(states[0][key], states[2][key])]
    assert {key for key in states[0] if "norm" not in key} == set(drawn)
    assert models[0].eval()(rows(SCHEMA), [torch.ones(5, 8)]).shape == (5,)


@pytest.mark.parametrize("name", ["Gated", "Everything"])
def test_weights_are_counted_without_memory_for_them(name: str) -> None:
    architecture = own(name)
    model = build_classifier(architecture, TRAIN, SCHEMA, [8])
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == architecture.bottom_weights(SCHEMA, TRAIN.active_bottom, TRAIN) + architecture.head_weights([8, 8], TRAIN)
    huge = TRAIN.model_copy(update={"bottom": (65536,), "top": (65536, 65536)})
    assert architecture.bottom_weights(InputSchema(10**6), huge.bottom, huge) > 6e10


def test_images_and_sequences_reach_a_bottom_that_reads_them() -> None:
    schema = InputSchema(image=(1, 6, 6), sequence=(7, 20))
    bottom = build_bottom(own("Pictures"), TRAIN, schema, TRAIN.bottom)
    initialise(bottom, Randomness(bytes(32)))
    some = rows(schema)
    embedding = bottom(some)
    assert embedding.shape == (5, 8)
    assert torch.allclose(bottom(some.take(torch.tensor([3, 1]))), embedding[[3, 1]], atol=1e-6)
    embedding.sum().backward()
    assert all(parameter.grad is not None for parameter in bottom.parameters())


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("gatde", {"gated": "tests.models.own_models:Gated"}, "has none of that name.*did you mean 'gated'"),
        ("own", {"own": "tests.models.no_such_module:Gated"}, "cannot be loaded"),
        ("own", declared("NoSuchClass"), "cannot be loaded"),
        ("own", {"own": "not a place"}, "cannot be loaded"),
        ("own", declared("NO_ARCHITECTURE"), "not an Architecture"),
        ("own", declared("Wide"), "wide coordinates"),
    ],
)
def test_what_is_not_there_or_no_architecture_is_refused(name: str, place: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        architecture_of(name, place)
    assert re.search(said, f"{caught.value.message} {caught.value.hint}")
    assert caught.value.code == "E_EXTENSION"
    assert "own_models" not in caught.value.for_peer


def test_a_registered_name_is_not_replaced() -> None:
    assert architecture_of("mlp", {"mlp": "tests.models.own_models:Gated"}) is architecture_of("mlp")


@pytest.mark.parametrize(("name", "said"), [("Broken", "KeyError"), ("Dropping", "torch's generator")])
def test_code_that_fails_or_draws_elsewhere_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        build_classifier(own(name), TRAIN, SCHEMA, [8])
    assert caught.value.code == "E_EXTENSION"


def test_an_embedding_of_another_shape_is_refused_where_it_is_made() -> None:
    bottom = build_bottom(own("TooNarrow"), TRAIN, SCHEMA, TRAIN.bottom)
    with pytest.raises(UsageError, match=r"bottom of model .own. gives torch.float32\[5, 7\], .*\[5, 8\] is due"):
        bottom(rows(SCHEMA))


def test_calibration_needs_a_top_that_can_start_at_a_rate() -> None:
    model = build_classifier(own("Everything"), TRAIN, SCHEMA, [8])
    with pytest.raises(UsageError, match="start_at"):
        model.start_at(0.1)
    build_classifier(own("Gated"), TRAIN, SCHEMA, [8]).start_at(0.1)


def test_weights_of_another_version_are_refused() -> None:
    check_version("own", own("LaterGated").version, 2)
    with pytest.raises(StateError, match="by version 1 of model 'own', and this node has version 2") as caught:
        check_version("own", own("LaterGated").version, 1)
    assert caught.value.code == "E_STATE_VERSION"


def test_the_example_of_the_docs_is_an_architecture() -> None:
    text = (vfl_node.models.__doc__ or "").split("its own class::")[1].split("What such a class")[0]
    lines = [line.removeprefix("    ") for line in text.strip("\n").splitlines()]
    space: dict[str, object] = {}
    exec("\n".join(lines), space)  # the text is this package's own
    kind = space["Gated"]
    assert isinstance(kind, type)
    assert issubclass(kind, Architecture)
    bottom = build_bottom(kind(), TRAIN, SCHEMA, TRAIN.bottom)
    assert bottom(rows(SCHEMA)).shape == (5, 8)
