/* Runs one variant of RLWE's code under valgrind: key, errors, numbers, masks and noise count as uninitialised, so that valgrind reports
 * every branch and every address that depends on them. Prints an answer's bytes, and what its owner opens. With -DLEAK there is one such
 * branch. The ring's t is given: 0 for 2^64. */
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/memcheck.h>

#include "kernels.h"
#include "rlwe_ring.c"

#define USEFUL 100
#define STEP 16
#define WORDS 12 /* of a coefficient's noise, at most */

static uint64_t *secret(size_t count, uint64_t from, uint64_t below) {
    uint64_t *words = malloc(8 * count);
    if (words == NULL) exit(3);
    for (size_t i = 0; i < count; i++) words[i] = (i + from) * 0x9E3779B97F4A7C15ULL % below;
    VALGRIND_MAKE_MEM_UNDEFINED(words, 8 * count);
    return words;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    uint64_t t = strtoull(argv[1], NULL, 10), primes[MOST_PRIMES];
    size_t flood = (size_t)atoi(argv[2]), bits0 = (size_t)atoi(argv[3]), bits1 = (size_t)atoi(argv[4]), count = (size_t)(argc - 5);
    for (size_t i = 0; i < count; i++) primes[i] = strtoull(argv[5 + i], NULL, 10);
    vfl_ring *ring = vfl_ring_new(primes, count, t, flood, bits0, bits1);
    size_t size = count * N, bytes = USEFUL * bits0 / 8 + N * bits1 / 8;
    uint64_t *a = malloc(8 * size), *s = malloc(8 * size), *b = malloc(8 * size), *plain = malloc(8 * size), *sums = calloc(2 * size, 8);
    uint8_t *sent = malloc(bytes);
    uint64_t opened[USEFUL], below = t ? t : ~0ULL;
    for (size_t i = 0; i < size; i++) a[i] = (i + 9) * 0x9E3779B97F4A7C15ULL % primes[i / N];
    VARIANT(ternary)(ring, s, secret(N, 1, ~0ULL));
    VARIANT(encrypt)(ring, b, a, s, secret(N, 2, ~0ULL), secret(N, 3, below), 1);
    VARIANT(plain)(ring, plain, secret(N, 4, ~0ULL), 1);
    VARIANT(dot)(ring, sums, b, plain, 0, 1);
    VARIANT(dot)(ring, sums + size, a, plain, 0, 1);
    if (VARIANT(answer)(ring, sent, sums, sums + size, b, a, secret(N, 5, ~0ULL), secret(N, 6, ~0ULL), secret(WORDS * USEFUL, 7, ~0ULL),
                        secret(USEFUL, 8, below), STEP, USEFUL))
        return 4;
    if (VARIANT(open)(ring, opened, sent, s, STEP, USEFUL)) return 4;
#ifdef LEAK
    if (opened[0] & 1) sent[0] = 0;
#endif
    VALGRIND_MAKE_MEM_DEFINED(sent, bytes);
    VALGRIND_MAKE_MEM_DEFINED(opened, sizeof opened);
    for (size_t i = 0; i < bytes; i++) printf("%02x", sent[i]);
    for (size_t i = 0; i < USEFUL; i++) printf("%016llx", (unsigned long long)opened[i]);
    return 0;
}
