/* Runs the compiled powers under valgrind, as Paillier's decryption does: bases, exponents and the modulus count as uninitialised, so
 * that valgrind reports every branch and every address that depends on them. Reads numbers from files, and prints the results. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/memcheck.h>

#include "kernels.h"

#define COUNT 9

static void *secret(const char *name, size_t size) {
    FILE *file = fopen(name, "rb");
    void *data = malloc(size);
    if (file == NULL || data == NULL || fread(data, 1, size, file) != size) exit(3);
    fclose(file);
    VALGRIND_MAKE_MEM_UNDEFINED(data, size);
    return data;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    size_t n = (size_t)atoi(argv[1]), bytes = (size_t)atoi(argv[2]), length = (size_t)atoi(argv[3]), apart = (size_t)atoi(argv[4]);
    uint8_t *bases = secret("bases", COUNT * bytes), *exponents = secret("exponents", apart ? COUNT * length : length);
    uint64_t *modulus = secret("modulus", 8 * (n + 1)), *one = secret("one", 8 * n), *square = secret("square", 8 * n);
    uint64_t *vector = calloc(COUNT, 8 * ((n + 7) / 8 * 8));
    uint8_t *out = malloc(COUNT * bytes);
    if (vector == NULL || out == NULL) return 3;
    vfl_load_ifma(vector, bases, bytes, COUNT, modulus, square, n);
    if (vfl_powers_ifma(vector, COUNT, exponents, length, apart, modulus, one, n)) return 4;
    vfl_store_ifma(out, bytes, vector, COUNT, modulus, n);
    VALGRIND_MAKE_MEM_DEFINED(out, COUNT * bytes);
    for (size_t i = 0; i < COUNT * bytes; i++) printf("%02x", out[i]);
    return 0;
}
