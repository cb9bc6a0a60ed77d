/* SPDX-License-Identifier: Apache-2.0 */
/* The bridge between base/log.h's sink and NCCL's logger.
 *
 * Any thread logs through it; NCCL's logger takes its own lock. Never called on the data path. The bits INIT
 * and NET make our INFO lines visible with NCCL_DEBUG=INFO alone, whose default subsystems hold INIT, and
 * with NCCL_DEBUG_SUBSYS=NET.
 *
 * A process may have several NCCLs, each with a logger of its own, and may unload one of them while we stay.
 * So a logger that came from a library is called only while that address is in one. */
#include "nccl/log.h"

#include <stdatomic.h>

#include "base/identity.h"
#include "base/log.h"

/* Marks the address of a logger that was in a library when init passed it: no process has such an address. */
#define IN_LIBRARY ((uintptr_t)1 << 63)

/* The loggers of the last init, and of the last one that passed another; 0: none. */
static _Atomic uintptr_t newest, last_but_one;

static enum harp_nccl_log_level level_of(enum harp_log_level level) {
  return level == HARP_LOG_WARN ? HARP_NCCL_LOG_WARN : HARP_NCCL_LOG_INFO;
}

/* Returns the logger; NULL: there is none, or its library is gone. */
static harp_nccl_logger usable_logger(uintptr_t known) {
  uintptr_t address = known & ~IN_LIBRARY;
  if (known & IN_LIBRARY && !harp_is_in_library(address)) return NULL;
  return (harp_nccl_logger)address;
}

static void forward_line(enum harp_log_level level, const char *file, int line, const char *text) {
  harp_nccl_logger logger = usable_logger(atomic_load_explicit(&newest, memory_order_acquire));
  if (!logger) logger = usable_logger(atomic_load_explicit(&last_but_one, memory_order_acquire));
  if (logger)
    logger(level_of(level), HARP_NCCL_LOG_INIT | HARP_NCCL_LOG_NET, file, line, "NET/HARP: %s", text);
}

void harp_nccl_log_use(harp_nccl_logger logger) {
  uintptr_t known = (uintptr_t)logger;
  if (logger && harp_is_in_library(known)) known |= IN_LIBRARY;
  uintptr_t last = atomic_exchange_explicit(&newest, known, memory_order_acq_rel);
  if (last != known) atomic_store_explicit(&last_but_one, last, memory_order_release);
  harp_log_set_sink(logger ? forward_line : NULL);
}
