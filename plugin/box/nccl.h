/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of NCCL that this program makes, found in the loaded library. */
#ifndef HARP_BOX_NCCL_H
#define HARP_BOX_NCCL_H

#include "base/base.h"

enum { BOX_NCCL_OK = 0, BOX_NCCL_IN_PROGRESS = 7, BOX_NCCL_ID_BYTES = 128 };

struct box_nccl_id {
  char bytes[BOX_NCCL_ID_BYTES];
};
typedef void *box_comm;

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
  const char *(*GetLastError)(box_comm); /* since 2.13; may be NULL */
};
extern struct box_nccl box_nccl;

/* Finds them. Returns 0, or -1 after it has logged which is missing. */
int box_nccl_load(void) HARP_MUST_CHECK;

/* Returns NCCL's text of the last error of a communicator, "" if there is none. */
const char *box_nccl_last_error(box_comm comm);

#endif
