/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the log lines that other processes can cause: a few at once, then one a second. What is left out is
 * counted, and the next line says how much it was.
 *
 * A bucket of HARP_LOG_BURST lines that fills up by one in each HARP_LOG_INTERVAL_NS. Each source of lines
 * has its own, so that a flood of one does not hide another. Owned by whoever owns the source; no clock. */
#ifndef HARP_LOG_LIMIT_H
#define HARP_LOG_LIMIT_H

#include "base/log.h"

enum { HARP_LOG_BURST = 8 };
#define HARP_LOG_INTERVAL_NS HARP_SEC(1)

struct harp_log_limit {
  uint32_t used;     /* the lines of the burst that were used */
  harp_ns since_ns;  /* the time since which the next of them has been coming back */
  uint32_t left_out; /* the lines left out since the last one that was written */
  uint64_t *count;   /* the number of all lines left out, of several limits perhaps; the owner's */
};

/* Begins with the whole burst. */
void harp_log_limit_init(struct harp_log_limit *l, uint64_t *count);

/* Formats one line and passes it to the sink if the limit lets it. Use the macros below. */
void harp_log_limited(struct harp_log_limit *l, harp_ns now, enum harp_log_level level, const char *file,
                      int line, const char *fmt, ...) HARP_PRINTF(6, 7);

#define HARP_INFO_LIMITED(limit, now, ...)                                                                   \
  harp_log_limited(limit, now, HARP_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)

#endif
