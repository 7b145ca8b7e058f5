"""Builds the kernels as a Python extension, where there is a compiler; setup.py names :data:`ffibuilder`.

They are chosen at run time by what the processor can do, so no flag here names a processor. Without a compiler, or with one
that does not know AVX-512 IFMA, the package installs without kernels (``optional``), and libsodium and gmpy2 do the work.
"""

from pathlib import Path

from cffi import FFI

NATIVE = Path("native")

ffibuilder = FFI()
ffibuilder.cdef("".join(line for line in (NATIVE / "kernels.h").read_text().splitlines(True) if not line.startswith("#")))
ffibuilder.set_source(
    "vfl_node.crypto.kernels._native",
    '#include "kernels.h"',
    sources=sorted(map(str, NATIVE.glob("*.c"))),
    depends=sorted(map(str, NATIVE.glob("*.h"))),
    include_dirs=["native"],
    extra_compile_args=["-O3", "-std=gnu11"],
    optional=True,
)
