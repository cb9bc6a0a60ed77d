/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the checksum of every packet, alone and fused with the copy that moves a payload.
 *
 * Owns the choice of the kernel: one of the crc32c_*.c files, picked once from what the CPU can do. The
 * choice is the only state here; every function may be called from any thread at any time. Nothing here
 * allocates, makes system calls or fails. */
#ifndef HARP_CRC32C_H
#define HARP_CRC32C_H

#include "base/base.h"

enum harp_crc32c_id {
  HARP_CRC32C_PORTABLE, /* slicing-by-8, any CPU */
  HARP_CRC32C_SSE42,    /* crc32q in three chains, PCLMULQDQ joins them; copies by xmm folding */
  HARP_CRC32C_AVX2,     /* VPCLMULQDQ folding in ymm registers (CPUs without AVX-512) */
  HARP_CRC32C_AVX512,   /* VPCLMULQDQ folding in zmm registers */
  HARP_CRC32C_ARM64,    /* crc32cx, in three chains where PMULL can join them */
  HARP_CRC32C_COUNT
};

/* Selects the fastest kernel that this CPU supports. `hwcap` is getauxval(AT_HWCAP) on aarch64; x86-64 uses
 * cpuid and ignores it. Optional: the first checksum calls it with hwcap 0, which selects the portable kernel
 * on aarch64. To be effective it must come before other threads compute checksums. */
void harp_crc32c_init(uint64_t hwcap);

/* Selects kernel `id` until the next init or select, for tests and benchmarks. Returns false and changes
 * nothing when this CPU (by the hwcap of init) does not support it. */
bool harp_crc32c_select(enum harp_crc32c_id id);

/* Returns the selected kernel. */
enum harp_crc32c_id harp_crc32c_selected(void);

/* Returns the static name of a kernel, such as "avx512". */
const char *harp_crc32c_name(enum harp_crc32c_id id);

/* Returns the CRC32C (Castagnoli; RFC 3720 appendix B.4) of `bytes` bytes at `data`, any alignment. With seed
 * 0 it is the standard checksum; with the checksum of a prefix as seed it continues: crc(crc(0, a), b) ==
 * crc(0, a|b). */
uint32_t harp_crc32c(uint32_t seed, const void *data, size_t bytes);

/* Copies `bytes` bytes from `src` to `dst`, which do not overlap (any alignment), and returns their
 * harp_crc32c. Reads each source byte once, so the result is that of exactly the bytes stored, even while
 * another thread writes to src. Stores ascend: no store is issued before those to lower addresses; each is at
 * most 64 bytes, so that where dst is a multiple of 64 none straddles a cache line. On aarch64 another
 * observer may see them in another order: who reads dst meanwhile needs harp_copy_lines. */
uint32_t harp_crc32c_copy(uint32_t seed, void *dst, const void *src, size_t bytes);

#endif
