/* SPDX-License-Identifier: Apache-2.0 */
/* See world.h. */
#include "whole/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct world world = {.now = HARP_SEC(1000)};
static uint8_t stacks[FIBERS_MAX][STACK_BYTES] __attribute__((aligned(4096)));

/* ---- events ---- */

static struct event {
  struct event *next;
  harp_ns at;
  void (*call)(void *word, uint64_t number);
  void *word;
  uint64_t number;
} * first_event;

void at_time(harp_ns at, void (*call)(void *word, uint64_t number), void *word, uint64_t number) {
  struct event **place = &first_event, *e = malloc(sizeof *e);
  if (!e) abort();
  while (*place && (*place)->at <= at) place = &(*place)->next;
  *e = (struct event){*place, at, call, word, number};
  *place = e;
}

static harp_ns next_event_ns(void) {
  harp_ns arrives = simnet_next_ns(&world.net);
  return first_event ? HARP_MIN(first_event->at, arrives) : arrives;
}

static void take_event(void) {
  struct event *e = first_event;
  world.now = HARP_MAX(world.now, next_event_ns());
  if (!e || simnet_next_ns(&world.net) < e->at) {
    kernel_deliver();
    return;
  }
  first_event = e->next;
  e->call(e->word, e->number);
  free(e);
}

/* ---- fibers ---- */

struct process *self(void) {
  return &world.processes[world.current->process];
}

static harp_ns time_of(const struct fiber *f) {
  const struct process *p = &world.processes[f->process];
  if (f->is_over || p->is_dead) return HARP_NEVER;
  return HARP_MAX(f->at, p->paused_until);
}

/* Those whose wait is over go on a little later. */
static void end_waits(void) {
  world.has_changed = false;
  for (unsigned i = 0; i < world.fiber_count; i++) {
    struct fiber *f = &world.fibers[i];
    if (f->is_over || !f->is_waiting || !f->is_met(f->word)) continue;
    f->is_waiting = false;
    harp_ns woken = world.now + HARP_US(1) + rng_below(&world.rng, HARP_US(30));
    f->at = HARP_MIN(f->at, woken);
  }
}

/* Returns the fiber that is behind all others, after all events before it. */
static struct fiber *choose(void) {
  for (;;) {
    if (world.has_changed) end_waits();
    struct fiber *best = &world.fibers[0];
    for (unsigned i = 1; i < world.fiber_count; i++)
      if (time_of(&world.fibers[i]) < time_of(best)) best = &world.fibers[i];
    if (next_event_ns() > time_of(best)) {
      world.now = HARP_MAX(world.now, time_of(best));
      best->is_waiting = false;
      return best;
    }
    take_event();
  }
}

static void run_others(void) {
  struct fiber *from = world.current, *to = choose();
  if (to == from) return;
  from->saved_errno = errno;
  world.current = to;
  swapcontext(&from->context, &to->context);
  errno = world.current->saved_errno;
}

static void fiber_main(void) {
  struct fiber *f = world.current;
  errno = 0;
  f->run(f->run_word);
  f->is_over = true;
  world.has_changed = true;
  run_others();
  abort();
}

struct fiber *fiber_new(int process, void *(*run)(void *), void *word) {
  if (world.fiber_count == FIBERS_MAX) abort();
  struct fiber *f = &world.fibers[world.fiber_count];
  *f = (struct fiber){.process = process, .at = world.now, .run = run, .run_word = word};
  if (world.fiber_count) { /* the first one is the thread itself */
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stacks[world.fiber_count];
    f->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->context, fiber_main, 0);
    f->at += rng_below(&world.rng, HARP_US(50));
  }
  world.fiber_count++;
  return f;
}

void pass_time(harp_ns ns) {
  struct fiber *f = world.current;
  f->at = HARP_MAX(f->at, world.now) + ns;
  if (world.plan.is_uneven && rng_chance(&world.rng, 500)) f->at += rng_below(&world.rng, HARP_MS(3));
  run_others();
}

bool wait_for(bool (*is_met)(void *), void *word, harp_ns until) {
  struct fiber *f = world.current;
  if (is_met(word)) return true;
  f->is_met = is_met;
  f->word = word;
  f->at = until;
  f->is_waiting = true;
  run_others();
  return is_met(word);
}

void kill_process(int process) {
  struct process *p = &world.processes[process];
  for (int fd = 0; fd < FILES_MAX; fd++)
    if (p->files[fd]) (void)kernel_close(p, fd);
  p->is_dead = true;
  world.on_kill();
  world.has_changed = true;
  if (world.current->process == process) run_others();
}

/* The plugin's code calls this in each basic block, where it is compiled with -fsanitize-coverage=trace-pc:
 * threads change places there too, not only in calls of libc: each 4 to 2,000 blocks, by the seed. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
  static unsigned left = 1;
  if (!world.current || --left) return;
  unsigned grain = world.plan.seed % 10;
  left = 1 + (unsigned)rng_below(&world.rng, 8ull << grain);
  bool is_long = !rng_below(&world.rng, 1 + (64ull >> grain));
  pass_time(rng_below(&world.rng, is_long ? HARP_MS(2) : HARP_US(1)));
}

/* ---- what is told ---- */

void report(const char *format, ...) {
  va_list arguments;
  if (world.trouble[0]) return;
  va_start(arguments, format);
  (void)vsnprintf(world.trouble, sizeof world.trouble, format, arguments);
  va_end(arguments);
}

static void mix(uint64_t value) {
  world.hash = (world.hash ^ value) * 0x100000001B3ull;
}

void trace(const char *call, long result) {
  for (const char *c = call; *c; c++) mix((uint8_t)*c);
  mix((uint64_t)result);
  mix(world.now);
  mix((uint64_t)(world.current - world.fibers));
  if (!world.plan.is_traced) return;
  fprintf(stderr, "%12.6f %d.%td %s %ld\n", (double)(world.now - HARP_SEC(1000)) / 1e9,
          world.current->process, world.current - world.fibers, call, result);
}
