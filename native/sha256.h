/* SHA-256 (FIPS 180-4) of many strings, LANES side by side; compilers turn the vectors into what the processor has.
 *
 * There is no branch and no address that depends on a string's bytes; lengths are public.
 */
#ifndef VFL_SHA256_H
#define VFL_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 64

typedef uint32_t words __attribute__((vector_size(4 * LANES)));

static const uint32_t SHA256_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static const uint32_t SHA256_START[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

#define ROR32(x, n) ((x) >> (n) | (x) << (32 - (n)))

/* Block `number` of a string of `size` bytes, with the padding. */
static inline void padded_block(uint8_t to[BLOCK], const uint8_t *string, size_t size, size_t number) {
    size_t begin = BLOCK * number, held = begin >= size ? 0 : size - begin < BLOCK ? size - begin : BLOCK;
    memset(to, 0, BLOCK);
    if (held) memcpy(to, string + begin, held);
    if (begin <= size && held < BLOCK) to[held] = 0x80;
    if (number == (size + 8) / BLOCK)
        for (int i = 0; i < 8; i++) to[BLOCK - 1 - i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
}

static inline void sha256_block(words h[8], const uint32_t message[16][LANES], words active) {
    words w[16], v[8];
    memcpy(w, message, sizeof w);
    memcpy(v, h, sizeof v);
    for (int t = 0; t < 64; t++) {
        if (t >= 16) {
            words a = w[(t + 1) & 15], b = w[(t + 14) & 15];
            a = ROR32(a, 7) ^ ROR32(a, 18) ^ a >> 3;
            b = ROR32(b, 17) ^ ROR32(b, 19) ^ b >> 10;
            w[t & 15] += a + b + w[(t + 9) & 15];
        }
        words e = ROR32(v[4], 6) ^ ROR32(v[4], 11) ^ ROR32(v[4], 25), a = ROR32(v[0], 2) ^ ROR32(v[0], 13) ^ ROR32(v[0], 22);
        words first = v[7] + e + (v[6] ^ (v[4] & (v[5] ^ v[6]))) + w[t & 15] + SHA256_K[t];
        words second = a + ((v[0] & v[1]) | (v[2] & (v[0] | v[1])));
        for (int i = 7; i > 0; i--) v[i] = v[i - 1];
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i] & active;
}

/* Digests of 32 bytes. String i is text[offsets[i]] to text[offsets[i + 1]], which is not before it. */
static inline void sha256(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count) {
    for (size_t at = 0; at < count; at += LANES) {
        size_t many = count - at < LANES ? count - at : LANES, blocks[LANES] = {0}, most = 0;
        uint32_t result[8][LANES];
        words h[8];
        for (size_t lane = 0; lane < many; lane++) {
            blocks[lane] = (size_t)(offsets[at + lane + 1] - offsets[at + lane] + 8) / BLOCK + 1;
            if (blocks[lane] > most) most = blocks[lane];
        }
        for (int i = 0; i < 8; i++) h[i] = (words){0} + SHA256_START[i];
        for (size_t block = 0; block < most; block++) {
            uint32_t message[16][LANES] = {{0}}, active[LANES];
            words mask;
            for (size_t lane = 0; lane < LANES; lane++) {
                uint8_t bytes[BLOCK];
                active[lane] = block < blocks[lane] ? 0xffffffff : 0;
                if (!active[lane]) continue;
                padded_block(bytes, text + offsets[at + lane], (size_t)(offsets[at + lane + 1] - offsets[at + lane]), block);
                for (int t = 0; t < 16; t++)
                    message[t][lane] = (uint32_t)bytes[4 * t] << 24 | (uint32_t)bytes[4 * t + 1] << 16 | (uint32_t)bytes[4 * t + 2] << 8 |
                                       bytes[4 * t + 3];
            }
            memcpy(&mask, active, sizeof mask);
            sha256_block(h, message, mask);
        }
        memcpy(result, h, sizeof result);
        for (size_t lane = 0; lane < many; lane++)
            for (int i = 0; i < 32; i++) out[32 * (at + lane) + (size_t)i] = (uint8_t)(result[i / 4][lane] >> (24 - 8 * (i & 3)));
    }
}

#endif
