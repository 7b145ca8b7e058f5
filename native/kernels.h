/* What kernels offer; native/build.py has the same for Python. */
#ifndef VFL_KERNELS_H
#define VFL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

int vfl_has_avx2(void);
void vfl_x25519_avx2(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
int vfl_check_avx2(const uint8_t *points, size_t count);

int vfl_has_ifma(void);
void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);
int vfl_hash_ifma(uint8_t *out, const uint8_t *ids, const uint64_t *ends, size_t count, const uint8_t *domain, size_t length);
int vfl_check_ifma(const uint8_t *points, size_t count);
int vfl_powers_ifma(uint8_t *out, const uint8_t *bases, size_t count, size_t bytes, const uint8_t *exponent,
                    size_t exponent_bytes, const uint8_t *number, const uint8_t *square, uint64_t factor);

#endif
