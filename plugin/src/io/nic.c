/* SPDX-License-Identifier: Apache-2.0 */
/* See nic.h. */
#include "io/nic.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/netlink.h"

enum {
  LINK_XDP = 43,      /* IFLA_XDP */
  XDP_NATIVE_ID = 5,  /* IFLA_XDP_DRV_PROG_ID, within it */
  XDP_GENERIC_ID = 6, /* IFLA_XDP_SKB_PROG_ID */
  BIND_TO_INDEX = 62, /* SO_BINDTOIFINDEX, Linux 5.1 */
};

/* Runs a command of linux/ethtool.h: a struct with `cmd` first, where the kernel driver writes its answer.
 * Returns 0 or -errno. */
static int run_ethtool(unsigned ifindex, void *command) {
  struct ifreq request = {.ifr_data = command};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  bool answered = if_indextoname(ifindex, request.ifr_name) && !ioctl(fd, SIOCETHTOOL, &request);
  int err = answered ? 0 : -errno;
  close(fd);
  return err;
}

void harp_nic_driver(unsigned ifindex, char name[HARP_NIC_DRIVER_BYTES]) {
  struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
  name[0] = 0;
  if (run_ethtool(ifindex, &info)) return;
  memcpy(name, info.driver, HARP_NIC_DRIVER_BYTES);
  name[HARP_NIC_DRIVER_BYTES - 1] = 0;
}

unsigned harp_nic_queues(unsigned ifindex) {
  struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
  if (run_ethtool(ifindex, &channels)) return 1;
  return HARP_MAX(channels.combined_count + channels.rx_count, 1u);
}

static int get_link(unsigned ifindex, void *reply) {
  struct harp_netlink_request r;
  harp_netlink_begin(&r, RTM_GETLINK, sizeof r.body.link);
  r.body.link.ifi_family = AF_UNSPEC;
  r.body.link.ifi_index = (int)ifindex;
  return harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWLINK, reply);
}

/* Binds a socket to the interface, for which the kernel looks the name up without any lock. Returns the
 * index, or -errno: before Linux 5.7 -EPERM without privileges. */
static int index_by_binding(const char *ifname) {
  int index = 0, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = sizeof index;
  if (fd < 0) return -errno;
  bool answered = !setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, ifname, (socklen_t)strlen(ifname) + 1) &&
                  !getsockopt(fd, SOL_SOCKET, BIND_TO_INDEX, &index, &bytes);
  int err = answered ? 0 : -errno;
  close(fd);
  return err ? err : index;
}

unsigned harp_nic_index(const char *ifname) {
  int index = index_by_binding(ifname);
  if (index > 0 || index == -ENODEV) return index > 0 ? (unsigned)index : 0;
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  struct harp_netlink_request r;
  harp_netlink_begin(&r, RTM_GETLINK, sizeof r.body.link);
  r.body.link.ifi_family = AF_UNSPEC;
  harp_netlink_add(&r, IFLA_IFNAME, ifname, (uint32_t)strlen(ifname) + 1);
  if (harp_netlink_exchange(&r, NETLINK_ROUTE, RTM_NEWLINK, reply)) return 0;
  return (unsigned)((const struct ifinfomsg *)NLMSG_DATA((const struct nlmsghdr *)(const void *)reply))
      ->ifi_index;
}

/* Asks by ioctl: netlink's answer waits for whoever changes the kernel's network configuration. */
int harp_nic_mac(unsigned ifindex, uint8_t mac[6]) {
  struct ifreq request = {0};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  bool answered = if_indextoname(ifindex, request.ifr_name) && !ioctl(fd, SIOCGIFHWADDR, &request);
  int err = answered ? 0 : errno == ENXIO ? -ENODEV : -errno;
  close(fd);
  if (err) return err;
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER && request.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK)
    return -ENODATA;
  memcpy(mac, request.ifr_hwaddr.sa_data, 6);
  return 0;
}

int harp_nic_xdp_program(unsigned ifindex, bool generic, uint32_t *id) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  *id = 0;
  int err = get_link(ifindex, reply);
  if (err) return err;
  const struct rtattr *xdp = harp_netlink_find(reply, sizeof(struct ifinfomsg), LINK_XDP);
  uint16_t which = generic ? XDP_GENERIC_ID : XDP_NATIVE_ID;
  const struct rtattr *program = xdp ? harp_netlink_nested(xdp, which) : NULL;
  if (program && RTA_PAYLOAD(program) == sizeof *id) memcpy(id, RTA_DATA(program), sizeof *id);
  return 0;
}
