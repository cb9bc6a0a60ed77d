/* SPDX-License-Identifier: Apache-2.0 */
/* The xdp driver's own configuration, to which harp_io_config.xdp points. The caller
 * owns it; the driver reads it in `open` and `frames_bytes` alone. */
#ifndef HARP_IO_XDP_CONFIG_H
#define HARP_IO_XDP_CONFIG_H

#include "base/base.h"

/* Modes that the driver may use. AUTO: zero-copy, else it opens the udp driver instead. */
enum harp_io_xdp_mode { HARP_IO_XDP_AUTO, HARP_IO_XDP_ANY, HARP_IO_XDP_ZERO_COPY, HARP_IO_XDP_COPY };

struct harp_io_xdp_config {
  enum harp_io_xdp_mode mode;

  /* the interface */
  uint8_t mac[6];
  int mtu;        /* the bytes of the largest IP packet */
  int speed_mbps; /* the speed; 0: unknown */

  /* how processes and engines share the NIC's queues */
  unsigned queues;  /* the most NIC queues of the process; 0: its share of all */
  unsigned process; /* the number of this process among those that share all queues; UINT_MAX: unknown */
  unsigned process_count; /* the number of these processes; 0 counts as 1 */
  unsigned sharer;        /* the number of this engine among those of the process that share the queues */
  unsigned sharer_count;  /* the number of these engines; 0 counts as 1 */
  /* The port_count if there are several engines or processes: some ports lead to the others' queues. */
  unsigned shared_port_count;

  size_t memory_bytes;   /* the configured limit of all memory; 0: the driver's default */
  uint32_t token_prefix; /* the upper half of the engine's tokens; packets with another one are dropped */
};

/* Returns whether the interface's kernel driver is known to support zero-copy AF_XDP. */
bool harp_io_xdp_has_zero_copy_driver(unsigned ifindex);

#endif
