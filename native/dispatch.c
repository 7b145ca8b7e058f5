/* Which kernels this processor can run. */
#include "kernels.h"

int vfl_has_avx2(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
#else
    return 0;
#endif
}

int vfl_has_ifma(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512ifma");
#else
    return 0;
#endif
}

#if !defined(__x86_64__) /* never called there */
void vfl_x25519_avx2(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    (void)out, (void)scalar, (void)points, (void)count;
}
int vfl_check_avx2(const uint8_t *points, size_t count) {
    (void)points, (void)count;
    return 1;
}
void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    (void)out, (void)scalar, (void)points, (void)count;
}
int vfl_hash_ifma(uint8_t *out, const uint8_t *ids, const uint64_t *ends, size_t count, const uint8_t *domain, size_t length) {
    (void)out, (void)ids, (void)ends, (void)count, (void)domain, (void)length;
    return 1;
}
int vfl_check_ifma(const uint8_t *points, size_t count) {
    (void)points, (void)count;
    return 1;
}
int vfl_powers_ifma(uint8_t *out, const uint8_t *bases, size_t count, size_t bytes, const uint8_t *exponent,
                    size_t exponent_bytes, const uint8_t *number, const uint8_t *square, uint64_t factor) {
    (void)out, (void)bases, (void)count, (void)bytes, (void)exponent, (void)exponent_bytes, (void)number, (void)square,
        (void)factor;
    return 1;
}
#endif
