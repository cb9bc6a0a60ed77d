/* SPDX-License-Identifier: Apache-2.0 */
#include "models/lane.h"

#include <stdlib.h>

enum { ROOM_MIN = 16, POOL_MAX = 4096 };

static struct harp_packet *pool[POOL_MAX];
static uint32_t pool_count;

struct harp_packet *lane_acquire(void) {
  struct harp_packet *p = pool_count ? pool[--pool_count] : calloc(1, sizeof *p);
  if (!p) abort();
  return p;
}

void lane_release(struct harp_packet *p) {
  if (pool_count < POOL_MAX)
    pool[pool_count++] = p;
  else
    free(p);
}

void lane_init(struct lane *l, struct agenda *a, source_fire fire) {
  *l = (struct lane){.agenda = a};
  source_init(&l->source, fire);
}

void lane_fini(struct lane *l) {
  agenda_set(l->agenda, &l->source, HARP_NEVER);
  free(l->ring);
  l->ring = NULL;
}

void lane_clear(struct lane *l, bool is_acks) {
  for (struct parcel p; lane_take(l, &p, HARP_NEVER);)
    if (is_acks) lane_release(p.ack);
}

static struct parcel *at(const struct lane *l, uint32_t i) {
  return &l->ring[(l->head + i) & (l->room - 1)];
}

static void grow(struct lane *l) {
  struct lane larger = {.room = l->room ? 2 * l->room : ROOM_MIN};
  larger.ring = malloc(larger.room * sizeof larger.ring[0]);
  if (!larger.ring) abort();
  for (uint32_t i = 0; i < l->count; i++) larger.ring[i] = *at(l, i);
  free(l->ring);
  l->ring = larger.ring;
  l->room = larger.room;
  l->head = 0;
}

void lane_push(struct lane *l, const struct parcel *p) {
  if (l->count == l->room) grow(l);
  uint32_t i = l->count++;
  for (; i && at(l, i - 1)->at_ns > p->at_ns; i--) *at(l, i) = *at(l, i - 1);
  *at(l, i) = *p;
  if (!i) agenda_set(l->agenda, &l->source, p->at_ns);
}

bool lane_take(struct lane *l, struct parcel *p, harp_ns now) {
  if (!l->count) return false;
  *p = *at(l, 0);
  if (p->at_ns > now) {
    agenda_set(l->agenda, &l->source, p->at_ns);
    return false;
  }
  l->head++;
  l->count--;
  return true;
}
