/* SPDX-License-Identifier: Apache-2.0 */
#include "shared.h"

#include "log.h"

#include <sched.h>
#include <unistd.h>

void box_shared_barrier(struct box_member *m) {
  struct box_shared *s = m->shared;
  atomic_store(&s->passed[m->rank], ++m->passed);
  for (int rank = 0; rank < m->ranks; rank++)
    while (atomic_load(&s->passed[rank]) < m->passed && !atomic_load(&s->doomed[rank]) &&
           !atomic_load(&s->failed))
      sched_yield();
}

void box_shared_publish(struct box_shared *s, int slot, int cycle, const struct box_nccl_id *id) {
  s->ids[slot].id = *id;
  atomic_store(&s->ids[slot].cycle, cycle);
}

struct box_nccl_id box_shared_id(struct box_shared *s, int slot, int cycle) {
  while (atomic_load(&s->ids[slot].cycle) < cycle && !atomic_load(&s->failed)) sched_yield();
  return s->ids[slot].id;
}

void box_shared_require(const struct box_member *m, const char *call, int result) {
  if (result == BOX_NCCL_OK || result == BOX_NCCL_IN_PROGRESS) return;
  box_log("rank %d: %s: %s (%s)", m->rank, call, box_nccl()->GetErrorString(result),
          box_nccl_last_error(NULL));
  atomic_store(&m->shared->failed, true);
  _exit(BOX_EXIT_NCCL);
}
