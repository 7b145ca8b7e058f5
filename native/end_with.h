/* The end of what with_avx2.h or with_ifma.h began. */
#if defined(__clang__) && !defined(EMULATED)
#pragma clang attribute pop
#endif
