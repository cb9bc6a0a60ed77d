/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's interface for AF_XDP and XDP programs, as far as the xdp driver uses it, in HARP's names.
 *
 * Defined here because the headers of the build machine may be older than the running kernel.
 * Sources: Linux include/uapi/linux/if_xdp.h and bpf.h, Documentation/networking/af_xdp.rst. Numbers and
 * layouts are ABI and do not change. */
#ifndef HARP_IO_XDP_ABI_H
#define HARP_IO_XDP_ABI_H

#include <stdint.h>

enum {
  HARP_AF_XDP = 44,
  HARP_SOL_XDP = 283,

  /* The options of setsockopt and getsockopt. A version is the first Linux that has it. */
  HARP_XDP_SO_MMAP_OFFSETS = 1,
  HARP_XDP_SO_RX_RING = 2,
  HARP_XDP_SO_TX_RING = 3,
  HARP_XDP_SO_UMEM_REG = 4,
  HARP_XDP_SO_FILL_RING = 5,
  HARP_XDP_SO_COMPLETION_RING = 6,
  HARP_XDP_SO_OPTIONS = 8,       /* Linux 5.3 */
  HARP_XDP_SO_TX_SKB_BUDGET = 9, /* Linux 6.17 */

  /* The flags of bind. */
  HARP_XDP_BIND_COPY = 1 << 1,
  HARP_XDP_BIND_ZEROCOPY = 1 << 2,
  HARP_XDP_BIND_NEED_WAKEUP = 1 << 3, /* Linux 5.4 */
  HARP_XDP_BIND_SG = 1 << 4,          /* Linux 6.6 */

  HARP_XDP_OPTION_ZEROCOPY = 1,   /* A bit in XDP_OPTIONS. */
  HARP_XDP_RING_NEED_WAKEUP = 1,  /* A bit in a ring's flags. */
  HARP_XDP_PACKET_CONTINUES = 1,  /* A bit in a descriptor's options: the next one continues the packet. */
  HARP_XDP_PACKET_HEADROOM = 256, /* The kernel adds this to the headroom of UMEM. */

  /* The commands, types and flags of bpf(2). */
  HARP_BPF_MAP_CREATE = 0,
  HARP_BPF_MAP_LOOKUP = 1,
  HARP_BPF_MAP_UPDATE = 2,
  HARP_BPF_MAP_DELETE = 3,
  HARP_BPF_MAP_GET_NEXT_KEY = 4,
  HARP_BPF_PROG_LOAD = 5,
  HARP_BPF_PROG_FD_BY_ID = 13,
  HARP_BPF_MAP_FD_BY_ID = 14,
  HARP_BPF_OBJ_INFO = 15,
  HARP_BPF_LINK_CREATE = 28, /* XDP programs have it since Linux 5.9. */
  HARP_BPF_LINK_FD_BY_ID = 30,
  HARP_BPF_LINK_NEXT_ID = 31,
  HARP_BPF_MAP_HASH = 1,
  HARP_BPF_MAP_XSKMAP = 17,
  HARP_BPF_PROG_XDP = 6,
  HARP_BPF_ATTACH_XDP = 37,
  HARP_BPF_XDP_HAS_FRAGS = 1 << 5, /* A bit of prog_flags since Linux 5.18. */
  HARP_XDP_MODE_SKB = 1 << 1,      /* The kernel calls it generic. */
  HARP_XDP_MODE_DRV = 1 << 2,      /* The kernel calls it native. */
};

/* The offsets by which mmap selects a ring. */
#define HARP_XDP_PGOFF_RX         0ull
#define HARP_XDP_PGOFF_TX         0x80000000ull
#define HARP_XDP_PGOFF_FILL       0x100000000ull
#define HARP_XDP_PGOFF_COMPLETION 0x180000000ull

struct harp_xdp_address {
  uint16_t family, flags;
  uint32_t ifindex, queue, shared_umem_fd;
};

struct harp_xdp_umem_reg {
  uint64_t address, bytes;
  uint32_t chunk_bytes, headroom, flags, tx_metadata_bytes;
};

struct harp_xdp_ring_offset {
  uint64_t producer, consumer, descriptors, flags;
};
struct harp_xdp_offsets {
  struct harp_xdp_ring_offset rx, tx, fill, completion;
};

struct harp_xdp_descriptor {
  uint64_t address;
  uint32_t bytes, options;
};

/* One instruction of an XDP program. */
struct harp_bpf_insn {
  uint8_t code;
  uint8_t registers; /* The low half is the destination, the high half the source. */
  int16_t offset;
  int32_t immediate;
};

#endif
