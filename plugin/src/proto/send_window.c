/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_window.h"

#include "base/assert.h"
#include "proto/send.h"

static void set_windows(struct harp_send_windows *w, uint32_t bytes) {
  HARP_ASSERT(bytes == harp_receive_window_bounded(bytes));
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) w->by_eni[i].bytes = bytes;
}

/* Bounds an announced window; counts one that is out of range. */
static uint32_t bound_window(uint32_t bytes, struct harp_counters *counters) {
  uint32_t bounded = harp_receive_window_bounded(bytes);
  counters->absurd_windows += bounded != bytes;
  return bounded;
}

void harp_send_windows_init(struct harp_send_windows *w, uint32_t bytes, struct harp_counters *counters,
                            harp_ns now) {
  *w = (struct harp_send_windows){.tcp = {.bytes = UINT32_MAX / 2}, .announced_ns = now};
  w->announced_bytes = bound_window(bytes, counters);
  set_windows(w, w->announced_bytes);
}

void harp_send_windows_on_announced(struct harp_sender *s, uint32_t bytes, harp_ns now) {
  struct harp_send_windows *w = &s->windows;
  w->announced_ns = now;
  bytes = bound_window(bytes, s->counters);
  if (harp_likely(bytes == w->announced_bytes && !w->is_cut)) return;
  w->announced_bytes = bytes;
  w->is_cut = false;
  set_windows(w, bytes);
  for (unsigned i = 0; i < s->path_count; i++)
    if (!s->paths[i].is_tcp) s->paths[i].cc.window_max_bytes = bytes;
}

void harp_send_windows_cut_stale(struct harp_send_windows *w) {
  w->is_cut = true;
  for (unsigned i = 0; i < HARP_WINDOWS_MAX; i++) {
    struct harp_receive_window *to = &w->by_eni[i];
    if (!to->inflight_bytes) to->bytes = HARP_MIN(to->bytes, (uint32_t)HARP_WINDOW_MIN_BYTES);
  }
}
