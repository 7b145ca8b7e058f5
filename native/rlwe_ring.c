/* A ring's tables, which hold no secret, and residues of 50 bits as bytes. */
#include "rlwe_ring.h"

#include <stdlib.h>

#define BITS 50

static uint64_t times(uint64_t a, uint64_t b, uint64_t p) { return (uint64_t)((wide)a * b % p); }

static uint64_t power(uint64_t a, uint64_t exponent, uint64_t p) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, a = times(a, a, p))
        if (exponent & 1) result = times(result, a, p);
    return result;
}

static factor with_quotient(uint64_t w, uint64_t p) { return (factor){w, (uint64_t)(((wide)w << 64) / p)}; }

static size_t reversed(size_t place) {
    size_t result = 0;
    for (size_t bit = 1; bit < N; bit *= 2, place >>= 1) result = 2 * result + (place & 1);
    return result;
}

/* Tables for polynomials modulo p, where 2N divides p - 1. */
static void fill(modulus *m, uint64_t p) {
    uint64_t root = 0, power_up = 1, power_down = 1;
    for (uint64_t g = 2; root == 0 || power(root, N, p) != p - 1; g++) root = power(g, (p - 1) / (2 * N), p);
    uint64_t inverse = power(root, p - 2, p);
    m->p = p;
    m->shorten = with_quotient(power(N, p - 2, p), p);
    m->one = with_quotient(1, p);
    for (size_t i = 0; i < N; i++) {
        factor up = with_quotient(power_up, p), down = with_quotient(power_down, p);
        size_t at = reversed(i);
        m->w[at] = up.w;
        m->quotient[at] = up.quotient;
        m->inverse[at] = down.w;
        m->inverse_quotient[at] = down.quotient;
        power_up = times(power_up, root, p);
        power_down = times(power_down, inverse, p);
    }
}

/* What is modulo a prime of q besides. */
static void fill_prime(vfl_ring *ring, const uint64_t *primes, size_t i) {
    modulus *m = &ring->of[i];
    uint64_t p = m->p, others = 1, two64 = (uint64_t)(((wide)1 << 64) % p);
    for (size_t j = 0; j < ring->primes; j++)
        if (j != i) others = times(others, primes[j] % p, p);
    m->barrett = (uint64_t)(((wide)1 << 113) / p);
    m->two64 = two64;
    m->two52 = with_quotient((uint64_t)(((wide)1 << 52) % p), p);
    m->two128 = with_quotient(times(two64, two64, p), p);
    m->others = with_quotient(power(others, p - 2, p), p);
    m->scale = with_quotient(p - power(ring->t ? ring->t % p : two64, p - 2, p), p);
    wide part = 0;
    uint64_t rest = 1;
    for (int bit = 0; bit < 156; bit++) {
        rest *= 2;
        part = 2 * part + (rest >= p);
        if (rest >= p) rest -= p;
    }
    for (int limb = 0; limb < 3; limb++) m->part[limb] = (uint64_t)(part >> (52 * limb)) & ((1ULL << 52) - 1);
}

/* A ring for distinct primes; NULL: there is no memory. */
vfl_ring *vfl_ring_new(const uint64_t *primes, size_t count, uint64_t t, size_t flood_bits, size_t bits0, size_t bits1) {
    vfl_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) return NULL;
    ring->primes = count;
    ring->t = t;
    ring->flood_bits = flood_bits;
    ring->bits0 = bits0;
    ring->bits1 = bits1;
    ring->q64 = 1;
    for (size_t i = 0; i < count; i++) {
        ring->q64 *= primes[i];
        fill(&ring->of[i], primes[i]);
        fill_prime(ring, primes, i);
    }
    ring->first = with_quotient(power(primes[0] % primes[1], primes[1] - 2, primes[1]), primes[1]);
    if (t) {
        uint64_t q_mod_t = 1;
        for (size_t i = 0; i < count; i++) q_mod_t = times(q_mod_t, primes[i] % t, t);
        ring->q_mod_t = with_quotient(q_mod_t, t);
        fill(&ring->of[count], t);
    }
    return ring;
}

void vfl_ring_free(vfl_ring *ring) { free(ring); }

/* `count` residues below 2^50, a multiple of 4, as 25 bytes for each four. */
void vfl_pack(uint8_t *out, const uint64_t *residues, size_t count) {
    for (size_t i = 0; i < count; i += 4, out += 25) {
        const uint64_t *x = residues + i;
        uint64_t words[3] = {x[0] | x[1] << 50, x[1] >> 14 | x[2] << 36, x[2] >> 28 | x[3] << 22};
        memcpy(out, words, 24);
        out[24] = (uint8_t)(x[3] >> 42);
    }
}

/* The reverse, of `count` polynomials of the ring. Returns how many residues are not below their prime. */
size_t vfl_unpack(const vfl_ring *ring, uint64_t *residues, const uint8_t *bytes, size_t count) {
    uint64_t outside = 0, most = (1ULL << BITS) - 1;
    for (size_t k = 0; k < count * ring->primes; k++) {
        uint64_t p = ring->of[k % ring->primes].p;
        for (size_t i = 0; i < N; i += 4, bytes += 25, residues += 4) {
            uint64_t words[3], last = bytes[24];
            memcpy(words, bytes, 24);
            residues[0] = words[0] & most;
            residues[1] = (words[0] >> 50 | words[1] << 14) & most;
            residues[2] = (words[1] >> 36 | words[2] << 28) & most;
            residues[3] = words[2] >> 22 | last << 42;
            for (size_t j = 0; j < 4; j++) outside += (p - 1 - residues[j]) >> 63;
        }
    }
    return outside;
}
