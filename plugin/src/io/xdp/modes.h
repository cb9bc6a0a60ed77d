/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a NIC that an xdp driver uses: queues, their frames, entries in the maps of the XDP program.
 *
 * Opened in the best mode that works: zero-copy, native copy or generic copy, tried in an order that depends
 * on the NIC's kernel driver. Owned by one xdp driver; called by the thread that opens and closes the
 * driver. */
#ifndef HARP_IO_XDP_MODES_H
#define HARP_IO_XDP_MODES_H

#include "io/io.h"
#include "io/xdp/config.h"
#include "io/xdp/filter.h"
#include "io/xdp/socket.h"

enum { HARP_XDP_NIC_QUEUES_MAX = 16 }; /* the most queues of one instance */

struct harp_xdp_nic {
  unsigned ifindex;
  uint8_t mac[6];
  struct sockaddr_storage local; /* address of the interface */
  unsigned port_count;
  uint16_t ports[HARP_IO_PORTS_MAX]; /* local UDP ports, host byte order */
  uint32_t token_prefix;             /* upper half of the engine's tokens */
  uint8_t *umem;                     /* the UMEM of all queues; borrowed until close */
  size_t umem_bytes;

  struct harp_xdp_filter filter;
  unsigned queue_count; /* open queues; 0: the NIC is not used */
  struct harp_xdp_socket sockets[HARP_XDP_NIC_QUEUES_MAX];
  bool is_behind_gro; /* generic mode, perhaps over a lower device where the kernel merges packets (GRO) */
  harp_ns open_begun_ns;
};

/* Returns the UMEM bytes for all queues of an instance: frames for a millisecond at the interface's speed, in
 * each direction, which covers round trip and queueing; at most three quarters of the configured memory. */
size_t harp_xdp_umem_bytes(const struct harp_io_xdp_config *config);

/* Returns how many runs of frames each of `share` queues has for each direction. A run has 64 KiB, so that
 * the frames of each queue begin at a page whatever the kernel's page size is: it takes no others. */
uint32_t harp_xdp_share_runs(size_t umem_bytes, unsigned share);

/* Opens the best mode that works, of those that the config allows. The caller has set the fields above
 * `filter` and zeroed the others. Returns 0, with the mode and queues in `info` and the reasons against
 * better modes in info->why_not; or -errno of the last mode, with the reasons against all. Blocks while the
 * kernel still releases an earlier socket: up to 10 s for its queue, 2 s for its locked memory. */
int harp_xdp_open_best(struct harp_xdp_nic *nic, const struct harp_io_xdp_config *config,
                       struct harp_io_info *info);

/* Closes the queues and releases the program. Does nothing when they are closed. */
void harp_xdp_nic_close(struct harp_xdp_nic *nic);

static inline bool harp_xdp_nic_is_open(const struct harp_xdp_nic *nic) {
  return nic->queue_count != 0;
}

#endif
