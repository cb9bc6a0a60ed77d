/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host (ENIs): which there are, their addresses, speed and place on the PCI
 * bus.
 *
 * Owns no state and keeps nothing open. Called by config.c at init, from the initialising thread. Never
 * changes an interface. What it reads comes through a struct harp_eni_source, so that everything but the
 * system calls is tested on a directory tree and a list. */
#ifndef HARP_HOST_ENI_H
#define HARP_HOST_ENI_H

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

enum {
  HARP_ENI_NAME_BYTES = 16,      /* IF_NAMESIZE */
  HARP_ENI_PCI_BYTES = 256,      /* a real path under /sys/devices */
  HARP_ENI_LIST_MAX = 4096,      /* interfaces of one host that are looked at */
  HARP_ENI_ADDRESS_MAX = 8,      /* addresses of one interface that are looked at, of each family */
  HARP_ENI_ASSUMED_MBPS = 10000, /* the speed of an ENI that says none, as NCCL assumes */
};

/* One interface as the kernel shows it. */
struct harp_eni {
  char name[HARP_ENI_NAME_BYTES];
  int index;
  unsigned flags; /* IFF_* */
  int mtu;        /* bytes, IP packet */
  uint8_t mac[6]; /* all 0 when it has none */
  unsigned ip4_count, ip6_count;
  struct sockaddr_in ip4[HARP_ENI_ADDRESS_MAX];
  struct sockaddr_in6 ip6[HARP_ENI_ADDRESS_MAX]; /* link-local ones carry their scope */
};

enum harp_speed_source { HARP_SPEED_CONF, HARP_SPEED_SYSFS, HARP_SPEED_ETHTOOL, HARP_SPEED_ASSUMED };

/* Where interfaces are looked up; harp_eni_source_system is the real one. */
struct harp_eni_source {
  const char *sysfs_root;                           /* "/sys" */
  int (*list)(struct harp_eni *enis, unsigned max); /* harp_eni_list */
  int (*ethtool_mbps)(const char *name, int index); /* harp_eni_ethtool_mbps */
};
extern const struct harp_eni_source harp_eni_source_system;

/* Fills `enis` with the interfaces of this network namespace, ascending by index, at most `max`. Returns how
 * many it filled, or -errno. */
int harp_eni_list(struct harp_eni *enis, unsigned max);

/* Asks the driver for the link speed: ethtool netlink (Linux 5.6), else the ETHTOOL_GLINKSETTINGS ioctl.
 * Returns Mbit/s, or -errno: -ENODATA when the driver does not say. */
int harp_eni_ethtool_mbps(const char *name, int index);

/* Finds the interface with this name; NULL when there is none. */
const struct harp_eni *harp_eni_find(const struct harp_eni *enis, unsigned count, const char *name);

/* Tells whether the interface can carry traffic: up, and with a link. */
static inline bool harp_eni_is_up(const struct harp_eni *eni) {
  return (eni->flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
}

/* Chooses the address to use: IPv4, else global IPv6; only `family` unless that is AF_UNSPEC. IPv6 link-local
 * and loopback addresses count only when `is_explicit` says that the operator named this very interface, and
 * only after all others. Returns 0, or -EADDRNOTAVAIL. */
int harp_eni_choose_address(const struct harp_eni *eni, int family, bool is_explicit,
                            struct sockaddr_storage *address);

/* Tells whether the address (family and IP; the port is ignored) is one of the interface's. The interface's
 * own copy, which has the scope of a link-local address, is stored to *found when that is not NULL. */
bool harp_eni_has_address(const struct harp_eni *eni, const struct sockaddr_storage *address,
                          struct sockaddr_storage *found);

/* Tells whether sysfs describes this very interface: index and MAC agree. In a namespace that was entered
 * without mounting its own sysfs, a namesake of the host answers instead, whose speed and PCI device are not
 * ours. */
bool harp_eni_sysfs_is_ours(const char *sysfs_root, const struct harp_eni *eni);

/* Finds the PCI device as a real path below sysfs_root, "" for an interface without one (veth, bridge, lo).
 * The link /sys/class/net/X/device of a virtio interface leads to virtioN, whose parent is the PCI device. */
void harp_eni_pci_path(const char *sysfs_root, const struct harp_eni *eni, char path[HARP_ENI_PCI_BYTES]);

/* Reads the NUMA node of a PCI device; -1 when there is none or the firmware does not say. */
int harp_eni_numa(const char *pci_path);

/* Finds the speed in Mbit/s: sysfs, then the driver, else HARP_ENI_ASSUMED_MBPS; says in *source where it
 * came from. Never fails and never returns less than 1. */
int harp_eni_speed_mbps(const struct harp_eni_source *source, const struct harp_eni *eni,
                        enum harp_speed_source *speed_source);

/* Returns "conf", "sysfs", "ethtool" or "assumed". */
const char *harp_speed_source_name(enum harp_speed_source source);

#endif
