/* SPDX-License-Identifier: Apache-2.0 */
/* What an x86-64 CPU offers to the kernels of this folder. Any thread; no state. The CPU is queried by an
 * instruction, not through the compiler's library, so that these objects need nothing from it. */
#ifndef HARP_CPU_X86_H
#define HARP_CPU_X86_H

#include <cpuid.h>

#include "base/base.h"

enum {
  HARP_X86_SSE42 = 1,  /* SSE4.2 and PCLMULQDQ */
  HARP_X86_AVX2 = 2,   /* AVX2 and VPCLMULQDQ, ymm state kept by the kernel */
  HARP_X86_AVX512 = 4, /* AVX-512F, BW and VBMI2, and VPCLMULQDQ, zmm state kept by the kernel */
};

/* Returns which of the HARP_X86_ sets this CPU and kernel offer (Intel SDM volume 2, CPUID; volume 1, 13.3
 * XCR0). */
static inline unsigned harp_x86_features(void) {
  const uint32_t ymm_state = 0x06, zmm_state = 0xe6; /* XCR0: SSE, AVX; and opmask, upper halves, zmm16-31 */
  unsigned a, b, c, d, features = 0;
  uint32_t xcr0 = 0, xcr0_high;

  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  if ((c & bit_SSE4_2) && (c & bit_PCLMUL) && (c & bit_SSE4_1)) features |= HARP_X86_SSE42;
  if (c & bit_OSXSAVE) __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
  if (!features || !(c & bit_AVX) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  if (!(c & bit_VPCLMULQDQ)) return features;
  if ((b & bit_AVX2) && (xcr0 & ymm_state) == ymm_state) features |= HARP_X86_AVX2;
  if ((features & HARP_X86_AVX2) && (b & bit_AVX512F) && (b & bit_AVX512BW) && (c & bit_AVX512VBMI2) &&
      (xcr0 & zmm_state) == zmm_state)
    features |= HARP_X86_AVX512;
  return features;
}

#endif
