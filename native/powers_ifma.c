/* Powers modulo an odd number of up to 6,186 bits: eight bases by one exponent at a time.
 *
 * Numbers are limbs of 52 bits, x = sum of x[i] * 2^(52 i); each of the eight lanes of x[i] belongs to one number. Products are
 * Montgomery's (a * b / R mod N, R = 2^(52 n)) without the last subtraction: with 4 N < R, factors below 2 N give a product below
 * 2 N (Gueron, "Efficient software implementations of modular exponentiation", 2012).
 *
 * Bounds. A limb of the sum gets four halves of products, each below 2^52, in every one of n <= 119 rounds, and a carry below 2^10
 * in some: below 119 * 4 * 2^52 + 2^17 < 2^61.
 *
 * The exponent is secret: every window costs the same five squarings and one product, and a table entry is read by reading all.
 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma")

#include "kernels.h"
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#define MOST 119
#define WINDOW 5
#define ENTRIES (1 << WINDOW)
#define LIMB 52

typedef __m512i v8;

#define ALL8(x) _mm512_set1_epi64((long long)(x))
#define ADD(a, b) _mm512_add_epi64(a, b)
#define SHR(a, n) _mm512_srli_epi64(a, n)
#define LO(c, a, b) _mm512_madd52lo_epu64(c, a, b)
#define HI(c, a, b) _mm512_madd52hi_epu64(c, a, b)

static const uint64_t MASK = ((uint64_t)1 << LIMB) - 1;

typedef struct {
    size_t limbs;
    v8 factor; /* -1 / N mod 2^52 */
    v8 n[MOST];
} modulus8;

static void multiply(v8 *out, const v8 *a, const v8 *b, const modulus8 *by) {
    const size_t n = by->limbs;
    const v8 zero = ALL8(0), mask = ALL8(MASK);
    v8 sum[MOST + 1];
    for (size_t j = 0; j <= n; j++) sum[j] = zero;
    for (size_t i = 0; i < n; i++) {
        const v8 x = a[i];
        v8 first = LO(sum[0], x, b[0]);
        const v8 m = LO(zero, first, by->factor);
        first = LO(first, m, by->n[0]);
        v8 carry = SHR(first, LIMB);
        for (size_t j = 1; j < n; j++) {
            v8 left = LO(sum[j], x, b[j]), right = LO(carry, m, by->n[j]);
            carry = zero;
            left = HI(left, x, b[j - 1]);
            right = HI(right, m, by->n[j - 1]);
            sum[j - 1] = ADD(left, right);
        }
        sum[n - 1] = HI(HI(carry, x, b[n - 1]), m, by->n[n - 1]);
    }
    v8 carry = zero;
    for (size_t j = 0; j < n; j++) {
        v8 limb = ADD(sum[j], carry);
        out[j] = _mm512_and_si512(limb, mask);
        carry = SHR(limb, LIMB);
    }
}

/* Bits 52 i to 52 i + 51 of a little-endian number. */
static uint64_t limb_of(const uint8_t *number, size_t bytes, size_t i) {
    uint64_t low = 0, high = 0;
    size_t bit = LIMB * i, at = bit / 8, shift = bit % 8;
    for (size_t k = 0; k < 8 && at + k < bytes; k++) low |= (uint64_t)number[at + k] << (8 * k);
    if (shift && at + 8 < bytes) high = (uint64_t)number[at + 8] << (64 - shift);
    return ((low >> shift) | high) & MASK;
}

static void spread(v8 *out, const uint8_t *numbers, size_t bytes, size_t limbs, size_t apart) {
    for (size_t i = 0; i < limbs; i++) {
        uint64_t lanes[8];
        for (size_t lane = 0; lane < 8; lane++) lanes[lane] = limb_of(numbers + lane * apart, bytes, i);
        out[i] = _mm512_loadu_si512(lanes);
    }
}

static void gather(uint8_t *numbers, const v8 *from, size_t bytes, size_t limbs) {
    memset(numbers, 0, 8 * bytes);
    for (size_t i = 0; i < limbs; i++) {
        uint64_t lanes[8];
        _mm512_storeu_si512(lanes, from[i]);
        for (size_t lane = 0; lane < 8; lane++) {
            size_t bit = LIMB * i, at = bit / 8;
            uint64_t shifted = lanes[lane] << (bit % 8); /* 52 + 4 bits at most */
            for (size_t k = 0; k < 7 && at + k < bytes; k++) numbers[lane * bytes + at + k] |= (uint8_t)(shifted >> (8 * k));
        }
    }
}

/* x - N where x reaches N; x is below 2 N. */
static void reduce(v8 *x, const modulus8 *by) {
    v8 less[MOST], borrow = ALL8(0);
    const v8 mask = ALL8(MASK);
    for (size_t i = 0; i < by->limbs; i++) {
        v8 difference = _mm512_sub_epi64(_mm512_sub_epi64(x[i], by->n[i]), borrow);
        less[i] = _mm512_and_si512(difference, mask);
        borrow = SHR(difference, 63);
    }
    __mmask8 keep = _mm512_cmpneq_epi64_mask(borrow, ALL8(0));
    for (size_t i = 0; i < by->limbs; i++) x[i] = _mm512_mask_blend_epi64(keep, less[i], x[i]);
}

static unsigned window_of(const uint8_t *exponent, size_t bytes, size_t at) {
    unsigned value = 0;
    for (size_t k = 0; k < WINDOW; k++) {
        size_t bit = at + k;
        if (bit < 8 * bytes) value |= ((exponent[bit / 8] >> (bit % 8)) & 1u) << k;
    }
    return value;
}

static void powers(uint8_t *out, const uint8_t *bases, const uint8_t *exponent, size_t exponent_bytes, size_t bytes,
                   const modulus8 *by, const v8 *square, v8 *table) {
    const size_t n = by->limbs;
    v8 base[MOST], result[MOST], one[MOST], chosen[MOST];
    for (size_t i = 0; i < n; i++) one[i] = ALL8(i == 0);
    spread(base, bases, bytes, n, bytes);
    multiply(table, one, square, by); /* R mod N: 1 */
    multiply(table + n, base, square, by);
    for (size_t k = 2; k < ENTRIES; k++) multiply(table + k * n, table + (k - 1) * n, table + n, by);
    memcpy(result, table, n * sizeof(v8));
    size_t windows = (8 * exponent_bytes + WINDOW - 1) / WINDOW;
    for (size_t w = windows; w-- > 0;) {
        for (int k = 0; k < WINDOW; k++) multiply(result, result, result, by);
        const v8 index = ALL8(window_of(exponent, exponent_bytes, w * WINDOW));
        for (size_t i = 0; i < n; i++) chosen[i] = ALL8(0);
        for (size_t k = 0; k < ENTRIES; k++) {
            __mmask8 here = _mm512_cmpeq_epi64_mask(index, ALL8(k));
            for (size_t i = 0; i < n; i++) chosen[i] = _mm512_mask_mov_epi64(chosen[i], here, table[k * n + i]);
        }
        multiply(result, result, chosen, by);
    }
    multiply(result, result, one, by);
    reduce(result, by);
    gather(out, result, bytes, n);
}

int vfl_powers_ifma(uint8_t *out, const uint8_t *bases, size_t count, size_t bytes, const uint8_t *exponent,
                    size_t exponent_bytes, const uint8_t *number, const uint8_t *square, uint64_t factor) {
    size_t n = (8 * bytes + 2 + LIMB - 1) / LIMB;
    modulus8 by = {.limbs = n, .factor = ALL8(factor)};
    v8 r2[MOST], *table;
    uint8_t *rest;
    if (n > MOST) return 1;
    if (posix_memalign((void **)&table, 64, ENTRIES * n * sizeof(v8))) return 2;
    rest = calloc(8, bytes);
    if (rest == NULL) {
        free(table);
        return 2;
    }
    spread(by.n, number, bytes, n, 0);
    spread(r2, square, bytes, n, 0);
    size_t at = 0;
    for (; at + 8 <= count; at += 8)
        powers(out + bytes * at, bases + bytes * at, exponent, exponent_bytes, bytes, &by, r2, table);
    if (at < count) {
        memcpy(rest, bases + bytes * at, bytes * (count - at));
        powers(rest, rest, exponent, exponent_bytes, bytes, &by, r2, table);
        memcpy(out + bytes * at, rest, bytes * (count - at));
    }
    free(rest);
    free(table);
    return 0;
}

#endif
