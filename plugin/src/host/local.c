/* SPDX-License-Identifier: Apache-2.0 */
/* See local.h. */
#include "host/local.h"

#include <ctype.h>
#include <stdlib.h>

#include "host/env.h"
#include "host/gpu.h"

enum { COUNT_MAX = 4096 }; /* a larger number is no number of processes */

/* The variables of torchrun, Open MPI, Intel MPI and Slurm. Slurm's number of tasks does not count: a task
 * may start processes for several GPUs, which inherit its variables. */
static const struct {
  const char *rank, *count;
} launchers[] = {
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_LOCALID", NULL},
};

/* Returns a variable's number, -1 where it has none. */
static long number_of(const char *const *environment, const char *variable) {
  const char *text = variable ? harp_env_find(environment, variable) : NULL;
  if (!text || !isdigit((unsigned char)*text)) return -1;
  long number = strtol(text, NULL, 10);
  return number <= COUNT_MAX ? number : -1;
}

struct harp_local harp_local_of_process(const char *const *environment, const char *proc_root) {
  struct harp_local local = {0};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(launchers) && !local.has_rank; i++) {
    long rank = number_of(environment, launchers[i].rank), count = number_of(environment, launchers[i].count);
    if (rank < 0) continue;
    local.has_rank = true;
    local.rank = (unsigned)rank;
    local.count = count > rank ? (unsigned)count : 0;
  }
  local.sharers = local.count ? local.count : HARP_MAX(harp_gpu_count(proc_root), 1u);
  return local;
}
