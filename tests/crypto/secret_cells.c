/* Runs one kernel's products of matrices under valgrind, with cells, numbers and bits that count as uninitialised: valgrind reports
 * every branch and every address that depends on them. Prints both products. With -DLEAK there is one such branch. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <valgrind/memcheck.h>

#include "kernels.h"

#define ROWS 70 /* more than a block */
#define WIDTH 400 /* more than a panel, and no whole number of tiles */
#define COUNT 5
#define WORDS 2

int main(void) {
    static uint16_t cells[ROWS * WIDTH];
    static uint64_t numbers[COUNT * ROWS], sums[COUNT * WIDTH], rows[ROWS * WORDS], chosen[COUNT * WORDS];
    static uint8_t bits[COUNT * ROWS];
    for (size_t i = 0; i < ROWS * WIDTH; i++) cells[i] = (uint16_t)(i * i + 7 * i);
    for (size_t i = 0; i < COUNT * ROWS; i++) numbers[i] = (i + 1) * 0x9E3779B97F4A7C15ULL;
    for (size_t i = 0; i < ROWS * WORDS; i++) rows[i] = (i + 3) * 0x9E3779B97F4A7C15ULL;
    for (size_t i = 0; i < COUNT * WORDS; i++) chosen[i] = (i + 5) * 0xC2B2AE3D27D4EB4FULL;
    VALGRIND_MAKE_MEM_UNDEFINED(cells, sizeof cells);
    VALGRIND_MAKE_MEM_UNDEFINED(numbers, sizeof numbers);
    VALGRIND_MAKE_MEM_UNDEFINED(rows, sizeof rows);
    VALGRIND_MAKE_MEM_UNDEFINED(chosen, sizeof chosen);
    CELLS(sums, cells, ROWS, WIDTH, numbers, COUNT);
    BITS(bits, rows, ROWS, WORDS, chosen, COUNT);
#ifdef LEAK
    if (sums[0] & 1) bits[1] = 0;
#endif
    VALGRIND_MAKE_MEM_DEFINED(sums, sizeof sums);
    VALGRIND_MAKE_MEM_DEFINED(bits, sizeof bits);
    for (size_t i = 0; i < COUNT * WIDTH; i++) printf("%016llx", (unsigned long long)sums[i]);
    for (size_t i = 0; i < COUNT * ROWS; i++) printf("%02x", bits[i]);
    return 0;
}
