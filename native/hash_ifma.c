/* Identifiers to u-coordinates: curve25519_XMD:SHA-512_ELL2_NU_ of RFC 9380 without clear_cofactor, of eight identifiers at a time. */
#if defined(__x86_64__)
#include "with_ifma.h"

#include "field8.h"

#include "curve.h"
#include "kernels.h"
#include "sha512x8.h"

#define SIZE 48     /* bytes a field element is made of (L) */
#define MOST_TAG 256 /* DST and its length */
#define SECOND (2 * SHA_BLOCK + SHA_BLOCK) /* room for b_0, a byte and the tag, padded */

/* In place of each r -J/d, or -J minus it where that is on the twist, for d = 1 + 2 r^2, which is never 0 (RFC 9380, 6.7.1).
 * v^2 at u = -J/d is -J d (J^2 - J^2 d + d^2), but for the square d^4. */
static void elligator2(fe *r, size_t vectors) {
    const fe one = fe_small(1), zero = fe_small(0), j = fe_small(486662), j2 = fe_small(486662ULL * 486662), less_j = fe_sub(&zero, &j);
    fe d[BATCH], inverse[BATCH];
    for (size_t i = 0; i < vectors; i++) {
        fe square = fe_sqr(&r[i]), twice = fe_add(&square, &square);
        inverse[i] = d[i] = fe_add(&twice, &one);
    }
    fe_invert_all(inverse, vectors);
    for (size_t i = 0; i < vectors; i++) {
        fe t = fe_sub(&d[i], &j2), u = fe_mul(&less_j, &inverse[i]), other = fe_sub(&less_j, &u);
        t = fe_mul(&t, &d[i]);
        t = fe_add(&t, &j2);
        t = fe_mul(&t, &d[i]);
        t = fe_mul(&t, &less_j);
        r[i] = fe_select(fe_is(fe_legendre(&t), 1), &u, &other);
    }
}

/* Eight numbers of 48 bytes, big-endian, 64 bytes apart, modulo p. */
static fe reduced(const uint8_t *bytes) {
    const v8 at = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448), mask = ALL8(MASK51);
    const v8 turn = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    v8 w[7], limb[8];
    for (int i = 0; i < 6; i++)
        w[i] = _mm512_shuffle_epi8(_mm512_i64gather_epi64(at, (const void *)(bytes + 40 - 8 * i), 1), turn);
    w[6] = ALL8(0);
    for (int i = 0; i < 8; i++) {
        int bit = 51 * i, word = bit / 64, shift = bit % 64;
        v8 low = SHR(w[word], shift), high = shift ? SHL(w[word + 1], 64 - shift) : ALL8(0);
        limb[i] = AND(OR(low, high), mask);
    }
    wide sum = {{ADD(limb[0], times19(limb[5])), ADD(limb[1], times19(limb[6])), ADD(limb[2], times19(limb[7])), limb[3], limb[4]}};
    return fe_carried(sum); /* 2^255 = 19: limbs are below 20 * 2^51 */
}

/* Identifier i is text[offsets[i]] to text[offsets[i + 1]], which is not before it. */
int vfl_hash_ifma(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count, const uint8_t *domain, size_t length) {
    uint8_t tag[MOST_TAG];
    size_t longest = 0;
    if (length < 1 || length > 255) return 1;
    memcpy(tag, domain, length);
    tag[length] = (uint8_t)length;
    for (size_t i = 0; i < count; i++) {
        size_t size = (size_t)(offsets[i + 1] - offsets[i]);
        if (size > longest) longest = size;
    }
    /* 128 zero bytes, the identifier, the size in two bytes, a zero byte, the tag; padded */
    size_t room = (SHA_BLOCK + longest + 3 + length + 1 + 17 + SHA_BLOCK) / SHA_BLOCK * SHA_BLOCK;
    uint8_t *first = malloc(8 * room), second[8 * SECOND];
    fe fields[BATCH];
    size_t waiting = 0; /* of fields */
    if (first == NULL) return 2;
    sha8 begun = sha8_start();
    memset(first, 0, SHA_BLOCK);
    sha8_block(&begun, first, _mm512_setzero_si512(), 0xff);
    for (size_t at = 0; at < count; at += 8) {
        size_t blocks[8], most = 0;
        for (size_t lane = 0; lane < 8; lane++) {
            size_t row = at + lane < count ? at + lane : count - 1;
            size_t bytes = (size_t)(offsets[row + 1] - offsets[row]);
            uint8_t *to = first + lane * room;
            memcpy(to + SHA_BLOCK, text + offsets[row], bytes);
            to[SHA_BLOCK + bytes] = 0;
            to[SHA_BLOCK + bytes + 1] = SIZE;
            to[SHA_BLOCK + bytes + 2] = 0;
            memcpy(to + SHA_BLOCK + bytes + 3, tag, length + 1);
            blocks[lane] = sha_pad(to, SHA_BLOCK + bytes + 3 + length + 1);
            if (blocks[lane] > most) most = blocks[lane];
        }
        sha8 hashed = begun;
        for (size_t block = 1; block < most; block++) {
            __mmask8 active = 0;
            for (int lane = 0; lane < 8; lane++) active |= (__mmask8)((block < blocks[lane]) << lane);
            v8 where = _mm512_add_epi64(_mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), ALL8(room)),
                                        ALL8(block * SHA_BLOCK));
            sha8_block(&hashed, first, where, active);
        }
        const v8 lanes = _mm512_setr_epi64(0, SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND, 5 * SECOND, 6 * SECOND, 7 * SECOND);
        sha8_store(&hashed, second, lanes);
        size_t seconds = 0;
        for (size_t lane = 0; lane < 8; lane++) {
            uint8_t *to = second + lane * SECOND;
            to[64] = 1;
            memcpy(to + 65, tag, length + 1);
            seconds = sha_pad(to, 65 + length + 1);
        }
        hashed = sha8_start();
        for (size_t block = 0; block < seconds; block++)
            sha8_block(&hashed, second, _mm512_add_epi64(lanes, ALL8(block * SHA_BLOCK)), 0xff);
        uint8_t digests[512];
        sha8_store(&hashed, digests, _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448));
        fields[waiting++] = reduced(digests);
        if (waiting < BATCH && at + 8 < count) continue;
        elligator2(fields, waiting);
        for (size_t i = 0, row = at - 8 * (waiting - 1); i < waiting; i++, row += 8) {
            uint8_t result[256];
            fe_store(result, fields[i]);
            memcpy(out + 32 * row, result, 32 * (count - row < 8 ? count - row : 8));
        }
        waiting = 0;
    }
    free(first);
    return 0;
}

#include "end_with.h"
#endif
