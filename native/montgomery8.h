/* Montgomery's products modulo an odd N, eight at a time, by AVX-512 IFMA.
 *
 * A number is n limbs of 52 bits, x = sum of x[i] * 2^(52 i), with n a multiple of 4; each of the eight 64-bit lanes of x[i] belongs
 * to another number. A product is a * b / R mod N for R = 2^(52 n), without the last subtraction: with 4 N < R, factors below 2 N
 * give a product below 2 N (Gueron, "Efficient software implementations of modular exponentiation", 2012).
 *
 * Bounds. Column k of a product is the sum of the low halves of a[i] * b[k - i] and the high halves of a[i] * b[k - 1 - i], each
 * below 2^52: less than 2 n * 2^52. (A square adds half of them twice.) The multiple of N adds as much, and a carry below 2^12:
 * for n <= 160 a column is below 641 * 2^52 < 2^62.
 *
 * Four rows are added at once, so that a column is read and written once for eight products. There is no branch and no address
 * that depends on a value.
 */
#ifndef VFL_MONTGOMERY8_H
#define VFL_MONTGOMERY8_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define MOST 160 /* limbs */
#define LIMB 52

typedef __m512i v8;

#define ALL8(x) _mm512_set1_epi64((long long)(x))
#define ADD(a, b) _mm512_add_epi64(a, b)
#define SHR(a, n) _mm512_srli_epi64(a, n)
#define LO(c, a, b) _mm512_madd52lo_epu64(c, a, b)
#define HI(c, a, b) _mm512_madd52hi_epu64(c, a, b)
#define INLINE static inline __attribute__((always_inline))

#define MASK52 0xfffffffffffffULL

typedef struct {
    size_t limbs;
    v8 factor; /* -1 / N mod 2^52 */
    v8 n[MOST];
} modulus8;

/* A column's part of four rows a times b, of which ``b`` is the limb at this column: low halves of the rows from ``low`` to
 * ``low_end`` - 1, and high halves likewise. */
INLINE v8 column(v8 sum, const v8 a[4], const v8 *b, int low, int low_end, int high, int high_end) {
#pragma GCC unroll 4
    for (int r = low; r < low_end; r++) sum = LO(sum, a[r], b[-r]);
#pragma GCC unroll 4
    for (int r = high; r < high_end; r++) sum = HI(sum, a[r], b[-r - 1]);
    return sum;
}

/* Columns between the first four and the last four. */
INLINE void middle(v8 *t, const v8 a[4], const v8 *b, size_t from, size_t to) {
    for (size_t k = from; k < to; k++) t[k] = column(t[k], a, b + k, 0, 4, 0, 4);
}

INLINE void tail(v8 *t, const v8 a[4], const v8 *b, size_t n) {
#pragma GCC unroll 4
    for (int d = 0; d < 4; d++) t[n + d] = column(t[n + d], a, b + n + d, d + 1, 4, d, 4);
}

/* t += four limbs times n of them. */
INLINE void rows(v8 *t, const v8 a[4], const v8 *b, size_t n) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) t[c] = column(t[c], a, b + c, 0, c + 1, 0, c);
    middle(t, a, b, 4, n);
    tail(t, a, b, n);
}

/* The four multiples m of N that clear four columns; returns what is carried to the next one. */
INLINE v8 clear(v8 m[4], const v8 *t, const modulus8 *by) {
    v8 carry = ALL8(0);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        v8 sum = column(ADD(t[c], carry), m, by->n + c, 0, c, 0, c);
        m[c] = LO(ALL8(0), sum, by->factor);
        carry = SHR(LO(sum, m[c], by->n[0]), LIMB);
    }
    return carry;
}

/* out = t / R mod N. The multiples of the next four rows are begun early: they wait for each other. */
INLINE void divide(v8 *out, v8 *t, const modulus8 *by) {
    const size_t n = by->limbs;
    v8 m[4], next[4], carry = clear(m, t, by);
    for (size_t i = 0; i < n; i += 4, t += 4) {
        t[4] = ADD(t[4], carry);
        if (i + 4 < n) {
            middle(t, m, by->n, 4, 8);
            carry = clear(next, t + 4, by);
            middle(t, m, by->n, 8, n);
            tail(t, m, by->n, n);
            for (int c = 0; c < 4; c++) m[c] = next[c];
        } else {
            middle(t, m, by->n, 4, n);
            tail(t, m, by->n, n);
        }
    }
    carry = ALL8(0);
    for (size_t j = 0; j < n; j++) {
        v8 limb = ADD(t[j], carry);
        out[j] = _mm512_and_si512(limb, ALL8(MASK52));
        carry = SHR(limb, LIMB);
    }
}

static void multiply(v8 *out, const v8 *a, const v8 *b, const modulus8 *by) {
    const size_t n = by->limbs;
    v8 t[2 * MOST];
    for (size_t k = 0; k < 2 * n; k++) t[k] = ALL8(0);
    for (size_t i = 0; i < n; i += 4) rows(t + i, a + i, b, n);
    divide(out, t, by);
}

static void square(v8 *out, const v8 *a, const modulus8 *by) {
    const size_t n = by->limbs;
    v8 t[2 * MOST];
    for (size_t k = 0; k < 2 * n; k++) t[k] = ALL8(0);
    for (size_t i = 0; i < n; i += 4) { /* products of two different limbs, once */
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++) {
#pragma GCC unroll 4
            for (size_t s = r + 1; s < 4; s++) {
                t[2 * i + r + s] = LO(t[2 * i + r + s], a[i + r], a[i + s]);
                t[2 * i + r + s + 1] = HI(t[2 * i + r + s + 1], a[i + r], a[i + s]);
            }
        }
        if (i + 4 < n) rows(t + 2 * i + 4, a + i, a + i + 4, n - i - 4);
    }
    for (size_t k = 0; k < n; k++) {
        t[2 * k] = LO(ADD(t[2 * k], t[2 * k]), a[k], a[k]);
        t[2 * k + 1] = HI(ADD(t[2 * k + 1], t[2 * k + 1]), a[k], a[k]);
    }
    divide(out, t, by);
}

/* x - N where x reaches N; x is below 2 N. */
static void reduce(v8 *x, const modulus8 *by) {
    v8 less[MOST], borrow = ALL8(0);
    for (size_t i = 0; i < by->limbs; i++) {
        v8 difference = _mm512_sub_epi64(_mm512_sub_epi64(x[i], by->n[i]), borrow);
        less[i] = _mm512_and_si512(difference, ALL8(MASK52));
        borrow = SHR(difference, 63);
    }
    __mmask8 keep = _mm512_cmpneq_epi64_mask(borrow, ALL8(0));
    for (size_t i = 0; i < by->limbs; i++) x[i] = _mm512_mask_blend_epi64(keep, less[i], x[i]);
}

/* Eight rows of eight words become eight columns, and the other way round. */
INLINE void transpose(v8 x[8]) {
    v8 y[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* pairs of words */
        y[i] = _mm512_unpacklo_epi64(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi64(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* y[i], y[2 + i], y[4 + i], y[6 + i] have words i, 2 + i, 4 + i, 6 + i of all rows */
        v8 a = _mm512_shuffle_i64x2(y[i], y[i + 2], 0x88), b = _mm512_shuffle_i64x2(y[i], y[i + 2], 0xdd);
        v8 c = _mm512_shuffle_i64x2(y[i + 4], y[i + 6], 0x88), d = _mm512_shuffle_i64x2(y[i + 4], y[i + 6], 0xdd);
        x[i] = _mm512_shuffle_i64x2(a, c, 0x88);
        x[i + 4] = _mm512_shuffle_i64x2(a, c, 0xdd);
        x[i + 2] = _mm512_shuffle_i64x2(b, d, 0x88);
        x[i + 6] = _mm512_shuffle_i64x2(b, d, 0xdd);
    }
}

#endif
