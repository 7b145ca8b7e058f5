"""SecretFlow's SPU beside us: two processes that talk over loopback, without TLS, and read and write CSV files.

Only two compiled modules of its wheel are used, so that it installs beside us without its requirements, of which JAX is one:
``pip install --no-deps spu``. Both parties learn which ids are shared, as in ours. The bytes that they send are not known.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import math
import os
import socket
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Run, check, ladder_us, peak_bytes, sets, shared, spelled
from vfl_node.roles import Role

PROTOCOLS = {"ECDH": "curve25519", "RR22": "oblivious transfer"}
"""Those measured, and the column ``group``."""
_ROLES: tuple[Role, Role] = ("active", "passive")


def version() -> str | None:
    """Version of the wheel; None where it is not installed."""
    try:
        return importlib.metadata.version("spu")
    except importlib.metadata.PackageNotFoundError:
        return None


def row(name: str, ids: int, start_up: int) -> Row | None:
    """SPU's protocol ``name``, one of :data:`PROTOCOLS`; None where SPU is not installed."""
    if not (found := version()):
        return None
    before = ladder_us()
    few, many = _run(name, start_up), _run(name, ids)
    ladder = (before + ladder_us()) / 2
    return Row(f"spu {found} {name}", "two processes", None, "", "psi", PROTOCOLS[name], ladder, many, few)


def _run(name: str, ids: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as folder, socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (one, other)]
        one.close()
        other.close()
        with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
            parties = [
                pool.submit(_party, name, rank, ports, Path(folder, str(rank)), numbers)
                for rank, numbers in enumerate(sets(ids))
            ]
            walls, cpus, peaks = zip(*(party.result() for party in parties), strict=True)
    cpu, nothing = dict(zip(_ROLES, cpus, strict=True)), dict.fromkeys(_ROLES, math.nan)
    return Run(ids, max(walls), max(walls), cpu, cpu, dict(zip(_ROLES, peaks, strict=True)), nothing, None)


def _party(name: str, rank: int, ports: list[int], folder: Path, numbers: range) -> tuple[float, float, int]:
    """Wall and CPU seconds of one party, from its CSV file to that of the shared ids, and its peak of memory."""
    psi, link = _modules()
    folder.mkdir()
    table, result = folder / "table.csv", folder / "shared.csv"
    with table.open("w") as file:
        file.write("id\n")
        file.writelines(f"{id_}\n" for id_ in spelled(numbers))
    places = link.Desc()
    for at, port in enumerate(ports):
        places.add_party(str(at), f"127.0.0.1:{port}")
    context = link.create_brpc(places, rank)
    terms = psi.PsiExecuteConfig(
        protocol_conf=psi.PsiProtocolConfig(
            protocol=getattr(psi.PsiProtocol, f"PROTOCOL_{name}"),
            broadcast_result=True,
            ecdh_params=psi.EcdhParams(curve=psi.EllipticCurveType.CURVE_25519),
        ),
        input_params=psi.InputParams(path=str(table), selected_keys=["id"], keys_unique=True),
        output_params=psi.OutputParams(path=str(result), disable_alignment=True),
    )
    wall, cpu = time.perf_counter(), time.process_time()
    report = psi.psi_execute(terms, context)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    context.stop_link()
    check(f"spu {name}", report.intersection_count, shared(len(numbers)))
    return wall, cpu, peak_bytes()


def _modules() -> tuple[Any, Any]:
    """``spu.libpsi`` and the link of ``spu.libspu``, without ``spu``, which imports JAX; their output goes nowhere."""
    package = importlib.util.find_spec("spu")
    assert package is not None
    sys.path += list(package.submodule_search_locations or ())
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    link = importlib.import_module("libspu").link
    return importlib.import_module("libpsi"), link
