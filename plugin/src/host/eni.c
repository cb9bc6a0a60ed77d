/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces from getifaddrs, their PCI place and speed from sysfs. See eni.h. */
#include "host/eni.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/netlink.h"
#include "base/text_file.h"

/* ---- listing ---- */

static int compare_index(const void *a, const void *b) {
  const struct harp_eni *x = a, *y = b;
  return (x->index > y->index) - (x->index < y->index);
}

static void add_link(struct harp_eni *eni, const struct ifaddrs *entry, int mtu_fd) {
  const struct sockaddr_ll *link = (const struct sockaddr_ll *)(const void *)entry->ifa_addr;
  struct ifreq ifr;
  memset(eni, 0, sizeof *eni);
  memset(&ifr, 0, sizeof ifr);
  memcpy(eni->name, entry->ifa_name, strnlen(entry->ifa_name, sizeof eni->name - 1));
  memcpy(ifr.ifr_name, eni->name, sizeof eni->name);
  eni->index = link->sll_ifindex;
  eni->flags = entry->ifa_flags;
  eni->hardware = link->sll_hatype;
  if (link->sll_halen == sizeof eni->mac) memcpy(eni->mac, link->sll_addr, sizeof eni->mac);
  if (ioctl(mtu_fd, SIOCGIFMTU, &ifr) == 0) eni->mtu = ifr.ifr_mtu;
}

static void add_address(struct harp_eni *eni, const struct sockaddr *address) {
  if (address->sa_family == AF_INET && eni->ip4_count < HARP_ENI_ADDRESS_MAX)
    memcpy(&eni->ip4[eni->ip4_count++], address, sizeof eni->ip4[0]);
  if (address->sa_family == AF_INET6 && eni->ip6_count < HARP_ENI_ADDRESS_MAX)
    memcpy(&eni->ip6[eni->ip6_count++], address, sizeof eni->ip6[0]);
}

/* Finds the interface an address belongs to; an IPv4 address may carry a label ("eth0:1") instead of the
 * name. */
static struct harp_eni *find_labelled(struct harp_eni *enis, unsigned count, const char *label) {
  size_t length = strcspn(label, ":");
  for (unsigned i = 0; i < count; i++)
    if (strncmp(enis[i].name, label, length) == 0 && enis[i].name[length] == 0) return &enis[i];
  return NULL;
}

int harp_eni_list(struct harp_eni *enis, unsigned max) {
  struct ifaddrs *entries;
  unsigned count = 0;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (getifaddrs(&entries) < 0) {
    int error = errno;
    close(fd);
    return -error;
  }
  for (const struct ifaddrs *entry = entries; entry && count < max; entry = entry->ifa_next)
    if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_PACKET) add_link(&enis[count++], entry, fd);
  for (const struct ifaddrs *entry = entries; entry; entry = entry->ifa_next) {
    struct harp_eni *eni = entry->ifa_addr ? find_labelled(enis, count, entry->ifa_name) : NULL;
    if (eni) add_address(eni, entry->ifa_addr);
  }
  freeifaddrs(entries);
  close(fd);
  qsort(enis, count, sizeof enis[0], compare_index);
  return (int)count;
}

/* Asks the kernel what makes an interface (IFLA_LINKINFO and IFLA_LINK of rtnetlink(7)). */
static void find_kind(int index, struct harp_eni_kind *kind) {
  struct harp_netlink_request r;
  union {
    struct nlmsghdr head;
    uint8_t bytes[HARP_NETLINK_REPLY_BYTES];
  } reply;
  *kind = (struct harp_eni_kind){0};
  harp_netlink_begin(&r, RTM_GETLINK, sizeof r.body.link);
  r.body.link.ifi_index = index;
  if (harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWLINK, &reply) < 0) return;
  const struct rtattr *info = harp_netlink_find(&reply, sizeof r.body.link, IFLA_LINKINFO);
  const struct rtattr *name = info ? harp_netlink_nested(info, IFLA_INFO_KIND) : NULL;
  const struct rtattr *lower = harp_netlink_find(&reply, sizeof r.body.link, IFLA_LINK);
  if (name) memcpy(kind->name, RTA_DATA(name), HARP_MIN(RTA_PAYLOAD(name), sizeof kind->name - 1));
  bool is_elsewhere = harp_netlink_find(&reply, sizeof r.body.link, IFLA_LINK_NETNSID);
  if (lower && !is_elsewhere && RTA_PAYLOAD(lower) == sizeof kind->lower)
    memcpy(&kind->lower, RTA_DATA(lower), sizeof kind->lower);
}

const struct harp_eni_source harp_eni_source_system = {
    .sysfs_root = "/sys",
    .list = harp_eni_list,
    .ethtool_mbps = harp_eni_ethtool_mbps,
    .kind = find_kind,
};

const struct harp_eni *harp_eni_find(const struct harp_eni *enis, unsigned count, const char *name) {
  for (unsigned i = 0; i < count; i++)
    if (strcmp(enis[i].name, name) == 0) return &enis[i];
  unsigned index = if_nametoindex(name);
  for (unsigned i = 0; i < count && index; i++)
    if (enis[i].index == (int)index) return &enis[i];
  return NULL;
}

/* ---- addresses ---- */

/* Preference of an address; RANK_NO is never used. */
enum { RANK_NO, RANK_LAST, RANK_LINK_LOCAL, RANK_GLOBAL };

static int rank_ip4(const struct sockaddr_in *address) {
  uint32_t ip = ntohl(address->sin_addr.s_addr);
  if (ip >> 24 == 0 || ip >> 28 >= 0xe) return RANK_NO; /* "this network", multicast and above */
  if (ip >> 24 == 127) return RANK_LAST;
  return ip >> 16 == 0xa9fe ? RANK_LINK_LOCAL : RANK_GLOBAL;
}

static int rank_ip6(const struct sockaddr_in6 *address) {
  const struct in6_addr *ip = &address->sin6_addr;
  if (IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_IS_ADDR_MULTICAST(ip) || IN6_IS_ADDR_V4MAPPED(ip)) return RANK_NO;
  if (IN6_IS_ADDR_LOOPBACK(ip)) return RANK_LAST;
  return IN6_IS_ADDR_LINKLOCAL(ip) ? RANK_LINK_LOCAL : RANK_GLOBAL;
}

int harp_eni_choose_address(const struct harp_eni *eni, int family, bool is_explicit,
                            struct sockaddr_storage *address) {
  /* 2 x rank, plus 1 for IPv4: global before local, then IPv4 before IPv6, then the first one. */
  int best = 0;
  memset(address, 0, sizeof *address);
  for (unsigned i = 0; family != AF_INET6 && i < eni->ip4_count; i++) {
    int rank = rank_ip4(&eni->ip4[i]);
    if (rank == RANK_NO || (rank == RANK_LAST && !is_explicit) || 2 * rank + 1 <= best) continue;
    best = 2 * rank + 1;
    memcpy(address, &eni->ip4[i], sizeof eni->ip4[i]);
  }
  for (unsigned i = 0; family != AF_INET && i < eni->ip6_count; i++) {
    int rank = rank_ip6(&eni->ip6[i]);
    if (rank == RANK_NO || (rank < RANK_GLOBAL && !is_explicit) || 2 * rank <= best) continue;
    best = 2 * rank;
    memcpy(address, &eni->ip6[i], sizeof eni->ip6[i]);
  }
  return best ? 0 : -EADDRNOTAVAIL;
}

bool harp_eni_has_address(const struct harp_eni *eni, const struct sockaddr_storage *address,
                          struct sockaddr_storage *found) {
  struct sockaddr_storage own = {0};
  bool is_found = false;
  if (address->ss_family == AF_INET) {
    const struct sockaddr_in *want = (const struct sockaddr_in *)address;
    for (unsigned i = 0; i < eni->ip4_count && !is_found; i++) {
      is_found = eni->ip4[i].sin_addr.s_addr == want->sin_addr.s_addr;
      memcpy(&own, &eni->ip4[i], sizeof eni->ip4[i]);
    }
  } else if (address->ss_family == AF_INET6) {
    const struct sockaddr_in6 *want = (const struct sockaddr_in6 *)address;
    for (unsigned i = 0; i < eni->ip6_count && !is_found; i++) {
      is_found = IN6_ARE_ADDR_EQUAL(&eni->ip6[i].sin6_addr, &want->sin6_addr);
      memcpy(&own, &eni->ip6[i], sizeof eni->ip6[i]);
    }
  }
  if (is_found && found) *found = own;
  return is_found;
}

/* ---- sysfs ---- */

/* Reads the first line of a file, without its newline. Returns 0 or -errno. */
static int read_line(const char *path, char *text, size_t text_bytes) {
  ssize_t got = harp_text_file_read(path, text, text_bytes);
  if (got < 0) return (int)got; /* reading "speed" gives EINVAL when the driver reports none */
  text[strcspn(text, "\n")] = 0;
  return 0;
}

static int read_class_file(const char *sysfs_root, const char *ifname, const char *file, char *text,
                           size_t text_bytes) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s/class/net/%s/%s", sysfs_root, ifname, file);
  return length < (int)sizeof path ? read_line(path, text, text_bytes) : -ENAMETOOLONG;
}

/* Reads a whole decimal number; -1 for anything else or less. */
static long parse_number(const char *text) {
  char *end;
  errno = 0;
  long number = strtol(text, &end, 10);
  return errno || end == text || *end || number < 0 ? -1 : number;
}

void harp_eni_format_mac(const uint8_t mac[6], char text[HARP_ENI_MAC_TEXT_BYTES]) {
  snprintf(text, HARP_ENI_MAC_TEXT_BYTES, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
           mac[4], mac[5]);
}

/* Returns whether sysfs describes this interface: index and MAC agree. In a network namespace without a sysfs
 * of its own, sysfs may describe an interface of the same name in the host's namespace. */
static bool sysfs_is_ours(const char *sysfs_root, const struct harp_eni *eni) {
  static const uint8_t no_mac[6];
  char text[128], mac[HARP_ENI_MAC_TEXT_BYTES];
  if (read_class_file(sysfs_root, eni->name, "ifindex", text, sizeof text) < 0) return false;
  if (parse_number(text) != eni->index) return false;
  if (memcmp(eni->mac, no_mac, sizeof no_mac) == 0) return true; /* an interface without a MAC of six bytes */
  harp_eni_format_mac(eni->mac, mac);
  return read_class_file(sysfs_root, eni->name, "address", text, sizeof text) == 0 &&
         strcasecmp(text, mac) == 0;
}

/* Returns whether the last component is a PCI address, 0000:3b:00.1. */
static bool ends_in_bdf(const char *path) {
  const char *last = strrchr(path, '/');
  unsigned domain, bus, slot, function;
  int used = 0;
  if (!last) return false;
  int got = sscanf(last + 1, "%8x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &used);
  return got == 4 && last[1 + used] == 0;
}

void harp_eni_pci_path(const char *sysfs_root, const struct harp_eni *eni, char path[HARP_ENI_PCI_BYTES]) {
  char link[PATH_MAX], real[PATH_MAX];
  path[0] = 0;
  if (!sysfs_is_ours(sysfs_root, eni)) return;
  int length = snprintf(link, sizeof link, "%s/class/net/%s/device", sysfs_root, eni->name);
  if (length >= (int)sizeof link || !realpath(link, real)) return;
  char *last = strrchr(real, '/');
  if (last && strncmp(last, "/virtio", 7) == 0 && parse_number(last + 7) >= 0) *last = 0;
  if (!ends_in_bdf(real) || strlen(real) >= HARP_ENI_PCI_BYTES) return;
  memcpy(path, real, strlen(real) + 1);
}

int harp_eni_numa(const char *pci_path) {
  char path[HARP_ENI_PCI_BYTES + 16], text[32];
  if (!pci_path[0]) return -1;
  snprintf(path, sizeof path, "%s/numa_node", pci_path);
  if (read_line(path, text, sizeof text) < 0) return -1;
  long node = parse_number(text);
  return node >= 0 && node <= INT16_MAX ? (int)node : -1;
}

int harp_eni_speed_mbps(const struct harp_eni_source *source, const struct harp_eni *eni,
                        enum harp_speed_source *speed_source) {
  char text[32];
  long mbps = -1;
  if (sysfs_is_ours(source->sysfs_root, eni) &&
      read_class_file(source->sysfs_root, eni->name, "speed", text, sizeof text) == 0)
    mbps = parse_number(text);
  *speed_source = HARP_SPEED_SYSFS;
  if (mbps > 0 && mbps <= INT32_MAX) return (int)mbps;
  mbps = source->ethtool_mbps(eni->name, eni->index);
  *speed_source = HARP_SPEED_ETHTOOL;
  if (mbps > 0) return (int)mbps;
  *speed_source = HARP_SPEED_ASSUMED;
  return HARP_ENI_ASSUMED_MBPS;
}

const char *harp_speed_source_name(enum harp_speed_source source) {
  static const char *const names[] = {
      [HARP_SPEED_CONF] = "conf",
      [HARP_SPEED_SYSFS] = "sysfs",
      [HARP_SPEED_ETHTOOL] = "ethtool",
      [HARP_SPEED_ASSUMED] = "assumed",
  };
  return (unsigned)source < HARP_ARRAY_COUNT(names) ? names[source] : "?";
}
