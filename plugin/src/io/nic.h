/* SPDX-License-Identifier: Apache-2.0 */
/* Reads properties of a network interface from the kernel: its driver, queues, MAC address, XDP program.
 *
 * No state; changes nothing; waits for the kernel's answer. Called by the drivers at open and after changes.
 * Sources: rtnetlink(7), Linux include/uapi/linux/ethtool.h. */
#ifndef HARP_IO_NIC_H
#define HARP_IO_NIC_H

#include "base/base.h"

enum { HARP_NIC_DRIVER_BYTES = 32 };

/* Reads the name of an interface's kernel driver ("veth", "mlx5_core"); "" when it has none. */
void harp_nic_driver(unsigned ifindex, char name[HARP_NIC_DRIVER_BYTES]);

/* Returns the index of the interface of that name, or 0. Waits for nothing; on a kernel before 5.7 by
 * netlink, because the ioctl behind if_nametoindex runs modprobe for an unknown name and waits for it. */
unsigned harp_nic_index(const char *ifname);

/* Returns the number of receive queues in use, at least 1 (also when the driver does not report it). */
unsigned harp_nic_queues(unsigned ifindex);

/* Reads the MAC address. Returns 0 or -errno: -ENODEV when the interface is gone. */
HARP_MUST_CHECK int harp_nic_mac(unsigned ifindex, uint8_t mac[6]);

/* Reads the identity of the XDP program attached in generic (else native) mode; 0: none. Returns 0 or
 * -errno. */
HARP_MUST_CHECK int harp_nic_xdp_program(unsigned ifindex, bool generic, uint32_t *id);

#endif
