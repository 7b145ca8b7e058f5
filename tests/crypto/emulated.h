/* What the code for AVX-512 IFMA uses of <immintrin.h>, lane by lane, for processors and tools that lack it. Include it first. */
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
