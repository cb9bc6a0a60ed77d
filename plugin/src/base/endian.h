/* SPDX-License-Identifier: Apache-2.0 */
/* Big-endian integers of the wire, wrapped in structs so that mixing them with native ones does not compile;
 * and the little-endian ones of checksums and MACs, in memory of any alignment. Pure functions. */
#ifndef HARP_ENDIAN_H
#define HARP_ENDIAN_H

#include <string.h>

#include "base/base.h"

struct harp_be16 {
  uint16_t raw;
};
struct harp_be32 {
  uint32_t raw;
};
struct harp_be64 {
  uint64_t raw;
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HARP_SWAP(bits, v) __builtin_bswap##bits(v)
#define HARP_SWAP_LE64(v)  (v)
#else
#define HARP_SWAP(bits, v) (v)
#define HARP_SWAP_LE64(v)  __builtin_bswap64(v)
#endif

static inline struct harp_be16 harp_to_be16(uint16_t v) {
  return (struct harp_be16){HARP_SWAP(16, v)};
}
static inline struct harp_be32 harp_to_be32(uint32_t v) {
  return (struct harp_be32){HARP_SWAP(32, v)};
}
static inline struct harp_be64 harp_to_be64(uint64_t v) {
  return (struct harp_be64){HARP_SWAP(64, v)};
}
static inline uint16_t harp_from_be16(struct harp_be16 v) {
  return HARP_SWAP(16, v.raw);
}
static inline uint32_t harp_from_be32(struct harp_be32 v) {
  return HARP_SWAP(32, v.raw);
}
static inline uint64_t harp_from_be64(struct harp_be64 v) {
  return HARP_SWAP(64, v.raw);
}

static inline uint64_t harp_load_le64(const void *from) {
  uint64_t v;
  memcpy(&v, from, sizeof v);
  return HARP_SWAP_LE64(v);
}
static inline void harp_store_le64(void *to, uint64_t v) {
  v = HARP_SWAP_LE64(v);
  memcpy(to, &v, sizeof v);
}

#endif
