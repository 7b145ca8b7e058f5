/* X25519 (RFC 7748) of eight points by one scalar at a time. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma")

#include "field8.h"
#include "kernels.h"
#include <string.h>

static inline void swap_if(__mmask8 swap, fe8 *a, fe8 *b) {
    for (int i = 0; i < 5; i++) {
        v8 x = _mm512_mask_blend_epi64(swap, a->v[i], b->v[i]);
        b->v[i] = _mm512_mask_blend_epi64(swap, b->v[i], a->v[i]);
        a->v[i] = x;
    }
}

/* The ladder's order of operations is that of RFC 7748, section 5. */
static void ladder(uint8_t out[256], const uint8_t scalar[32], const uint8_t points[256]) {
    fe8 x1 = fe8_load(points), x2 = fe8_small(1), z2 = fe8_small(0), x3 = x1, z3 = fe8_small(1);
    unsigned last = 0;
    for (int t = 254; t >= 0; t--) {
        unsigned bit = (scalar[t >> 3] >> (t & 7)) & 1u, swap = bit ^ last;
        __mmask8 mask = (__mmask8)(0u - swap);
        last = bit;
        swap_if(mask, &x2, &x3);
        swap_if(mask, &z2, &z3);
        fe8 a = fe8_add(&x2, &z2), aa = fe8_sqr(&a), b = fe8_sub(&x2, &z2), bb = fe8_sqr(&b), e = fe8_sub(&aa, &bb);
        fe8 c = fe8_add(&x3, &z3), d = fe8_sub(&x3, &z3), da = fe8_mul(&d, &a), cb = fe8_mul(&c, &b);
        fe8 sum = fe8_add(&da, &cb), difference = fe8_sub(&da, &cb), squared = fe8_sqr(&difference);
        x3 = fe8_sqr(&sum);
        z3 = fe8_mul(&x1, &squared);
        x2 = fe8_mul(&aa, &bb);
        fe8 scaled = fe8_add_times(&aa, &e, 121665);
        z2 = fe8_mul(&e, &scaled);
    }
    __mmask8 mask = (__mmask8)(0u - last);
    swap_if(mask, &x2, &x3);
    swap_if(mask, &z2, &z3);
    fe8 inverse = fe8_invert(&z2), u = fe8_mul(&x2, &inverse);
    fe8_store(out, u);
}

void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    uint8_t key[32], rest[256];
    memcpy(key, scalar, 32);
    key[0] &= 248;
    key[31] = (uint8_t)((key[31] & 127) | 64);
    size_t at = 0;
    for (; at + 8 <= count; at += 8) ladder(out + 32 * at, key, points + 32 * at);
    if (at < count) {
        memset(rest, 0, sizeof rest);
        memcpy(rest, points + 32 * at, 32 * (count - at));
        ladder(rest, key, rest);
        memcpy(out + 32 * at, rest, 32 * (count - at));
    }
    __builtin_memset(key, 0, sizeof key);
    __asm__ volatile("" : : "r"(key) : "memory");
}

#endif
