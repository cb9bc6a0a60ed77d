/* SPDX-License-Identifier: Apache-2.0 */
/* An entry of the flight recorder as text, by the formats of base/trace.h. */
#ifndef HARP_TESTS_TRACE_TEXT_H
#define HARP_TESTS_TRACE_TEXT_H

#include "base/trace.h"

/* Writes one entry as text without newline ("[   12.345 us] path 0 ..."); returns its length, cut to what
 * fits. */
size_t trace_text(const struct harp_trace_entry *e, char *text, size_t text_bytes);

#endif
