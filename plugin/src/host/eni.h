/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host (ENIs): addresses, speed, PCI device.
 *
 * No state; keeps nothing open; changes no interface. Called by config.c at init, from the initialising
 * thread. struct harp_eni_source stands for the system, so that tests can use a directory tree and a list. */
#ifndef HARP_HOST_ENI_H
#define HARP_HOST_ENI_H

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

enum {
  HARP_ENI_NAME_BYTES = 16,      /* the bytes of a name: IF_NAMESIZE */
  HARP_ENI_PCI_BYTES = 256,      /* a real path under /sys/devices */
  HARP_ENI_MAC_TEXT_BYTES = 18,  /* "52:54:00:12:34:56" */
  HARP_ENI_LIST_MAX = 4096,      /* interfaces of one host; more are ignored */
  HARP_ENI_ADDRESS_MAX = 8,      /* addresses of one interface and family; more are ignored */
  HARP_ENI_ASSUMED_MBPS = 10000, /* speed of an ENI that reports none; NCCL assumes the same */
};

/* One interface as the kernel shows it. */
struct harp_eni {
  char name[HARP_ENI_NAME_BYTES];
  int index;
  unsigned flags;    /* the flags IFF_* */
  unsigned hardware; /* the type ARPHRD_* */
  int mtu;           /* bytes, IP packet */
  uint8_t mac[6];    /* all 0 when it has none */
  unsigned ip4_count, ip6_count;
  struct sockaddr_in ip4[HARP_ENI_ADDRESS_MAX];
  struct sockaddr_in6 ip6[HARP_ENI_ADDRESS_MAX]; /* the addresses; link-local ones carry their scope */
};

/* The kind of an interface. */
struct harp_eni_kind {
  char name[16]; /* the kernel's: "vlan", "veth"; "": a NIC, or unknown */
  int lower;     /* index of the interface that it is above, in this network namespace; 0: none */
};

enum harp_speed_source { HARP_SPEED_CONF, HARP_SPEED_SYSFS, HARP_SPEED_ETHTOOL, HARP_SPEED_ASSUMED };

/* The source of interfaces; harp_eni_source_system is the system. */
struct harp_eni_source {
  const char *sysfs_root;                              /* "/sys" */
  int (*list)(struct harp_eni *enis, unsigned max);    /* what harp_eni_list fills */
  int (*ethtool_mbps)(const char *name, int index);    /* what harp_eni_ethtool_mbps asks */
  void (*kind)(int index, struct harp_eni_kind *kind); /* asks the kernel what makes an interface */
};
extern const struct harp_eni_source harp_eni_source_system;

/* Fills `enis` with the interfaces of this network namespace, ascending by index, at most `max`. Returns how
 * many it filled, or -errno. */
int harp_eni_list(struct harp_eni *enis, unsigned max);

/* Reads the link speed from the driver: by ethtool netlink (Linux 5.6), else by ioctl ETHTOOL_GLINKSETTINGS.
 * Returns Mbit/s, or -errno: -ENODATA when the driver does not report it. */
int harp_eni_ethtool_mbps(const char *name, int index);

/* Writes a MAC address as text, in lower case. */
void harp_eni_format_mac(const uint8_t mac[6], char text[HARP_ENI_MAC_TEXT_BYTES]);

/* Finds the interface with this name, or else with this alternative name (`ip link property`) in our network
 * namespace; NULL when there is none. */
const struct harp_eni *harp_eni_find(const struct harp_eni *enis, unsigned count, const char *name);

/* Returns whether the interface can carry traffic: up, and with a link. */
static inline bool harp_eni_is_up(const struct harp_eni *eni) {
  return (eni->flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
}

/* Chooses the address to use: IPv4, else global IPv6; only `family` unless that is AF_UNSPEC. IPv6 link-local
 * and loopback addresses count only when `is_explicit` says that the operator named this very interface, and
 * only after all others. Returns 0, or -EADDRNOTAVAIL. */
int harp_eni_choose_address(const struct harp_eni *eni, int family, bool is_explicit,
                            struct sockaddr_storage *address);

/* Returns whether the address (family and IP; the port is ignored) is one of the interface's. The interface's
 * own copy, which has the scope of a link-local address, is stored to *found when that is not NULL. */
bool harp_eni_has_address(const struct harp_eni *eni, const struct sockaddr_storage *address,
                          struct sockaddr_storage *found);

/* Finds the PCI device as a real path below sysfs_root, "" for an interface without one (veth, bridge, lo).
 * The link /sys/class/net/X/device of a virtio interface leads to virtioN, whose parent is the PCI device. */
void harp_eni_pci_path(const char *sysfs_root, const struct harp_eni *eni, char path[HARP_ENI_PCI_BYTES]);

/* Reads the NUMA node of a PCI device; -1 when it is unknown. */
int harp_eni_numa(const char *pci_path);

/* Returns the speed in Mbit/s, at least 1: from sysfs, else the driver, else HARP_ENI_ASSUMED_MBPS. Stores
 * where it came from. */
int harp_eni_speed_mbps(const struct harp_eni_source *source, const struct harp_eni *eni,
                        enum harp_speed_source *speed_source);

/* Returns "conf", "sysfs", "ethtool" or "assumed". */
const char *harp_speed_source_name(enum harp_speed_source source);

#endif
