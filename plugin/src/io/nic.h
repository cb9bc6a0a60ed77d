/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a network interface: its driver, its queues, the XDP program on it.
 *
 * Asked at open, answered at once; changes nothing. Called by the drivers. Sources: rtnetlink(7), Linux
 * include/uapi/linux/ethtool.h. */
#ifndef HARP_IO_NIC_H
#define HARP_IO_NIC_H

#include "base/base.h"

enum { HARP_NIC_DRIVER_BYTES = 32 };

/* Finds the name of an interface's kernel driver ("veth", "mlx5_core"); "" when it does not say. */
void harp_nic_driver(unsigned ifindex, char name[HARP_NIC_DRIVER_BYTES]);

/* Returns the number of an interface, 0 when there is none of that name. Asks by netlink: the ioctl behind
 * if_nametoindex would run modprobe for a name that is gone, and wait for it. */
unsigned harp_nic_index(const char *ifname);

/* Returns the number of receive queues in use, at least 1. */
unsigned harp_nic_queues(unsigned ifindex);

/* Finds its MAC address, which may change while it is in use. Returns 0 or -errno. */
HARP_MUST_CHECK int harp_nic_mac(unsigned ifindex, uint8_t mac[6]);

/* Finds the identity of the XDP program attached to an interface in generic, or else in native mode; 0 when
 * there is none. Returns 0 or -errno. */
HARP_MUST_CHECK int harp_nic_xdp_program(unsigned ifindex, bool generic, uint32_t *id);

#endif
