/* SPDX-License-Identifier: Apache-2.0 */
/* See node.h. By system calls, because libnuma is not in every image. */
#include "host/node.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the kernel's interface (linux/mempolicy.h). */
enum {
  POLICY_DEFAULT = 0,
  POLICY_PREFERRED = 1,          /* this node first, others when it is full */
  MASK_BITS = HARP_NODE_MAX + 1, /* the kernel subtracts one */
  WORD_BITS = 8 * sizeof(unsigned long),
};

static void set_mask(unsigned long *nodes, int node) {
  memset(nodes, 0, HARP_NODE_MAX / 8);
  nodes[(size_t)node / WORD_BITS] = 1UL << (size_t)node % WORD_BITS;
}

int harp_node_of_core(const char *sysfs_root, int core) {
  char path[PATH_MAX];
  if (core < 0) return -1;
  int length = snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d", sysfs_root, core);
  DIR *folder = length < (int)sizeof path ? opendir(path) : NULL;
  if (!folder) return -1;
  int node = -1;
  for (struct dirent *entry; node < 0 && (entry = readdir(folder));)
    if (strncmp(entry->d_name, "node", 4) == 0 && isdigit((unsigned char)entry->d_name[4]))
      node = atoi(entry->d_name + 4);
  closedir(folder);
  return node < HARP_NODE_MAX ? node : -1;
}

int harp_node_prefer(void *base, size_t bytes, int node) {
  unsigned long nodes[HARP_NODE_MAX / WORD_BITS];
  if (node < 0 || node >= HARP_NODE_MAX) return -EINVAL;
  set_mask(nodes, node);
  return syscall(SYS_mbind, base, bytes, (long)POLICY_PREFERRED, nodes, (long)MASK_BITS, 0L) < 0 ? -errno : 0;
}

void harp_node_enter(struct harp_node_policy *old, int node) {
  unsigned long nodes[HARP_NODE_MAX / WORD_BITS];
  old->mode = -1;
  if (node < 0 || node >= HARP_NODE_MAX) return;
  int mode = -1;
  if (syscall(SYS_get_mempolicy, &mode, old->nodes, (long)HARP_NODE_MAX, NULL, 0L) < 0) return;
  set_mask(nodes, node);
  if (syscall(SYS_set_mempolicy, (long)POLICY_PREFERRED, nodes, (long)MASK_BITS) == 0) old->mode = mode;
}

void harp_node_leave(const struct harp_node_policy *old) {
  if (old->mode < 0) return;
  if (syscall(SYS_set_mempolicy, (long)old->mode, old->nodes, (long)MASK_BITS) == 0) return;
  (void)syscall(SYS_set_mempolicy, (long)POLICY_DEFAULT, NULL, 0L); /* the policy's nodes have gone */
}
