/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of NCCL that this program makes, found in the loaded library. */
#ifndef HARP_BOX_NCCL_H
#define HARP_BOX_NCCL_H

#include "base/base.h"

enum { BOX_NCCL_OK = 0, BOX_NCCL_IN_PROGRESS = 7, BOX_NCCL_ID_BYTES = 128 };
enum { BOX_NCCL_NO_COLOUR = -1, BOX_NCCL_SHRINK_ABORT = 1, BOX_NCCL_SUSPEND_MEMORY = 1 };

struct box_nccl_id {
  char bytes[BOX_NCCL_ID_BYTES];
};
typedef void *box_comm;

/* ncclConfig_t as far as it is used here: NCCL reads no more than `bytes`. */
struct box_nccl_config {
  size_t bytes;
  unsigned magic, version;
  int blocking, cga_cluster_size, ctas_min, ctas_max;
  const char *net_name;
  int split_share, traffic_class;
  const char *comm_name;
  int collnet_enable, cta_policy, shrink_share, nvls_ctas;
};

struct box_nccl {
  int (*GetUniqueId)(struct box_nccl_id *);
  int (*CommInitRank)(box_comm *, int, struct box_nccl_id, int);
  int (*CommDestroy)(box_comm);
  int (*CommAbort)(box_comm);
  int (*CommGetAsyncError)(box_comm, int *);
  int (*GroupStart)(void);
  int (*GroupEnd)(void);
  int (*Send)(const void *, size_t, int, int, box_comm, void *);
  int (*Recv)(void *, size_t, int, int, box_comm, void *);
  int (*AllReduce)(const void *, void *, size_t, int, int, box_comm, void *);
  int (*AllGather)(const void *, void *, size_t, int, box_comm, void *);
  int (*ReduceScatter)(const void *, void *, size_t, int, int, box_comm, void *);
  int (*Broadcast)(const void *, void *, size_t, int, int, box_comm, void *);
  int (*Reduce)(const void *, void *, size_t, int, int, int, box_comm, void *);
  const char *(*GetErrorString)(int);
  /* What older releases lack is NULL. */
  const char *(*GetLastError)(box_comm);
  int (*CommFinalize)(box_comm);
  int (*CommSplit)(box_comm, int, int, box_comm *, struct box_nccl_config *);
  int (*CommShrink)(box_comm, int *, int, box_comm *, struct box_nccl_config *, int);
  int (*CommGetUniqueId)(box_comm, struct box_nccl_id *);
  int (*CommGrow)(box_comm, int, const struct box_nccl_id *, int, box_comm *, struct box_nccl_config *);
  int (*CommRevoke)(box_comm, int);
  int (*CommSuspend)(box_comm, int);
  int (*CommResume)(box_comm);
};

/* Returns the calls of the current library. */
const struct box_nccl *box_nccl(void);

/* Finds them in the current library. Returns 0, or -1 after it has logged which is missing. */
int box_nccl_load(void) HARP_MUST_CHECK;

/* Returns a configuration in which nothing is chosen. */
struct box_nccl_config box_nccl_config(void);

/* Returns NCCL's text of the last error of a communicator, "" if there is none. */
const char *box_nccl_last_error(box_comm comm);

#endif
