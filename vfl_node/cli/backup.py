"""``vfl-node backup``, ``restore``, ``upgrade``, ``rollback``: what a node must not lose, in one file and in other releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfl_node.cli.ledger import show_verdicts
from vfl_node.cli.shared import ConfigOption, app, check_writable, err, out
from vfl_node.errors import UsageError
from vfl_node.settings.reading import load_settings

if TYPE_CHECKING:
    from vfl_node.node.backup_form import BackupManifest

_MIB = 1 << 20


@app.command()
def backup(
    words: Annotated[list[str], typer.Argument(metavar="[verify] OUT.tar", help="The backup; with verify: one to look into.")],
    config: ConfigOption = None,
    models: Annotated[bool, typer.Option("--models", help="Also reports, models and what predictions need.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing unless something is wrong.")] = False,
) -> None:
    """Copy what a node must not lose into a new file, while it runs; or verify such a file. Keys are never in it.

    The file has secrets: keep it as you keep keys. With verify, exit status 3 if a signature in a ledger does not fit.
    """
    verify = len(words) == 2 and words[0] == "verify"
    if not verify and len(words) != 1:
        raise UsageError("name one file", hint="vfl-node backup OUT.tar --config FILE, or vfl-node backup verify OUT.tar")
    target = Path(words[-1])
    if verify:
        _verify(target)
        return
    if config is None:
        raise UsageError("name the node", hint="vfl-node backup OUT.tar --config FILE")
    from vfl_node.node.backup import back_up

    settings = load_settings(config)
    check_writable(target, "file")
    made = back_up(settings, target, models=models)
    for name in made.left_out:
        err.print(f"left out: {name} has a name that no file of a node has")
    if not quiet:
        out.print(f"wrote {target}: {made.size / _MIB:.1f} MiB; {_ledgers(made.manifest)}")


def _verify(path: Path) -> None:
    """Unpack a backup, and say what is in it. Raises VflError, or Exit with status 3."""
    from vfl_node.node.backup_form import unpack_backup
    from vfl_node.process.files import scratch
    from vfl_node.trust.lane_check import verify_lane
    from vfl_node.trust.lanes import FILE

    with scratch("vfl-backup-") as folder:
        manifest = unpack_backup(path, folder)
        out.print(f"{path} is whole: {manifest.party}, {manifest.at:%Y-%m-%d %H:%M} UTC, vfl-node {manifest.version}")
        out.print("reports and models are in it" if manifest.models else "it has no reports and models (--models)")
        show_verdicts(
            (peer, verify_lane(folder / "partners" / peer / FILE, manifest.party, peer, None, None))
            for peer in manifest.ledgers
        )


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(metavar="OUT.tar", help="The backup.")],
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file, with its keys beside it.")],
) -> None:
    """Restore a backup into the empty state folder of a node. Jobs that were under way end as failed (E_RESTORED)."""
    from vfl_node.node.restore import restore as put_back
    from vfl_node.trust.tokens import Tokens

    done = put_back(archive, config)
    out.print(f"restored {done.settings.name} as it was on {done.manifest.at:%Y-%m-%d %H:%M} UTC: {_ledgers(done.manifest)}")
    for path in done.written:
        out.print(f"wrote {path}")
    for path in done.kept:
        err.print(f"kept {path}: it differs from the one in the backup")
    if done.ended:
        out.print(f"jobs that were under way have ended (E_RESTORED): {', '.join(done.ended)}")
    if people := [token["name"] for token in Tokens(done.settings.state_dir).tokens()]:
        err.print(f"these have their tokens again: {', '.join(people)}. If you revoked one since: vfl-node token revoke NAME")
    if any(path.suffix == ".yaml" and path.parent == done.settings.peers_dir for path in done.written):
        err.print("peers are as they were. If you revoked one since: vfl-node revoke NAME")
    for peer in done.manifest.ledgers:
        err.print(
            f"if {peer} has seen more than is restored, jobs with it end with E_STATE_OLDER. Then put a newer copy back, or: "
            f"vfl-node accept-loss {peer} --config {config}"
        )


@app.command()
def upgrade(
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file.")],
    check: Annotated[bool, typer.Option("--check", help="Look, and change nothing.")] = False,
) -> None:
    """Say what this release would do with the state of a node, which may run on an earlier one; exit status 1 at a FAIL."""
    from vfl_node.node.backup_form import refusal
    from vfl_node.node.upgrade_check import check_upgrade

    if not check:
        raise UsageError("a node is upgraded by starting a newer release", hint="vfl-node upgrade --check looks before that")
    try:
        looks = list(check_upgrade(load_settings(config)))
    except OSError as error:
        raise refusal(error) from None
    for look in looks:
        out.print(f"{look.verdict:4}  {look.text}")
    if any(look.verdict == "FAIL" for look in looks):
        raise typer.Exit(1)


@app.command()
def rollback(
    to: Annotated[int, typer.Option("--to", min=0, metavar="VERSION", help="The index's version in the earlier release.")],
    config: Annotated[Path, typer.Option("--config", help="The configuration file of the node, which must not run.")],
) -> None:
    """Go back to an earlier release: put its index back, if that is needed and no job would be lost."""
    from vfl_node.node.rollback import roll_back

    done = roll_back(load_settings(config), to)
    if done.copied:
        which = f"of version {done.version} (it was {done.before})"
        out.print(f"the index is again as it was on {done.copied:%Y-%m-%d %H:%M} UTC, {which}")
        out.print("start the earlier release now")
    else:
        out.print(f"nothing needs to be done: releases of version {to} can use the index as it is (version {done.before})")


def _ledgers(manifest: BackupManifest) -> str:
    heads = ", ".join(f"{peer} ({head.entries} entries)" for peer, head in manifest.ledgers.items())
    return f"ledgers with {heads}" if heads else "no ledgers yet"
