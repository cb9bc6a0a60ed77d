/* SPDX-License-Identifier: Apache-2.0 */
/* A directory tree in a temporary directory, a list of interfaces and a log sink, for the tests of host/. */
#ifndef HARP_TEST_HOST_TREE_H
#define HARP_TEST_HOST_TREE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "host/config.h"

static char tree_root[128];
static char tree_log[8192]; /* "W " or "I " and the line, each on its own line */
static struct harp_eni tree_enis[40];
static struct harp_eni_kind tree_kinds[40]; /* the kinds of these */
static unsigned tree_eni_count;
static int tree_ethtool_mbps;

static inline void tree_sink(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file;
  (void)line;
  size_t used = strlen(tree_log);
  snprintf(tree_log + used, sizeof tree_log - used, "%c %s\n", level == HARP_LOG_WARN ? 'W' : 'I', text);
}

static inline int tree_setup(void **state) {
  (void)state;
  snprintf(tree_root, sizeof tree_root, "/tmp/harp-test-XXXXXX");
  assert_non_null(mkdtemp(tree_root));
  tree_log[0] = 0;
  tree_eni_count = 0;
  memset(tree_kinds, 0, sizeof tree_kinds);
  tree_ethtool_mbps = -ENODATA;
  harp_log_set_sink(tree_sink);
  return 0;
}

static inline int tree_remove(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

static inline int tree_teardown(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return nftw(tree_root, tree_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns the full path of a place in the tree; the text lives until the fourth call after this one. */
static inline const char *tree_path(const char *path) {
  static char texts[4][512];
  static unsigned next;
  char *text = texts[next++ % 4];
  snprintf(text, sizeof texts[0], "%s/%s", tree_root, path);
  return text;
}

static inline void tree_mkdir_parents(const char *path) {
  char part[512];
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = strchr(part + strlen(tree_root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    assert_true(mkdir(part, 0755) == 0 || errno == EEXIST);
    *slash = '/';
  }
}

static inline void tree_write_bytes(const char *path, const void *data, size_t bytes) {
  const char *full = tree_path(path);
  tree_mkdir_parents(full);
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static inline void tree_write(const char *path, const char *text) {
  tree_write_bytes(path, text, strlen(text));
}

static inline void tree_link(const char *path, const char *target) {
  const char *full = tree_path(path);
  tree_mkdir_parents(full);
  assert_int_equal(symlink(target, full), 0);
}

/* Adds an interface that is up, with a MAC made from its index and MTU 9000. */
static inline struct harp_eni *tree_add_eni(const char *name, const char *ip) {
  assert_true(tree_eni_count < HARP_ARRAY_COUNT(tree_enis));
  struct harp_eni *eni = &tree_enis[tree_eni_count++];
  memset(eni, 0, sizeof *eni);
  snprintf(eni->name, sizeof eni->name, "%s", name);
  eni->index = (int)tree_eni_count + 1;
  eni->flags = IFF_UP | IFF_RUNNING | IFF_BROADCAST;
  eni->hardware = ARPHRD_ETHER;
  eni->mtu = 9000;
  eni->mac[0] = 2;
  eni->mac[5] = (uint8_t)eni->index;
  if (ip && strchr(ip, ':')) {
    eni->ip6[0].sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, ip, &eni->ip6[0].sin6_addr), 1);
    eni->ip6_count = 1;
  } else if (ip) {
    eni->ip4[0].sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, ip, &eni->ip4[0].sin_addr), 1);
    eni->ip4_count = 1;
  }
  return eni;
}

static inline void tree_add_ip6(struct harp_eni *eni, const char *ip) {
  struct sockaddr_in6 *in6 = &eni->ip6[eni->ip6_count++];
  in6->sin6_family = AF_INET6;
  in6->sin6_scope_id = (uint32_t)eni->index;
  assert_int_equal(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
}

/* Writes the interface into the tree's sysfs, "/sys" below the root; `device` is its PCI device's real place
 * below sys/devices, NULL for none; `speed` the file's text, NULL for none. */
static inline void tree_add_sysfs(const struct harp_eni *eni, const char *device, const char *speed) {
  char path[256], text[128];
  snprintf(path, sizeof path, "sys/class/net/%s/ifindex", eni->name);
  snprintf(text, sizeof text, "%d\n", eni->index);
  tree_write(path, text);
  snprintf(path, sizeof path, "sys/class/net/%s/address", eni->name);
  snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x\n", eni->mac[0], eni->mac[1], eni->mac[2],
           eni->mac[3], eni->mac[4], eni->mac[5]);
  tree_write(path, text);
  if (speed) {
    snprintf(path, sizeof path, "sys/class/net/%s/speed", eni->name);
    tree_write(path, speed);
  }
  if (!device) return;
  snprintf(path, sizeof path, "sys/devices/%s/uevent", device);
  tree_write(path, "");
  snprintf(path, sizeof path, "sys/class/net/%s/device", eni->name);
  snprintf(text, sizeof text, "../../../devices/%s", device);
  tree_link(path, text);
}

static inline int tree_list(struct harp_eni *enis, unsigned max) {
  assert_true(tree_eni_count <= max);
  memcpy(enis, tree_enis, tree_eni_count * sizeof enis[0]);
  return (int)tree_eni_count;
}

static inline int tree_ethtool(const char *name, int index) {
  (void)name;
  (void)index;
  return tree_ethtool_mbps;
}

/* Says what makes an interface. */
static inline void tree_set_kind(const struct harp_eni *eni, const char *name, int lower) {
  struct harp_eni_kind *kind = &tree_kinds[eni - tree_enis];
  snprintf(kind->name, sizeof kind->name, "%s", name);
  kind->lower = lower;
}

static inline void tree_find_kind(int index, struct harp_eni_kind *kind) {
  for (unsigned i = 0; i < tree_eni_count; i++)
    if (tree_enis[i].index == index) *kind = tree_kinds[i];
}

static inline struct harp_eni_source tree_eni_source(void) {
  static char sysfs[160];
  snprintf(sysfs, sizeof sysfs, "%s/sys", tree_root);
  return (struct harp_eni_source){
      .sysfs_root = sysfs, .list = tree_list, .ethtool_mbps = tree_ethtool, .kind = tree_find_kind};
}

#endif
