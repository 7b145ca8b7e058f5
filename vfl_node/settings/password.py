"""Where a password is. The password itself is in no settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.errors import UsageError


class Password(Frozen):
    """Where a password is: in a variable of the environment, or in a file. The password itself is in no settings."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Password:
        if (self.env is None) == (self.file is None):
            raise ValueError("say where the password is: {env: NAME} or {file: PATH}")
        return self

    def relative_to(self, folder: Path) -> Password:
        """The same with a file that is relative to ``folder``."""
        return Password(file=folder / self.file) if self.file else self

    def read(self, party: str, key: str) -> str:
        """The password. ``key`` of the settings names this place. Raises UsageError (``E_CONFIG``)."""
        hint = f"{key} names where the password is: {{env: NAME}} or {{file: PATH}}"
        if self.env is not None:
            if self.env not in os.environ:
                raise UsageError(f"{party}: the environment has no variable {self.env}", code="E_CONFIG", hint=hint)
            return os.environ[self.env]
        assert self.file is not None
        try:
            return self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise UsageError(f"{party}: {self.file} cannot be read", code="E_CONFIG", hint=hint) from None


def no_password_itself(value: object) -> object:
    """Refuse a password in place of where it is, without repeating it."""
    if value is not None and not isinstance(value, Mapping | Password):
        raise ValueError("say where the password is, not the password: {env: NAME} or {file: PATH}")
    return value
