/* Eight elements of GF(2^255 - 19) side by side, by AVX-512 IFMA; native/curve.h computes with them.
 *
 * An element is five limbs of 51 bits: x = sum of v[i] * 2^(51 i), not always the smallest x. Each of the eight 64-bit
 * lanes of v[i] belongs to one element. vpmadd52 multiplies the low 52 bits of its operands, so a limb must stay below 2^52.
 *
 * Bounds. Limbs of an fe are *tight*: below 2^51 + 2^13. A wide is a product, or a sum of products, before its carries. Every function
 * that takes an fe takes tight limbs, and every function that gives one gives tight limbs:
 *
 *   product     halves of products of limbs: a low one is below 2^52, a high one below 2^50 + 2^13. High halves count twice
 *               (2^52 = 2 * 2^51). In units of 2^51 columns 0 to 9 are at most 2 5 8 11 14 13 10 7 4 1 (and a little, which the
 *               next numbers include); folded with 19, columns 0 to 4 are below 250 196 142 88 34.
 *   carried     carries are at most 250, and 19 times that of limb 4 is at most 646: tight.
 *   sum         twice as much: at most 500, and 19 * 68 < 2^13.
 *   difference  a - b + 256p: each limb of 256p is at least 2^59 - 4864, above any of b. Carries are at most 506, and 19 times that
 *               of limb 4 is at most 19 * 290 < 2^13.
 *   add         a sum is below 2^52 + 2^14, its carry at most 2 and 19 * 2 in limb 0: tight.
 *   sub         a - b + 2p: each limb of 2p is at least 2^52 - 38, above a tight one; the sum is below 2^53, its carry at most 3.
 *
 * There is no branch and no address that depends on a value.
 */
#ifndef VFL_FIELD8_H
#define VFL_FIELD8_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 8

typedef __m512i v8;
typedef __mmask8 lanes; /* a bit for each lane */

typedef struct {
    v8 v[5];
} fe;

typedef struct {
    v8 r[5];
} wide;

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

static inline v8 times19(v8 x) { return ADD(ADD(x, ADD(x, x)), SHL(x, 4)); }

/* One carry of each limb to the next: carries are below 2^12, so that a product with 19 is its low half. */
static inline fe fe_carried(wide a) {
    const v8 mask = ALL8(MASK51);
    fe out;
    out.v[0] = LO(AND(a.r[0], mask), SHR(a.r[4], 51), ALL8(19));
    for (int i = 1; i < 5; i++) out.v[i] = ADD(AND(a.r[i], mask), SHR(a.r[i - 1], 51));
    return out;
}

static inline fe fe_sum(const wide *a, const wide *b) {
    wide sum;
    for (int i = 0; i < 5; i++) sum.r[i] = ADD(a->r[i], b->r[i]);
    return fe_carried(sum);
}

static inline fe fe_difference(const wide *a, const wide *b) {
    const v8 first = ALL8((1ULL << 59) - 19 * 256), rest = ALL8((1ULL << 59) - 256); /* 256p */
    wide difference;
    for (int i = 0; i < 5; i++) difference.r[i] = ADD(a->r[i], SUB(i ? rest : first, b->r[i]));
    return fe_carried(difference);
}

static inline fe fe_small(uint64_t x) {
    fe out = {{ALL8(x), ALL8(0), ALL8(0), ALL8(0), ALL8(0)}};
    return out;
}

static inline fe fe_add(const fe *a, const fe *b) {
    wide sum;
    for (int i = 0; i < 5; i++) sum.r[i] = ADD(a->v[i], b->v[i]);
    return fe_carried(sum);
}

static inline fe fe_sub(const fe *a, const fe *b) {
    const v8 first = ALL8((1ULL << 52) - 38), rest = ALL8((1ULL << 52) - 2); /* 2p */
    wide difference;
    for (int i = 0; i < 5; i++) difference.r[i] = ADD(a->v[i], SUB(i ? rest : first, b->v[i]));
    return fe_carried(difference);
}

/* Columns 0 to 9; 2^255 = 19. */
static inline wide folded(const v8 c[10]) {
    wide out;
    for (int i = 0; i < 5; i++) out.r[i] = ADD(c[i], times19(c[i + 5]));
    return out;
}

/* High halves come first, are doubled, and low halves are added. */
static inline wide fe_product(const fe *a, const fe *b) {
    v8 c[10];
    for (int k = 0; k < 10; k++) c[k] = ALL8(0);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 5
        for (int j = 0; j < 5; j++) c[i + j + 1] = HI(c[i + j + 1], a->v[i], b->v[j]);
    }
#pragma GCC unroll 10
    for (int k = 1; k < 10; k++) c[k] = ADD(c[k], c[k]);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 5
        for (int j = 0; j < 5; j++) c[i + j] = LO(c[i + j], a->v[i], b->v[j]);
    }
    return folded(c);
}

/* As fe_product(a, a). A product of two different limbs counts twice: column k is
 * 2 * (2 * high halves of different limbs + high halves of squares + low halves of different limbs) + low halves of squares. */
static inline wide fe_squared(const fe *a) {
    v8 c[10];
    for (int k = 0; k < 10; k++) c[k] = ALL8(0);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
#pragma GCC unroll 5
        for (int j = i + 1; j < 5; j++) c[i + j + 1] = HI(c[i + j + 1], a->v[i], a->v[j]);
    }
#pragma GCC unroll 10
    for (int k = 2; k < 9; k++) c[k] = ADD(c[k], c[k]);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) {
        c[2 * i + 1] = HI(c[2 * i + 1], a->v[i], a->v[i]);
#pragma GCC unroll 5
        for (int j = i + 1; j < 5; j++) c[i + j] = LO(c[i + j], a->v[i], a->v[j]);
    }
#pragma GCC unroll 10
    for (int k = 1; k < 10; k++) c[k] = ADD(c[k], c[k]);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) c[2 * i] = LO(c[2 * i], a->v[i], a->v[i]);
    return folded(c);
}

/* a + b * small, for small below 2^18: a limb is below 2^51 + 2^13 + 2^52 + 2 * 19 * 2^18. */
static inline fe fe_add_times(const fe *a, const fe *b, uint64_t small) {
    const v8 factor = ALL8(small), zero = ALL8(0);
    wide out;
    for (int i = 0; i < 5; i++) out.r[i] = LO(a->v[i], b->v[i], factor);
    for (int i = 0; i < 4; i++) out.r[i + 1] = LO(out.r[i + 1], HI(zero, b->v[i], factor), ALL8(2));
    out.r[0] = LO(out.r[0], HI(zero, b->v[4], factor), ALL8(2 * 19));
    return fe_carried(out);
}

/* The smallest representation: limbs below 2^51, and x below p. */
static inline fe fe_canonical(fe a) {
    const v8 mask = ALL8(MASK51);
    for (int pass = 0; pass < 2; pass++) { /* after two of them x is below 2^255, and limbs below 2^51 but the first */
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
static inline fe fe_load(const uint8_t *bytes) {
    const v8 at = _mm512_setr_epi64(0, 32, 64, 96, 128, 160, 192, 224), mask = ALL8(MASK51);
    v8 w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm512_i64gather_epi64(at, (const void *)(bytes + 8 * i), 1);
    fe out = {{AND(w[0], mask), AND(OR(SHR(w[0], 51), SHL(w[1], 13)), mask), AND(OR(SHR(w[1], 38), SHL(w[2], 26)), mask),
                AND(OR(SHR(w[2], 25), SHL(w[3], 39)), mask), AND(SHR(w[3], 12), mask)}};
    return out;
}

static inline void fe_store(uint8_t *bytes, fe a) {
    const v8 at = _mm512_setr_epi64(0, 32, 64, 96, 128, 160, 192, 224);
    a = fe_canonical(a);
    _mm512_i64scatter_epi64((void *)bytes, at, OR(a.v[0], SHL(a.v[1], 51)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 8), at, OR(SHR(a.v[1], 13), SHL(a.v[2], 38)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 16), at, OR(SHR(a.v[2], 26), SHL(a.v[3], 25)), 1);
    _mm512_i64scatter_epi64((void *)(bytes + 24), at, OR(SHR(a.v[3], 39), SHL(a.v[4], 12)), 1);
}

/* Which lanes are x, a number below 2^51. */
static inline lanes fe_is(fe a, uint64_t x) {
    a = fe_canonical(a);
    v8 rest = OR(OR(_mm512_xor_si512(a.v[0], ALL8(x)), a.v[1]), OR(OR(a.v[2], a.v[3]), a.v[4]));
    return _mm512_cmpeq_epi64_mask(rest, ALL8(0));
}

/* a in the lanes that are set, and b in the others. */
static inline fe fe_select(lanes set, const fe *a, const fe *b) {
    fe out;
    for (int i = 0; i < 5; i++) out.v[i] = _mm512_mask_blend_epi64(set, b->v[i], a->v[i]);
    return out;
}

/* All lanes for 1, none for 0. */
static inline lanes lanes_if(unsigned bit) { return (lanes)(0u - bit); }

static inline int lanes_all(lanes set) { return set == 0xff; }

#endif
