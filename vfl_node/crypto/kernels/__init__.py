"""The code that computes on groups and matrices: compiled for what the processor has, or libsodium, gmpy2 and numpy.

===============  =====================================================================================================
file             what
===============  =====================================================================================================
``contract``     what a kernel does
``libraries``    libsodium and gmpy2, everywhere
``compiled``     four points at a time, where it has AVX2; what all compiled kernels have
``ifma``         eight points at a time, where the processor has AVX-512 IFMA and ``native/`` was compiled
``cells``        products of matrices by numpy
``montgomery``   vectors of large numbers, eight at a time
``choice``       which of them runs; ``VFL_KERNEL`` chooses
===============  =====================================================================================================

All kernels give the same bytes (``tests/crypto/test_kernels.py``). C stands in ``native/``.
"""

from vfl_node.crypto.kernels.choice import find_kernel, kernel, lattice_kernel, names
from vfl_node.crypto.kernels.contract import Kernel

__all__ = ["Kernel", "find_kernel", "kernel", "lattice_kernel", "names"]
