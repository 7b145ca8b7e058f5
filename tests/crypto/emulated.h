/* What the code for AVX-512 IFMA uses of <immintrin.h>, lane by lane, for processors and tools that lack it. Include it first. */
#define EMULATED
#define _IMMINTRIN_H_INCLUDED /* gcc */
#define __IMMINTRIN_H         /* clang */

#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t of[8];
} __m512i;
typedef uint8_t __mmask8;

#define EACH(expression) \
    __m512i out; \
    for (int i = 0; i < 8; i++) out.of[i] = (expression); \
    return out;
#define BINARY(name, expression) \
    static inline __m512i name(__m512i a, __m512i b) { EACH(expression) }
#define SHIFT(name, expression) \
    static inline __m512i name(__m512i a, unsigned n) { EACH(expression) }
#define LOW52 ((1ULL << 52) - 1)

BINARY(_mm512_add_epi64, a.of[i] + b.of[i])
BINARY(_mm512_sub_epi64, a.of[i] - b.of[i])
BINARY(_mm512_and_si512, a.of[i] & b.of[i])
BINARY(_mm512_or_si512, a.of[i] | b.of[i])
BINARY(_mm512_xor_si512, a.of[i] ^ b.of[i])
SHIFT(_mm512_srli_epi64, a.of[i] >> n)
SHIFT(_mm512_slli_epi64, a.of[i] << n)

static inline __m512i _mm512_set1_epi64(long long x) { EACH((uint64_t)x) }

static inline __m512i _mm512_setr_epi64(long long a, long long b, long long c, long long d, long long e, long long f, long long g,
                                        long long h) {
    const long long all[8] = {a, b, c, d, e, f, g, h};
    EACH((uint64_t)all[i])
}

static inline __m512i _mm512_madd52lo_epu64(__m512i c, __m512i a, __m512i b) {
    EACH(c.of[i] + ((uint64_t)((unsigned __int128)(a.of[i] & LOW52) * (b.of[i] & LOW52)) & LOW52))
}

static inline __m512i _mm512_madd52hi_epu64(__m512i c, __m512i a, __m512i b) {
    EACH(c.of[i] + (uint64_t)((unsigned __int128)(a.of[i] & LOW52) * (b.of[i] & LOW52) >> 52))
}

static inline __m512i _mm512_mask_blend_epi64(__mmask8 set, __m512i a, __m512i b) {
    EACH(a.of[i] ^ ((a.of[i] ^ b.of[i]) & (0 - (uint64_t)(set >> i & 1))))
}

static inline __m512i _mm512_mask_mov_epi64(__m512i a, __mmask8 set, __m512i b) { return _mm512_mask_blend_epi64(set, a, b); }

static inline __mmask8 _mm512_cmpeq_epi64_mask(__m512i a, __m512i b) {
    unsigned set = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t differ = a.of[i] ^ b.of[i];
        set |= (unsigned)(1 ^ ((differ | (0 - differ)) >> 63)) << i;
    }
    return (__mmask8)set;
}

static inline __mmask8 _mm512_cmpneq_epi64_mask(__m512i a, __m512i b) { return (__mmask8)~_mm512_cmpeq_epi64_mask(a, b); }

BINARY(_mm512_unpacklo_epi64, i & 1 ? b.of[i - 1] : a.of[i])
BINARY(_mm512_unpackhi_epi64, i & 1 ? b.of[i] : a.of[i + 1])

static inline __m512i _mm512_shuffle_i64x2(__m512i a, __m512i b, int pairs) {
    EACH((i < 4 ? a : b).of[2 * (pairs >> (2 * (i / 2)) & 3) + i % 2])
}

static inline __m512i _mm512_loadu_si512(const void *from) {
    __m512i out;
    memcpy(&out, from, sizeof out);
    return out;
}

static inline void _mm512_storeu_si512(void *to, __m512i a) { memcpy(to, &a, sizeof a); }

static inline __m512i _mm512_i64gather_epi64(__m512i at, const void *base, int scale) {
    __m512i out;
    for (int i = 0; i < 8; i++) memcpy(&out.of[i], (const char *)base + at.of[i] * (uint64_t)scale, 8);
    return out;
}

static inline void _mm512_i64scatter_epi64(void *base, __m512i at, __m512i a, int scale) {
    for (int i = 0; i < 8; i++) memcpy((char *)base + at.of[i] * (uint64_t)scale, &a.of[i], 8);
}

static inline __m512i _mm512_mask_i64gather_epi64(__m512i other, __mmask8 set, __m512i at, const void *base, int scale) {
    for (int i = 0; i < 8; i++)
        if (set >> i & 1) memcpy(&other.of[i], (const char *)base + at.of[i] * (uint64_t)scale, 8);
    return other;
}

/* What hashing uses besides. */
typedef struct {
    uint8_t of[16];
} __m128i;

BINARY(_mm512_mullo_epi64, a.of[i] * b.of[i])
SHIFT(_mm512_ror_epi64, a.of[i] >> n | a.of[i] << (64 - n))

static inline __m512i _mm512_setzero_si512(void) { return _mm512_set1_epi64(0); }

static inline __m512i _mm512_mask_add_epi64(__m512i other, __mmask8 set, __m512i a, __m512i b) {
    EACH(set >> i & 1 ? a.of[i] + b.of[i] : other.of[i])
}

static inline __m512i _mm512_ternarylogic_epi64(__m512i a, __m512i b, __m512i c, int table) {
    uint64_t x, y, z;
    __m512i out;
    for (int i = 0; i < 8; i++) {
        out.of[i] = 0;
        for (int row = 0; row < 8; row++) {
            if (!(table >> row & 1)) continue;
            x = row & 4 ? a.of[i] : ~a.of[i];
            y = row & 2 ? b.of[i] : ~b.of[i];
            z = row & 1 ? c.of[i] : ~c.of[i];
            out.of[i] |= x & y & z;
        }
    }
    return out;
}

static inline __m128i _mm_setr_epi8(char a, char b, char c, char d, char e, char f, char g, char h, char i, char j, char k, char l,
                                    char m, char n, char o, char p) {
    const char all[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    __m128i out;
    memcpy(&out, all, sizeof out);
    return out;
}

static inline __m512i _mm512_broadcast_i32x4(__m128i a) {
    __m512i out;
    for (int i = 0; i < 4; i++) memcpy(out.of + 2 * i, &a, sizeof a);
    return out;
}

static inline __m512i _mm512_shuffle_epi8(__m512i a, __m512i places) { /* places are public, below 16 */
    uint8_t from[64], at[64], to[64];
    __m512i out;
    memcpy(from, &a, sizeof from);
    memcpy(at, &places, sizeof at);
    for (int i = 0; i < 64; i++) to[i] = from[i / 16 * 16 + at[i]];
    memcpy(&out, to, sizeof out);
    return out;
}

/* What products with cells use besides. */
static inline __m128i _mm_loadu_si128(const __m128i *from) {
    __m128i out;
    memcpy(&out, from, sizeof out);
    return out;
}

static inline __m512i _mm512_cvtepu16_epi64(__m128i a) {
    uint16_t cells[8];
    memcpy(cells, &a, sizeof cells);
    EACH(cells[i])
}

/* What polynomials of RLWE use besides; places are public. */
static inline __m512i _mm512_min_epu64(__m512i a, __m512i b) {
    __m512i out;
    for (int i = 0; i < 8; i++) { /* a - b is negative where a is less; its borrow decides, without a branch */
        uint64_t x = a.of[i], y = b.of[i], less = 0 - (((~x & y) | (~(x ^ y) & (x - y))) >> 63);
        out.of[i] = (x & less) | (y & ~less);
    }
    return out;
}

static inline __m512i _mm512_permutexvar_epi64(__m512i places, __m512i a) { EACH(a.of[places.of[i] & 7]) }

static inline __m512i _mm512_permutex2var_epi64(__m512i a, __m512i places, __m512i b) {
    EACH((places.of[i] & 8 ? b : a).of[places.of[i] & 7])
}
