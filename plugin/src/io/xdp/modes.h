/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a NIC that an xdp driver got: queues, their frames, its entries in the XDP program's
 * tables; and the ladder of modes in which it is asked for: zero-copy, native copy, generic
 * copy, in an order that depends on the NIC's kernel driver. */
#ifndef HARP_IO_XDP_MODES_H
#define HARP_IO_XDP_MODES_H

#include "io/io.h"
#include "io/xdp/filter.h"
#include "io/xdp/socket.h"

enum { HARP_XDP_NIC_QUEUES_MAX = 16 }; /* of one instance */

struct harp_xdp_nic {
  unsigned ifindex;
  uint8_t mac[6];
  struct sockaddr_storage local; /* address of the interface */
  unsigned port_count;
  uint16_t ports[HARP_IO_PORTS_MAX]; /* that packets are wanted of, host byte order */
  uint32_t token_prefix;             /* of those packets, upper half of the token */
  uint8_t *umem;                     /* of all queues; borrowed */
  size_t umem_bytes;

  struct harp_xdp_filter filter;
  unsigned queue_count; /* open ones; 0: the NIC is not used */
  struct harp_xdp_socket sockets[HARP_XDP_NIC_QUEUES_MAX];
  bool is_behind_merging; /* generic mode, perhaps over a device whose packets the kernel merges */
  harp_ns climb_ns;       /* when the climb began, which waits for what the kernel is releasing */
};

/* Returns how many bytes of UMEM an instance wants for all its queues together: frames for what the interface
 * brings in a millisecond, which bounds round trip and queues, in either direction; at most three quarters of
 * the memory that the conf allows. */
size_t harp_xdp_umem_bytes(const struct harp_io_config *config);

/* Tries the rungs that the config allows, best first, until one works; the fields above `filter` are set, the
 * others zero. Returns 0 and says in `info` which rung, on which queues, and why not a better one; or -errno
 * of the last one, with the reasons of all in info->why_not. Waits for queues and locked memory that are
 * being released, 2 s at most. */
int harp_xdp_ladder_climb(struct harp_xdp_nic *nic, const struct harp_io_config *config,
                          struct harp_io_info *info);

/* Gives queues and program back. May be called twice. */
void harp_xdp_nic_close(struct harp_xdp_nic *nic);

static inline bool harp_xdp_nic_is_open(const struct harp_xdp_nic *nic) {
  return nic->queue_count != 0;
}

#endif
