/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/strangers.h"

#include "base/assert.h"
#include "base/files.h"
#include "engine/control/pending_peer.h"
#include "engine/limits.h"

void harp_strangers_add(struct harp_strangers *s, struct harp_pending_peer *p) {
  HARP_ASSERT(!p->is_stranger);
  p->is_stranger = true;
  p->next_stranger = NULL;
  p->previous_stranger = s->last;
  *(s->last ? &s->last->next_stranger : &s->first) = p;
  s->last = p;
  s->count++;
}

void harp_strangers_remove(struct harp_strangers *s, struct harp_pending_peer *p) {
  if (!p->is_stranger) return;
  HARP_ASSERT(s->count);
  p->is_stranger = false;
  *(p->previous_stranger ? &p->previous_stranger->next_stranger : &s->first) = p->next_stranger;
  *(p->next_stranger ? &p->next_stranger->previous_stranger : &s->last) = p->previous_stranger;
  s->count--;
}

struct harp_pending_peer *harp_strangers_surplus(const struct harp_strangers *s, int fd) {
  unsigned most = harp_files_are_scarce(fd) ? HARP_STRANGERS_FEW_FILES : HARP_STRANGERS_MAX;
  return s->count >= most ? s->first : NULL;
}
