/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what is submitted is taken without the help of any timeout: an engine's thread that sleeps with a
 * submission in a ring was woken, or another thread's pass takes it; what is taken was submitted, in order,
 * once; and the thread that sleeps knows the deadlines of whatever was taken. So the doorbell's word comes
 * before its summary, and its barriers (I) and (J) pair.
 *
 * Bound: an engine's thread that passes, sleeps and is woken as often as it has to be; and two threads that
 * submit one item each, of two links whose doorbells are in one word, in two words of one summary bit, or
 * under two summary bits; or, with passes of the submitters' own (inline engines: the thread is the
 * watchdog), one submitter of one item, with --long of two. All orders and all values that C11 allows
 * (memory.h). */
#include <string.h>

#include "base/spsc.h"
#include "engine/link.h"
#include "engine/peer.h"
#include "engine/runner.h"
#include "proofs/doorbell.h"
#include "proofs/memory.h"

enum { SUBMITTERS = 2, ITEMS_MAX = 2 };

static struct harp_engine e;
static struct harp_peer peer;
static struct harp_link links[SUBMITTERS];
static uint32_t items[SUBMITTERS][ITEMS_MAX];
static unsigned taken[SUBMITTERS];
static unsigned submitters, items_each;
static uint64_t wakeups; /* the eventfd's count */
/* Under the lock: what was taken, each of which makes a deadline; up to where a pass has transmitted; up to
 * where the thread knew it when it fell asleep. */
static uint32_t deadlines, transmitted, known;

/* ---- what the engine's files call ---- */

void doorbell_take(struct harp_link *link, harp_ns now) {
  (void)now;
  unsigned which = (unsigned)(link - links);
  for (uint32_t *item; (item = harp_spsc_peek(&link->submit)); harp_spsc_pop(&link->submit)) {
    PROVE(taken[which] < items_each && *item == taken[which] + 1);
    taken[which]++;
    deadlines++;
  }
}

unsigned doorbell_transmit(struct harp_engine *engine, harp_ns now) {
  (void)engine, (void)now;
  unsigned moved = deadlines - transmitted;
  transmitted = deadlines;
  return moved;
}

int doorbell_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
  (void)timeout, (void)mask;
  PROVE(count == 1 && fds->fd == e.wake_fd);
  memory_wait(&wakeups);
  fds->revents = POLLIN;
  return 1;
}

ssize_t doorbell_read(int fd, void *to, size_t bytes) {
  (void)to;
  PROVE(fd == e.wake_fd);
  return (ssize_t)bytes;
}

ssize_t doorbell_write(int fd, const void *from, size_t bytes) {
  (void)from;
  PROVE(fd == e.wake_fd);
  memory_post(&wakeups);
  return (ssize_t)bytes;
}

static harp_ns no_time(void) {
  return 1;
}

/* ---- threads ---- */

/* As run_thread and run_watchdog do, without their time; for ever. */
static void run_engine(void) {
  for (;;) {
    if (!harp_engine_try_lock(&e)) {
      memory_await_store(&e.locked);
      continue;
    }
    doorbell_pass(&e);
    known = transmitted = deadlines;
    doorbell_sleep(&e);
  }
}

static void submit(unsigned which) {
  struct harp_link *link = &links[which];
  for (unsigned i = 0; i < items_each; i++) {
    items[which][i] = i + 1;
    PROVE(harp_spsc_push(&link->submit, &items[which][i]));
    harp_engine_ring_mt(&e, link->slot);
    harp_runner_inline_transmit_mt(&e);
    harp_engine_wake_mt(&e);
  }
}

static void submit_first(void) {
  submit(0);
}
static void submit_second(void) {
  submit(1);
}

static void begin(bool threaded) {
  static const uint32_t slots[] = {1, 64, 64 * HARP_DOORBELL_WORDS};
  memset(taken, 0, sizeof taken);
  wakeups = 0;
  deadlines = transmitted = known = 0;
  peer.engine = &e;
  e.threaded = threaded;
  e.clock = no_time;
  e.wake_fd = 3;
  e.sleeping = false;
  e.locked = 0;
  e.visit_count = 0;
  e.doorbell_words = 0;
  memset(e.doorbells, 0, sizeof e.doorbells);
  for (unsigned i = 0; i < SUBMITTERS; i++) {
    uint32_t slot = i ? slots[prove_choose(HARP_ARRAY_COUNT(slots))] : 0;
    links[i].slot = slot;
    links[i].peer = &peer;
    links[i].submit.head = links[i].submit.tail = 0;
    e.links[slot] = &links[i];
  }
}

static void proof(void) {
  static void (*const threads[])(void) = {run_engine, submit_first, submit_second};
  bool threaded = prove_choose(2);
  submitters = threaded ? SUBMITTERS : 1;
  items_each = threaded || !prove_is_long ? 1 : ITEMS_MAX;
  begin(threaded);
  (void)memory_run(threads, 1 + submitters);
  for (unsigned i = 0; i < submitters; i++) PROVE(taken[i] == items_each);
  PROVE(known == deadlines);
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
