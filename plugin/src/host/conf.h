/* SPDX-License-Identifier: Apache-2.0 */
/* One ztcp<N>.conf: the format, its keys, and the values that were set. What the values mean for this host is
 * config.c's business.
 *
 * Owns no state. Called by config.c at init. The parser takes bytes and knows no file, so that it is fuzzed
 * as it is. The format: [section] lines, `key = value` lines, comment lines that begin with # or ;, blank
 * lines; spaces around names and values don't count, there are no quotes and no continuation lines. */
#ifndef HARP_HOST_CONF_H
#define HARP_HOST_CONF_H

#include "base/base.h"
#include "host/config.h"
#include "host/error.h"
#include "host/option.h"

enum {
  HARP_CONF_FILE_BYTES_MAX = 64 << 10,
  HARP_CONF_LINE_BYTES_MAX = 512, /* without its line end */
  HARP_CONF_NAME_BYTES = 320,     /* of the path shown in messages */
};

/* X(ID, section, key, what is expected); docs/configuration.md has the same table, and a test compares them.
 */
#define HARP_CONF_KEYS(X)                                                                                    \
  X(INTERFACE, "eni", "interface", "an interface name of 1 to 15 characters")                                \
  X(MAC, "eni", "mac", "a MAC address such as 52:54:00:12:34:56")                                            \
  X(ADDRESS, "eni", "address", "an IPv4 or IPv6 address")                                                    \
  X(GATEWAY, "eni", "gateway", "an IPv4 or IPv6 address")                                                    \
  X(MTU, "eni", "mtu", "a number from 576 to 65536")                                                         \
  X(PCI, "eni", "pci", "a PCI address such as 0000:00:06.0")                                                 \
  X(NUMA, "eni", "numa", "a number from 0 to 1023")                                                          \
  X(SPEED_MBPS, "eni", "speed_mbps", "a number from 1 to 10000000")                                          \
  X(QUEUES, "eni", "queues", "a number from 1 to 64")                                                        \
  X(MODE, "engine", "mode", HARP_EXPECT_MODE)                                                                \
  X(CORES, "engine", "cores", "1 to 64 different core numbers such as 2-5,8")                                \
  X(GPU, "engine", "gpu", "a number from 0 to 1023")                                                         \
  X(PAGE_SIZE, "memory", "page_size", "auto, 1G, 2M, thp or 4K")                                             \
  X(BYTES, "memory", "bytes", "a size from 1M to 64G")                                                       \
  X(DRIVER, "transport", "driver", HARP_EXPECT_DRIVER)                                                       \
  X(PORTS, "transport", "ports", "a range LOW-HIGH within 1024-65535")                                       \
  X(PATHS, "transport", "paths", HARP_EXPECT_PATHS)                                                          \
  X(PEER_TIMEOUT, "transport", "peer_timeout", HARP_EXPECT_PEER_TIMEOUT)                                     \
  X(CONGESTION, "transport", "congestion", HARP_EXPECT_CONGESTION)                                           \
  X(DEVICES, "transport", "devices", HARP_EXPECT_DEVICES)

enum harp_conf_key {
#define HARP_CONF_ENUM(id, section, key, expected) HARP_CONF_##id,
  HARP_CONF_KEYS(HARP_CONF_ENUM)
#undef HARP_CONF_ENUM
      HARP_CONF_KEY_COUNT
};

struct harp_conf {
  char file[HARP_CONF_NAME_BYTES];     /* for messages */
  uint32_t lines[HARP_CONF_KEY_COUNT]; /* where each key was set, from 1; 0: not set, its value below is 0 */

  char interface[HARP_ENI_NAME_BYTES];
  uint8_t mac[6];
  struct sockaddr_storage address;
  struct sockaddr_storage gateway;
  int mtu;
  char pci[16];
  int numa;
  int speed_mbps;
  unsigned queues;
  enum harp_engine_mode mode;
  uint16_t cores[HARP_MAX_CORES];
  unsigned core_count;
  int gpu;
  enum harp_page_rung page_size;
  size_t memory_bytes;
  enum harp_driver driver;
  uint16_t port_low, port_high;
  unsigned paths;
  harp_ns peer_timeout_ns;
  char congestion[HARP_CONGESTION_BYTES];
  enum harp_device_mode devices;
};

static inline bool harp_conf_is_set(const struct harp_conf *conf, enum harp_conf_key key) {
  return conf->lines[key] != 0;
}

/* Parses the text of a file, any bytes; `file` is its name for messages. Returns 0, or -EINVAL with the
 * sentence "file:line: ... expected ..." in the error. [eni] interface must be set. */
HARP_MUST_CHECK int harp_conf_parse(struct harp_conf *conf, const char *file, const char *text, size_t bytes,
                                    const struct harp_error *error);

/* Reads and parses the file at `path`. Returns 0 or -errno with the sentence in the error. A file that anyone
 * may write is used, and said at INFO. */
HARP_MUST_CHECK int harp_conf_read(struct harp_conf *conf, const char *path, const struct harp_error *error);

/* Returns the key's name. */
const char *harp_conf_key_name(enum harp_conf_key key);

#endif
