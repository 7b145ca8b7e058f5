/* Vectors of numbers modulo an odd N: products and powers, eight at a time (montgomery8.h).
 *
 * A vector has a row for each number: its limbs of 52 bits in Montgomery's form, x * R mod N or N more, and zeros up to a multiple of
 * eight words. ``modulus`` is n + 1 words: the limbs of N, and -1 / N mod 2^52; R^2 mod N is the only row of ``square``.
 *
 * Nothing here depends on values but which rows ``at_a``, ``at_b`` and ``at`` name: they are the caller's to keep, or not.
 */
#if defined(__x86_64__)
#include "with_ifma.h"

#include "kernels.h"
#include "montgomery8.h"
#include <string.h>

#define WINDOW 5 /* bits of a long exponent that are applied at a time */
#define SHORT_WINDOW 3
#define SHORT_BYTES 24

#define WORDS(n) (((n) + 7) / 8 * 8)

static modulus8 prepared(const uint64_t *modulus, size_t n) {
    modulus8 by;
    by.limbs = n;
    by.factor = ALL8(modulus[n]);
    for (size_t i = 0; i < n; i++) by.n[i] = ALL8(modulus[i]);
    return by;
}

/* Rows ``first`` to ``first`` + 7, or those that ``at`` names there; the last one again beyond ``count``. */
static void read(v8 *x, const uint64_t *from, const int64_t *at, size_t first, size_t count, size_t n) {
    const uint64_t *row[8];
    for (size_t lane = 0; lane < 8; lane++) {
        size_t place = first + lane < count ? first + lane : count - 1;
        row[lane] = from + WORDS(n) * (at ? (size_t)at[place] : place);
    }
    for (size_t i = 0; i < n; i += 8) {
        v8 block[8];
#pragma GCC unroll 8
        for (int lane = 0; lane < 8; lane++) block[lane] = _mm512_loadu_si512(row[lane] + i);
        transpose(block);
        for (size_t k = 0; k < 8 && i + k < n; k++) x[i + k] = block[k];
    }
}

static void write(uint64_t *to, const int64_t *at, const v8 *x, size_t first, size_t count, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        v8 block[8];
        for (size_t k = 0; k < 8; k++) block[k] = i + k < n ? x[i + k] : ALL8(0);
        transpose(block);
        for (size_t lane = 0; lane < 8 && first + lane < count; lane++) {
            size_t row = at ? (size_t)at[first + lane] : first + lane;
            _mm512_storeu_si512(to + WORDS(n) * row + i, block[lane]);
        }
    }
}

/* Bits 52 i to 52 i + 51 of a little-endian number. */
static uint64_t limb_of(const uint8_t *number, size_t bytes, size_t i) {
    uint64_t low = 0, high = 0;
    size_t bit = LIMB * i, at = bit / 8, shift = bit % 8;
    if (at + 8 <= bytes)
        memcpy(&low, number + at, 8);
    else
        for (size_t k = 0; at + k < bytes; k++) low |= (uint64_t)number[at + k] << (8 * k);
    if (shift && at + 8 < bytes) high = (uint64_t)number[at + 8] << (64 - shift);
    return ((low >> shift) | high) & MASK52;
}

void vfl_load_ifma(uint64_t *out, const uint8_t *numbers, size_t bytes, size_t count, const uint64_t *modulus,
                   const uint64_t *square_of_r, size_t n) {
    const modulus8 by = prepared(modulus, n);
    v8 x[MOST], r2[MOST];
    for (size_t i = 0; i < n; i++) r2[i] = ALL8(square_of_r[i]);
    for (size_t row = 0; row < count; row++) {
        for (size_t i = 0; i < n; i++) out[WORDS(n) * row + i] = limb_of(numbers + bytes * row, bytes, i);
        for (size_t i = n; i < WORDS(n); i++) out[WORDS(n) * row + i] = 0;
    }
    for (size_t at = 0; at < count; at += 8) {
        read(x, out, NULL, at, count, n);
        multiply(x, x, r2, &by);
        write(out, NULL, x, at, count, n);
    }
}

void vfl_store_ifma(uint8_t *numbers, size_t bytes, const uint64_t *vector, size_t count, const uint64_t *modulus, size_t n) {
    const modulus8 by = prepared(modulus, n);
    v8 x[MOST], one[MOST];
    for (size_t i = 0; i < n; i++) one[i] = ALL8(i == 0);
    for (size_t at = 0; at < count; at += 8) {
        uint64_t limbs[8 * WORDS(MOST)];
        read(x, vector, NULL, at, count, n);
        multiply(x, x, one, &by);
        reduce(x, &by);
        write(limbs, NULL, x, 0, 8, n);
        for (size_t lane = 0; lane < 8 && at + lane < count; lane++) {
            uint8_t *to = numbers + bytes * (at + lane);
            memset(to, 0, bytes);
            for (size_t i = 0; i < n; i++) {
                size_t bit = LIMB * i, byte = bit / 8;
                uint64_t shifted = limbs[WORDS(n) * lane + i] << (bit % 8); /* 52 + 4 bits at most */
                for (size_t k = 0; k < 7 && byte + k < bytes; k++) to[byte + k] |= (uint8_t)(shifted >> (8 * k));
            }
        }
    }
}

/* Rows that are read next: a table may be larger than a cache. */
static void fetch(const uint64_t *from, const int64_t *at, size_t first, size_t count, size_t n) {
    for (size_t place = first; at && place < first + 8 && place < count; place++)
        for (size_t i = 0; i < n; i += 8) __builtin_prefetch(from + WORDS(n) * (size_t)at[place] + i);
}

void vfl_products_ifma(uint64_t *out, const int64_t *at, const uint64_t *a, const int64_t *at_a, const uint64_t *b,
                       const int64_t *at_b, size_t count, const uint64_t *modulus, size_t n) {
    const modulus8 by = prepared(modulus, n);
    v8 x[MOST], y[MOST];
    for (size_t first = 0; first < count; first += 8) {
        read(x, a, at_a, first, count, n);
        read(y, b, at_b, first, count, n);
        fetch(a, at_a, first + 8, count, n);
        fetch(b, at_b, first + 8, count, n);
        multiply(x, x, y, &by);
        write(out, at, x, first, count, n);
    }
}

void vfl_squares_ifma(uint64_t *vector, const int64_t *at, size_t count, size_t times, const uint64_t *modulus, size_t n) {
    const modulus8 by = prepared(modulus, n);
    v8 x[MOST];
    for (size_t first = 0; first < count; first += 8) {
        read(x, vector, at, first, count, n);
        for (size_t k = 0; k < times; k++) square(x, x, &by);
        write(vector, at, x, first, count, n);
    }
}

/* ``window`` bits of an exponent from bit ``at`` on. */
static uint64_t bits_of(const uint8_t *exponent, size_t bytes, size_t at, size_t window) {
    uint64_t value = 0;
    for (size_t k = 0; k < window; k++) {
        size_t bit = at + k;
        if (bit < 8 * bytes) value |= (uint64_t)((exponent[bit / 8] >> (bit % 8)) & 1u) << k;
    }
    return value;
}

/* Every window costs as many squares and one product, and an entry of the table is read by reading all. */
int vfl_powers_ifma(uint64_t *vector, size_t count, const uint8_t *exponents, size_t bytes, size_t apart, const uint64_t *modulus,
                    const uint64_t *one, size_t n) {
    const modulus8 by = prepared(modulus, n);
    const size_t window = bytes <= SHORT_BYTES ? SHORT_WINDOW : WINDOW, entries = (size_t)1 << window;
    v8 result[MOST], chosen[MOST], *table;
    if (posix_memalign((void **)&table, 64, entries * n * sizeof(v8))) return 1;
    for (size_t i = 0; i < n; i++) table[i] = ALL8(one[i]);
    for (size_t first = 0; first < count; first += 8) {
        read(table + n, vector, NULL, first, count, n);
        for (size_t k = 2; k < entries; k++) multiply(table + k * n, table + (k - 1) * n, table + n, &by);
        memcpy(result, table, n * sizeof(v8));
        for (size_t w = (8 * bytes + window - 1) / window; w-- > 0;) {
            uint64_t index[8];
            for (size_t k = 0; k < window; k++) square(result, result, &by);
            for (size_t lane = 0; lane < 8; lane++) {
                size_t place = first + lane < count ? first + lane : count - 1;
                index[lane] = bits_of(exponents + apart * place, bytes, w * window, window);
            }
            const v8 which = _mm512_loadu_si512(index);
            for (size_t i = 0; i < n; i++) chosen[i] = ALL8(0);
            for (size_t k = 0; k < entries; k++) {
                __mmask8 here = _mm512_cmpeq_epi64_mask(which, ALL8(k));
                for (size_t i = 0; i < n; i++) chosen[i] = _mm512_mask_mov_epi64(chosen[i], here, table[k * n + i]);
            }
            multiply(result, result, chosen, &by);
        }
        write(vector, NULL, result, first, count, n);
    }
    free(table);
    return 0;
}

#include "end_with.h"
#endif
