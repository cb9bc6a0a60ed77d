/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes: which one a core belongs to, and which one memory is asked of.
 *
 * A preference is no more than that: where the node is full, or a container's system call filter refuses to
 * say it, memory comes from elsewhere. Owns no state. Called by arena.c and net/, at start. Any thread. */
#ifndef HARP_HOST_NODE_H
#define HARP_HOST_NODE_H

#include "base/base.h"

enum { HARP_NODE_MAX = 1024 /* node numbers lie below this */ };

/* Returns the node of a core, from sysfs below `sysfs_root`; -1 where there is none or it is not known. */
int harp_node_of_core(const char *sysfs_root, int core);

/* Lets pages of a mapping that are not there yet come from a node, all others when it is full. Returns 0, or
 * -errno: -EINVAL for a node that there is not. */
HARP_MUST_CHECK int harp_node_prefer(void *base, size_t bytes, int node);

/* A policy of a thread, to be put back. */
struct harp_node_policy {
  unsigned long nodes[HARP_NODE_MAX / (8 * sizeof(unsigned long))];
  int mode; /* -1: nothing to put back */
};

/* Lets what the calling thread touches first come from a node (-1: leaves its policy alone) until
 * harp_node_leave. */
void harp_node_enter(struct harp_node_policy *old, int node);
void harp_node_leave(const struct harp_node_policy *old);

#endif
