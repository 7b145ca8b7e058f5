/* What rlwe.h defines, under names with the kernel's SUFFIX. */
#define PASTED(name, suffix) vfl_##name##_##suffix
#define NAMED(name, suffix) PASTED(name, suffix)
#define EXPORTED(name) NAMED(name, SUFFIX)

void EXPORTED(ntt)(const vfl_ring *ring, uint64_t *values, size_t which, size_t count) {
    for (size_t k = 0; k < count; k++) ntt(values + k * N, &ring->of[which]);
}

void EXPORTED(inverse_ntt)(const vfl_ring *ring, uint64_t *values, size_t which, size_t count) {
    for (size_t k = 0; k < count; k++) inverse_ntt(values + k * N, &ring->of[which]);
}

void EXPORTED(ternary)(const vfl_ring *ring, uint64_t *out, const uint64_t *words) {
    ternary_polynomial(ring, out, words);
}

void EXPORTED(plain)(const vfl_ring *ring, uint64_t *out, const uint64_t *numbers, size_t count) { plain(ring, out, numbers, count); }

void EXPORTED(encrypt)(const vfl_ring *ring, uint64_t *out, const uint64_t *a, const uint64_t *secret, const uint64_t *errors,
                        const uint64_t *numbers, size_t count) {
    encrypt(ring, out, a, secret, errors, numbers, count);
}

void EXPORTED(dot)(const vfl_ring *ring, uint64_t *sum, const uint64_t *left, const uint64_t *others, size_t apart, size_t count) {
    dot(ring, sum, left, others, apart, count);
}

int EXPORTED(answer)(const vfl_ring *ring, uint8_t *out, uint64_t *sum0, uint64_t *sum1, const uint64_t *key0, const uint64_t *key1,
                      const uint64_t *u, const uint64_t *errors, const uint64_t *flood, const uint64_t *mask, size_t step,
                      size_t useful) {
    return answer(ring, out, sum0, sum1, key0, key1, u, errors, flood, mask, step, useful);
}

int EXPORTED(open)(const vfl_ring *ring, uint64_t *out, const uint8_t *answer, const uint64_t *secret, size_t step, size_t useful) {
    return open_answer(ring, out, answer, secret, step, useful);
}
