/* Runs the compiled hash-to-curve, or the digests that DIGESTS names, under valgrind with identifiers that count as uninitialised: valgrind reports every branch and every
 * address that depends on them. Their lengths are public. The first argument is the domain; identifiers are read from standard input,
 * a length of one byte before each. Prints the results. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <valgrind/memcheck.h>

#include "kernels.h"

#define MOST 100

int main(int argc, char **argv) {
    uint8_t ids[256 * MOST], out[32 * MOST];
    int64_t offsets[MOST + 1] = {0}, end = 0;
    size_t count = 0;
    int length;
    if (argc != 2) return 2;
    for (; count < MOST && (length = getchar()) != EOF; offsets[++count] = end)
        for (int i = 0; i < length; i++) ids[end++] = (uint8_t)getchar();
    VALGRIND_MAKE_MEM_UNDEFINED(ids, (size_t)end);
#ifdef DIGESTS
    DIGESTS(out, ids, offsets, count);
#else
    if (vfl_hash_ifma(out, ids, offsets, count, (const uint8_t *)argv[1], strlen(argv[1]))) return 3;
#endif
    VALGRIND_MAKE_MEM_DEFINED(out, 32 * count);
    for (size_t i = 0; i < 32 * count; i++) printf("%02x", out[i]);
    return 0;
}
