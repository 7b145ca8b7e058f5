/* What kernels for x86-64 offer; native/build.py reads it for Python. */
#ifndef VFL_KERNELS_H
#define VFL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "lattice.h"

int vfl_has_avx2(void);
void vfl_x25519_avx2(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
int vfl_check_avx2(const uint8_t *points, size_t count);
void vfl_sha256_avx2(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count);
void vfl_multiply_cells_avx2(uint64_t *out, const uint16_t *cells, size_t rows, size_t width, const uint64_t *numbers, size_t count);
void vfl_multiply_bits_avx2(uint8_t *out, const uint64_t *rows, size_t n, size_t words, const uint64_t *chosen, size_t count);

int vfl_has_ifma(void);
void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
int vfl_hash_ifma(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count, const uint8_t *domain, size_t length);
int vfl_check_ifma(const uint8_t *points, size_t count);
void vfl_sha256_ifma(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count);
void vfl_multiply_cells_ifma(uint64_t *out, const uint16_t *cells, size_t rows, size_t width, const uint64_t *numbers, size_t count);
void vfl_multiply_bits_ifma(uint8_t *out, const uint64_t *rows, size_t n, size_t words, const uint64_t *chosen, size_t count);

void vfl_load_ifma(uint64_t *out, const uint8_t *numbers, size_t bytes, size_t count, const uint64_t *modulus,
                   const uint64_t *square_of_r, size_t n);
void vfl_store_ifma(uint8_t *numbers, size_t bytes, const uint64_t *vector, size_t count, const uint64_t *modulus, size_t n);
void vfl_products_ifma(uint64_t *out, const int64_t *at, const uint64_t *a, const int64_t *at_a, const uint64_t *b,
                       const int64_t *at_b, size_t count, const uint64_t *modulus, size_t n);
void vfl_squares_ifma(uint64_t *vector, const int64_t *at, size_t count, size_t times, const uint64_t *modulus, size_t n);
int vfl_powers_ifma(uint64_t *vector, size_t count, const uint8_t *exponents, size_t bytes, size_t apart, const uint64_t *modulus,
                    const uint64_t *one, size_t n);

void vfl_ntt_ifma(const vfl_ring *ring, uint64_t *values, size_t which, size_t count);
void vfl_inverse_ntt_ifma(const vfl_ring *ring, uint64_t *values, size_t which, size_t count);
void vfl_ternary_ifma(const vfl_ring *ring, uint64_t *out, const uint64_t *words);
void vfl_plain_ifma(const vfl_ring *ring, uint64_t *out, const uint64_t *numbers, size_t count);
void vfl_encrypt_ifma(const vfl_ring *ring, uint64_t *out, const uint64_t *a, const uint64_t *secret, const uint64_t *errors,
                          const uint64_t *numbers, size_t count);
void vfl_dot_ifma(const vfl_ring *ring, uint64_t *sum, const uint64_t *left, const uint64_t *others, size_t apart, size_t count);
int vfl_answer_ifma(const vfl_ring *ring, uint8_t *out, uint64_t *sum0, uint64_t *sum1, const uint64_t *key0, const uint64_t *key1,
                        const uint64_t *u, const uint64_t *errors, const uint64_t *flood, const uint64_t *mask, size_t step,
                        size_t useful);
int vfl_open_ifma(const vfl_ring *ring, uint64_t *out, const uint8_t *answer, const uint64_t *secret, size_t step, size_t useful);

#endif
