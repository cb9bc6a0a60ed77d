/* SPDX-License-Identifier: Apache-2.0 */
/* Logging through a sink that the host process gives us (NCCL's logger); stderr-free when none is set.
 *
 * NCCL keeps the last WARN of a process as its "last error", so: exactly one WARN just before an error is
 * returned, naming peer and cause, and never a WARN for anything benign. Never called on the data path.
 * Any thread may call; the sink is set once per init and must be thread-safe (NCCL's is). */
#ifndef HARP_LOG_H
#define HARP_LOG_H

#include "base/base.h"

enum harp_log_level { HARP_LOG_WARN, HARP_LOG_INFO, HARP_LOG_TRACE };

/* Receives one finished line, without newline, at most HARP_LOG_LINE_BYTES - 1 long. */
typedef void (*harp_log_sink)(enum harp_log_level level, const char *file, int line, const char *text);
enum { HARP_LOG_LINE_BYTES = 900 };

/* Replaces the sink; NULL drops every line. */
void harp_log_set_sink(harp_log_sink sink);

void harp_log(enum harp_log_level level, const char *file, int line, const char *fmt, ...) HARP_PRINTF(4, 5);

#define HARP_WARN(...)  harp_log(HARP_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define HARP_INFO(...)  harp_log(HARP_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define HARP_TRACE(...) harp_log(HARP_LOG_TRACE, __FILE__, __LINE__, __VA_ARGS__)

#endif
