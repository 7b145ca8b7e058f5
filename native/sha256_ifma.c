/* SHA-256 of sixteen strings at a time. */
#if defined(__x86_64__)
#include "with_ifma.h"

#define LANES 16
#include "sha256.h"

#include "kernels.h"

void vfl_sha256_ifma(uint8_t *out, const uint8_t *text, const int64_t *offsets, size_t count) { sha256(out, text, offsets, count); }

#include "end_with.h"
#endif
