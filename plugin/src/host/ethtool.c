/* SPDX-License-Identifier: Apache-2.0 */
/* The link speed from the driver, for an interface that sysfs does not describe (a namespace without a sysfs
 * of its own). Two ways in: generic netlink's "ethtool" family (Linux 5.6), and the ETHTOOL_GLINKSETTINGS
 * ioctl.
 *
 * Owns nothing; sockets live for one call. Called through struct harp_eni_source. The kernel answers a
 * generic netlink request before sendto returns, so reading never waits. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "host/eni.h"

/* linux/ethtool_netlink.h is younger than the headers this may be built with. */
enum {
  MSG_LINKMODES_GET = 4,
  ATTR_HEADER_DEV_INDEX = 1,
  ATTR_LINKMODES_HEADER = 1,
  ATTR_LINKMODES_SPEED = 5,
};

enum { NETLINK_BYTES = 8192 };

/* One request or answer. */
struct netlink_message {
  size_t bytes; /* filled */
  union {
    struct nlmsghdr header;
    uint8_t raw[NETLINK_BYTES];
  };
};

static void message_init(struct netlink_message *message, uint16_t type, uint8_t command, uint8_t version) {
  struct genlmsghdr genl = {.cmd = command, .version = version};
  message->header = (struct nlmsghdr){.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST};
  memcpy(message->raw + NLMSG_HDRLEN, &genl, sizeof genl);
  message->bytes = NLMSG_HDRLEN + GENL_HDRLEN;
}

/* Appends an attribute; requests are short, so there is always room. */
static void message_put(struct netlink_message *message, uint16_t type, const void *data, size_t bytes) {
  struct nlattr attr = {.nla_type = type, .nla_len = (uint16_t)(NLA_HDRLEN + bytes)};
  uint8_t *at = message->raw + message->bytes;
  memset(at, 0, NLA_HDRLEN + NLA_ALIGN(bytes));
  memcpy(at, &attr, sizeof attr);
  memcpy(at + NLA_HDRLEN, data, bytes);
  message->bytes += NLA_HDRLEN + NLA_ALIGN(bytes);
}

/* Sends the request and reads the one answer into the same struct. Returns 0 or -errno (the kernel's own,
 * when it answers with an error). */
static int message_exchange(int fd, struct netlink_message *message) {
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  message->header.nlmsg_len = (uint32_t)message->bytes;
  if (sendto(fd, message->raw, message->bytes, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
    return -errno;
  ssize_t got = recv(fd, message->raw, sizeof message->raw, MSG_DONTWAIT);
  if (got < 0) return -errno;
  message->bytes = (size_t)got;
  if (message->bytes < NLMSG_HDRLEN + GENL_HDRLEN || message->header.nlmsg_len > message->bytes)
    return -EBADMSG;
  if (message->header.nlmsg_type == NLMSG_ERROR) {
    struct nlmsgerr error;
    if (message->bytes < NLMSG_HDRLEN + sizeof error) return -EBADMSG;
    memcpy(&error, message->raw + NLMSG_HDRLEN, sizeof error);
    return error.error < 0 ? error.error : -EBADMSG;
  }
  return 0;
}

/* Copies the first `bytes` bytes of the attribute with this type. Returns 0, -ENODATA when it is not there or
 * too short. */
static int message_find(const struct netlink_message *message, uint16_t type, void *out, size_t bytes) {
  size_t end = message->header.nlmsg_len;
  size_t at = NLMSG_HDRLEN + GENL_HDRLEN;
  while (at + NLA_HDRLEN <= end) {
    struct nlattr attr;
    memcpy(&attr, message->raw + at, sizeof attr);
    if (attr.nla_len < NLA_HDRLEN || attr.nla_len > end - at) break;
    if ((attr.nla_type & NLA_TYPE_MASK) == type) {
      if (attr.nla_len < NLA_HDRLEN + bytes) break;
      memcpy(out, message->raw + at + NLA_HDRLEN, bytes);
      return 0;
    }
    at += NLA_ALIGN((size_t)attr.nla_len);
  }
  return -ENODATA;
}

/* Asks the "ethtool" family. Stores the driver's word, which is 0 or all ones where it does not know. */
static int netlink_speed(int index, uint32_t *mbps) {
  struct netlink_message message;
  static const char family[] = "ethtool";
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
  if (fd < 0) return -errno;
  message_init(&message, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1);
  message_put(&message, CTRL_ATTR_FAMILY_NAME, family, sizeof family);
  int rc = message_exchange(fd, &message);
  uint16_t id = 0;
  if (rc == 0) rc = message_find(&message, CTRL_ATTR_FAMILY_ID, &id, sizeof id);
  if (rc == 0) {
    struct {
      struct nlattr attr;
      uint32_t index;
    } header = {{.nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = ATTR_HEADER_DEV_INDEX},
                (uint32_t)index};
    message_init(&message, id, MSG_LINKMODES_GET, 1);
    message_put(&message, ATTR_LINKMODES_HEADER | NLA_F_NESTED, &header, sizeof header);
    rc = message_exchange(fd, &message);
  }
  if (rc == 0) rc = message_find(&message, ATTR_LINKMODES_SPEED, mbps, sizeof *mbps);
  close(fd);
  return rc;
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
