/* SPDX-License-Identifier: Apache-2.0 */
/* Logging through a sink of the process (NCCL's logger); without a sink nothing is written.
 *
 * NCCL keeps the last WARN of a process as its "last error". So exactly one WARN precedes each returned
 * error, with peer and cause, and nothing harmless is a WARN. Not for the data path. Any thread; the sink is
 * set at each init and must be thread-safe (NCCL's is). */
#ifndef HARP_LOG_H
#define HARP_LOG_H

#include "base/base.h"

enum harp_log_level { HARP_LOG_WARN, HARP_LOG_INFO };

/* Receives one finished line, without newline, at most HARP_LOG_LINE_BYTES - 1 long. */
typedef void (*harp_log_sink)(enum harp_log_level level, const char *file, int line, const char *text);
enum { HARP_LOG_LINE_BYTES = 900 };

/* Replaces the sink; NULL drops every line. */
void harp_log_set_sink(harp_log_sink sink);

/* In a forked child: replaces the sink, if there is one, by standard error for WARNs and nothing for INFO
 * lines. The sink's lock may be held for ever by a thread that the child lacks. */
void harp_log_in_child(void);

/* Formats one line and passes it to the sink. Use the macros below. */
void harp_log(enum harp_log_level level, const char *file, int line, const char *fmt, ...) HARP_PRINTF(4, 5);

#define HARP_WARN(...) harp_log(HARP_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define HARP_INFO(...) harp_log(HARP_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)

#endif
