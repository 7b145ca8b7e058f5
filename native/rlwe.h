/* Transforms, encryption and answers, for LANES residues at a time, of which load, times, product and the rest are defined before.
 *
 * There is no branch and no address that depends on a secret, and no division. Places, counts and moduli are public. Residues are
 * below their prime where a function begins and ends. Lazy ones stay below 4p < 2^52 between where lanes have 52 bits. Where they have
 * 64, nothing is reduced within a transform: a layer adds 2p, so that 13 layers stay below 27p < 2^55, and the reverse doubles the
 * bound, so that they stay below 2^13 p < 2^63.
 */
#ifndef VFL_RLWE_H
#define VFL_RLWE_H

#include <stdlib.h>

#include "rlwe_ring.h"

#define TERMS 15 /* that are summed before they are reduced: upper halves, below 2^48, and carries stay below 2^52 together */

/* (x, y) -> (x + w y, x - w y). */
static inline void butterfly(lanes *x, lanes *y, lane_factor f, lanes p, lanes p2) {
    lanes u = kept(*x, p2), v = times(*y, f, p);
    *x = add(u, v);
    *y = add(sub(u, v), p2);
}

/* (x, y) -> (x + y, w (x - y)), both below the bound, a multiple of p. */
static inline void inverse_butterfly(lanes *x, lanes *y, lane_factor f, lanes p, lanes bound) {
    lanes u = *x, v = *y;
    *x = kept(add(u, v), bound);
    *y = times(add(sub(u, v), bound), f, p);
}

/* The values at odd powers of the root, bits of their places reversed. Two layers at a time; last_layers does those within LANES. */
static void ntt(uint64_t *a, const modulus *m) {
    lanes p = all(m->p), p2 = all(2 * m->p);
    size_t groups = 1, apart = N / 2;
    for (; apart / 2 >= LANES; groups *= 4, apart /= 4)
        for (size_t i = 0; i < groups; i++) {
            size_t at = groups + i, quarter = apart / 2;
            lane_factor f = same_factor(m->w[at], m->quotient[at]), g = same_factor(m->w[2 * at], m->quotient[2 * at]),
                        h = same_factor(m->w[2 * at + 1], m->quotient[2 * at + 1]);
            uint64_t *x = a + 2 * i * apart;
            for (size_t j = 0; j < quarter; j += LANES) {
                lanes x0 = load(x + j), x1 = load(x + j + quarter), x2 = load(x + j + apart), x3 = load(x + j + apart + quarter);
                butterfly(&x0, &x2, f, p, p2);
                butterfly(&x1, &x3, f, p, p2);
                butterfly(&x0, &x1, g, p, p2);
                butterfly(&x2, &x3, h, p, p2);
                store(x + j, x0);
                store(x + j + quarter, x1);
                store(x + j + apart, x2);
                store(x + j + apart + quarter, x3);
            }
        }
    last_layers(a, m);
}

/* The reverse. */
static void inverse_ntt(uint64_t *a, const modulus *m) {
    lanes p = all(m->p), bound = all(2 * m->p);
    first_layers(a, m);
    for (size_t apart = LANES == 1 ? 2 : LANES; apart < N; apart *= 4, bound = next(next(bound)))
        for (size_t i = 0, groups = N / (4 * apart); i < groups; i++) {
            size_t at = groups + i;
            lane_factor f = same_factor(m->inverse[at], m->inverse_quotient[at]),
                        g = same_factor(m->inverse[2 * at], m->inverse_quotient[2 * at]),
                        h = same_factor(m->inverse[2 * at + 1], m->inverse_quotient[2 * at + 1]);
            uint64_t *x = a + 4 * i * apart;
            for (size_t j = 0; j < apart; j += LANES) {
                lanes x0 = load(x + j), x1 = load(x + j + apart), x2 = load(x + j + 2 * apart), x3 = load(x + j + 3 * apart);
                inverse_butterfly(&x0, &x1, g, p, bound);
                inverse_butterfly(&x2, &x3, h, p, bound);
                inverse_butterfly(&x0, &x2, f, p, next(bound));
                inverse_butterfly(&x1, &x3, f, p, next(bound));
                store(x + j, x0);
                store(x + j + apart, x1);
                store(x + j + 2 * apart, x2);
                store(x + j + 3 * apart, x3);
            }
        }
    lane_factor shorten = same_factor(m->shorten.w, m->shorten.quotient);
    for (size_t j = 0; j < N; j += LANES) store(a + j, less(times(load(a + j), shorten, p), p));
}

/* A number of 64 bits, with its sign, modulo p. */
static inline lanes residue(lanes x, const modulus *m, lanes p) {
    lanes negative = sub(all(0), right(x, 63));
    return less(add(word(x, m), both(all(m->p - m->two64), negative)), p);
}

/* round(q x / t) modulo p. For t = 2^64 it is (q x - c) / t, where c is what q x is modulo t, with its sign; q divides the first term.
 * For a prime t likewise, with x < t. */
static inline lanes encoded(lanes x, const vfl_ring *ring, const modulus *m) {
    lanes p = all(m->p), c;
    if (ring->t) {
        lanes t = all(ring->t);
        c = less(times(x, same_factor(ring->q_mod_t.w, ring->q_mod_t.quotient), t), t);
        lanes upper = sub(all(0), right(sub(all(ring->t / 2), c), 63));
        c = add(c, both(all(m->p - ring->t), upper));
    } else
        c = residue(low_product(x, all(ring->q64)), m, p);
    return less(times(c, same_factor(m->scale.w, m->scale.quotient), p), p);
}

/* A centred binomial number of 42 bits of a word, minus 21 to 21, of variance 10.5: the bits of the upper half count from the other end. */
static inline uint64_t binomial(uint64_t word) {
    uint64_t x = (word ^ 0x1fffffULL << 21) & ((1ULL << 42) - 1);
    x = x - (x >> 1 & 0x5555555555555555ULL);
    x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
    x = x + (x >> 8);
    x = x + (x >> 16);
    return ((x + (x >> 32)) & 127) - 21;
}

/* -1, 0 or 1 of a uniform word, floor(3 word / 2^64) - 1. One of them has 2^-64 / 3 more than its third. */
static inline uint64_t ternary(uint64_t word) {
    uint64_t high = word >> 32, low = word & 0xffffffff;
    return ((3 * high + (3 * low >> 32)) >> 32) - 1;
}

/* A small number with its sign, modulo p. */
static inline lanes small(lanes x, lanes p) { return add(x, both(p, sub(all(0), right(x, 63)))); }

static void transform_small(uint64_t *out, const uint64_t *numbers, const modulus *m) {
    lanes p = all(m->p);
    for (size_t j = 0; j < N; j += LANES) store(out + j, small(load(numbers + j), p));
    ntt(out, m);
}

/* Polynomials of -1, 0 and 1. The small numbers wait where the last polynomial will be. */
static void ternary_polynomial(const vfl_ring *ring, uint64_t *out, const uint64_t *words) {
    uint64_t *numbers = out + (ring->primes - 1) * N;
    for (size_t j = 0; j < N; j++) numbers[j] = ternary(words[j]);
    for (size_t i = 0; i < ring->primes; i++) transform_small(out + i * N, numbers, &ring->of[i]);
}

/* b = m + e - a s, in transformed form; m, if it is given, is encoded. */
static void encrypt(const vfl_ring *ring, uint64_t *out, const uint64_t *a, const uint64_t *secret, const uint64_t *errors,
                    const uint64_t *numbers, size_t count) {
    for (size_t k = 0; k < count; k++, errors += N, numbers += numbers ? N : 0) {
        uint64_t *last = out + (ring->primes - 1) * N; /* where errors wait */
        for (size_t j = 0; j < N; j++) last[j] = binomial(errors[j]);
        for (size_t i = 0; i < ring->primes; i++, out += N, a += N) {
            const modulus *m = &ring->of[i];
            const uint64_t *s = secret + i * N;
            lanes p = all(m->p);
            for (size_t j = 0; j < N; j += LANES) {
                lanes each = small(load(last + j), p);
                store(out + j, numbers ? less(add(each, encoded(load(numbers + j), ring, m)), p) : each);
            }
            ntt(out, m);
            for (size_t j = 0; j < N; j += LANES)
                store(out + j, less(add(load(out + j), sub(p, product(load(a + j), load(s + j), m))), p));
        }
    }
}

static void plain(const vfl_ring *ring, uint64_t *out, const uint64_t *numbers, size_t count) {
    for (size_t k = 0; k < count; k++, numbers += N)
        for (size_t i = 0; i < ring->primes; i++, out += N) {
            lanes p = all(ring->of[i].p);
            for (size_t j = 0; j < N; j += LANES) store(out + j, residue(load(numbers + j), &ring->of[i], p));
            ntt(out, &ring->of[i]);
        }
}

/* sum += the sum of products of `count` polynomials, whose second factors are `apart` words from each other. Any count: sums are reduced
 * after TERMS. */
static void dot(const vfl_ring *ring, uint64_t *sum, const uint64_t *left, const uint64_t *others, size_t apart, size_t count) {
    size_t whole = ring->primes * N;
    for (size_t first = 0; first < count; first += TERMS) {
        size_t stop = count - first < TERMS ? count : first + TERMS;
        for (size_t i = 0; i < ring->primes; i++)
            for (size_t j = i * N; j < (i + 1) * N; j += BESIDE * LANES) {
                lane_sum sums[BESIDE];
                for (size_t z = 0; z < BESIDE; z++) sums[z] = no_sum();
                for (size_t k = first; k < stop; k++)
                    for (size_t z = 0; z < BESIDE; z++)
                        add_product(&sums[z], load(left + k * whole + j + z * LANES), load(others + k * apart + j + z * LANES));
                for (size_t z = 0; z < BESIDE; z++) {
                    uint64_t *at = sum + j + z * LANES;
                    store(at, less(add(load(at), reduced(sums[z], &ring->of[i])), all(ring->of[i].p)));
                }
            }
    }
}

/* The four uniform numbers of `words`, summed, less their mean 2^(bits + 1) - 2, modulo p. The sum is below 2^(bits + 2) <= 2^192. */
static inline uint64_t flooded(const uint64_t *words, const vfl_ring *ring, const modulus *m) {
    size_t bits = ring->flood_bits, each = (bits + 63) / 64;
    uint64_t sum[3] = {0, 0, 0}, less_than = bits % 64 ? (1ULL << bits % 64) - 1 : ~0ULL;
    for (size_t k = 0; k < ADDENDS; k++, words += each) {
        wide carry = 0;
        for (size_t i = 0; i < 3; i++) {
            uint64_t word = i < each ? words[i] : 0;
            carry += (wide)sum[i] + (i + 1 == each ? word & less_than : word);
            sum[i] = (uint64_t)carry;
            carry >>= 64;
        }
    }
    uint64_t mean[3] = {0, 0, 0};
    mean[(bits + 1) / 64] = 1ULL << (bits + 1) % 64;
    /* Of each term a residue: their products are below 2^50 2^50, and the sum of all below 2^103. */
    wide total = (wide)word_reduce(sum[2], m) * m->two128.w + (wide)word_reduce(sum[1], m) * m->two64 + sum[0] + 2;
    total += (wide)(m->p - word_reduce(mean[2], m)) * m->two128.w + (wide)(m->p - word_reduce(mean[1], m)) * m->two64;
    total += m->p - word_reduce(mean[0], m);
    return word_reduce(total, m);
}

/* A fresh encryption of 0 is added to the sums of an answer, then noise to flood with, and the mask is subtracted. Of the first part only
 * coefficients 0, step, 2 step, ... leave. Both are shortened to bits0 and bits1 bits, as fractions of q. Sums are overwritten. */
static int answer(const vfl_ring *ring, uint8_t *out, uint64_t *sum0, uint64_t *sum1, const uint64_t *key0, const uint64_t *key1,
                  const uint64_t *u, const uint64_t *errors, const uint64_t *flood, const uint64_t *mask, size_t step, size_t useful) {
    size_t words = ADDENDS * ((ring->flood_bits + 63) / 64);
    uint64_t *v = malloc(3 * 8 * N), *small_u = v + N, *small_errors = v + 2 * N;
    if (v == NULL) return -1;
    for (size_t j = 0; j < N; j++) {
        small_u[j] = ternary(u[j]);
        small_errors[j] = binomial(errors[j]);
    }
    for (size_t i = 0; i < ring->primes; i++) {
        const modulus *m = &ring->of[i];
        uint64_t *x = sum0 + i * N, *y = sum1 + i * N;
        lanes p = all(m->p);
        transform_small(v, small_u, m);
        for (size_t j = 0; j < N; j += LANES) {
            lanes each = load(v + j);
            store(x + j, less(add(load(x + j), product(each, load(key0 + i * N + j), m)), p));
            store(y + j, less(add(load(y + j), product(each, load(key1 + i * N + j), m)), p));
        }
        inverse_ntt(x, m);
        inverse_ntt(y, m);
        for (size_t j = 0; j < N; j += LANES) store(y + j, less(add(load(y + j), small(load(small_errors + j), p)), p));
        for (size_t n = 0; n < useful; n++) /* n <= n step: nothing is overwritten before it is read */
            x[n] = word_less(x[n * step] + flooded(flood + n * words, ring, m), m->p);
        memset(v, 0, 8 * N);
        memcpy(v, mask, 8 * useful);
        for (size_t j = 0; j < useful; j += LANES)
            store(v + j, less(add(load(x + j), sub(p, encoded(load(v + j), ring, m))), p));
        memcpy(x, v, 8 * useful);
    }
    shortened(ring, out, sum0, useful, ring->bits0);
    shortened(ring, out + useful * (ring->bits0 / 8), sum1, N, ring->bits1);
    free(v);
    return 0;
}

/* round(t (c_0 + c_1 s) / 2^bits1) modulo t, at coefficients 0, step, 2 step, ... As s is ternary, c_1 s is below 2^93 in size, and two
 * primes determine it. */
static int open_answer(const vfl_ring *ring, uint64_t *out, const uint8_t *bytes, const uint64_t *secret, size_t step, size_t useful) {
    size_t size0 = ring->bits0 / 8, size1 = ring->bits1 / 8;
    const uint8_t *c1 = bytes + useful * size0;
    const modulus *m0 = &ring->of[0], *m1 = &ring->of[1];
    uint64_t *both_parts = malloc(16 * N), p = m0->p, q = m1->p;
    if (both_parts == NULL) return -1;
    for (size_t i = 0; i < 2; i++) {
        uint64_t *x = both_parts + i * N;
        const modulus *m = &ring->of[i];
        for (size_t j = 0; j < N; j++) x[j] = word_reduce(read_number(c1 + j * size1, size1, (N - j) * size1), m);
        ntt(x, m);
        for (size_t j = 0; j < N; j += LANES) store(x + j, product(load(x + j), load(secret + i * N + j), m));
        inverse_ntt(x, m);
    }
    wide modulo = (wide)p * q, most = ((wide)1 << ring->bits1) - 1;
    for (size_t n = 0; n < useful; n++) {
        uint64_t x = both_parts[n * step], y = both_parts[N + n * step];
        uint64_t k = word_less(word_times(y + q - word_reduce(x, m1), ring->first, q), q);
        wide z = (wide)k * p + x;                        /* below p q < 2^100 */
        z -= modulo & (0 - ((modulo / 2 - z) >> 127));   /* the upper half is negative */
        z = (z + (read_number(bytes + n * size0, size0, (useful - n) * size0) << (ring->bits1 - ring->bits0))) & most;
        if (ring->t) /* t z is below 2^104 */
            out[n] = word_less((uint64_t)(((wide)ring->t * z + ((wide)1 << (ring->bits1 - 1))) >> ring->bits1), ring->t);
        else
            out[n] = (uint64_t)((z + ((wide)1 << (ring->bits1 - 65))) >> (ring->bits1 - 64));
    }
    free(both_parts);
    return 0;
}

#endif
