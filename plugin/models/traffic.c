/* SPDX-License-Identifier: Apache-2.0 */
#include "models/traffic.h"

#include <stdlib.h>

void traffic_init(struct traffic *t) {
  t->next_ns = t->step_ns = t->start_ns;
}

void traffic_fini(struct traffic *t) {
  free(t->took_us);
  t->took_us = NULL;
}

harp_ns traffic_next_ns(const struct traffic *t) {
  if (t->allowed && t->posted == *t->allowed) return HARP_NEVER;
  return t->posted - t->done < t->depth ? t->next_ns : HARP_NEVER;
}

void *traffic_post(struct traffic *t, harp_ns now) {
  uintptr_t cookie = t->posted++ % TRAFFIC_DEPTH_MAX;
  t->posted_ns[cookie] = now;
  if (t->every_ns) t->next_ns += t->every_ns;
  if (t->step_messages && t->posted % t->step_messages == 0) t->next_ns = HARP_NEVER; /* until all are done */
  return (void *)cookie;
}

static void end_step(struct traffic *t, harp_ns now) {
  if (t->is_measured) {
    t->steps++;
    t->steps_ns += now - t->step_ns;
  }
  t->step_ns = t->next_ns = now + t->pause_ns;
}

static void note_time(struct traffic *t, harp_ns took_ns) {
  if (t->took_count == t->took_room) {
    t->took_room = t->took_room ? 2 * t->took_room : 256;
    t->took_us = realloc(t->took_us, t->took_room * sizeof t->took_us[0]);
    if (!t->took_us) abort();
  }
  t->took_us[t->took_count++] = (uint32_t)(took_ns / 1000);
}

void traffic_on_done(struct traffic *t, void *cookie, harp_ns now) {
  if (t->is_measured) note_time(t, now - t->posted_ns[(uintptr_t)cookie]);
  t->done++;
  if (t->step_messages && t->done % t->step_messages == 0) end_step(t, now);
}
