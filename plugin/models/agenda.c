/* SPDX-License-Identifier: Apache-2.0 */
#include "models/agenda.h"

#include <stdlib.h>

void agenda_init(struct agenda *a, harp_ns now) {
  *a = (struct agenda){.now = now};
}

void agenda_fini(struct agenda *a) {
  free(a->heap);
  *a = (struct agenda){.heap = NULL};
}

void source_init(struct source *s, source_fire fire) {
  *s = (struct source){.at_ns = HARP_NEVER, .fire = fire};
}

static bool is_before(const struct source *a, const struct source *b) {
  return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void put(struct agenda *a, struct source *s, uint32_t place) {
  a->heap[place] = s;
  s->place = place;
}

static void move_up(struct agenda *a, struct source *s, uint32_t place) {
  for (; place && is_before(s, a->heap[(place - 1) / 2]); place = (place - 1) / 2)
    put(a, a->heap[(place - 1) / 2], place);
  put(a, s, place);
}

static void move_down(struct agenda *a, struct source *s, uint32_t place) {
  for (uint32_t child; (child = 2 * place + 1) < a->count; place = child) {
    if (child + 1 < a->count && is_before(a->heap[child + 1], a->heap[child])) child++;
    if (!is_before(a->heap[child], s)) break;
    put(a, a->heap[child], place);
  }
  put(a, s, place);
}

/* Takes the source at this place out of the heap, where it stood with the time and order of `key`. */
static void remove_source(struct agenda *a, const struct source *key) {
  struct source *last = a->heap[--a->count];
  if (key->place == a->count) return;
  if (is_before(last, key))
    move_up(a, last, key->place);
  else
    move_down(a, last, key->place);
}

static void grow(struct agenda *a) {
  if (a->count < a->room) return;
  a->room = a->room ? 2 * a->room : 64;
  a->heap = realloc(a->heap, a->room * sizeof a->heap[0]);
  if (!a->heap) abort();
}

void agenda_set(struct agenda *a, struct source *s, harp_ns at_ns) {
  if (at_ns != HARP_NEVER) at_ns = HARP_MAX(at_ns, a->now);
  if (at_ns == s->at_ns) return;
  struct source old = *s;
  s->at_ns = at_ns;
  s->order = a->order++;
  if (old.at_ns == HARP_NEVER) {
    grow(a);
    move_up(a, s, a->count++);
  } else if (at_ns == HARP_NEVER) {
    remove_source(a, &old);
  } else if (is_before(s, &old)) {
    move_up(a, s, s->place);
  } else {
    move_down(a, s, s->place);
  }
}

void agenda_run(struct agenda *a, harp_ns until_ns) {
  while (a->count && a->heap[0]->at_ns < until_ns) {
    struct source *s = a->heap[0];
    a->now = s->at_ns;
    remove_source(a, s);
    s->at_ns = HARP_NEVER;
    a->fired++;
    s->fire(s, a->now);
  }
  a->now = HARP_MAX(a->now, until_ns);
}
