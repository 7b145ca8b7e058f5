"""Where a table in an object store is, and how the store lets this node in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.settings.password import Password, no_password_itself


def _says(pattern: str, what: str) -> BeforeValidator:
    """Accepts text of this pattern. The error for another value does not repeat it, since it may have a password in it."""

    def check(value: object) -> object:
        if value is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            raise ValueError(f"this is {what}")
        return value

    return BeforeValidator(check)


ObjectUrl = Annotated[
    str,
    _says(
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\s/?#]+)+/?",
        "an object, or a prefix of part files, as s3://BUCKET/KEY, without a name, a password or a question mark",
    ),
]
Endpoint = Annotated[str, _says(r"https?://[^\s/@?#]+", "a server and nothing else, such as https://minio.clinic:9000")]


class ObjectStore(Frozen):
    """A server that speaks the protocol of S3, and what this node shows it."""

    model_config = ConfigDict(hide_input_in_errors=True)

    endpoint: Endpoint | None = Field(default=None, description="the server; None: that of AWS for the region")
    region: str | None = Field(default=None, min_length=1, description="of the bucket; None: as tools of AWS find it")
    ca: Path | None = Field(default=None, description="PEM file of the authority that the server's certificate is of")
    access_key: str | None = Field(
        default=None, min_length=1, description="name of the key; None: as tools of AWS find one: environment, profile, machine"
    )
    secret_key: Annotated[Password, BeforeValidator(no_password_itself)] | None = Field(
        default=None, description="where its secret is: {env: NAME} or {file: PATH}"
    )

    @model_validator(mode="after")
    def _check_key(self) -> ObjectStore:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key belong together")
        if self.ca and self.endpoint and self.endpoint.startswith("http:"):
            raise ValueError("ca is for an endpoint that is https")
        return self

    def relative_to(self, folder: Path) -> ObjectStore:
        """The same with paths that are relative to ``folder``."""
        secret = self.secret_key and self.secret_key.relative_to(folder)
        return self.model_copy(update={"ca": self.ca and folder / self.ca, "secret_key": secret})
