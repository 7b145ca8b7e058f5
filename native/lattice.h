/* Polynomials over Z_q[x]/(x^8192 + 1) for encryption by RLWE; native/build.py reads it for Python. Needs no particular processor. */
#ifndef VFL_LATTICE_H
#define VFL_LATTICE_H

#include <stddef.h>
#include <stdint.h>

typedef struct vfl_ring vfl_ring;

vfl_ring *vfl_ring_new(const uint64_t *primes, size_t count, uint64_t t, size_t flood_bits, size_t bits0, size_t bits1);
void vfl_ring_free(vfl_ring *ring);
void vfl_pack(uint8_t *out, const uint64_t *residues, size_t count);
size_t vfl_unpack(const vfl_ring *ring, uint64_t *residues, const uint8_t *bytes, size_t count);

void vfl_ntt_portable(const vfl_ring *ring, uint64_t *values, size_t which, size_t count);
void vfl_inverse_ntt_portable(const vfl_ring *ring, uint64_t *values, size_t which, size_t count);
void vfl_ternary_portable(const vfl_ring *ring, uint64_t *out, const uint64_t *words);
void vfl_plain_portable(const vfl_ring *ring, uint64_t *out, const uint64_t *numbers, size_t count);
void vfl_encrypt_portable(const vfl_ring *ring, uint64_t *out, const uint64_t *a, const uint64_t *secret, const uint64_t *errors,
                          const uint64_t *numbers, size_t count);
void vfl_dot_portable(const vfl_ring *ring, uint64_t *sum, const uint64_t *left, const uint64_t *others, size_t apart, size_t count);
int vfl_answer_portable(const vfl_ring *ring, uint8_t *out, uint64_t *sum0, uint64_t *sum1, const uint64_t *key0, const uint64_t *key1,
                        const uint64_t *u, const uint64_t *errors, const uint64_t *flood, const uint64_t *mask, size_t step,
                        size_t useful);
int vfl_open_portable(const vfl_ring *ring, uint64_t *out, const uint8_t *answer, const uint64_t *secret, size_t step, size_t useful);

#endif
