/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of small messages (docs/explanation/decisions/0007-small-sends.md): a send of at most
 * HARP_COPY_MAX_BYTES is copied when NCCL's thread submits it, and is done for NCCL at once, while the copy
 * travels as any message does.
 *
 * The memory is a ring of each link that sends, in the order of its messages. One thread takes from the ring
 * and returns to it. It sees by the requests' states what the engine has delivered. So the ring needs no lock
 * and no atomic of its own. A link whose peer takes nothing fills its own ring alone.
 *
 * A message is copied only where the peer's engine will take it whatever the peer's NCCL does: its receive is
 * posted, or an early place is free for it. So when NCCL closes the link, what is left of its copies is
 * delivered within round trips (link_close.h).
 *
 * All calls by the thread that uses the comm. */
#ifndef HARP_COPIES_H
#define HARP_COPIES_H

#include "base/base.h"

struct harp_link;
struct harp_request;

enum {
  HARP_COPY_MAX_BYTES = 32 * 1024, /* the most bytes of a message that is copied */
  HARP_COPIES_MAX = 64,            /* as many as a link has requests */
  /* The bytes of a link's ring, which are powers of two. While a process has HARP_COPIES_LARGE_RINGS
   * rings, further ones are small, so that thousands of connections fit a bounded memory. */
  HARP_COPIES_BYTES = 128 * 1024,
  HARP_COPIES_LARGE_RINGS = 256,
  HARP_COPIES_SMALL_BYTES = 64 * 1024,
};

struct harp_copies {
  uint8_t *memory; /* NULL: the link does not send */
  uint32_t bytes;  /* the bytes of the memory */
  uint32_t begin,
      end; /* the positions of the oldest copy, and behind the newest; their low bits are the index */
  uint32_t first, next; /* the entries in use, oldest first */
  struct {
    struct harp_request *request;
    uint32_t end; /* the position behind the copy */
  } entries[HARP_COPIES_MAX];
};

/* Allocates the ring's memory; false: there is none. May be called by several engines at once. */
bool harp_copies_init(struct harp_copies *c) HARP_MUST_CHECK;
void harp_copies_fini(struct harp_copies *c);

/* Takes back the memory of copies that were delivered, and the requests of those that NCCL has tested. */
void harp_copies_collect(struct harp_link *link);

/* Copies the data of a request that is not submitted yet, and points it there; false: there is no room, the
 * message is too large, or the peer may not take it. */
bool harp_copies_take(struct harp_link *link, struct harp_request *r);

/* Returns how many copies were not delivered when harp_copies_collect looked. */
static inline uint32_t harp_copies_count(const struct harp_copies *c) {
  return c->next - c->first;
}

#endif
