/* SPDX-License-Identifier: Apache-2.0 */
/* A copy whose order of stores another reader may rely on. No state; any thread. */
#ifndef HARP_COPY_H
#define HARP_COPY_H

#include <string.h>

#include "base/base.h"
#include "base/gpu_fence.h"

/* Copies `bytes` bytes upwards, in lines of 128, and the last 8 bytes of each line after the rest of it: a
 * GPU that polls NCCL's LL128 lines in `dst` takes a line as complete once the flag at its end is there.
 * memcpy has no such order: the C library's stores the first bytes of a block last. No 8 aligned bytes are
 * torn, as LL needs. */
static inline void harp_copy_lines(uint8_t *dst, const uint8_t *src, size_t bytes) {
  enum { LINE_BYTES = 128, FLAG_BYTES = 8 };
  for (; bytes >= LINE_BYTES; bytes -= LINE_BYTES, dst += LINE_BYTES, src += LINE_BYTES) {
    memcpy(dst, src, LINE_BYTES - FLAG_BYTES); /* the size is constant: plain moves in place */
    harp_gpu_store_fence(); /* (K) pairs with the order in which the GPU loads flag and data */
    memcpy(dst + LINE_BYTES - FLAG_BYTES, src + LINE_BYTES - FLAG_BYTES, FLAG_BYTES);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  for (; bytes >= FLAG_BYTES; bytes -= FLAG_BYTES, dst += FLAG_BYTES, src += FLAG_BYTES) {
    memcpy(dst, src, FLAG_BYTES);
    harp_gpu_store_fence();
  }
  memcpy(dst, src, bytes);
}

#endif
