/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/numbering.h"
#include "engine/pass.h"
#include "host/cpu.h"

/* An engine thread that finds nothing to do keeps looking for so long before it sleeps. */
#define SPIN_NS HARP_US(50)
/* The longest sleep of the engine's thread, in case a wake-up was missed. */
#define SLEEP_MAX_NS HARP_MS(100)

/* The sources that a thread sleeps on: the wake-up, then for packets the sockets and the driver. */
struct sleep_fds {
  struct pollfd at[HARP_IO_FDS_MAX + 2];
  nfds_t count;
};

/* Names what a thread sleeps on; for packets with the lock held, since a pass may close sockets. */
static void gather_sources(const struct harp_engine *e, struct sleep_fds *fds, bool for_packets) {
  nfds_t n = 0;
  fds->at[n++] = (struct pollfd){.fd = e->wake_fd, .events = POLLIN};
  if (for_packets) {
    fds->at[n++] = (struct pollfd){.fd = e->ready.fd, .events = POLLIN};
    n += e->io->ops->fds(e->io, fds->at + n);
  }
  HARP_ASSERT(n <= HARP_ARRAY_COUNT(fds->at));
  fds->count = n;
}

/* Sleeps until a packet, a control message, a wake-up or `until_ns`. */
static void sleep_until(struct harp_engine *e, struct sleep_fds *fds, harp_ns until_ns) {
  harp_ns now = e->clock();
  harp_ns wait_ns = until_ns > now ? HARP_MIN(until_ns - now, SLEEP_MAX_NS) : 0;
  struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)wait_ns};
  if (ppoll(fds->at, fds->count, &timeout, NULL) <= 0 || !fds->at[0].revents) return;
  uint64_t count;
  (void)!read(e->wake_fd, &count, sizeof count);
}

/* Releases the lock; an engine that found nothing to do is marked as sleeping before that, so that from
 * here on whoever brings work wakes it. */
static void unlock_after_pass(struct harp_engine *e, bool idle) {
  if (idle) atomic_store_explicit(&e->sleeping, true, memory_order_seq_cst); /* (J) */
  harp_engine_unlock(e);
}

/* Sleeps after an unlock as idle. */
static void sleep_idle(struct harp_engine *e, struct sleep_fds *fds, harp_ns until_ns) {
  if (!atomic_load_explicit(&e->doorbell_words, memory_order_seq_cst)) sleep_until(e, fds, until_ns);
  atomic_store_explicit(&e->sleeping, false, memory_order_relaxed);
}

static bool is_stopping(struct harp_engine *e) {
  return atomic_load_explicit(&e->stop, memory_order_relaxed);
}

/* Returns whether nobody uses the engine any more, and its closing links are freed: on_tick is to close
 * it. Under the lock. */
static bool is_over(const struct harp_engine *e) {
  return !e->closing && atomic_load_explicit(&e->is_unused, memory_order_relaxed);
}

/* Returns true when the engine's owner has closed it: nothing of it may be touched then. */
static bool call_on_tick(struct harp_engine *e, harp_ns now) {
  harp_numbering_on_time(e, now);
  if (!e->on_tick || now < e->tick_ns) return false;
  e->tick_ns = now + HARP_RUNNER_TICK_NS;
  return e->on_tick(e);
}

static void run_thread(struct harp_engine *e) {
  struct sleep_fds fds;
  harp_ns busy_ns = e->clock();
  bool has_slept = false;
  for (uint32_t turns = 1; !is_stopping(e); turns++) {
    atomic_store_explicit(&e->turn_count, turns, memory_order_relaxed);
    if (!harp_engine_try_lock(e)) {
      sched_yield(); /* a control call is at work */
      continue;
    }
    if (has_slept) e->ready.look_ns = 0;
    unsigned moved = harp_engine_pass(e);
    harp_ns deadline_ns = harp_engine_deadline_ns(e), now = e->clock();
    if (moved || deadline_ns <= now + SPIN_NS) busy_ns = now;
    if (is_over(e)) e->tick_ns = busy_ns = now;
    bool idle = now - busy_ns > SPIN_NS;
    if (idle) gather_sources(e, &fds, true);
    unlock_after_pass(e, idle);
    has_slept = idle;
    if (idle) sleep_idle(e, &fds, deadline_ns);
    if (idle) busy_ns = e->clock();
    if (call_on_tick(e, now)) return;
  }
}

harp_ns harp_runner_next_nap_ns(harp_ns nap_ns, uint32_t visits, bool busy) {
  HARP_ASSERT(nap_ns >= HARP_WATCHDOG_NS && nap_ns <= HARP_WATCHDOG_MAX_NS);
  /* On average a visit in each HARP_WATCHDOG_NS. Longer passes mean fewer visits, but a busy lock. */
  if (busy || visits >= nap_ns / HARP_WATCHDOG_NS) return HARP_MIN(2 * nap_ns, HARP_WATCHDOG_MAX_NS);
  return visits ? HARP_WATCHDOG_NS : 0;
}

/* Passes for NCCL's threads while they are away: after a whole nap without a visit. While they are at it, it
 * only naps; once they are gone, it sleeps on the sockets like an engine thread, so that an idle job costs
 * nothing. What its pass keeps a visitor from is counted as a visit: it gives way at once. */
static void run_watchdog(struct harp_engine *e) {
  uint32_t seen = 0, wakeups = 0;
  harp_ns nap_ns = HARP_WATCHDOG_NS;
  struct sleep_fds fds;
  while (!is_stopping(e)) {
    if (call_on_tick(e, e->clock())) return;
    uint32_t visited = atomic_load_explicit(&e->visit_count, memory_order_relaxed), visits = visited - seen;
    wakeups++;
    seen = visited;
    bool busy = atomic_load_explicit(&e->locked, memory_order_relaxed);
    harp_ns next_ns = harp_runner_next_nap_ns(nap_ns, visits, busy);
    nap_ns = next_ns ? next_ns : HARP_WATCHDOG_NS;
    if (next_ns || !harp_engine_try_lock(e)) {
      gather_sources(e, &fds, false);
      sleep_until(e, &fds, e->clock() + nap_ns);
      continue;
    }
    e->ready.look_ns = 0; /* it has slept */
    unsigned moved = harp_engine_pass(e);
    harp_ns deadline_ns = harp_engine_deadline_ns(e);
    e->looked_for = NULL;
    e->counters.passes_watchdog++;
    e->counters.watchdog_wakeups += wakeups;
    wakeups = 0;
    bool idle = !moved && !is_over(e);
    if (is_over(e)) e->tick_ns = 0;
    if (idle) gather_sources(e, &fds, true);
    unlock_after_pass(e, idle);
    if (idle) sleep_idle(e, &fds, deadline_ns);
  }
}

/* ---- visits ---- */

static void count_visit(struct harp_engine *e) {
  uint32_t count = atomic_load_explicit(&e->visit_count, memory_order_relaxed);
  atomic_store_explicit(&e->visit_count, count + 1, memory_order_relaxed);
}

/* Returns whether a pass now would most likely find nothing. The test of the same request begins a new round
 * of tests, and a thread with one request open looks each time. */
static bool has_just_looked(struct harp_engine *e, const void *request) {
  if (!e->looked_for || e->looked_for == request) return false;
  if (atomic_load_explicit(&e->doorbell_words, memory_order_relaxed)) return false;
  if (!e->look_again_ns)
    e->look_again_ns = HARP_MIN(e->looked_ns + HARP_RUNNER_LOOK_NS, harp_engine_deadline_ns(e));
  return e->clock() < e->look_again_ns;
}

/* Releases the lock after a visitor's pass. A watchdog that fell asleep before does not know of the
 * deadlines that the pass made. */
static void end_visit(struct harp_engine *e, unsigned moved) {
  harp_engine_unlock(e);
  if (moved) harp_engine_wake_mt(e);
}

void harp_runner_inline_pass_mt(struct harp_engine *e, const void *request) {
  if (e->threaded) return;
  count_visit(e);
  if (!harp_engine_try_lock(e)) return;
  if (has_just_looked(e, request)) {
    harp_engine_unlock(e);
    return;
  }
  unsigned moved = harp_engine_pass(e);
  e->looked_for = moved ? NULL : request;
  e->look_again_ns = 0;
  end_visit(e, moved);
}

void harp_runner_inline_transmit_mt(struct harp_engine *e) {
  if (e->threaded) return;
  count_visit(e);
  if (!harp_engine_try_lock(e)) return;
  unsigned moved = harp_engine_pass_transmit(e);
  e->looked_for = NULL;
  end_visit(e, moved);
}

/* ---- the thread ---- */

static void pin_thread(const struct harp_engine *e) {
  uint16_t core = (uint16_t)e->core;
  if (e->core >= 0 && harp_cpu_pin_self(&core, 1))
    HARP_INFO("%s: core %d is no longer available to this process; the engine runs on any", e->name, e->core);
}

static void *thread_main(void *arg) {
  struct harp_engine *e = arg;
  atomic_store_explicit(&e->thread_id, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
  if (e->threaded) {
    pin_thread(e);
    run_thread(e);
  } else {
    prctl(PR_SET_TIMERSLACK, 1000UL);
    run_watchdog(e);
  }
  return NULL;
}

int harp_runner_start(struct harp_engine *e, struct harp_error *error) {
  sigset_t all, old;
  HARP_ASSERT(!e->running);
  e->threaded = e->instance.mode == HARP_ENGINE_THREAD;
  atomic_store(&e->stop, false);
  /* The trainer's signals are the trainer's: none is delivered to our thread. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int err = pthread_create(&e->thread, NULL, thread_main, e);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (err)
    return harp_shortage_set(error, err == EAGAIN ? -HARP_ETHREADS : -err,
                             "cannot start the engine's thread");
  e->running = true;
  return 0;
}

void harp_runner_stop(struct harp_engine *e) {
  if (!e->running) return;
  e->running = false;
  if (pthread_equal(e->thread, pthread_self())) {
    pthread_detach(e->thread);
    return;
  }
  uint64_t one = 1;
  atomic_store(&e->stop, true);
  (void)!write(e->wake_fd, &one, sizeof one);
  pthread_join(e->thread, NULL);
}
