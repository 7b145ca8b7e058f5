/* Products with cells, four numbers at a time. */
#if defined(__x86_64__)
#include "with_avx2.h"

#include "kernels.h"

#define LANES 4
#define TIMES 4   /* numbers of a row, and ... */
#define VECTORS 1 /* vectors of columns whose sums are in registers */
#define LOW 32

typedef __m256i lanes;

static inline lanes all(uint64_t x) { return _mm256_set1_epi64x((long long)x); }

static inline lanes load_cells(const uint16_t *from) { return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)from)); }

static inline lanes add_product(lanes sum, lanes cells, lanes part) { return _mm256_add_epi64(sum, _mm256_mul_epu32(cells, part)); }

static inline void add_to(uint64_t *out, lanes low, lanes high) {
    lanes sum = _mm256_add_epi64(low, _mm256_slli_epi64(high, LOW));
    _mm256_storeu_si256((__m256i *)out, _mm256_add_epi64(sum, _mm256_loadu_si256((const __m256i *)out)));
}

#include "cells.h"

void vfl_multiply_cells_avx2(uint64_t *out, const uint16_t *cells, size_t rows, size_t width, const uint64_t *numbers, size_t count) {
    multiply_cells(out, cells, rows, width, numbers, count);
}

void vfl_multiply_bits_avx2(uint8_t *out, const uint64_t *rows, size_t n, size_t words, const uint64_t *chosen, size_t count) {
    multiply_bits(out, rows, n, words, chosen, count);
}

#include "end_with.h"
#endif
