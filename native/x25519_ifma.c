/* X25519 and checks of eight points at a time. */
#if defined(__x86_64__)
#include "with_ifma.h"

#include "field8.h"

#include "curve.h"
#include "kernels.h"

void vfl_x25519_ifma(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count) {
    x25519(out, scalar, points, count);
}

int vfl_check_ifma(const uint8_t *points, size_t count) { return check(points, count); }

#include "end_with.h"
#endif
