/* SPDX-License-Identifier: Apache-2.0 */
#include "host/shared_clock.h"

#include <sys/timex.h>
#include <time.h>

bool harp_shared_clock_is_own(int state, int status) {
  return state < 0 || state == TIME_ERROR || status & STA_UNSYNC;
}

static harp_ns read_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return HARP_SEC(t.tv_sec) + (harp_ns)t.tv_nsec;
}

bool harp_shared_clock_on_time(struct harp_shared_clock *c, enum harp_shared_clock_mode mode, harp_ns now) {
  struct harp_shared_clock was = *c;
  c->offset_ns = read_ns(CLOCK_REALTIME) - read_ns(CLOCK_MONOTONIC);
  if (mode != HARP_SHARED_CLOCK_AUTO) {
    c->is_own = mode == HARP_SHARED_CLOCK_OFF;
  } else if (now >= c->ask_ns) {
    struct timex query = {.modes = 0};
    int state = adjtimex(&query);
    c->is_own = harp_shared_clock_is_own(state, query.status);
    c->ask_ns = now + HARP_SHARED_CLOCK_ASK_NS;
  }
  harp_ns moved_ns =
      c->offset_ns > was.offset_ns ? c->offset_ns - was.offset_ns : was.offset_ns - c->offset_ns;
  return moved_ns > HARP_MS(1) || c->is_own != was.is_own;
}
