/* X25519 and checks of four points at a time. */
#if defined(__x86_64__)
#include "with_avx2.h"

#include "field4.h"

#include "curve.h"
#include "kernels.h"

void vfl_x25519_avx2(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    x25519(out, scalar, points, count);
}

int vfl_check_avx2(const uint8_t *points, size_t count) { return check(points, count); }

#include "end_with.h"
#endif
