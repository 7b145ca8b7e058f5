"""Commands for a node and its owner: set it up, run it, prune its jobs."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Optional

import typer

from vfl_node.cli.shared import ConfigOption, RoleName, app, client_of, err, out
from vfl_node.errors import UsageError
from vfl_node.process.logs import configure_logs
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.settings.retention import NOTICE_DAYS, Retention
from vfl_node.version import VERSION

SILENT = {"board", "budgets", "cancel", "jobs", "resume", "submit", "watch"}
"""Commands that only talk to a node, and write no log. To prepare one takes an eighth of their time."""


@app.callback(invoke_without_command=True)
def service(
    context: typer.Context,
    role: Annotated[Optional[RoleName], typer.Option(help="Run a node in this role.")] = None,  # noqa: UP045
    config: ConfigOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Run a node until it is stopped: vfl-node --config clinic.yaml. With --role its settings must name that role."""
    if version:
        print(VERSION)  # noqa: T201
        raise typer.Exit
    if context.invoked_subcommand not in SILENT:
        configure_logs()
    if context.invoked_subcommand:
        return
    if config is None:
        raise UsageError("name what to do", hint="vfl-node --config FILE runs a node; vfl-node --help lists the rest")
    settings = load_settings(config)
    if role is not None and settings.role != role.value:
        raise UsageError(
            f"{config} says role: {settings.role}, the command says --role {role.value}", hint="they must agree", code="E_ROLE"
        )
    gc.disable()  # as while the commands were loaded
    from vfl_node.node.serving import serve  # with grpc and what reads tables, which other commands do not need

    gc.freeze()  # what is loaded now stays
    gc.enable()
    serve(settings)
    # Everything is closed and on disk. Ending torch's and grpc's threads would take seconds more, and could hang.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@app.command()
def migrate(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The node's configuration file.")],
    write: Annotated[bool, typer.Option("--write", help="Write it; the settings as they were are kept beside it.")] = False,
) -> None:
    """Move limits, accept_jobs_from and data.peers of an earlier version into a policy. Without --write it is only shown."""
    from vfl_node.node.migration import POLICY_FILE, plan_migration

    plan = plan_migration(config)
    if plan is None:
        out.print(f"{config} has the form of today")
        return
    if write:
        for path in plan.write():
            out.print(f"wrote {path}")
        return
    out.print(f"# {config.with_name(POLICY_FILE)}\n{plan.policy}\n# {config}\n{plan.settings}")
    err.print("nothing is written: --write does it")


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The party's name.")],
    folder: Annotated[Path, typer.Argument(help="Where to write.")],
    role: Annotated[RoleName, typer.Option(help="Its role.")],
    federation: Annotated[str, typer.Option(help="Trust domain in the certificates.")] = "trial",
    shared: Annotated[
        bool, typer.Option("--shared", help="One authority signs for all parties: write a request for it (vfl-node certify).")
    ] = False,
    outside: Annotated[
        bool, typer.Option("--outside", help="The authority of this organisation signs: write a request for it.")
    ] = False,
) -> None:
    """Write a commented configuration and the keys of a party that is its own authority."""
    import yaml

    from vfl_node.node.setup import init as write

    check_name(name)
    if shared and outside:
        raise UsageError("--shared and --outside exclude each other", hint="leave one out")
    for path in write(
        name, role.value, folder, federation=federation, mode="shared" if shared else "outside" if outside else "own"
    ):
        out.print(f"wrote {path}")
    ports = yaml.safe_load((folder / "node.yaml").read_text())
    out.print(f"ports: listen {ports['listen']} for peers, http {ports['http']} for its owner")
    if shared:
        trial = f"for a trial: vfl-node certify {folder}"
        out.print(f"next: have {folder / 'node.csr'} signed ({trial}), then edit {folder / 'node.yaml'}")
    elif outside:
        out.print(f"next: have {folder / 'keys' / 'node.csr'} signed, then edit {folder / 'node.yaml'}")
    else:
        out.print(f"next: edit {folder / 'node.yaml'}, start the node, and pair: vfl-node invite, or vfl-node join")


@app.command()
def certify(
    folders: Annotated[list[Path], typer.Argument(help="Folders written by `vfl-node init`.")],
    authority: Annotated[Path, typer.Option(help="Folder of the trial authority; created if absent.")] = Path("authority"),
) -> None:
    """Sign the requests of `init --shared` with a trial authority on this machine."""
    from vfl_node.node.setup import certify as sign

    for written in sign(folders, authority):
        out.print(f"wrote {written.path}: {written.what}")


@app.command()
def prune(
    config: Annotated[Path, typer.Option(help="The node's configuration file.")],
    days: Annotated[Optional[float], typer.Option(min=0, help="Remove jobs that ended more days ago than this.")] = None,  # noqa: UP045
    keep: Annotated[Optional[int], typer.Option(min=0, help="Remove all but this number of the newest jobs.")] = None,  # noqa: UP045
    models_days: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, help="Remove jobs whose model is kept for predictions and that ended more days ago than this."),
    ] = None,
    models: Annotated[bool, typer.Option("--models", help="Treat those jobs like all others.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the jobs.")] = False,
) -> None:
    """Remove jobs that have ended, with reports and models; without limits, as retention says. The node may be running."""
    settings = load_settings(config)
    limits = Retention(jobs_days=days, jobs_keep=keep, models_days=models_days)
    if limits == Retention() and (limits := settings.retention) == Retention():
        raise UsageError("say what to remove", hint="--days, --keep, --models-days, or retention in the configuration")
    removed = _prune(settings, limits, models=models, dry=dry_run)
    for job_id in removed:
        out.print(job_id)
    err.print(f"{len(removed)} jobs {'would be ' if dry_run else ''}removed")
    for job_id in _prune(settings, limits.models_soon, models=False, dry=True) if dry_run and limits.models_soon else ():
        if job_id not in removed:
            err.print(f"{job_id}: its model, kept for predictions, would be removed within {NOTICE_DAYS} days")


def _prune(settings: Settings, limits: Retention, *, models: bool, dry: bool) -> list[str]:
    """Prune at the running node; without one, in its state folder."""
    try:
        return client_of(settings).prune(limits, models=models, dry=dry)
    except UsageError as error:
        if error.code != "E_NOT_RUNNING":
            raise
    from vfl_node.node.store import Store

    with closing(Store(settings.state_dir)) as store:
        return store.prune(limits, models=models, dry=dry)


@app.command("accept-loss")
def accept_loss(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The peer whose memory at this node is lost or too old.")],
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file.")],
    of_peer: Annotated[bool, typer.Option("--of-peer", help="It is the peer that has lost its memory of this node.")] = False,
) -> None:
    """Work with a peer again after this node's memory of it was lost, for example by an old backup (E_STATE_OLDER).

    Both owners must accept that: the other one with --of-peer.

    Also after the secret was lost under which labels were answered to it (E_STATE_LOST, defence randomised-labels).
    """
    from vfl_node.node.partners import accept_loss as accept
    from vfl_node.node.partners import accept_loss_of_peer, accept_new_answers
    from vfl_node.node.spending import counts_with

    check_name(peer)
    settings = load_settings(config)
    if peer not in settings.peers:
        hint = f"its peers: {', '.join(sorted(settings.peers)) or 'none yet'}"
        raise UsageError(f"{peer} is no peer of {settings.name}", code="E_UNKNOWN_PEER", hint=hint)
    if of_peer:
        seen = accept_loss_of_peer(counts_with(settings, peer))
        out.print(f"accepted: the ledger of {peer} about this node begins anew, after {seen} entries that this node has seen")
        return
    if accept_new_answers(settings.state_dir / "partners", peer):
        out.print(f"accepted: {peer} gets a second answer about each label, and the ε of both add up. Submit the job again")
        return
    seen = accept(counts_with(settings, peer))
    out.print(f"accepted: {peer} has seen entry {seen}; what was lost counts as a changed set")
    out.print(
        f"the owner of {peer} must accept it, too: vfl-node accept-loss {settings.name} --of-peer. Then submit the job again"
    )
    out.print(
        f"of hidden trainings with {peer} nobody knows what was spent: vfl-node budget --forget {peer} begins a new count"
    )


def check_name(name: str) -> None:
    """Raise UsageError unless a party can have this ``name``."""
    from pydantic import TypeAdapter, ValidationError

    from vfl_node.job import Name

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r} cannot be a party's name", hint="lower-case letters, digits and inner hyphens, at most 63"
        ) from None
