/* Polynomials of RLWE, eight residues at a time. */
#if defined(__x86_64__)
#include "with_ifma.h"

#include "kernels.h"
#include "rlwe_ring.h"

#define LANES 8
#define BESIDE 4 /* vectors whose sums are in registers */
#define LIMB 52

typedef __m512i lanes;

typedef struct {
    lanes w, quotient;
} lane_factor;

/* low + 2^52 high */
typedef struct {
    lanes low, high;
} lane_sum;

static inline lanes all(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline lanes load(const uint64_t *from) { return _mm512_loadu_si512(from); }
static inline void store(uint64_t *to, lanes x) { _mm512_storeu_si512(to, x); }
static inline lanes add(lanes a, lanes b) { return _mm512_add_epi64(a, b); }
static inline lanes sub(lanes a, lanes b) { return _mm512_sub_epi64(a, b); }
static inline lanes both(lanes a, lanes b) { return _mm512_and_si512(a, b); }
#define right(a, bits) _mm512_srli_epi64(a, bits)
static inline lanes low_product(lanes a, lanes b) { return _mm512_mullo_epi64(a, b); }
static inline lanes low52(lanes a) { return both(a, all((1ULL << LIMB) - 1)); }

/* x mod m for x < 2m: a difference below 0 is the larger one. */
static inline lanes less(lanes x, lanes m) { return _mm512_min_epu64(x, _mm512_sub_epi64(x, m)); }

static inline lanes kept(lanes x, lanes p2) { return less(x, p2); } /* of 4p: 2p stay */
static inline lanes next(lanes bound) { return bound; }

static inline lane_factor same_factor(uint64_t w, uint64_t quotient) { return (lane_factor){all(w), all(quotient >> 12)}; }

/* x w mod p in 0 ... 2p - 1, for x < 2^52. */
static inline lanes times(lanes x, lane_factor f, lanes p) {
    lanes quotient = _mm512_madd52hi_epu64(all(0), x, f.quotient);
    return low52(sub(_mm512_madd52lo_epu64(all(0), x, f.w), _mm512_madd52lo_epu64(all(0), quotient, p)));
}

/* 2^52 high + low modulo p, for high and low < 2^52 = 4p + 4d, d < 2^25: low less 2p is below 2p + 4d, with the product below 2^52; less
 * 2p twice, below 2p. */
static inline lanes fold(lanes high, lanes low, const modulus *m) {
    lanes p = all(m->p), p2 = all(2 * m->p);
    lanes sum = add(times(high, same_factor(m->two52.w, m->two52.quotient), p), less(low, p2));
    return less(less(less(sum, p2), p2), p);
}

static inline lanes product(lanes a, lanes b, const modulus *m) {
    return fold(_mm512_madd52hi_epu64(all(0), a, b), _mm512_madd52lo_epu64(all(0), a, b), m);
}

static inline lanes word(lanes x, const modulus *m) { return fold(right(x, LIMB), low52(x), m); }
static inline lane_sum no_sum(void) { return (lane_sum){all(0), all(0)}; }

static inline void add_product(lane_sum *sum, lanes a, lanes b) {
    sum->low = _mm512_madd52lo_epu64(sum->low, a, b);
    sum->high = _mm512_madd52hi_epu64(sum->high, a, b);
}

/* Of 15 terms, high is below 15 2^48, and what low carries below 16. */
static inline lanes reduced(lane_sum sum, const modulus *m) {
    return fold(add(sum.high, right(sum.low, LIMB)), low52(sum.low), m);
}

static void last_layers(uint64_t *a, const modulus *m);
static void first_layers(uint64_t *a, const modulus *m);
static void shortened(const vfl_ring *ring, uint8_t *out, const uint64_t *x, size_t count, size_t bits);

#include "rlwe.h"

/* Sixteen residues are in two vectors; u holds the upper side of each butterfly and v the lower one. What goes from one layer's u and v
 * to the next one's, from or to the order of places, 8 ... 15 being of the second vector: */
static const uint64_t apart4[2][8] = {{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}},
                      between42[2][8] = {{0, 1, 8, 9, 4, 5, 12, 13}, {2, 3, 10, 11, 6, 7, 14, 15}},
                      between21[2][8] = {{0, 8, 2, 10, 4, 12, 6, 14}, {1, 9, 3, 11, 5, 13, 7, 15}},
                      together1[2][8] = {{0, 8, 1, 9, 2, 10, 3, 11}, {4, 12, 5, 13, 6, 14, 7, 15}},
                      apart1[2][8] = {{0, 2, 4, 6, 8, 10, 12, 14}, {1, 3, 5, 7, 9, 11, 13, 15}},
                      repeated[2][8] = {{0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}};

static inline void rearrange(lanes *u, lanes *v, const uint64_t (*places)[8]) {
    lanes a = *u, b = *v;
    *u = _mm512_permutex2var_epi64(a, load(places[0]), b);
    *v = _mm512_permutex2var_epi64(a, load(places[1]), b);
}

/* Factors of the layers with places 4, 2 and 1 apart. Eight words are read of each, of which two and four are used. */
static inline void factors(lane_factor *f, const uint64_t *w, const uint64_t *quotient, size_t j) {
    for (size_t layer = 0; layer < 3; layer++) {
        size_t at = (N / 8 << layer) + (j / 8 << layer);
        lanes each = load(w + at), other = right(load(quotient + at), 12);
        f[layer].w = layer == 2 ? each : _mm512_permutexvar_epi64(load(repeated[layer]), each);
        f[layer].quotient = layer == 2 ? other : _mm512_permutexvar_epi64(load(repeated[layer]), other);
    }
}

static void last_layers(uint64_t *a, const modulus *m) {
    lanes p = all(m->p), p2 = all(2 * m->p);
    for (size_t j = 0; j < N; j += 16) {
        lanes u = load(a + j), v = load(a + j + 8);
        lane_factor f[3];
        factors(f, m->w, m->quotient, j);
        rearrange(&u, &v, apart4);
        butterfly(&u, &v, f[0], p, p2);
        rearrange(&u, &v, between42);
        butterfly(&u, &v, f[1], p, p2);
        rearrange(&u, &v, between21);
        butterfly(&u, &v, f[2], p, p2);
        rearrange(&u, &v, together1);
        store(a + j, less(less(u, p2), p));
        store(a + j + 8, less(less(v, p2), p));
    }
}

static void first_layers(uint64_t *a, const modulus *m) {
    lanes p = all(m->p), p2 = all(2 * m->p);
    for (size_t j = 0; j < N; j += 16) {
        lanes u = load(a + j), v = load(a + j + 8);
        lane_factor f[3];
        factors(f, m->inverse, m->inverse_quotient, j);
        rearrange(&u, &v, apart1);
        inverse_butterfly(&u, &v, f[2], p, p2);
        rearrange(&u, &v, between21);
        inverse_butterfly(&u, &v, f[1], p, p2);
        rearrange(&u, &v, between42);
        inverse_butterfly(&u, &v, f[0], p, p2);
        rearrange(&u, &v, apart4);
        store(a + j, u);
        store(a + j + 8, v);
    }
}

/* As in rlwe_portable.c, with limbs of 52 bits: of 4 primes, each limb's sum is below 8 2^52. */
static void shortened(const vfl_ring *ring, uint8_t *out, const uint64_t *x, size_t count, size_t bits) {
    size_t size = bits / 8, shift = 2 * LIMB - bits;
    for (size_t j = 0; j < count; j += LANES) {
        uint64_t words[2][LANES];
        lanes limb0 = all(0), limb1 = all(0), limb2 = all(0);
        for (size_t i = 0; i < ring->primes; i++) {
            const modulus *m = &ring->of[i];
            lanes p = all(m->p), part0 = all(m->part[0]), part1 = all(m->part[1]), part2 = all(m->part[2]);
            lanes y = less(times(load(x + i * N + j), same_factor(m->others.w, m->others.quotient), p), p);
            limb0 = _mm512_madd52lo_epu64(limb0, y, part0);
            limb1 = _mm512_madd52lo_epu64(_mm512_madd52hi_epu64(limb1, y, part0), y, part1);
            limb2 = _mm512_madd52lo_epu64(_mm512_madd52hi_epu64(limb2, y, part1), y, part2);
        }
        limb1 = add(add(limb1, right(limb0, LIMB)), all(1ULL << (shift - 1)));
        limb2 = low52(add(limb2, right(limb1, LIMB)));
        store(words[0], limb2);
        store(words[1], low52(limb1));
        for (size_t k = 0; k < LANES && j + k < count; k++, out += size) {
            wide number = ((wide)words[0][k] << LIMB | words[1][k]) >> shift;
            write_number(out, number, size, (count - j - k) * size);
        }
    }
}

#define SUFFIX ifma
#include "rlwe_exports.h"

#include "end_with.h"
#endif
