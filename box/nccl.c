/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl.h"

#include "library.h"
#include "log.h"

#include <limits.h>

enum { MAGIC = (int)0xcafebeef, UNDEFINED = INT_MIN };

static struct box_nccl tables[BOX_LIBRARIES_MAX];

const struct box_nccl *box_nccl(void) {
  return &tables[box_library_current()];
}

int box_nccl_load(void) {
  struct box_nccl *table = &tables[box_library_current()];
  const struct {
    const char *name;
    void *slot;
    bool may_be_missing;
  } calls[] = {
#define CALL(name) {"nccl" #name, (void *)&table->name, false}
#define SINCE(name)                                                                                          \
  { "nccl" #name, (void *)&table->name, true }
      CALL(GetUniqueId),
      CALL(CommInitRank),
      CALL(CommDestroy),
      CALL(CommAbort),
      CALL(CommGetAsyncError),
      CALL(GroupStart),
      CALL(GroupEnd),
      CALL(Send),
      CALL(Recv),
      CALL(AllReduce),
      CALL(AllGather),
      CALL(ReduceScatter),
      CALL(Broadcast),
      CALL(Reduce),
      CALL(GetErrorString),
      SINCE(GetLastError),
      SINCE(CommFinalize),
      SINCE(CommSplit),
      SINCE(CommShrink),
      SINCE(CommGetUniqueId),
      SINCE(CommGrow),
      SINCE(CommRevoke),
      SINCE(CommSuspend),
      SINCE(CommResume),
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
  const char *text = box_nccl()->GetLastError ? box_nccl()->GetLastError(comm) : NULL;
  return text ? text : "";
}

struct box_nccl_config box_nccl_config(void) {
  return (struct box_nccl_config){.bytes = sizeof(struct box_nccl_config),
                                  .magic = (unsigned)MAGIC,
                                  .version = (unsigned)box_library_version(),
                                  .blocking = UNDEFINED,
                                  .cga_cluster_size = UNDEFINED,
                                  .ctas_min = UNDEFINED,
                                  .ctas_max = UNDEFINED,
                                  .split_share = UNDEFINED,
                                  .traffic_class = UNDEFINED,
                                  .collnet_enable = UNDEFINED,
                                  .cta_policy = UNDEFINED,
                                  .shrink_share = UNDEFINED,
                                  .nvls_ctas = UNDEFINED};
}
