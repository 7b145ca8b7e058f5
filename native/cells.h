/* Products of a matrix of cells of 16 bits with numbers of 64, modulo 2^64; and of rows of bits, modulo 2. For LANES numbers at a
 * time, of which load_cells, add_products and the rest are defined before.
 *
 * There is no branch and no address that depends on a cell, a number or a bit; sizes are public.
 */
#ifndef VFL_CELLS_H
#define VFL_CELLS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TILE (LANES * VECTORS)
#define PANEL 384         /* columns at a time, a multiple of TILE */
#define CACHED (1 << 13)  /* cells of a block of rows: it and the next one stay in the first-level cache */
#define MOST_ROWS 64      /* of a block */
#define LINE 32           /* cells of a line of the cache */

/* A number's two parts, whose products with a cell no lane loses anything of. */
typedef struct {
    uint64_t low, high;
} split;

/* out[t][c] += sum over rows of numbers[row][t] * cells[row][c], for `times` numbers and TILE columns: constants, so that sums stay in
 * registers. Rows of cells are `apart` cells apart, those of sums `wide` numbers. */
static inline __attribute__((always_inline)) void add_tile(uint64_t *out, size_t wide, const uint16_t *cells, size_t apart,
                                                           const split (*numbers)[TIMES], size_t rows, int times) {
    lanes low[TIMES][VECTORS], high[TIMES][VECTORS];
    for (int t = 0; t < times; t++)
        for (int v = 0; v < VECTORS; v++) low[t][v] = high[t][v] = all(0);
    for (size_t row = 0; row < rows; row++, cells += apart) {
        lanes x[VECTORS];
        for (int v = 0; v < VECTORS; v++) x[v] = load_cells(cells + LANES * v);
        for (int t = 0; t < times; t++) {
            lanes a = all(numbers[row][t].low), b = all(numbers[row][t].high);
            for (int v = 0; v < VECTORS; v++) {
                low[t][v] = add_product(low[t][v], x[v], a);
                high[t][v] = add_product(high[t][v], x[v], b);
            }
        }
    }
    for (int t = 0; t < times; t++)
        for (int v = 0; v < VECTORS; v++) add_to(out + wide * (size_t)t + LANES * v, low[t][v], high[t][v]);
}

/* The same for `width` columns, a multiple of TILE. */
static void add_tiles(uint64_t *out, size_t wide, const uint16_t *cells, size_t apart, size_t width, const split (*numbers)[TIMES],
                      size_t rows, size_t times) {
    for (size_t at = 0; at < width; at += TILE) switch (times) {
        case 1: add_tile(out + at, wide, cells + at, apart, numbers, rows, 1); break;
        case 2: add_tile(out + at, wide, cells + at, apart, numbers, rows, 2); break;
        case 3: add_tile(out + at, wide, cells + at, apart, numbers, rows, 3); break;
        default: add_tile(out + at, wide, cells + at, apart, numbers, rows, 4); break;
        }
}

/* The same for any `width` columns up to PANEL, of numbers[t][row] for any `count`, whose rows are `away` numbers apart. */
static void add_panel(uint64_t *out, size_t wide, const uint16_t *cells, size_t apart, size_t width, const uint64_t *numbers,
                      size_t away, size_t rows, size_t count) {
    size_t most = CACHED / width, rest = width % TILE, whole = width - rest;
    if (most > MOST_ROWS) most = MOST_ROWS;
    for (size_t first = 0; first < rows; first += most) {
        size_t size = rows - first < most ? rows - first : most, next = rows - first - size < most ? rows - first - size : most;
        const uint16_t *block = cells + first * apart;
        uint16_t last[MOST_ROWS][TILE]; /* columns that fill no tile, and zeros */
        split parts[MOST_ROWS][TIMES];
        for (size_t row = size; row < size + next; row++)
            for (const uint16_t *at = block + row * apart, *end = at + width; at < end; at += LINE) __builtin_prefetch(at);
        for (size_t row = 0; rest && row < size; row++) {
            memset(last[row], 0, sizeof *last);
            memcpy(last[row], block + row * apart + whole, rest * sizeof **last);
        }
        for (size_t t = 0; t < count; t += TIMES) {
            size_t times = count - t < TIMES ? count - t : TIMES;
            for (size_t k = 0; k < times; k++) {
                const uint64_t *of = numbers + (t + k) * away + first;
                for (size_t row = 0; row < size; row++) parts[row][k] = (split){of[row] & ((1ULL << LOW) - 1), of[row] >> LOW};
            }
            add_tiles(out + t * wide, wide, block, apart, whole, (const split(*)[TIMES])parts, size, times);
            if (!rest) continue;
            uint64_t sums[TIMES][TILE] = {{0}};
            add_tiles(*sums, TILE, *last, TILE, TILE, (const split(*)[TIMES])parts, size, times);
            for (size_t k = 0; k < times; k++)
                for (size_t column = 0; column < rest; column++) out[(t + k) * wide + whole + column] += sums[k][column];
        }
    }
}

/* out[t][c] += sum over rows of numbers[t][row] * cells[row][c]: uint64[count, width] of uint16[rows, width] and uint64[count, rows]. */
static void multiply_cells(uint64_t *out, const uint16_t *cells, size_t rows, size_t width, const uint64_t *numbers, size_t count) {
    for (size_t at = 0; at < width; at += PANEL)
        add_panel(out + at, width, cells + at, width, width - at < PANEL ? width - at : PANEL, numbers, rows, rows, count);
}

/* out[k][row] = parity of rows[row] AND chosen[k]: uint8[count, n] of uint64[n, words] and uint64[count, words]. */
static void multiply_bits(uint8_t *out, const uint64_t *rows, size_t n, size_t words, const uint64_t *chosen, size_t count) {
    for (size_t first = 0; first < n; first += MOST_ROWS) {
        size_t stop = n - first < MOST_ROWS ? n : first + MOST_ROWS;
        for (size_t k = 0; k < count; k++)
            for (size_t row = first; row < stop; row++) {
                uint64_t sum = 0;
                for (size_t word = 0; word < words; word++) sum ^= rows[row * words + word] & chosen[k * words + word];
                sum ^= sum >> 32;
                sum ^= sum >> 16;
                sum ^= sum >> 8;
                sum ^= sum >> 4;
                out[k * n + row] = (uint8_t)(0x6996 >> (sum & 15) & 1);
            }
    }
}

#endif
