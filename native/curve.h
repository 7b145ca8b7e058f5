/* Curve25519 on u-coordinates, LANES points at a time, over the field of field8.h or field4.h, which is included before.
 *
 * There is no branch and no address that depends on a value, except in check(), whose points a peer sent.
 */
#ifndef VFL_CURVE_H
#define VFL_CURVE_H

#include <stddef.h>
#include <string.h>

#define BATCH 8 /* vectors of LANES elements that share one inversion */

static inline fe fe_mul(const fe *a, const fe *b) { return fe_carried(fe_product(a, b)); }

static inline fe fe_sqr(const fe *a) { return fe_carried(fe_squared(a)); }

static fe fe_sqr_times(fe a, int times) {
    for (int i = 0; i < times; i++) a = fe_sqr(&a);
    return a;
}

/* z^(2^250 - 1), and z^11: of what both powers below are made. */
static fe fe_power_250(const fe *z, fe *z11) {
    fe t, z2 = fe_sqr(z), z9, z5, z10, z20, z50, z100;
    t = fe_sqr_times(z2, 2);
    z9 = fe_mul(&t, z);
    *z11 = fe_mul(&z9, &z2);
    t = fe_sqr(z11);
    z5 = fe_mul(&t, &z9); /* 2^5 - 1 */
    t = fe_sqr_times(z5, 5);
    z10 = fe_mul(&t, &z5);
    t = fe_sqr_times(z10, 10);
    z20 = fe_mul(&t, &z10);
    t = fe_sqr_times(z20, 20);
    t = fe_mul(&t, &z20);
    t = fe_sqr_times(t, 10);
    z50 = fe_mul(&t, &z10);
    t = fe_sqr_times(z50, 50);
    z100 = fe_mul(&t, &z50);
    t = fe_sqr_times(z100, 100);
    t = fe_mul(&t, &z100);
    t = fe_sqr_times(t, 50);
    return fe_mul(&t, &z50);
}

/* 1/z: z^(p - 2), p - 2 = 2^255 - 21. */
static inline fe fe_invert(const fe *z) {
    fe z11, t = fe_power_250(z, &z11);
    t = fe_sqr_times(t, 5);
    return fe_mul(&t, &z11);
}

/* 1/z of 1 to BATCH vectors in their place, none of them 0, by one inversion (Montgomery's trick). */
static void fe_invert_all(fe *z, size_t count) {
    fe products[BATCH], inverse;
    products[0] = z[0];
    for (size_t i = 1; i < count; i++) products[i] = fe_mul(&products[i - 1], &z[i]);
    inverse = fe_invert(&products[count - 1]);
    for (size_t i = count - 1; i > 0; i--) {
        fe each = fe_mul(&inverse, &products[i - 1]);
        inverse = fe_mul(&inverse, &z[i]);
        z[i] = each;
    }
    z[0] = inverse;
}

/* z^((p - 1) / 2): 1 of a square, -1 of another number, 0 of 0. (p - 1) / 2 = 2^254 - 10 = (2^250 - 1) * 2^4 + 6. */
static inline fe fe_legendre(const fe *z) {
    fe z11, t = fe_power_250(z, &z11), z2 = fe_sqr(z), z4 = fe_sqr(&z2), z6 = fe_mul(&z4, &z2);
    t = fe_sqr_times(t, 4);
    return fe_mul(&t, &z6);
}

static inline void fe_swap(lanes set, fe *a, fe *b) {
    fe x = fe_select(set, b, a);
    *b = fe_select(set, a, b);
    *a = x;
}

/* The ladder of RFC 7748, section 5, as a fraction top/bottom. It keeps a = x2 + z2, b = x2 - z2, c = x3 + z3 and d = x3 - z3 in place
 * of x2, z2, x3 and z3, whose carries nobody needs then; x2/z2 is (a + b)/(a - b). */
static inline void ladder(fe *top, fe *bottom, const uint8_t scalar[32], const uint8_t *points) {
    const fe x1 = fe_load(points), one = fe_small(1);
    fe a = one, b = one, c = fe_add(&x1, &one), d = fe_sub(&x1, &one);
    unsigned last = 0;
    for (int t = 254; t >= 0; t--) {
        unsigned bit = (scalar[t >> 3] >> (t & 7)) & 1u;
        lanes swap = lanes_if(bit ^ last);
        last = bit;
        fe_swap(swap, &a, &c);
        fe_swap(swap, &b, &d);
        wide aa = fe_squared(&a), bb = fe_squared(&b), da = fe_product(&d, &a), cb = fe_product(&c, &b);
        fe e = fe_difference(&aa, &bb), sum = fe_sum(&da, &cb), difference = fe_difference(&da, &cb);
        fe a2 = fe_carried(aa), b2 = fe_carried(bb), squared = fe_sqr(&difference), scaled = fe_add_times(&a2, &e, 121665);
        wide x3 = fe_squared(&sum), z3 = fe_product(&x1, &squared), x2 = fe_product(&a2, &b2), z2 = fe_product(&e, &scaled);
        a = fe_sum(&x2, &z2);
        b = fe_difference(&x2, &z2);
        c = fe_sum(&x3, &z3);
        d = fe_difference(&x3, &z3);
    }
    fe_swap(lanes_if(last), &a, &c);
    fe_swap(lanes_if(last), &b, &d);
    *top = fe_add(&a, &b);
    *bottom = fe_sub(&a, &b);
}

/* X25519 of 1 to BATCH vectors; 0 where a point has small order. */
static inline void ladders(uint8_t *out, const uint8_t scalar[32], const uint8_t *points, size_t vectors) {
    const fe one = fe_small(1), zero = fe_small(0);
    fe top[BATCH], bottom[BATCH];
    for (size_t i = 0; i < vectors; i++) {
        ladder(&top[i], &bottom[i], scalar, points + 32 * LANES * i);
        lanes small = fe_is(bottom[i], 0);
        top[i] = fe_select(small, &zero, &top[i]);
        bottom[i] = fe_select(small, &one, &bottom[i]);
    }
    fe_invert_all(bottom, vectors);
    for (size_t i = 0; i < vectors; i++) fe_store(out + 32 * LANES * i, fe_mul(&top[i], &bottom[i]));
}

/* X25519 (RFC 7748) of any number of points by one scalar. */
static inline void x25519(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    uint8_t key[32], rest[32 * LANES * BATCH];
    memcpy(key, scalar, 32);
    key[0] &= 248;
    key[31] = (uint8_t)((key[31] & 127) | 64);
    for (; count >= LANES * BATCH; count -= LANES * BATCH, out += sizeof rest, points += sizeof rest)
        ladders(out, key, points, BATCH);
    if (count) {
        memset(rest, 0, sizeof rest);
        memcpy(rest, points, 32 * count);
        ladders(rest, key, rest, (count + LANES - 1) / LANES);
        memcpy(out, rest, 32 * count);
    }
    memset(key, 0, sizeof key);
    __asm__ volatile("" : : "r"(key) : "memory");
}

/* v^2 = u^3 + 486662 u^2 + u. */
static inline fe v_squared(const fe *u) {
    const fe j = fe_small(486662), one = fe_small(1);
    fe t = fe_add(u, &j);
    t = fe_mul(&t, u);
    t = fe_add(&t, &one);
    return fe_mul(&t, u);
}

/* 0: all are canonical and on the curve; 1: one is not canonical; 2: one is on the twist. Small orders are not looked for. */
static inline int check(const uint8_t *points, size_t count) {
    int fault = 0;
    for (size_t at = 0; at < count; at += LANES) {
        uint8_t some[32 * LANES], back[32 * LANES];
        for (size_t lane = 0; lane < LANES; lane++)
            memcpy(some + 32 * lane, points + 32 * (at + lane < count ? at + lane : count - 1), 32);
        fe u = fe_load(some), square = v_squared(&u);
        fe_store(back, u);
        if (memcmp(some, back, sizeof some)) return 1;
        if (!lanes_all(fe_is(fe_legendre(&square), 1))) fault = 2;
    }
    return fault;
}

#endif
