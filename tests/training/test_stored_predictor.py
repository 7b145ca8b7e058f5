"""What is stored for predictions is read back, of this version and the one before."""

from __future__ import annotations

import json

import pytest

from vfl_node.errors import StateError
from vfl_node.training.prediction.stored import VERSION, StoredPredictor

STORED = {"input": "0f" * 32, "encoder": "e", "serving": "s"}


def test_it_comes_back_with_the_names_of_classes() -> None:
    stored = StoredPredictor(**STORED, classes=("benign", "malignant"))
    assert json.loads(stored.to_json())["version"] == VERSION
    assert StoredPredictor.from_json(stored.to_json()) == stored


def test_one_without_a_version_has_no_names() -> None:
    assert StoredPredictor.from_json(json.dumps(STORED)) == StoredPredictor(**STORED)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "E_STATE_CORRUPT"),
        (json.dumps({**STORED, "input": "short"}), "E_STATE_CORRUPT"),
        (json.dumps({**STORED, "classes": [1], "version": VERSION}), "E_STATE_CORRUPT"),
        (json.dumps({**STORED, "version": VERSION + 1}), "E_STATE_VERSION"),
    ],
)
def test_what_cannot_be_read(text: str, code: str) -> None:
    with pytest.raises(StateError) as caught:
        StoredPredictor.from_json(text)
    assert caught.value.code == code
