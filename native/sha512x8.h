/* SHA-512 (FIPS 180-4) of eight messages side by side. */
#ifndef VFL_SHA512X8_H
#define VFL_SHA512X8_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define SHA_BLOCK 128

static const uint64_t SHA512_K[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};

static const uint64_t SHA512_START[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

typedef struct {
    __m512i h[8];
} sha8;

static inline sha8 sha8_start(void) {
    sha8 s;
    for (int i = 0; i < 8; i++) s.h[i] = _mm512_set1_epi64((long long)SHA512_START[i]);
    return s;
}

#define ROR(x, n) _mm512_ror_epi64(x, n)
#define XOR3(x, y, z) _mm512_ternarylogic_epi64(x, y, z, 0x96)
#define CHOOSE(x, y, z) _mm512_ternarylogic_epi64(x, y, z, 0xca)
#define MAJORITY(x, y, z) _mm512_ternarylogic_epi64(x, y, z, 0xe8)
#define PLUS(x, y) _mm512_add_epi64(x, y)

/* One block of each lane: at[lane] bytes behind base. Lanes outside of active keep their state. */
static void sha8_block(sha8 *s, const uint8_t *base, __m512i at, __mmask8 active) {
    const __m512i swap = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    __m512i w[16], v[8];
    for (int t = 0; t < 16; t++) {
        w[t] = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), active, at, (const void *)(base + 8 * t), 1);
        w[t] = _mm512_shuffle_epi8(w[t], swap);
    }
    memcpy(v, s->h, sizeof v);
    for (int t = 0; t < 80; t++) {
        if (t >= 16) {
            __m512i a = w[(t + 1) & 15], b = w[(t + 14) & 15];
            a = XOR3(ROR(a, 1), ROR(a, 8), _mm512_srli_epi64(a, 7));
            b = XOR3(ROR(b, 19), ROR(b, 61), _mm512_srli_epi64(b, 6));
            w[t & 15] = PLUS(PLUS(w[t & 15], a), PLUS(b, w[(t + 9) & 15]));
        }
        __m512i e = XOR3(ROR(v[4], 14), ROR(v[4], 18), ROR(v[4], 41)), a = XOR3(ROR(v[0], 28), ROR(v[0], 34), ROR(v[0], 39));
        __m512i first = PLUS(PLUS(v[7], e), PLUS(CHOOSE(v[4], v[5], v[6]), w[t & 15]));
        first = PLUS(first, _mm512_set1_epi64((long long)SHA512_K[t]));
        __m512i second = PLUS(a, MAJORITY(v[0], v[1], v[2]));
        for (int i = 7; i > 0; i--) v[i] = v[i - 1];
        v[4] = PLUS(v[4], first);
        v[0] = PLUS(first, second);
    }
    for (int i = 0; i < 8; i++) s->h[i] = _mm512_mask_add_epi64(s->h[i], active, s->h[i], v[i]);
}

/* The digests, 64 bytes each, at[lane] bytes behind base. */
static inline void sha8_store(const sha8 *s, uint8_t *base, __m512i at) {
    const __m512i swap = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    for (int i = 0; i < 8; i++) _mm512_i64scatter_epi64((void *)(base + 8 * i), at, _mm512_shuffle_epi8(s->h[i], swap), 1);
}

/* Padding of a message of `bytes` bytes, all of it in `block`, whose size is a multiple of SHA_BLOCK. Returns the number of blocks. */
static inline size_t sha_pad(uint8_t *block, size_t bytes) {
    size_t blocks = (bytes + 17 + SHA_BLOCK - 1) / SHA_BLOCK;
    uint64_t bits = 8 * (uint64_t)bytes;
    memset(block + bytes, 0, blocks * SHA_BLOCK - bytes);
    block[bytes] = 0x80;
    for (int i = 0; i < 8; i++) block[blocks * SHA_BLOCK - 1 - i] = (uint8_t)(bits >> (8 * i));
    return blocks;
}

#endif
