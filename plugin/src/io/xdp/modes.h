/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a NIC that an xdp driver uses: queues, their frames, its entries in the XDP program's tables.
 * It is opened in the best mode that works: zero-copy, native copy or generic copy, tried in an order that
 * depends on the NIC's kernel driver. Owned by one xdp driver; called at open and close, by the thread that
 * opens and closes the driver. */
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
  harp_ns open_begun_ns;
};

/* Returns how many bytes of UMEM an instance wants for all its queues together: frames for what the interface
 * brings in a millisecond, which bounds round trip and queues, in either direction; at most three quarters of
 * the memory that the conf allows. */
size_t harp_xdp_umem_bytes(const struct harp_io_config *config);

/* Tries the modes that the config allows, best first, until one works; the fields above `filter` are set, the
 * others zero. Returns 0, with mode, queues and refusals of better modes in `info`; or -errno of the last
 * mode, with the refusals of all in info->why_not. Waits for what the kernel still releases of an earlier
 * socket: up to 10 s for a queue, 2 s for locked memory, both from the beginning of the call. */
int harp_xdp_open_best(struct harp_xdp_nic *nic, const struct harp_io_config *config,
                       struct harp_io_info *info);

/* Closes queues and program. May be called twice. */
void harp_xdp_nic_close(struct harp_xdp_nic *nic);

static inline bool harp_xdp_nic_is_open(const struct harp_xdp_nic *nic) {
  return nic->queue_count != 0;
}

#endif
