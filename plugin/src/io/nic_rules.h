/* SPDX-License-Identifier: Apache-2.0 */
/* Rules in a NIC (ntuple filters) that lead the packets of our UDP ports to our queues, where a process has
 * some of a NIC's queues and not all.
 *
 * They belong to the NIC, so they stay when their process is killed. Therefore each can be told from other
 * people's: it asks for UDP to an address of the interface and one port, nothing else, and it lies at the
 * place in the NIC's table that follows from the port. One that nobody has a socket for is left over from a
 * killed process; whoever makes rules on the interface removes it first. Until then it does no harm: it
 * leads packets that nobody waits for to some queue.
 *
 * A rule is asked for and never needed: where there is none, ports that lead to our queues are learned.
 * Called at open and close by the thread that opens and closes the driver; its sockets on the ports are open
 * all the while. Sources: Linux include/uapi/linux/ethtool.h, struct ethtool_rxnfc; what drivers do with it:
 * mlx5, ice, i40e, ENA, gve. */
#ifndef HARP_IO_NIC_RULES_H
#define HARP_IO_NIC_RULES_H

#include <sys/socket.h>

#include "io/io.h"

struct harp_nic_rules {
  unsigned ifindex;
  struct sockaddr_storage local; /* address of the interface */
  uint32_t table_size;
  unsigned count;                    /* rules that were made; 0: there is nothing to close */
  uint16_t ports[HARP_IO_PORTS_MAX]; /* whose rules they are, host byte order */
};

/* Returns the place of a port's rule in a table of so many places. It is the same in all versions of HARP,
 * and harpctl knows it. */
uint32_t harp_nic_rule_location(uint16_t port, uint32_t table_size);

/* Removes what killed processes left, then makes one rule for each port: ports[i] (host byte order) leads to
 * queues[i % queue_count]. Says at INFO what became of it. Returns how many were made. */
unsigned harp_nic_rules_open(struct harp_nic_rules *r, unsigned ifindex, const struct sockaddr_storage *local,
                             const uint16_t *ports, unsigned port_count, const uint32_t *queues,
                             unsigned queue_count);

/* Removes our rules. May be called twice, and for a structure of zeros. */
void harp_nic_rules_close(struct harp_nic_rules *r);

#endif
