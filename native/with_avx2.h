/* What follows, up to end_with.h, is compiled for AVX2; dispatch.c says whether the processor has it. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#pragma GCC optimize("live-range-shrinkage") /* gcc 12 spills loaded operands without it, and takes a quarter more time */
#endif
