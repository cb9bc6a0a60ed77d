/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of an engine that have something: one epoll set for all of its sockets, and one rule for what a
 * pass tries.
 *
 *  1. What is known to have something, from an earlier look, is tried first.
 *  2. Else the source that brought something the last two times is tried without a look. When a connection
 *     for data brings nothing, the next pass looks: what answers its records comes as a datagram. Sources of
 *     datagrams are tried again, since an exchange of small messages waits for nothing else.
 *  3. Else, every HARP_READY_EVERY passes, and HARP_READY_LOOK_NS after the last look in any case, epoll_wait
 *     looks at all of them.
 *
 * The set marks the datagram sockets that are readable; a driver unmarks one that it found empty or in error.
 * Events of other sources are the caller's. Owned by the engine, or by a udp driver that is used alone; under
 * the engine's lock. */
#ifndef HARP_READY_H
#define HARP_READY_H

#include <sys/epoll.h>

#include "base/base.h"

enum {
  HARP_READY_MAX = 256,   /* datagram sockets */
  HARP_READY_EVERY = 8,   /* the most passes without a look (rule 3) */
  HARP_READY_EVENTS = 16, /* the most events of one look; the next look returns the others first */
};
#define HARP_READY_LOOK_NS HARP_US(50) /* the longest time without a look while passes run (rule 3) */

/* The kind of a source, in the lowest bits of its name, and what the rest of the name is. */
enum harp_ready_kind {
  HARP_READY_SOCKET,       /* a socket for datagrams: its number in the set */
  HARP_READY_RINGS,        /* the rings of AF_XDP, which have no events: 0 */
  HARP_READY_PEER,         /* a control connection: the peer's slot */
  HARP_READY_LISTENER,     /* the address of the listener */
  HARP_READY_PENDING,      /* the address of the pending peer */
  HARP_READY_TCP_PATH,     /* the address of the tcp path */
  HARP_READY_TCP_LISTENER, /* number of the interface */
  HARP_READY_TCP_ACCEPTED, /* number of the accepted connection */
  HARP_READY_KINDS,
};
#define HARP_READY_NONE UINT64_MAX

_Static_assert(HARP_READY_KINDS == 8, "the names of sources have three bits for the kind");

struct harp_io_ready {
  int fd;                              /* epoll set; readable when a source is */
  unsigned calls;                      /* the calls of refresh since the last look */
  harp_ns look_ns;                     /* the time when the next look is due in any case; 0: now */
  uint64_t last;                       /* the source that brought something last */
  bool is_steady;                      /* the same source brought something the time before, too */
  unsigned misses;                     /* the tries of that source since, by rule 2, that brought nothing */
  uint64_t tried;                      /* the source that was tried by rule 2 in this pass */
  uint64_t marks[HARP_READY_MAX / 64]; /* readable sockets, by number */
  uint64_t taken[HARP_READY_MAX / 64]; /* numbers in use */
};

static inline uint64_t harp_io_ready_name(enum harp_ready_kind kind, uint64_t rest) {
  return rest << 3 | kind;
}
static inline uint64_t harp_io_ready_address_name(enum harp_ready_kind kind, const void *aligned) {
  return (uintptr_t)aligned | kind;
}
static inline enum harp_ready_kind harp_io_ready_kind(uint64_t name) {
  return name & 7;
}
static inline uint64_t harp_io_ready_rest(uint64_t name) {
  return name >> 3;
}
static inline void *harp_io_ready_address(uint64_t name) {
  return (void *)(uintptr_t)(name & ~7ull);
}

/* Opens an empty set; returns 0 or -errno. */
int harp_io_ready_open(struct harp_io_ready *r) HARP_MUST_CHECK;
/* Closes the set, not its sockets. */
void harp_io_ready_close(struct harp_io_ready *r);

/* Adds a datagram socket. Returns its number in the set, or -errno: -ENOSPC when the set is full. */
int harp_io_ready_add(struct harp_io_ready *r, int fd) HARP_MUST_CHECK;
/* Removes a socket that is still open, and frees its number. */
void harp_io_ready_remove(struct harp_io_ready *r, int fd, unsigned number);

/* Adds another source, whose events (as of epoll_ctl) refresh returns. Returns 0 or -errno. */
int harp_io_ready_watch(struct harp_io_ready *r, int fd, uint32_t events, uint64_t name) HARP_MUST_CHECK;
/* Removes it, before it is closed: a copy of a child that was just forked would keep it in the set. */
void harp_io_ready_unwatch(struct harp_io_ready *r, int fd);

/* Begins a pass: marks sockets, or sets `tried`, by the rule above; does not block. has_work: a source that
 * is no datagram socket is known to have something. Returns how many events of such sources are in `others`.
 */
unsigned harp_io_ready_refresh(struct harp_io_ready *r, bool has_work, harp_ns now,
                               struct epoll_event others[HARP_READY_EVENTS]);

/* Learns that a source has brought something. */
static inline void harp_io_ready_received(struct harp_io_ready *r, uint64_t name) {
  r->is_steady = r->last == name;
  r->last = name;
  r->misses = 0;
}
/* Learns that a source is gone. */
static inline void harp_io_ready_forget(struct harp_io_ready *r, uint64_t name) {
  if (r->last == name) r->last = HARP_READY_NONE, r->is_steady = false;
  if (r->tried == name) r->tried = HARP_READY_NONE;
}

/* Returns whether any socket is marked; or this one. */
static inline bool harp_io_ready_has_marks(const struct harp_io_ready *r) {
  uint64_t any = 0;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(r->marks); i++) any |= r->marks[i];
  return any != 0;
}
static inline bool harp_io_ready_marked(const struct harp_io_ready *r, unsigned number) {
  return r->marks[number / 64] >> number % 64 & 1;
}
/* Unmarks a socket: it is empty, or has failed. */
static inline void harp_io_ready_unmark(struct harp_io_ready *r, unsigned number) {
  r->marks[number / 64] &= ~(1ull << number % 64);
}

#endif
