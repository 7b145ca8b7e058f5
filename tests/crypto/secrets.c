/* Runs one kernel's ladders under valgrind, with a scalar and points that count as uninitialised: valgrind reports every branch and
 * every address that depends on them. Prints the result. With -DLEAK there is one such branch. */
#include <stdio.h>
#include <stdint.h>
#include <stddef.h>
#include <valgrind/memcheck.h>

void LADDERS(uint8_t *out, const uint8_t *scalar, const uint8_t *points, size_t count);

int main(void) {
    uint8_t scalar[32], points[32 * 9], out[32 * 9];
    for (size_t i = 0; i < sizeof scalar; i++) scalar[i] = (uint8_t)(7 * i + 1);
    for (size_t i = 0; i < sizeof points; i++) points[i] = (uint8_t)(i * i + 3 * i);
    VALGRIND_MAKE_MEM_UNDEFINED(scalar, sizeof scalar);
    VALGRIND_MAKE_MEM_UNDEFINED(points, sizeof points);
    LADDERS(out, scalar, points, 9);
#ifdef LEAK
    if (out[0] & 1) out[1] = 0;
#endif
    VALGRIND_MAKE_MEM_DEFINED(out, sizeof out);
    for (size_t i = 0; i < sizeof out; i++) printf("%02x", out[i]);
    return 0;
}
