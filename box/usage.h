/* SPDX-License-Identifier: Apache-2.0 */
/* What this process has in use, so that two points in time can be compared. */
#ifndef HARP_BOX_USAGE_H
#define HARP_BOX_USAGE_H

struct box_usage {
  int files, threads;
  long memory_kib; /* its own memory: resident, without what malloc has free */
};

/* Reads it from /proc. */
struct box_usage box_usage_now(void);

#endif
