/* Polynomials of RLWE, a residue at a time, for any processor. */
#include "rlwe_ring.h"

#define LANES 1
#define BESIDE 4 /* residues whose sums are in registers */

typedef uint64_t lanes;
typedef factor lane_factor;
typedef wide lane_sum;

static inline lanes all(uint64_t x) { return x; }
static inline lanes load(const uint64_t *from) { return *from; }
static inline void store(uint64_t *to, lanes x) { *to = x; }
static inline lanes add(lanes a, lanes b) { return a + b; }
static inline lanes sub(lanes a, lanes b) { return a - b; }
static inline lanes both(lanes a, lanes b) { return a & b; }
static inline lanes right(lanes a, int bits) { return a >> bits; }
static inline lanes low_product(lanes a, lanes b) { return a * b; }
static inline lanes less(lanes x, lanes m) { return word_less(x, m); }
static inline lanes kept(lanes x, lanes p2) { return (void)p2, x; }
static inline lanes next(lanes bound) { return 2 * bound; }
static inline lane_factor same_factor(uint64_t w, uint64_t quotient) { return (factor){w, quotient}; }
static inline lanes times(lanes x, lane_factor f, lanes p) { return word_times(x, f, p); }
static inline lanes product(lanes a, lanes b, const modulus *m) { return word_reduce((wide)a * b, m); }
static inline lanes word(lanes x, const modulus *m) { return word_reduce(x, m); }
static inline lane_sum no_sum(void) { return 0; }
static inline void add_product(lane_sum *sum, lanes a, lanes b) { *sum += (wide)a * b; } /* of TERMS < 2^13: below 2^113 */
static inline lanes reduced(lane_sum sum, const modulus *m) { return word_reduce(sum, m); }

static void last_layers(uint64_t *a, const modulus *m);
static void first_layers(uint64_t *a, const modulus *m);
static void shortened(const vfl_ring *ring, uint8_t *out, const uint64_t *x, size_t count, size_t bits);

#include "rlwe.h"

/* Neighbours, and the end of laziness. */
static void last_layers(uint64_t *a, const modulus *m) {
    uint64_t p = m->p, p2 = 2 * p;
    for (size_t i = 0; i < N / 2; i++) {
        butterfly(a + 2 * i, a + 2 * i + 1, same_factor(m->w[N / 2 + i], m->quotient[N / 2 + i]), p, p2);
        for (size_t j = 2 * i; j < 2 * i + 2; j++) a[j] = less(times(a[j], m->one, p), p);
    }
}

static void first_layers(uint64_t *a, const modulus *m) {
    for (size_t i = 0; i < N / 2; i++)
        inverse_butterfly(a + 2 * i, a + 2 * i + 1, same_factor(m->inverse[N / 2 + i], m->inverse_quotient[N / 2 + i]), m->p, m->p);
}

/* round(2^bits x / q) modulo 2^bits, as bytes. x / q is the sum of y_i / p_i, y_i = x_i (q / p_i)^-1 mod p_i, less a whole number. The sum
 * of y_i floor(2^156 / p_i) is it in units of 2^-156; what is lost of the products' upper parts is whole numbers. */
static void shortened(const vfl_ring *ring, uint8_t *out, const uint64_t *x, size_t count, size_t bits) {
    for (size_t j = 0; j < count; j++, out += bits / 8) {
        wide low = 0, high = 0; /* of 64 bits and more; 4 products below 2^114, and below 2^93 */
        for (size_t i = 0; i < ring->primes; i++) {
            const modulus *m = &ring->of[i];
            uint64_t y = less(times(x[i * N + j], m->others, m->p), m->p);
            low += (wide)y * (m->part[0] | m->part[1] << 52);
            high += (wide)y * (m->part[1] >> 12 | m->part[2] << 40);
        }
        high += low >> 64;
        high = (high + ((wide)1 << (91 - bits))) >> (92 - bits);
        write_number(out, high, bits / 8, (count - j) * bits / 8);
    }
}

#define SUFFIX portable
#include "rlwe_exports.h"
