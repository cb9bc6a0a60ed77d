/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/assert.h"
#include "proto/send_parts.h"

/* A window announced longer ago than this is stale: the receiver may have shared it out to others. A sender
 * that was idle begins with less until an acknowledgement comes. The receiver counts it among its senders for
 * longer. */
#define WINDOW_STALE_NS HARP_MS(50)

struct harp_window *harp_sender_window_to(struct harp_sender *s, unsigned remote_eni) {
  return &s->windows[remote_eni % HARP_WINDOWS_MAX];
}

static void set_windows(struct harp_sender *s, uint32_t bytes) {
  HARP_ASSERT(bytes == harp_window_bounded(bytes));
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) s->windows[i].bytes = bytes;
}

/* Bounds an announced window; counts one that is out of range. */
static uint32_t bounded_window(struct harp_sender *s, uint32_t bytes) {
  uint32_t bounded = harp_window_bounded(bytes);
  s->counters->absurd_windows += bounded != bytes;
  return bounded;
}

void harp_sender_init_windows(struct harp_sender *s, uint32_t bytes, harp_ns now) {
  memset(s->windows, 0, sizeof s->windows);
  s->tcp_window = (struct harp_window){.bytes = UINT32_MAX / 2};
  s->window_announced_ns = now;
  s->window_bytes = bounded_window(s, bytes);
  set_windows(s, s->window_bytes);
}

/* Raises or lowers the bound of each path's window; one above a lower bound is cut when it changes next. */
void harp_sender_on_window(struct harp_sender *s, uint32_t bytes, harp_ns now) {
  s->window_announced_ns = now;
  bytes = bounded_window(s, bytes);
  if (harp_likely(bytes == s->windows[0].bytes)) return;
  s->window_bytes = bytes;
  set_windows(s, bytes);
  for (unsigned i = 0; i < s->path_count; i++)
    if (!s->paths[i].is_tcp) s->paths[i].cc.window_max_bytes = bytes;
}

/* The sender begins to send after a while without anything to send. */
void harp_sender_on_busy(struct harp_sender *s, harp_ns now) {
  if (now - s->window_announced_ns < WINDOW_STALE_NS) return;
  set_windows(s, HARP_MIN(s->window_bytes, (uint32_t)HARP_WINDOW_MIN_BYTES));
}
