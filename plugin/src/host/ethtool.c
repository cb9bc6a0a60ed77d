/* SPDX-License-Identifier: Apache-2.0 */
/* The link speed from the driver, for an interface that sysfs does not describe (a namespace without a sysfs
 * of its own). Two ways in: generic netlink's "ethtool" family (Linux 5.6), and the ETHTOOL_GLINKSETTINGS
 * ioctl.
 *
 * Owns nothing; sockets live for one call. Called through struct harp_eni_source. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/netlink.h"
#include "host/eni.h"

/* linux/ethtool_netlink.h is younger than the headers this may be built with. */
enum {
  MSG_LINKMODES_GET = 4,
  ATTR_HEADER_DEV_INDEX = 1,
  ATTR_LINKMODES_HEADER = 1,
  ATTR_LINKMODES_SPEED = 5,
};

/* Sends a request to a family of generic netlink; the answer has the same type. */
static int send_request(struct harp_netlink_request *r, uint16_t family, uint8_t command, uint16_t attribute,
                        const void *data, uint32_t bytes, void *reply) {
  harp_netlink_begin(r, family, sizeof r->body.generic);
  r->body.generic = (struct genlmsghdr){.cmd = command, .version = 1};
  harp_netlink_add(r, attribute, data, bytes);
  return harp_netlink_exchange(r, NETLINK_GENERIC, family, reply);
}

/* Copies the first `bytes` bytes of an attribute. Returns -ENODATA when it is not there or shorter. */
static int copy_attribute(const void *reply, uint16_t type, void *out, size_t bytes) {
  const struct rtattr *found = harp_netlink_find(reply, sizeof(struct genlmsghdr), type);
  if (!found || RTA_PAYLOAD(found) < bytes) return -ENODATA;
  memcpy(out, RTA_DATA(found), bytes);
  return 0;
}

/* Queries the "ethtool" family. Stores the driver's word, which is 0 or all ones where it does not know. */
static int netlink_speed(int index, uint32_t *mbps) {
  _Alignas(struct nlmsghdr) uint8_t reply[HARP_NETLINK_REPLY_BYTES];
  struct harp_netlink_request r;
  static const char name[] = "ethtool";
  struct {
    struct rtattr attribute;
    int index;
  } device = {{.rta_len = sizeof device, .rta_type = ATTR_HEADER_DEV_INDEX}, index};
  uint16_t family = 0;
  int rc =
      send_request(&r, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, name, sizeof name, reply);
  if (!rc) rc = copy_attribute(reply, CTRL_ATTR_FAMILY_ID, &family, sizeof family);
  if (!rc)
    rc = send_request(&r, family, MSG_LINKMODES_GET, ATTR_LINKMODES_HEADER | NLA_F_NESTED, &device,
                      sizeof device, reply);
  return rc ? rc : copy_attribute(reply, ATTR_LINKMODES_SPEED, mbps, sizeof *mbps);
}

static int ioctl_speed(const char *name, uint32_t *mbps) {
  enum { MASK_WORDS_MAX = 127 }; /* the count is a signed byte; three masks follow the struct */
  union {
    struct ethtool_link_settings settings;
    uint8_t room[sizeof(struct ethtool_link_settings) + 3 * MASK_WORDS_MAX * sizeof(uint32_t)];
  } request;
  struct ifreq ifr;
  memset(&request, 0, sizeof request);
  memset(&ifr, 0, sizeof ifr);
  memcpy(ifr.ifr_name, name, strnlen(name, IF_NAMESIZE - 1));
  ifr.ifr_data = (char *)&request;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  /* The first call answers with the size of the masks, negated; the second one with the settings. */
  request.settings.cmd = ETHTOOL_GLINKSETTINGS;
  int rc = ioctl(fd, SIOCETHTOOL, &ifr) < 0 ? -errno : 0;
  if (rc == 0 && request.settings.link_mode_masks_nwords < 0) {
    int words = -request.settings.link_mode_masks_nwords;
    memset(&request, 0, sizeof request);
    request.settings.cmd = ETHTOOL_GLINKSETTINGS;
    request.settings.link_mode_masks_nwords = (int8_t)HARP_MIN(words, MASK_WORDS_MAX);
    rc = ioctl(fd, SIOCETHTOOL, &ifr) < 0 ? -errno : 0;
  }
  close(fd);
  if (rc == 0) *mbps = request.settings.speed;
  return rc;
}

int harp_eni_ethtool_mbps(const char *name, int index) {
  uint32_t mbps = 0;
  int rc = netlink_speed(index, &mbps);
  if (rc < 0) rc = ioctl_speed(name, &mbps);
  if (rc < 0) return rc;
  return mbps == 0 || mbps > INT32_MAX ? -ENODATA : (int)mbps;
}
