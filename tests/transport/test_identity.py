"""The party that a certificate names."""

from __future__ import annotations

import pytest

from vfl_node.errors import PolicyError
from vfl_node.transport.identity import party_of


@pytest.mark.parametrize(
    ("uris", "text"),
    [
        ([], "0 URI names"),
        (["spiffe://trial/party/lab", "spiffe://trial/party/clinic"], "2 URI names"),
        (["spiffe://other/party/lab"], "spiffe://other/party/lab"),
        (["spiffe://trial/party/"], "expected spiffe://trial/party/NAME"),
        (["spiffe://trial/party/lab/x"], "expected"),
        (["spiffe://trial/party/LAB"], "expected"),
        (["spiffe://trial/lab"], "expected"),
        (["https://trial/party/lab"], "expected"),
    ],
)
def test_an_identity_of_another_form_is_refused(certificates, uris: list[str], text: str) -> None:
    with pytest.raises(PolicyError, match=text) as caught:
        party_of(certificates.named("lab", uris).certificate, "trial")
    assert caught.value.code == "E_IDENTITY"


def test_an_unreadable_certificate_is_refused() -> None:
    with pytest.raises(PolicyError):
        party_of(b"", "trial")
