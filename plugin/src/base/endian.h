/* SPDX-License-Identifier: Apache-2.0 */
/* Big-endian integers of the wire, wrapped in structs so that mixing them with native ones does not compile.
 * Pure functions. */
#ifndef HARP_ENDIAN_H
#define HARP_ENDIAN_H

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
#else
#define HARP_SWAP(bits, v) (v)
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

#endif
