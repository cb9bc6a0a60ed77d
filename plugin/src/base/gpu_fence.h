/* SPDX-License-Identifier: Apache-2.0 */
/* Fences between the host's memory accesses and a GPU's to the same memory. No state; any thread.
 *
 * A GPU is no CPU core: on aarch64 it may lie outside the inner shareable domain, for which C11's fences are
 * made, so these are for the outer one, as Linux's dma_wmb and dma_rmb are. On x86-64 the CPU keeps both
 * orders by itself, and they bind the compiler alone. */
#ifndef HARP_GPU_FENCE_H
#define HARP_GPU_FENCE_H

/* Orders stores before it before stores after it, as a GPU that polls the latter sees them. */
static inline void harp_gpu_store_fence(void) {
#if defined(__aarch64__)
  __asm__ volatile("dmb oshst" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* Orders loads before it, of what a GPU writes last, before loads after it. */
static inline void harp_gpu_load_fence(void) {
#if defined(__aarch64__)
  __asm__ volatile("dmb oshld" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

#endif
