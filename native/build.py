"""Builds the kernels as a Python extension, where there is a compiler; setup.py names :data:`ffibuilder`.

They are chosen at run time by what the processor can do, so no flag here names a processor. Without a compiler, or with one
that does not know AVX-512 IFMA, the package installs without kernels (``optional``), and libsodium and gmpy2 do the work.
"""

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef(
    """
    int vfl_has_avx2(void);
    void vfl_x25519_avx2(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
    int vfl_check_avx2(const uint8_t *points, size_t count);
    int vfl_has_ifma(void);
    void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
    int vfl_hash_ifma(
        uint8_t *out, const uint8_t *ids, const uint64_t *ends, size_t count, const uint8_t *domain, size_t length);
    int vfl_check_ifma(const uint8_t *points, size_t count);
    int vfl_powers_ifma(
        uint8_t *out, const uint8_t *bases, size_t count, size_t bytes, const uint8_t *exponent, size_t exponent_bytes,
        const uint8_t *number, const uint8_t *square, uint64_t factor);
    """
)
ffibuilder.set_source(
    "vfl_node.crypto.kernels._native",
    '#include "kernels.h"',
    sources=[f"native/{name}.c" for name in ("dispatch", "x25519_avx2", "x25519_ifma", "hash_ifma", "powers_ifma")],
    depends=[f"native/{name}.h" for name in ("curve", "field4", "field8", "kernels", "sha512x8")],
    include_dirs=["native"],
    extra_compile_args=["-O3", "-std=gnu11"],
    optional=True,
)
