/* Four elements of GF(2^255 - 19) side by side, by AVX2; native/curve.h computes with them.
 *
 * An element is ten limbs of 26 and 25 bits in turn (25.5 on average, as in the ref10 implementation of Ed25519): x = sum of
 * v[i] * 2^ceil(25.5 i), not always the smallest x. Each of the four 64-bit lanes of v[i] belongs to one element. vpmuludq multiplies
 * the low 32 bits of its operands.
 *
 * Bounds, for even limbs; odd ones are half as large. A limb of a wide is *tight*: below 2^26 + 2^16. A limb of an fe is *loose*: below
 * 3 * 2^26 + 2^17. So sums and differences need no carry, and products take any fe:
 *
 *   carried     from limbs below 2^63, and limb 9 below 2^58: the carry of limb 3 is below 2^38, and so that of limb 4 after it below
 *               2^12 + 1; the carry of limb 9 is below 2^33 + 2^12, 19 times that below 2^38, and so that of limb 0 below 2^12 + 1: tight.
 *   product     19 * v[i] is below 57 * 2^26 + 2^22 < 2^32. In units of 2^52 a product of limbs is at most 9 if both are even, 9/4 if both are
 *               odd, which counts twice; column 0 has one even pair, and 19 times 4 even and 5 odd pairs: 9 + 684 + 428 = 1121, and
 *               no other column more: below 2^63. Column 9 has ten products of an even and an odd limb: 45, below 2^58.
 *   sum         of two tight ones: below 2^27 + 2^17: loose.
 *   difference  a - b + 2p: each limb of 2p is at least 2^27 - 38, above a tight one; below 3 * 2^26 + 2^16: loose.
 *   add, sub    of two loose ones, with 4p, whose limbs are at least 2^28 - 76, and carried: tight.
 *
 * There is no branch and no address that depends on a value.
 */
#ifndef VFL_FIELD4_H
#define VFL_FIELD4_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 4

typedef __m256i v4;
typedef __m256i lanes; /* all bits of a lane, or none */

typedef struct {
    v4 v[10];
} fe;

typedef fe wide;

#define ALL4(x) _mm256_set1_epi64x((long long)(x))
#define ADD(a, b) _mm256_add_epi64(a, b)
#define SUB(a, b) _mm256_sub_epi64(a, b)
#define AND(a, b) _mm256_and_si256(a, b)
#define OR(a, b) _mm256_or_si256(a, b)
#define SHR(a, n) _mm256_srli_epi64(a, n)
#define SHL(a, n) _mm256_slli_epi64(a, n)
#define MUL(a, b) _mm256_mul_epu32(a, b)

#define BITS(i) ((i) & 1 ? 25 : 26)
#define MASK(i) ALL4((1 << BITS(i)) - 1)

static inline v4 times19(v4 x) { return ADD(ADD(x, ADD(x, x)), SHL(x, 4)); }

static inline __attribute__((always_inline)) void carry(v4 h[10], int i) {
    h[i + 1] = ADD(h[i + 1], SHR(h[i], BITS(i)));
    h[i] = AND(h[i], MASK(i));
}

/* Limbs below 2^63, and limb 9 below 2^58, to tight ones, in two chains at a time. */
static inline fe reduced(v4 h[10]) {
    fe out;
    carry(h, 0), carry(h, 4);
    carry(h, 1), carry(h, 5);
    carry(h, 2), carry(h, 6);
    carry(h, 3), carry(h, 7);
    carry(h, 4), carry(h, 8);
    h[0] = ADD(h[0], times19(SHR(h[9], 25)));
    h[9] = AND(h[9], MASK(9));
    carry(h, 0);
    memcpy(out.v, h, sizeof out.v);
    return out;
}

static inline fe fe_carried(wide a) { return a; }

static inline fe fe_sum(const wide *a, const wide *b) {
    fe out;
    for (int i = 0; i < 10; i++) out.v[i] = ADD(a->v[i], b->v[i]);
    return out;
}

/* Limb i of 2p * times. */
static inline v4 limb_of_2p(int i, uint64_t times) { return ALL4(times * ((2ULL << BITS(i)) - (i ? 2 : 38))); }

static inline fe fe_difference(const wide *a, const wide *b) {
    fe out;
    for (int i = 0; i < 10; i++) out.v[i] = ADD(a->v[i], SUB(limb_of_2p(i, 1), b->v[i]));
    return out;
}

static inline fe fe_small(uint64_t x) {
    fe out = {{ALL4(x)}};
    return out;
}

static inline fe fe_add(const fe *a, const fe *b) {
    v4 h[10];
    for (int i = 0; i < 10; i++) h[i] = ADD(a->v[i], b->v[i]);
    return reduced(h);
}

static inline fe fe_sub(const fe *a, const fe *b) {
    v4 h[10];
    for (int i = 0; i < 10; i++) h[i] = ADD(a->v[i], SUB(limb_of_2p(i, 2), b->v[i]));
    return reduced(h);
}

/* A product of two odd limbs counts twice, since 2 * 25.5 is rounded up twice; 2^255 = 19. */
static inline wide fe_product(const fe *a, const fe *b) {
    v4 h[10], twice[10], folded[10];
#pragma GCC unroll 10
    for (int i = 0; i < 10; i++) {
        h[i] = ALL4(0);
        twice[i] = ADD(a->v[i], a->v[i]);
        folded[i] = MUL(b->v[i], ALL4(19));
    }
#pragma GCC unroll 10
    for (int i = 0; i < 10; i++) {
#pragma GCC unroll 10
        for (int j = 0; j < 10; j++)
            h[(i + j) % 10] = ADD(h[(i + j) % 10], MUL(i & j & 1 ? twice[i] : a->v[i], i + j < 10 ? b->v[j] : folded[j]));
    }
    return reduced(h);
}

/* As fe_product(a, a). */
static inline wide fe_squared(const fe *a) {
    v4 h[10], twice[10], four[10], folded[10];
#pragma GCC unroll 10
    for (int i = 0; i < 10; i++) {
        h[i] = ALL4(0);
        twice[i] = ADD(a->v[i], a->v[i]);
        four[i] = ADD(twice[i], twice[i]);
        folded[i] = MUL(a->v[i], ALL4(19));
    }
#pragma GCC unroll 10
    for (int i = 0; i < 10; i++) {
        h[2 * i % 10] = ADD(h[2 * i % 10], MUL(i & 1 ? twice[i] : a->v[i], 2 * i < 10 ? a->v[i] : folded[i]));
#pragma GCC unroll 10
        for (int j = i + 1; j < 10; j++)
            h[(i + j) % 10] = ADD(h[(i + j) % 10], MUL(i & j & 1 ? four[i] : twice[i], i + j < 10 ? a->v[j] : folded[j]));
    }
    return reduced(h);
}

/* a + b * small, for small below 2^18. */
static inline fe fe_add_times(const fe *a, const fe *b, uint64_t small) {
    v4 h[10];
    for (int i = 0; i < 10; i++) h[i] = ADD(a->v[i], MUL(b->v[i], ALL4(small)));
    return reduced(h);
}

/* The smallest representation: limbs of 26 and 25 bits, and x below p. */
static inline fe fe_canonical(fe a) {
    for (int pass = 0; pass < 2; pass++) { /* after two of them x is below 2^255, and limbs below 2^26 and 2^25 but the first */
#pragma GCC unroll 9
        for (int i = 0; i < 9; i++) carry(a.v, i);
        a.v[0] = ADD(a.v[0], times19(SHR(a.v[9], 25)));
        a.v[9] = AND(a.v[9], MASK(9));
    }
    v4 q = SHR(ADD(a.v[0], ALL4(19)), 26); /* whether x + 19 reaches 2^255, and so x reaches p */
#pragma GCC unroll 9
    for (int i = 1; i < 10; i++) q = SHR(ADD(a.v[i], q), BITS(i));
    a.v[0] = ADD(a.v[0], times19(q));
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) carry(a.v, i);
    a.v[9] = AND(a.v[9], MASK(9));
    return a;
}

/* Four encodings of 32 bytes behind each other, little-endian; the top bit is ignored (RFC 7748). */
static inline fe fe_load(const uint8_t *bytes) {
    uint64_t words[4][LANES];
    v4 w[4];
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) memcpy(&words[i][lane], bytes + 32 * lane + 8 * i, 8);
    }
    for (int i = 0; i < 4; i++) w[i] = _mm256_loadu_si256((const __m256i *)words[i]);
    const v4 even = MASK(0), odd = MASK(1);
    fe out = {{AND(w[0], even), AND(SHR(w[0], 26), odd), AND(OR(SHR(w[0], 51), SHL(w[1], 13)), even), AND(SHR(w[1], 13), odd),
               SHR(w[1], 38), AND(w[2], odd), AND(SHR(w[2], 25), even), AND(OR(SHR(w[2], 51), SHL(w[3], 13)), odd),
               AND(SHR(w[3], 12), even), AND(SHR(w[3], 38), odd)}};
    return out;
}

static inline void fe_store(uint8_t *bytes, fe a) {
    uint64_t words[4][LANES];
    a = fe_canonical(a);
    v4 w[4] = {OR(OR(a.v[0], SHL(a.v[1], 26)), SHL(a.v[2], 51)), OR(OR(SHR(a.v[2], 13), SHL(a.v[3], 13)), SHL(a.v[4], 38)),
               OR(OR(a.v[5], SHL(a.v[6], 25)), SHL(a.v[7], 51)), OR(OR(SHR(a.v[7], 13), SHL(a.v[8], 12)), SHL(a.v[9], 38))};
    for (int i = 0; i < 4; i++) _mm256_storeu_si256((__m256i *)words[i], w[i]);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) memcpy(bytes + 32 * lane + 8 * i, &words[i][lane], 8);
    }
}

/* Which lanes are x, a number below 2^26. */
static inline lanes fe_is(fe a, uint64_t x) {
    a = fe_canonical(a);
    v4 rest = _mm256_xor_si256(a.v[0], ALL4(x));
    for (int i = 1; i < 10; i++) rest = OR(rest, a.v[i]);
    return _mm256_cmpeq_epi64(rest, ALL4(0));
}

/* a in the lanes that are set, and b in the others. */
static inline fe fe_select(lanes set, const fe *a, const fe *b) {
    fe out;
    for (int i = 0; i < 10; i++) out.v[i] = _mm256_blendv_epi8(b->v[i], a->v[i], set);
    return out;
}

/* All lanes for 1, none for 0. */
static inline lanes lanes_if(unsigned bit) { return ALL4(-(long long)bit); }

static inline int lanes_all(lanes set) { return _mm256_movemask_epi8(set) == -1; }

#endif
