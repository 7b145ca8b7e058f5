/* Products with cells, eight numbers at a time. */
#if defined(__x86_64__)
#include "with_ifma.h"

#include "kernels.h"

#define LANES 8
#define TIMES 4   /* numbers of a row, and ... */
#define VECTORS 3 /* vectors of columns whose sums are in registers */
#define LOW 36    /* with a cell, 52 bits */

typedef __m512i lanes;

static inline lanes all(uint64_t x) { return _mm512_set1_epi64((long long)x); }

static inline lanes load_cells(const uint16_t *from) { return _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)from)); }

static inline lanes add_product(lanes sum, lanes cells, lanes part) { return _mm512_madd52lo_epu64(sum, cells, part); }

static inline void add_to(uint64_t *out, lanes low, lanes high) {
    lanes sum = _mm512_add_epi64(low, _mm512_slli_epi64(high, LOW));
    _mm512_storeu_si512(out, _mm512_add_epi64(sum, _mm512_loadu_si512(out)));
}

#include "cells.h"

void vfl_multiply_cells_ifma(uint64_t *out, const uint16_t *cells, size_t rows, size_t width, const uint64_t *numbers, size_t count) {
    multiply_cells(out, cells, rows, width, numbers, count);
}

void vfl_multiply_bits_ifma(uint8_t *out, const uint64_t *rows, size_t n, size_t words, const uint64_t *chosen, size_t count) {
    multiply_bits(out, rows, n, words, chosen, count);
}

#include "end_with.h"
#endif
