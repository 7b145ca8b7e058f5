"""Builds the kernels as a Python extension, where there is a compiler; setup.py names :data:`ffibuilder`.

They are chosen at run time by what the processor can do, so no flag here names a processor. ``lattice.h`` needs none in
particular, and ``kernels.h`` is for x86-64. Without a compiler, or with one that does not know AVX-512 IFMA, the package
installs without kernels (``optional``), and libsodium and gmpy2 do the work of all but lattices.
"""

from pathlib import Path
from platform import machine

from cffi import FFI

NATIVE = Path("native")
HEADERS = ["lattice.h", "kernels.h"] if machine().lower() in ("x86_64", "amd64") else ["lattice.h"]

ffibuilder = FFI()
for header in HEADERS:
    ffibuilder.cdef("".join(line for line in (NATIVE / header).read_text().splitlines(True) if not line.startswith("#")))
ffibuilder.set_source(
    "vfl_node.crypto.kernels._native",
    f'#include "{HEADERS[-1]}"',
    sources=sorted(map(str, NATIVE.glob("*.c"))),
    depends=sorted(map(str, NATIVE.glob("*.h"))),
    include_dirs=["native"],
    extra_compile_args=["-O3", "-std=gnu11"],
    optional=True,
)
