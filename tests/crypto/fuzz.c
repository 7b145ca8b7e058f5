/* A target for libFuzzer: compiled kernels on hostile and odd inputs, against each other and against slow arithmetic. The first byte
 * chooses what is called; a difference aborts, and sanitizers watch the rest. Hashes of identifiers give points of the curve. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define LIMBS 12 /* at most; a multiple of 4 */
#define WORDS 16
#define BYTES (52 * LIMBS / 8)
#define MOST 20 /* numbers or points */

/* How often each part ran with more than nothing; printed at the end. */
static struct {
    const char *name;
    unsigned long runs;
} ran[] = {{"points", 0}, {"identifiers", 0}, {"points of the curve", 0}, {"4 limbs", 0}, {"8 limbs", 0}, {"12 limbs", 0}, {"lattices", 0}};

static void report(void) {
    for (size_t i = 0; i < sizeof ran / sizeof *ran; i++) fprintf(stderr, "ran: %s: %lu\n", ran[i].name, ran[i].runs);
}

static void same(const void *a, const void *b, size_t size) {
    if (memcmp(a, b, size) != 0) abort();
}

/* A scalar and points: both ladders and both checks agree. */
static void points(const uint8_t *data, size_t size) {
    if (size < 64) return;
    size_t count = (size - 32) / 32;
    if (count > 5 * MOST) count = 5 * MOST;
    uint8_t *a = malloc(32 * count), *b = malloc(32 * count);
    vfl_x25519_ifma(a, data, data + 32, count);
    vfl_x25519_avx2(b, data, data + 32, count);
    same(a, b, 32 * count);
    if (vfl_check_ifma(data + 32, count) != vfl_check_avx2(data + 32, count)) abort();
    free(a);
    free(b);
    ran[0].runs++;
}

/* Points of the curve: both ladders agree, and their results are on it, unless the order of a point is small. */
static void on_curve(const uint8_t *scalar, const uint8_t *of, size_t count) {
    uint8_t a[32 * MOST], b[32 * MOST], any = 0;
    if (vfl_check_ifma(of, count) || vfl_check_avx2(of, count)) abort();
    vfl_x25519_ifma(a, scalar, of, count);
    vfl_x25519_avx2(b, scalar, of, count);
    same(a, b, 32 * count);
    for (size_t i = 0; i < count; i++, any = 0) {
        for (size_t k = 0; k < 32; k++) any |= a[32 * i + k];
        if (any && (vfl_check_ifma(a + 32 * i, 1) || vfl_check_avx2(a + 32 * i, 1))) abort();
    }
    ran[2].runs++;
}

/* A domain and identifiers, a byte with the length before each: together they hash to the same points as each alone, and all digests agree. */
static void identifiers(const uint8_t *data, size_t size) {
    uint8_t ids[256 * MOST], together[32 * MOST], alone[32];
    int64_t offsets[MOST + 1] = {0}, end = 0;
    size_t count = 0;
    if (size < 2 || data[0] == 0 || size < 1 + (size_t)data[0]) return;
    const uint8_t *domain = data + 1, *at = domain + data[0], *stop = data + size;
    while (count < MOST && at < stop && (size_t)(stop - at) > *at) {
        memcpy(ids + end, at + 1, *at);
        end += *at;
        at += 1 + *at;
        offsets[++count] = end;
    }
    if (vfl_hash_ifma(together, ids, offsets, count, domain, data[0])) abort();
    for (size_t i = 0; i < count; i++) {
        if (vfl_hash_ifma(alone, ids, offsets + i, 1, domain, data[0])) abort();
        same(alone, together + 32 * i, 32);
    }
    if (count == 0) return;
    ran[1].runs++;
    uint8_t sixteen[32 * MOST], eight[32 * MOST];
    vfl_sha256_ifma(sixteen, ids, offsets, count);
    vfl_sha256_avx2(eight, ids, offsets, count);
    same(sixteen, eight, 32 * count);
    on_curve(together, together, count);
}

/* Numbers of LIMBS limbs of 52 bits, for slow arithmetic modulo an N of less than 52 LIMBS - 2 bits. */
typedef struct {
    uint64_t of[LIMBS];
} number;

static number limbs(const uint8_t *bytes, size_t size) {
    number x = {{0}};
    for (size_t bit = 0; bit < 8 * size; bit++) x.of[bit / 52] |= (uint64_t)(bytes[bit / 8] >> (bit % 8) & 1) << (bit % 52);
    return x;
}

static int below(const number *a, const number *b) {
    for (size_t i = LIMBS; i-- > 0;)
        if (a->of[i] != b->of[i]) return a->of[i] < b->of[i];
    return 0;
}

/* a + b mod N, both below N. */
static number plus(const number *a, const number *b, const number *n) {
    number sum;
    uint64_t carry = 0;
    for (size_t i = 0; i < LIMBS; i++) {
        carry += a->of[i] + b->of[i];
        sum.of[i] = carry & ((1ULL << 52) - 1);
        carry >>= 52;
    }
    if (below(&sum, n)) return sum;
    for (size_t i = 0; i < LIMBS; i++) {
        uint64_t less = sum.of[i] - n->of[i] - carry;
        carry = less >> 63;
        sum.of[i] = less & ((1ULL << 52) - 1);
    }
    return sum;
}

/* a b mod N, for b below N and any a. */
static number times(const number *a, const number *b, const number *n) {
    number sum = {{0}};
    for (size_t bit = 52 * LIMBS; bit-- > 0;) {
        sum = plus(&sum, &sum, n);
        if (a->of[bit / 52] >> (bit % 52) & 1) sum = plus(&sum, b, n);
    }
    return sum;
}

static void expect(const uint64_t *vector, size_t row, const number *x, const uint64_t *modulus, size_t n) {
    uint8_t out[BYTES];
    vfl_store_ifma(out, BYTES, vector + WORDS * row, 1, modulus, n);
    number found = limbs(out, BYTES);
    same(&found, x, sizeof found);
}

/* A modulus, numbers and an exponent: products, squares and powers are as slow arithmetic has them. */
static void residues(const uint8_t *data, size_t size) {
    if (size < 4) return;
    size_t bytes = 1 + data[0] % (BYTES - 1), apart = data[1] & 1, own = 1 + data[1] / 2 % 3;
    size_t n = ((8 * bytes + 2 + 51) / 52 + 3) / 4 * 4, words = (n + 7) / 8 * 8;
    data += 2, size -= 2;
    if (size < bytes + own || words > WORDS || n > LIMBS) return;
    uint8_t raw[BYTES * MOST] = {0}, exponents[3 * MOST];
    memcpy(raw, data, bytes);
    raw[0] |= 1;
    number modulo = limbs(raw, bytes), one = {{1}}, radix = one, square, x[MOST];
    if (!below(&one, &modulo)) return;
    for (size_t bit = 0; bit < 52 * n; bit++) radix = plus(&radix, &radix, &modulo);
    square = times(&radix, &radix, &modulo);
    uint64_t modulus[LIMBS + 1], inverse = 1, vector[WORDS * MOST], other[WORDS * MOST];
    memcpy(modulus, modulo.of, 8 * n);
    for (int i = 0; i < 6; i++) inverse *= 2 - modulo.of[0] * inverse;
    modulus[n] = (0 - inverse) & ((1ULL << 52) - 1);
    data += bytes, size -= bytes;
    size_t count = 0;
    for (; count < MOST && size >= bytes + own; count++, data += bytes + own, size -= bytes + own) {
        number any = limbs(data, bytes);
        x[count] = times(&any, &one, &modulo);
        memset(raw + bytes * count, 0, bytes);
        for (size_t bit = 0; bit < 8 * bytes; bit++)
            raw[bytes * count + bit / 8] |= (uint8_t)((x[count].of[bit / 52] >> (bit % 52) & 1) << (bit % 8));
        memcpy(exponents + own * count, data + bytes, own);
    }
    if (count == 0) return;
    ran[2 + n / 4].runs++;
    /* Rows have ``words`` words; the vectors here leave room for the largest. */
    uint64_t *rows = malloc(8 * words * count), *results = malloc(8 * words * count);
    int64_t turned[MOST];
    vfl_load_ifma(rows, raw, bytes, count, modulus, square.of, n);
    for (size_t i = 0; i < count; i++) turned[i] = (int64_t)(count - 1 - i);
    vfl_products_ifma(results, NULL, rows, NULL, rows, turned, count, modulus, n);
    for (size_t i = 0; i < count; i++) {
        memcpy(other, results + words * i, 8 * words);
        number product = times(&x[i], &x[count - 1 - i], &modulo);
        expect(other, 0, &product, modulus, n);
    }
    memcpy(results, rows, 8 * words * count);
    vfl_squares_ifma(results, turned, count, own, modulus, n);
    for (size_t i = 0; i < count; i++) {
        number power = x[i];
        for (size_t k = 0; k < own; k++) power = times(&power, &power, &modulo);
        memcpy(other, results + words * i, 8 * words);
        expect(other, 0, &power, modulus, n);
    }
    memcpy(results, rows, 8 * words * count);
    if (vfl_powers_ifma(results, count, exponents, own, apart ? own : 0, modulus, radix.of, n)) abort();
    for (size_t i = 0; i < count && i < 3; i++) {
        const uint8_t *exponent = exponents + (apart ? own * i : 0);
        number power = times(&one, &one, &modulo);
        for (size_t bit = 8 * own; bit-- > 0;) {
            power = times(&power, &power, &modulo);
            if (exponent[bit / 8] >> (bit % 8) & 1) power = times(&power, &x[i], &modulo);
        }
        memcpy(vector, results + words * i, 8 * words);
        expect(vector, 0, &power, modulus, n);
    }
    free(rows);
    free(results);
}

#define N 8192
#define LATTICE_PRIMES 3

/* Rings for t = 2^64 and for slots, with tables of their own. */
static vfl_ring *rings[2];

static void make_rings(void) {
    static const uint64_t primes[LATTICE_PRIMES] = {1125899906826241, 1125899906629633, 1125899905744897};
    rings[0] = vfl_ring_new(primes, LATTICE_PRIMES, 0, 82, 72, 80);
    rings[1] = vfl_ring_new(primes, LATTICE_PRIMES, 1099510054913, 106, 56, 64);
    if (rings[0] == NULL || rings[1] == NULL) abort();
}

/* `count` words of the input, over and over, each time turned and multiplied by an odd number: the first time they are as they are. */
static uint64_t *stretched(const uint8_t *data, size_t size, size_t count) {
    uint64_t *words = malloc(8 * count);
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        uint64_t round = 8 * i / size;
        for (size_t k = 0; k < 8; k++) bytes[k] = data[(8 * i + k) % size];
        memcpy(words + i, bytes, 8);
        words[i] = (words[i] << (round & 63) | words[i] >> (-round & 63)) * (2 * round * round + 1);
    }
    return words;
}

/* Bytes as residues, numbers, noise and an answer: both variants agree, and residues that are not below their prime are counted. */
static void lattices(const uint8_t *data, size_t size) {
    if (size < 4) return;
    const vfl_ring *ring = rings[data[0] & 1];
    size_t words = LATTICE_PRIMES * N, step = 1 + data[1] % 16, useful = (size_t)data[2] * 2;
    size_t bytes = words / 4 * 25, sent = data[0] & 1 ? 7 * useful + 8 * N : 9 * useful + 10 * N;
    uint64_t t = data[0] & 1 ? 1099510054913 : 0;
    uint64_t *given = stretched(data + 3, size - 3, words), *numbers = stretched(data + 3, size - 3, 12 * N);
    uint64_t *residues = malloc(8 * words), *made[2], *sums[2], opened[2][512];
    uint8_t *packed = malloc(bytes), *answers[2] = {malloc(sent), malloc(sent)};
    size_t outside = vfl_unpack(ring, residues, (const uint8_t *)given, 1);
    vfl_pack(packed, residues, words);
    same(packed, given, bytes);
    size_t counted = 0;
    for (size_t i = 0; i < words; i++) {
        static const uint64_t primes[LATTICE_PRIMES] = {1125899906826241, 1125899906629633, 1125899905744897};
        counted += residues[i] >= primes[i / N];
        residues[i] %= primes[i / N];
    }
    if (counted != outside) abort();
    for (size_t i = 0; t && i < N; i++) numbers[i] %= t;
    for (size_t k = 0; k < 2; k++) {
        made[k] = calloc(words, 8);
        sums[k] = calloc(2 * words, 8);
    }
    vfl_encrypt_ifma(ring, made[0], residues, residues, numbers + N, numbers, 1);
    vfl_encrypt_portable(ring, made[1], residues, residues, numbers + N, numbers, 1);
    same(made[0], made[1], 8 * words);
    vfl_plain_ifma(ring, sums[0], numbers, 1);
    vfl_plain_portable(ring, sums[1], numbers, 1);
    vfl_ternary_ifma(ring, sums[0] + words, numbers);
    vfl_ternary_portable(ring, sums[1] + words, numbers);
    same(sums[0], sums[1], 16 * words);
    vfl_dot_ifma(ring, sums[0], made[0], residues, 0, 1);
    vfl_dot_portable(ring, sums[1], made[0], residues, 0, 1);
    int a = vfl_answer_ifma(ring, answers[0], sums[0], sums[0] + words, made[0], residues, numbers, numbers, numbers, numbers, step, useful);
    int b = vfl_answer_portable(ring, answers[1], sums[1], sums[1] + words, made[0], residues, numbers, numbers, numbers, numbers, step,
                                useful);
    if (a || b) abort();
    same(answers[0], answers[1], sent);
    for (size_t k = 0; k < 2; k++) { /* an answer, and anything */
        const uint8_t *of = k ? (const uint8_t *)numbers : answers[0];
        if (vfl_open_ifma(ring, opened[0], of, residues, step, useful) || vfl_open_portable(ring, opened[1], of, residues, step, useful))
            abort();
        same(opened[0], opened[1], 8 * useful);
    }
    for (size_t k = 0; k < 2; k++) {
        free(made[k]);
        free(sums[k]);
        free(answers[k]);
    }
    free(given);
    free(numbers);
    free(residues);
    free(packed);
    ran[6].runs++;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    make_rings();
    return atexit(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] % 4 == 0) points(data + 1, size - 1);
    if (data[0] % 4 == 1) identifiers(data + 1, size - 1);
    if (data[0] % 4 == 2) residues(data + 1, size - 1);
    if (data[0] % 16 == 3) lattices(data + 1, size - 1); /* seldom: it takes longest */
    return 0;
}
