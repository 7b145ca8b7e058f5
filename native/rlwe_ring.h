/* What a ring consists of, and arithmetic modulo its primes with whole words, in constant time.
 *
 * A ring is made once, and never changed: any number of threads may use it. Its primes and tables are public.
 */
#ifndef VFL_RLWE_RING_H
#define VFL_RLWE_RING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lattice.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bytes of residues are those of a little-endian processor"
#endif

#define N 8192
#define MOST_PRIMES 4
#define ADDENDS 4 /* uniform numbers, of which noise to flood with is the sum */

typedef unsigned __int128 wide;

/* A constant factor w, and floor(w 2^64 / p): with it, a product modulo p needs no division (Shoup). Its upper 52 bits are
 * floor(w 2^52 / p), with which AVX-512 IFMA computes. */
typedef struct {
    uint64_t w, quotient;
} factor;

typedef struct {
    uint64_t p;
    uint64_t barrett;      /* floor(2^113 / p) < 2^64, for 2^49 < p < 2^50 */
    uint64_t two64;        /* 2^64 mod p */
    factor two52, two128;  /* 2^52 and 2^128 mod p */
    factor scale;          /* -1/t mod p, where t is 2^64 or the ring's prime */
    factor others;         /* (q / p)^-1 mod p */
    factor shorten, one;    /* 1/N mod p, and 1 */
    uint64_t part[3];      /* floor(2^156 / p) < 2^107, in limbs of 52 bits */
    uint64_t w[N], quotient[N], inverse[N], inverse_quotient[N]; /* powers of a 2N-th root of 1, bits of their places reversed */
} modulus;

struct vfl_ring {
    size_t primes;            /* L */
    uint64_t t;               /* prime; 0: 2^64 */
    uint64_t q64;             /* q mod 2^64 */
    factor q_mod_t;
    factor first;             /* 1/p_0 mod p_1 */
    size_t flood_bits;        /* of each of the four uniform numbers, at most 190 */
    size_t bits0, bits1;      /* of a coefficient of an answer's c_0 and c_1: 56 to 80 */
    modulus of[MOST_PRIMES + 1]; /* the last one used is t */
};

/* x mod m for x < 2m < 2^63. */
static inline uint64_t word_less(uint64_t x, uint64_t m) {
    uint64_t y = x - m;
    return y + (m & (0 - (y >> 63)));
}

/* z mod p for z < 2^113. The quotient's error: less than .6 for the bits of z that are shifted out, 1 for those of 2^113/p, 1 for those
 * of the product. So the rest is below 2.6 p. */
static inline uint64_t word_reduce(wide z, const modulus *m) {
    uint64_t quotient = (uint64_t)((wide)(uint64_t)(z >> 49) * m->barrett >> 64);
    return word_less(word_less((uint64_t)z - quotient * m->p, 2 * m->p), m->p);
}

/* x w mod p in 0 ... 2p - 1, for any x. */
static inline uint64_t word_times(uint64_t x, factor f, uint64_t p) {
    return x * f.w - (uint64_t)((wide)x * f.quotient >> 64) * p;
}

/* A number of `size` bytes, of `left` up to the end of what may be written: sixteen are, if they may, for the next number overwrites
 * the rest. A copy of a constant size is quicker. */
static inline void write_number(uint8_t *out, wide number, size_t size, size_t left) {
    uint64_t words[2] = {(uint64_t)number, (uint64_t)(number >> 64)};
    if (left >= sizeof words)
        memcpy(out, words, sizeof words);
    else
        memcpy(out, words, size);
}

/* The reverse, of at most 15 bytes. */
static inline wide read_number(const uint8_t *bytes, size_t size, size_t left) {
    uint64_t words[2] = {0, 0};
    if (left >= sizeof words)
        memcpy(words, bytes, sizeof words);
    else
        memcpy(words, bytes, size);
    return ((wide)words[1] << 64 | words[0]) & (((wide)1 << (8 * size)) - 1);
}

#endif
