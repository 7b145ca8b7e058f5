/* What follows, up to end_with.h, is compiled for AVX-512 IFMA; dispatch.c says whether the processor has it. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(EMULATED)
/* tests/crypto/emulated.h takes the place of the instructions. */
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma")
#endif
