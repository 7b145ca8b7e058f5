"""Settings of the release before, in the form of today: ``policy.yaml`` beside a ``node.yaml`` without ``limits``."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vfl_node.configuration.models import text_of, validate
from vfl_node.configuration.yaml_text import read
from vfl_node.errors import UsageError
from vfl_node.process.files import fault, write_whole
from vfl_node.settings.connection import add_paired
from vfl_node.settings.earlier import earlier_keys, move_to_policy
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import Policy
from vfl_node.settings.reading import load_settings

POLICY_FILE = "policy.yaml"

_HEAD = """\
# What this node allows whom, and who says yes to a job (docs/reference/policy.md).
# It says the same as limits, accept_jobs_from and data.peers said before.
"""


@dataclass(frozen=True)
class Migration:
    """What is to be written.

    Attributes:
        config: the settings' file.
        settings: its new text.
        policy: the text of :data:`POLICY_FILE` beside it.
    """

    config: Path
    settings: str
    policy: str

    def write(self) -> list[Path]:
        """Write both files, and keep the settings as they were beside them; returns the files.

        Raises:
            UsageError: one of them exists already (``E_EXISTS``).
            StateError: one cannot be written.
        """
        config = self.config.resolve()  # a link to it stays one
        policy, before = config.with_name(POLICY_FILE), config.with_suffix(".before.yaml")
        for path in (policy, before):
            if path.exists():
                raise UsageError(f"{path} exists already", code="E_EXISTS", hint="move it away first")
        try:
            about, texts = (
                config.stat(),
                {before: config.read_bytes(), policy: self.policy.encode(), config: self.settings.encode()},
            )
            for path, data in texts.items():
                write_whole(path, data)
                os.chown(path, about.st_uid, about.st_gid)  # a service's user reads them as it did before
                path.chmod(stat.S_IMODE(about.st_mode))
        except OSError as error:
            raise fault(error) from None
        return [policy, config, before]


def plan_migration(config: Path) -> Migration | None:
    """What is to be written for the settings in ``config``; None where they have the form of today.

    All other lines of the file stay as they are, comments too.

    Raises:
        UsageError: it is no valid configuration; or its lines cannot be changed without reading them anew, and it says what to
            do by hand (``E_CONFIG``).
    """
    text = text_of(config)
    document = read(text, str(config))
    if not isinstance(document, Mapping) or not (earlier := earlier_keys(document)):
        load_settings(config)  # which says what is wrong, if anything is
        return None
    base = config.resolve().parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the keys that are moved here
        before = validate(add_paired(document, base), Settings, source=str(config), text=text)
    moved = {**move_to_policy(document), "policy": move_to_policy(add_paired(document, base))["policy"]}
    added: dict[str, Any] = {"policy": POLICY_FILE, **{key: moved[key] for key in ("queue", "resources") if key in moved}}
    lines = _remove_keys(text, earlier)
    new = "".join(lines).rstrip("\n") + "\n\n" + yaml.safe_dump(added, sort_keys=False)
    policy = _HEAD + yaml.safe_dump({"version": 1, **moved["policy"]}, sort_keys=False, allow_unicode=True)
    wanted: dict[str, Any] = {**moved, "policy": POLICY_FILE}
    if _read_again(new) != wanted:
        raise UsageError(
            f"{config}: {' and '.join(earlier)} cannot be taken out of the file without reading it anew",
            code="E_CONFIG",
            hint=f"write {POLICY_FILE} with what stands in docs/reference/policy.md, and remove these keys by hand",
        )
    if before.policy != validate(read(policy, POLICY_FILE), Policy, source=POLICY_FILE):
        raise UsageError(f"{config} says something that no policy can", code="E_CONFIG", hint="see docs/reference/policy.md")
    return Migration(config, new, policy)


def _read_again(text: str) -> Any:
    """What stands in a text; None where it is no YAML."""
    try:
        return read(text, "")
    except UsageError:
        return None


def _remove_keys(text: str, earlier: list[str]) -> list[str]:
    """The lines of a YAML file without the earlier keys and what stands under them."""
    node = yaml.compose(text)
    dropped: set[int] = set()
    for name, first, last, value in _entries(node, len(text.splitlines())):
        if name in earlier:
            dropped.update(range(first, last))
        if name == "data" and "data.peers" in earlier:
            tables = [value, *(table for _, _, _, table in _entries(value, last))]
            for table in tables:
                dropped.update(
                    line for key, begin, end, _ in _entries(table, last) if key == "peers" for line in range(begin, end)
                )
    return [line for number, line in enumerate(text.splitlines(keepends=True)) if number not in dropped]


def _entries(node: Any, end: int) -> Iterator[tuple[str, int, int, Any]]:
    """Key, first line, line after the last one, and value, of each entry of a mapping that is written in lines."""
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return
    for key, value in node.value:
        yield str(key.value), key.start_mark.line, min(max(_last_line(value), key.start_mark.line) + 1, end), value


def _last_line(node: Any) -> int:
    """The last line of a value; what follows it, such as a comment, is not of it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    return int(
        node.end_mark.line if node.end_mark.column or node.start_mark.line == node.end_mark.line else node.end_mark.line - 1
    )
