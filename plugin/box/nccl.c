/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl.h"

#include "library.h"
#include "log.h"

struct box_nccl box_nccl;

int box_nccl_load(void) {
  const struct {
    const char *name;
    void *slot;
    bool may_be_missing;
  } calls[] = {
#define CALL(name) {"nccl" #name, (void *)&box_nccl.name, false}
#define SINCE(name)                                                                                          \
  { "nccl" #name, (void *)&box_nccl.name, true }
      CALL(GetUniqueId),   CALL(CommInitRank),  CALL(CommDestroy), CALL(CommAbort), CALL(CommGetAsyncError),
      CALL(GroupStart),    CALL(GroupEnd),      CALL(Send),        CALL(Recv),      CALL(AllReduce),
      CALL(AllGather),     CALL(ReduceScatter), CALL(Broadcast),   CALL(Reduce),    CALL(GetErrorString),
      SINCE(GetLastError),
#undef CALL
#undef SINCE
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(calls); i++) {
    void *function = box_library_function(calls[i].name);
    if (!function && !calls[i].may_be_missing) {
      box_log("the library has no %s: NCCL 2.7 or newer is needed", calls[i].name);
      return -1;
    }
    *(void **)calls[i].slot = function;
  }
  return 0;
}

const char *box_nccl_last_error(box_comm comm) {
  const char *text = box_nccl.GetLastError ? box_nccl.GetLastError(comm) : NULL;
  return text ? text : "";
}
