/* SHA-256 of eight strings at a time. */
#if defined(__x86_64__)
#include "with_avx2.h"

#define LANES 8
#include "sha256.h"

#include "kernels.h"

void vfl_sha256_avx2(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count) { sha256(out, text, offsets, count); }

#include "end_with.h"
#endif
