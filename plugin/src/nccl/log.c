/* SPDX-License-Identifier: Apache-2.0 */
/* The bridge between base/log.h's sink and NCCL's logger.
 *
 * Any thread logs through it; NCCL's logger takes its own lock. Never called on the data path. The bits INIT
 * and NET make our INFO lines visible with NCCL_DEBUG=INFO alone, whose default subsystems hold INIT, and
 * with NCCL_DEBUG_SUBSYS=NET. */
#include "nccl/log.h"

#include <stdatomic.h>

#include "base/log.h"

static _Atomic(harp_nccl_logger) nccl_logger;

static enum harp_nccl_log_level level_of(enum harp_log_level level) {
  return level == HARP_LOG_WARN ? HARP_NCCL_LOG_WARN : HARP_NCCL_LOG_INFO;
}

static void forward(enum harp_log_level level, const char *file, int line, const char *text) {
  harp_nccl_logger logger = atomic_load_explicit(&nccl_logger, memory_order_acquire);
  if (logger)
    logger(level_of(level), HARP_NCCL_LOG_INIT | HARP_NCCL_LOG_NET, file, line, "NET/HARP: %s", text);
}

void harp_nccl_log_use(harp_nccl_logger logger) {
  atomic_store_explicit(&nccl_logger, logger, memory_order_release);
  harp_log_set_sink(logger ? forward : NULL);
}
