/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes: the node of a core, and the preferred node of memory.
 *
 * A preference does not bind: when the node is full, or a container's seccomp filter denies the system call,
 * memory comes from other nodes. No state; any thread. Called by arena.c and net/ at start. */
#ifndef HARP_HOST_NODE_H
#define HARP_HOST_NODE_H

#include "base/base.h"

enum { HARP_NODE_MAX = 1024 /* node numbers lie below this */ };

/* Returns the node of a core, from sysfs below `sysfs_root`; -1: unknown. */
int harp_node_of_core(const char *sysfs_root, int core);

/* Prefers a node for the pages of a mapping that are not allocated yet. Returns 0, or -errno: -EINVAL when
 * the node does not exist. */
HARP_MUST_CHECK int harp_node_prefer(void *base, size_t bytes, int node);

/* The saved memory policy of a thread. */
struct harp_node_policy {
  unsigned long nodes[HARP_NODE_MAX / (8 * sizeof(unsigned long))];
  int mode; /* -1: nothing to restore */
};

/* Prefers a node for the calling thread's allocations until harp_node_leave; -1: changes nothing. */
void harp_node_enter(struct harp_node_policy *old, int node);
void harp_node_leave(const struct harp_node_policy *old);

#endif
