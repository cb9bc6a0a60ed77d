/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/copies.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/seq.h"
#include "engine/link.h"

_Static_assert(HARP_COPY_MAX_BYTES <= (int)HARP_EARLY_MAX_BYTES, "credit counts early places for all copies");
_Static_assert(HARP_COPIES_MAX == (int)HARP_REQUESTS_MAX, "a link has as many copies as requests at most");
_Static_assert(HARP_COPIES_SMALL_BYTES >= 2 * HARP_COPY_MAX_BYTES,
               "one may be under way while another is made");

/* Rings of this process. */
static _Atomic unsigned ring_count;

bool harp_copies_init(struct harp_copies *c) {
  unsigned others = atomic_fetch_add_explicit(&ring_count, 1, memory_order_relaxed);
  uint32_t bytes = others < HARP_COPIES_LARGE_RINGS ? HARP_COPIES_BYTES : HARP_COPIES_SMALL_BYTES;
  *c = (struct harp_copies){.memory = aligned_alloc(HARP_CACHE_LINE, bytes), .bytes = bytes};
  if (!c->memory) atomic_fetch_sub_explicit(&ring_count, 1, memory_order_relaxed);
  return c->memory;
}

void harp_copies_fini(struct harp_copies *c) {
  if (c->memory) atomic_fetch_sub_explicit(&ring_count, 1, memory_order_relaxed);
  free(c->memory);
  c->memory = NULL;
}

void harp_copies_collect(struct harp_link *link) {
  struct harp_copies *c = &link->copies;
  while (c->first != c->next) {
    struct harp_request *r = c->entries[c->first % HARP_COPIES_MAX].request;
    if (atomic_load_explicit(&r->state, memory_order_acquire) != HARP_REQUEST_DONE) return; /* (F) */
    HARP_ASSERT(r->link == link && r->is_copy);
    c->begin = c->entries[c->first++ % HARP_COPIES_MAX].end;
    r->is_copy = false; /* one that was not tested is an ordinary request that is done */
    if (r->is_tested) harp_request_free(r);
  }
  c->begin = c->end = 0; /* the bytes used last are those that the cache holds */
}

/* Finds room for so many bytes in one piece, whole cache lines; NULL: there is none. */
static uint8_t *take_room(struct harp_copies *c, uint32_t bytes) {
  uint32_t at = c->end % c->bytes, need = (uint32_t)harp_align_up(bytes, HARP_CACHE_LINE);
  uint32_t skip = at + need > c->bytes ? c->bytes - at : 0;
  if (c->end + skip + need - c->begin > c->bytes) return NULL;
  HARP_ASSERT(c->memory);
  c->end += skip + need;
  return c->memory + (c->end - need) % c->bytes;
}

bool harp_copies_take(struct harp_link *link, struct harp_request *r) {
  struct harp_copies *c = &link->copies;
  HARP_ASSERT(link->role == HARP_ROLE_SENDER);
  if (r->capacity > HARP_COPY_MAX_BYTES) return false;
  uint32_t credit = atomic_load_explicit(&link->credit, memory_order_relaxed);
  if (!harp_seq_before(link->submitted, credit)) return false;
  uint8_t *copy = take_room(c, r->capacity);
  if (!copy) return false;
  HARP_ASSERT(c->next - c->first < HARP_COPIES_MAX);
  memcpy(copy, r->data, r->capacity);
  r->data = copy;
  r->is_copy = true;
  r->is_tested = false;
  c->entries[c->next % HARP_COPIES_MAX].request = r;
  c->entries[c->next++ % HARP_COPIES_MAX].end = c->end;
  return true;
}
