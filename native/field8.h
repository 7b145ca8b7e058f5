/* Eight elements of GF(2^255 - 19) side by side, by AVX-512 IFMA.
 *
 * An element is five limbs of 51 bits: x = sum of v[i] * 2^(51 i), not always the smallest x. Each of the eight 64-bit
 * lanes of v[i] belongs to one element. vpmadd52 multiplies the low 52 bits of its operands, so a limb must stay below 2^52.
 *
 * Bounds. A limb is *tight* if it is below 2^51 + 2^12. Every function here takes tight limbs and gives tight limbs:
 *
 *   mul     column k of the product has at most t_k low halves and t_(k-1) high halves, each below 2^52, with t = 1 2 3 4 5 4 3 2 1.
 *           High halves count twice (2^52 = 2 * 2^51): a column is at most (4 + 2 * 5) * 2^52 = 14 * 2^52. Columns 5 to 9 are
 *           folded with 19: at most (1 + 19 * 14) * 2^52 < 2^60.1 in column 0, and (13 + 19 * 2) * 2^52 < 2^57.7 in column 4.
 *           Carries are below 2^9.1, and 19 times that of column 4 is below 2^11: tight.
 *   add     a sum is below 2^52 + 2^13, its carry at most 2 and 19 * 2 in limb 0: tight.
 *   sub     a - b + 2p: each limb of 2p is at least 2^52 - 38, above a tight one; the sum is below 2^53, its carry at most 3.
 *
 * There is no branch and no address that depends on a value.
 */
#ifndef VFL_FIELD8_H
#define VFL_FIELD8_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512i v8;

typedef struct {
    v8 v[5];
} fe8;

#define ALL8(x) _mm512_set1_epi64((long long)(x))
#define ADD(a, b) _mm512_add_epi64(a, b)
#define SUB(a, b) _mm512_sub_epi64(a, b)
#define AND(a, b) _mm512_and_si512(a, b)
#define OR(a, b) _mm512_or_si512(a, b)
#define SHR(a, n) _mm512_srli_epi64(a, n)
#define SHL(a, n) _mm512_slli_epi64(a, n)
#define LO(c, a, b) _mm512_madd52lo_epu64(c, a, b)
#define HI(c, a, b) _mm512_madd52hi_epu64(c, a, b)

#define MASK51 0x7ffffffffffffULL

static inline v8 times19(v8 x) { return ADD(ADD(x, SHL(x, 1)), SHL(x, 4)); }

/* Limbs below 2^63 become tight if their carries, and 19 times that of the last one, are below 2^12. */
static inline fe8 fe8_carry(v8 r0, v8 r1, v8 r2, v8 r3, v8 r4) {
    const v8 mask = ALL8(MASK51);
    fe8 out;
    out.v[0] = ADD(AND(r0, mask), times19(SHR(r4, 51)));
    out.v[1] = ADD(AND(r1, mask), SHR(r0, 51));
    out.v[2] = ADD(AND(r2, mask), SHR(r1, 51));
    out.v[3] = ADD(AND(r3, mask), SHR(r2, 51));
    out.v[4] = ADD(AND(r4, mask), SHR(r3, 51));
    return out;
}

static inline fe8 fe8_small(uint64_t x) {
    fe8 out = {{ALL8(x), ALL8(0), ALL8(0), ALL8(0), ALL8(0)}};
    return out;
}

static inline fe8 fe8_add(const fe8 *a, const fe8 *b) {
    return fe8_carry(ADD(a->v[0], b->v[0]), ADD(a->v[1], b->v[1]), ADD(a->v[2], b->v[2]), ADD(a->v[3], b->v[3]),
                     ADD(a->v[4], b->v[4]));
}

static inline fe8 fe8_sub(const fe8 *a, const fe8 *b) {
    const v8 first = ALL8((1ULL << 52) - 38), rest = ALL8((1ULL << 52) - 2); /* 2p */
    return fe8_carry(SUB(ADD(a->v[0], first), b->v[0]), SUB(ADD(a->v[1], rest), b->v[1]), SUB(ADD(a->v[2], rest), b->v[2]),
                     SUB(ADD(a->v[3], rest), b->v[3]), SUB(ADD(a->v[4], rest), b->v[4]));
}

/* Columns 0 to 8 of low and high halves; a high half belongs to the next column, twice. */
static inline fe8 fe8_folded(const v8 lo[9], const v8 hi[9]) {
    v8 c[10];
    c[0] = lo[0];
    for (int k = 1; k < 9; k++) c[k] = ADD(lo[k], ADD(hi[k - 1], hi[k - 1]));
    c[9] = ADD(hi[8], hi[8]);
    return fe8_carry(ADD(c[0], times19(c[5])), ADD(c[1], times19(c[6])), ADD(c[2], times19(c[7])), ADD(c[3], times19(c[8])),
                     ADD(c[4], times19(c[9])));
}

static inline fe8 fe8_mul(const fe8 *a, const fe8 *b) {
    const v8 zero = ALL8(0);
    v8 lo[9] = {zero, zero, zero, zero, zero, zero, zero, zero, zero};
    v8 hi[9] = {zero, zero, zero, zero, zero, zero, zero, zero, zero};
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 5
        for (int j = 0; j < 5; j++) {
            lo[i + j] = LO(lo[i + j], a->v[i], b->v[j]);
            hi[i + j] = HI(hi[i + j], a->v[i], b->v[j]);
        }
    }
    return fe8_folded(lo, hi);
}

/* Products of two different limbs count twice; the sums are those of fe8_mul. */
static inline fe8 fe8_sqr(const fe8 *a) {
    const v8 zero = ALL8(0);
    v8 lo[9] = {zero, zero, zero, zero, zero, zero, zero, zero, zero};
    v8 hi[9] = {zero, zero, zero, zero, zero, zero, zero, zero, zero};
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 5
        for (int j = i + 1; j < 5; j++) {
            lo[i + j] = LO(lo[i + j], a->v[i], a->v[j]);
            hi[i + j] = HI(hi[i + j], a->v[i], a->v[j]);
        }
    }
#pragma GCC unroll 9
    for (int k = 0; k < 9; k++) {
        lo[k] = ADD(lo[k], lo[k]);
        hi[k] = ADD(hi[k], hi[k]);
    }
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
        lo[2 * i] = LO(lo[2 * i], a->v[i], a->v[i]);
        hi[2 * i] = HI(hi[2 * i], a->v[i], a->v[i]);
    }
    return fe8_folded(lo, hi);
}

/* a + b * small, for small below 2^18: a limb is below 2^51 + 2^12 + 2^52 + 2 * 2^18. */
static inline fe8 fe8_add_times(const fe8 *a, const fe8 *b, uint64_t small) {
    const v8 factor = ALL8(small), zero = ALL8(0);
    v8 r[5], high[5];
    for (int i = 0; i < 5; i++) {
        r[i] = LO(a->v[i], b->v[i], factor);
        high[i] = HI(zero, b->v[i], factor);
        high[i] = ADD(high[i], high[i]);
    }
    return fe8_carry(ADD(r[0], times19(high[4])), ADD(r[1], high[0]), ADD(r[2], high[1]), ADD(r[3], high[2]),
                     ADD(r[4], high[3]));
}

static inline fe8 fe8_sqr_times(fe8 a, int times) {
    for (int i = 0; i < times; i++) a = fe8_sqr(&a);
    return a;
}

/* z^(2^250 - 1), and z^11: of what both powers below are made. */
static inline fe8 fe8_power_250(const fe8 *z, fe8 *z11) {
    fe8 t, z2 = fe8_sqr(z), z9, z5, z10, z20, z50, z100;
    t = fe8_sqr_times(z2, 2);
    z9 = fe8_mul(&t, z);
    *z11 = fe8_mul(&z9, &z2);
    t = fe8_sqr(z11);
    z5 = fe8_mul(&t, &z9); /* 2^5 - 1 */
    t = fe8_sqr_times(z5, 5);
    z10 = fe8_mul(&t, &z5);
    t = fe8_sqr_times(z10, 10);
    z20 = fe8_mul(&t, &z10);
    t = fe8_sqr_times(z20, 20);
    t = fe8_mul(&t, &z20);
    t = fe8_sqr_times(t, 10);
    z50 = fe8_mul(&t, &z10);
    t = fe8_sqr_times(z50, 50);
    z100 = fe8_mul(&t, &z50);
    t = fe8_sqr_times(z100, 100);
    t = fe8_mul(&t, &z100);
    t = fe8_sqr_times(t, 50);
    return fe8_mul(&t, &z50);
}

/* 1/z, and 0 of 0: z^(p - 2), p - 2 = 2^255 - 21. */
static inline fe8 fe8_invert(const fe8 *z) {
    fe8 z11, t = fe8_power_250(z, &z11);
    t = fe8_sqr_times(t, 5);
    return fe8_mul(&t, &z11);
}

/* z^((p - 1) / 2): 1 of a square, -1 of another number, 0 of 0. (p - 1) / 2 = 2^254 - 10 = (2^250 - 1) * 2^4 + 6. */
static inline fe8 fe8_legendre(const fe8 *z) {
    fe8 z11, t = fe8_power_250(z, &z11), z2 = fe8_sqr(z), z4 = fe8_sqr(&z2), z6 = fe8_mul(&z4, &z2);
    t = fe8_sqr_times(t, 4);
    return fe8_mul(&t, &z6);
}

/* The smallest representation: limbs below 2^51, and x below p. */
static inline fe8 fe8_canonical(fe8 a) {
    const v8 mask = ALL8(MASK51);
    for (int pass = 0; pass < 2; pass++) { /* after two of them x is below 2^255 + 2^13, and limbs are below 2^51 but the first */
        for (int i = 0; i < 4; i++) {
            a.v[i + 1] = ADD(a.v[i + 1], SHR(a.v[i], 51));
            a.v[i] = AND(a.v[i], mask);
        }
        a.v[0] = ADD(a.v[0], times19(SHR(a.v[4], 51)));
        a.v[4] = AND(a.v[4], mask);
    }
    v8 q = SHR(ADD(a.v[0], ALL8(19)), 51); /* whether x + 19 reaches 2^255, and so x reaches p */
    for (int i = 1; i < 5; i++) q = SHR(ADD(a.v[i], q), 51);
    a.v[0] = ADD(a.v[0], times19(q));
    for (int i = 0; i < 4; i++) {
        a.v[i + 1] = ADD(a.v[i + 1], SHR(a.v[i], 51));
        a.v[i] = AND(a.v[i], mask);
    }
    a.v[4] = AND(a.v[4], mask);
    return a;
}

/* Eight encodings of 32 bytes behind each other, little-endian; the top bit is ignored (RFC 7748). */
static inline fe8 fe8_load(const uint8_t *bytes) {
    const v8 at = _mm512_setr_epi64(0, 32, 64, 96, 128, 160, 192, 224), mask = ALL8(MASK51);
    v8 w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm512_i64gather_epi64(at, (const void *)(bytes + 8 * i), 1);
    fe8 out = {{AND(w[0], mask), AND(OR(SHR(w[0], 51), SHL(w[1], 13)), mask), AND(OR(SHR(w[1], 38), SHL(w[2], 26)), mask),
                AND(OR(SHR(w[2], 25), SHL(w[3], 39)), mask), AND(SHR(w[3], 12), mask)}};
    return out;
}

static inline void fe8_store(uint8_t *bytes, fe8 a) {
    const v8 at = _mm512_setr_epi64(0, 32, 64, 96, 128, 160, 192, 224);
    a = fe8_canonical(a);
    _mm512_i64scatter_epi64((void *)bytes, at, OR(a.v[0], SHL(a.v[1], 51)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 8), at, OR(SHR(a.v[1], 13), SHL(a.v[2], 38)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 16), at, OR(SHR(a.v[2], 26), SHL(a.v[3], 25)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 24), at, OR(SHR(a.v[3], 39), SHL(a.v[4], 12)), 1);
}

/* Which lanes are 1. */
static inline __mmask8 fe8_is_one(fe8 a) {
    a = fe8_canonical(a);
    v8 rest = OR(OR(_mm512_xor_si512(a.v[0], ALL8(1)), a.v[1]), OR(OR(a.v[2], a.v[3]), a.v[4]));
    return _mm512_cmpeq_epi64_mask(rest, ALL8(0));
}

/* The Legendre symbol of u^3 + 486662 u^2 + u: 1 on the curve, -1 on its twist, 0 where u is 0. */
static inline fe8 fe8_legendre_of_curve(const fe8 *u) {
    const fe8 j = fe8_small(486662), one = fe8_small(1);
    fe8 t = fe8_add(u, &j);
    t = fe8_mul(&t, u);
    t = fe8_add(&t, &one);
    t = fe8_mul(&t, u);
    return fe8_legendre(&t);
}

#endif
