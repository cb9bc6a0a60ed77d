/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that writes behind its memory: the sanitizer has to say so. */
#include <stdlib.h>

#include "nccl/abi.h"

static enum harp_nccl_result net_init(void **ctx, uint64_t id, struct harp_nccl_comm_config_v10 *config,
                                      harp_nccl_logger log, harp_nccl_profiler profiler) {
  volatile char *memory = malloc(8);
  (void)ctx, (void)id, (void)config, (void)log, (void)profiler;
  if (memory) memory[8] = 1;
  free((void *)memory);
  return HARP_NCCL_INTERNAL_ERROR;
}

const struct harp_nccl_net_v12 ncclNetPlugin_v12 = {.name = "overrun", .init = net_init};
