"""The capacity page, from the figures of :mod:`benchmarks.capacity` and nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vfl_node.privacy.labels.evidence import MOST_JOBS

Cell = Mapping[str, Any]

WITHIN, GATE = 0.35, 0.9
"""How far an estimate may be off, and of which part of the measured jobs."""

DAYS = 365

HOSTS = (("a clinic", 2, 4, "slow"), ("a bank", 16, 64, "fast"))
"""Who, cores, GiB, link."""

SPARE = 0.85
"""Part of a machine's memory that a job may take; the rest is for the system."""

_LEAST_ALIGNED = 100_000
"""Smaller alignments are not shown: they take a few seconds."""

NIGHT_S = 12 * 3600.0

TITLES = {
    "": "Alignment alone",
    "split": "Split training",
    "logistic": "Logistic regression under encryption",
    "hidden": "Training in shares",
}


def page(data: Mapping[str, Any]) -> str:
    """The whole page."""
    return (
        "\n".join([*_head(data), *_sizes(data), *_large(data), *_measured(data), *_hosts(data), *_growth(data)]).rstrip() + "\n"
    )


def errors(data: Mapping[str, Any], figure: str) -> list[float]:
    """Estimate of each measured job, divided by what was measured, less 1."""
    return [job["estimated"][figure] / job["measured"][figure] - 1 for job in data["measured"]]


def share_within(data: Mapping[str, Any], figure: str) -> float:
    """Which part of the measured jobs is estimated well enough."""
    off = errors(data, figure)
    return sum(abs(error) <= WITHIN for error in off) / len(off)


def _head(data: Mapping[str, Any]) -> Iterator[str]:
    machine, jobs = data["machine"], data["jobs"]
    split, logistic = jobs["split"], jobs["logistic"]
    (slow, slow_ms), (fast, fast_ms) = data["links"].values()
    yield "# Capacity\n"
    yield from _text(
        """What a job takes of a node and of the line, by its size and kind; what machine it needs; and how fast a node's
        state grows. For whoever buys or rents the machine."""
    )
    yield "    make capacity        # measures, and writes this page and its data\n"
    yield from _text(
        f"""The figures are estimates, those of [`vfl-node estimate`](../guides/estimate-a-job.md) for the machine named
        below. Some of the jobs were [measured](#measured-jobs), too. For your own machine run `vfl-node estimate` there. All of
        it took {data["seconds"] / 60:.0f} minutes. The load of the machine's two cores was {data["load_before"]:g} before."""
    )
    yield from _list(
        f"""**Machine:** {machine["cpu"]}, kernel `{machine["kernel"]}` ([kernels](kernels.md)). Without
        AVX-512 IFMA, alignment and encryption take three to five times the CPU time.""",
        f"""**Tables:** each party has so many rows of {data["columns"]} columns of numbers. All parties share half of the
        rows. The other rows are of one party alone.""",
        f"""**Split training:** bottoms of {"–".join(map(str, split["bottom"]))}, a top of {split["top"][0]},
        {split["epochs"]} epochs, batches of {split["batch_size"]:,}.""",
        f"""**Logistic regression:** flow two-party, and `coordinator-open-scores` with two passive parties; keys of 3,072
        bits, {logistic["iterations"]} iterations over all rows. Time and bytes grow with the iterations.""",
        """**Training in shares:** without further keys. It has a coordinator besides the parties that are counted.""",
        """Every training holds out 0.3 of the rows. `apsi` hides the shared rows in 0.7 of the passive party's.""",
        """**CPU:** of all nodes of the job together. The boosted tree of `compare.boosted_tree` is left out.
        So are imports: the first training after a node's start takes 2 to 3 seconds more.""",
        """**RSS:** the most resident memory of the active party's node. **State:** the most bytes of lists on its disk
        while it aligns. **Wire:** all that all nodes send.""",
        f"""**Wall:** from the order to the report, where each party has 2/16/32 cores. *Slow* is {slow:g} Mbit/s with
        {slow_ms:g} ms there and back, *fast* is {fast:g} Mbit/s with {fast_ms:g} ms. More cores help groups and
        encryption alone. Networks and shares are counted with one core.""",
        """Alignment by similarity is not here, since it compares all pairs ([how much that
        is](../guides/link-records.md)).""",
    )


def _sizes(data: Mapping[str, Any]) -> Iterator[str]:
    yield "## Jobs by size"
    yield ""
    for trainer, title in TITLES.items():
        least = 0 if trainer else _LEAST_ALIGNED
        cells = [cell for cell in data["cells"] if cell["trainer"] == trainer and cell["rows"] >= least]
        yield f"### {title}"
        yield ""
        yield "| protocol | parties | rows | CPU | RSS | state | wire | wall, slow | wall, fast |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for cell in cells:
            walls = ("/".join(_time(seconds) for seconds in cell[f"{link}_wall_s"]) for link in data["links"])
            sizes = (_size(cell[name]) for name in ("peak_bytes", "disk_bytes", "sent_bytes"))
            line = (cell["protocol"], str(1 + cell["passive"]), _rows(cell["rows"]), _time(cell["cpu_s"]), *sizes, *walls)
            yield f"| {' | '.join(line)} |"
        yield ""


def _large(data: Mapping[str, Any]) -> Iterator[str]:
    """Alignments of more identifiers than one machine here holds."""
    cores = "/".join(map(str, data["large_cores"]))
    links = list(data["large"][0]["wall_s"])
    yield "## Alignments of 10⁷ to 10⁹ identifiers\n"
    yield from _text(
        f"""Two parties, tables of identifiers and one column, and {cores} cores at each. These are the unit costs of this
        machine, multiplied. One was measured, [PSU of ten million](benchmarks/alignment.md#two-nodes), of an earlier version
        elsewhere. Messages stay on one core. They and the disk bound the gain from many cores."""
    )
    yield f"| protocol | rows | CPU | RSS | state | wire | {' | '.join(f'wall, {link}' for link in links)} |"
    yield f"|---|---|---|---|---|---|{'---|' * len(links)}"
    for cell in data["large"]:
        walls = ("/".join(map(_time, cell["wall_s"][link])) for link in links)
        sizes = (_size(cell[name]) for name in ("peak_bytes", "disk_bytes", "sent_bytes"))
        yield f"| {' | '.join((cell['protocol'], _rows(cell['rows']), _time(cell['cpu_s']), *sizes, *walls))} |"
    yield ""


def _measured(data: Mapping[str, Any]) -> Iterator[str]:
    off = errors(data, "cpu_s")
    worst, verdict = max(off, key=abs), "met" if share_within(data, "cpu_s") >= GATE else "missed"
    yield "## Measured jobs\n"
    yield from _text(
        f"""{len(off)} of the jobs ran between real nodes on this machine: processes joined by mutual TLS over loopback,
        one thread each. CPU time counts, of all nodes and their child processes. The unit costs were measured right
        before and after each job. Each cell has the estimate → what was measured, and by how much the estimate is off."""
    )
    yield "| protocol | trainer | parties | rows | CPU | RSS | state | wire |"
    yield "|---|---|---|---|---|---|---|---|"
    for job in data["measured"]:
        about = (job["protocol"], job["trainer"] or "–", str(1 + job["passive"]), _rows(job["rows"]))
        yield f"| {' | '.join((*about, *(_compared(job, name) for name in FIGURES)))} |"
    yield ""
    well = {name: sum(abs(error) <= WITHIN for error in errors(data, name)) for name in FIGURES}
    yield from _text(
        f"""**Gate:** {100 * GATE:.0f} % of the measured jobs are within ±{100 * WITHIN:.0f} % in CPU time. It is
        {verdict}: {well["cpu_s"]} of {len(off)} are, and the largest error is {_percent(worst)}. Of RSS
        {well["peak_bytes"]} are within this range, of state {well["disk_bytes"]}, of wire {well["sent_bytes"]}. Other
        work on a machine changes the CPU time of one and the same job by a third. Some unit costs were fitted to earlier runs
        on this machine. Where RSS and state are far off, they are too high. Wall time was not compared."""
    )


def _compared(job: Cell, name: str) -> str:
    """Estimated, measured, and the error."""
    estimated, measured = job["estimated"][name], job["measured"][name]
    return f"{FIGURES[name](estimated)}→{FIGURES[name](measured)} {_percent(estimated / measured - 1)}"


def _hosts(data: Mapping[str, Any]) -> Iterator[str]:
    yield "## What fits where\n"
    yield from _text(
        f"""The largest size of the tables above that fits, with its wall time. A job fits if its RSS is at most
        {100 * SPARE:.0f} % of the memory, and if it ends within {NIGHT_S / 3600:.0f} hours. All parties have such a
        machine."""
    )
    titles = [f"{who}: {cores} cores, {gib} GiB, {link} line" for who, cores, gib, link in HOSTS]
    yield f"| protocol | trainer | parties | {' | '.join(titles)} |"
    yield f"|---|---|---|{'---|' * len(HOSTS)}"
    kinds = dict.fromkeys((cell["protocol"], cell["trainer"], cell["passive"]) for cell in data["cells"])
    for protocol, trainer, passive in kinds:
        cells = [
            cell
            for cell in data["cells"]
            if (cell["protocol"], cell["trainer"], cell["passive"]) == (protocol, trainer, passive)
        ]
        fitting = (_largest(cells, data["cores"].index(cores), gib, link) for _, cores, gib, link in HOSTS)
        yield f"| {protocol} | {trainer or '–'} | {1 + passive} | {' | '.join(fitting)} |"
    yield ""
    yield from _text("A job that does not fit becomes smaller with `align.at_most`, and a regression with fewer iterations.")


def _largest(cells: Sequence[Cell], place: int, gib: int, link: str) -> str:
    """Rows and wall time of the largest job that fits."""
    fits = [cell for cell in cells if cell["peak_bytes"] <= SPARE * gib * 2**30 and cell[f"{link}_wall_s"][place] <= NIGHT_S]
    if not fits:
        return "none"
    largest = max(fits, key=lambda cell: int(cell["rows"]))
    return f"{_rows(largest['rows'])}, {_time(largest[f'{link}_wall_s'][place])}"


def _growth(data: Mapping[str, Any]) -> Iterator[str]:
    growth = data["growth"]
    jobs, kinds = growth["jobs"], dict(growth["bytes"])
    entries = kinds.pop("entries")
    yield "## Growth in a year\n"
    yield from _text(
        f"""Measured at the active party's node from {jobs} jobs: `psi` and split training, over {growth["rows"]:,} rows
        at each of two paired parties. The year is this, multiplied to {DAYS} jobs: one a day."""
    )
    yield "| what | a job | a year |"
    yield "|---|---|---|"
    years = {name: count / jobs * (min(DAYS, MOST_JOBS) if name == "partners" else DAYS) for name, count in kinds.items()}
    for name, count in kinds.items():
        yield f"| {_NAMES.get(name, name)} | {_size(count / jobs)} | {_size(years[name])} |"
    yield f"| all | {_size(sum(kinds.values()) / jobs)} | {_size(sum(years.values()))} |"
    yield ""
    yield from _text(
        f"""A job has {entries / jobs:.1f} entries of the ledger, of {kinds["ledger"] / entries:,.0f} bytes each. A ledger is
        never pruned. Files of jobs go with [`vfl-node prune`](../guides/submit-and-watch-jobs.md#pruning), or by `retention` in
        the settings. Most of a partner's other files is what attacks found out about labels. It is kept apart for {MOST_JOBS}
        jobs over the same labels, and is one sum of all jobs before. So it is counted {MOST_JOBS} times in a year.
        Each partner has a ledger."""
    )


_NAMES = {"index": "index (`jobs.sqlite`)", "ledger": "ledger", "partners": "other files of partners", "reports": "reports"}


def _rows(count: int) -> str:
    """A power of ten."""
    return "10" + str(len(str(count)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _time(seconds: float) -> str:
    for unit, size, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds < most * size:
            return _short(seconds / size) + unit
    return _short(seconds / 86400) + "d"


def _size(count: float) -> str:
    for unit, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * size:
            return _short(count / size) + unit
    return _short(count / 1e12) + "TB"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _percent(error: float) -> str:
    return f"{100 * error:+.0f}%".replace("-", "−")


FIGURES = {"cpu_s": _time, "peak_bytes": _size, "disk_bytes": _size, "sent_bytes": _size}
"""What is measured → how it is written."""


def _text(words: str) -> Iterator[str]:
    """A paragraph, in lines."""
    yield textwrap.fill(" ".join(words.split()), 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def _list(*items: str) -> Iterator[str]:
    for words in items:
        text = " ".join(words.split())
        yield textwrap.fill(
            text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    yield ""
