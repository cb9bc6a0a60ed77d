/* SPDX-License-Identifier: Apache-2.0 */
#include "proofs/memory.h"

#include <string.h>
#include <ucontext.h>

enum {
  LOCATIONS_MAX = 16,
  STORES_MAX = 48,  /* the most stores of a location */
  BYTES_MAX = 1024, /* the most bytes that are accessed plainly */
  STACK_BYTES = 64 << 10,
  SETUP = MEMORY_THREADS_MAX, /* the thread that starts the others */
  ALL = MEMORY_THREADS_MAX + 1,
};

/* What is known of what has happened: the newest store of each location, and of each thread how many steps.
 */
struct knowledge {
  uint8_t seen[LOCATIONS_MAX];
  uint16_t steps[ALL];
};

struct store {
  uint64_t value;
  bool is_release;
  struct knowledge knowledge; /* the knowledge of a release, or of the one that it continues */
};

struct location {
  const volatile void *at;
  unsigned bytes, count;
  uint8_t sc_seen; /* by sequentially consistent accesses */
  struct store stores[STORES_MAX];
};

/* What a thread does next. */
struct step {
  const volatile void *at;
  bool is_write;
  const uint64_t *waits_for; /* is only done when this is not 0; NULL: */
  unsigned waits_behind;     /* when the location has more stores than this */
};

struct thread {
  ucontext_t context;
  struct knowledge knowledge;
  struct step next;
  bool is_over;
  _Alignas(16) char stack[STACK_BYTES];
};

struct plain {
  const void *at; /* the address of 8 bytes */
  struct {
    uint16_t write_step[ALL], read_step[ALL];
  } bytes[8];
};

static struct location locations[LOCATIONS_MAX];
static unsigned location_count, plain_count, thread_count;
static struct thread threads[ALL];
static struct plain plains[BYTES_MAX];
static ucontext_t scheduler;
static unsigned current = SETUP;
static void (*const *bodies)(void);

static struct knowledge *mine(void) {
  return &threads[current].knowledge;
}

static void learn(struct knowledge *k, const struct knowledge *of) {
  for (unsigned i = 0; i < LOCATIONS_MAX; i++)
    if (of->seen[i] > k->seen[i]) k->seen[i] = of->seen[i];
  for (unsigned i = 0; i < ALL; i++)
    if (of->steps[i] > k->steps[i]) k->steps[i] = of->steps[i];
}

static uint64_t read_memory(const volatile void *at, unsigned bytes) {
  uint64_t value = 0;
  memcpy(&value, (const void *)(uintptr_t)at, bytes);
  return value;
}

static unsigned location_of(const volatile void *at, unsigned bytes) {
  for (unsigned i = 0; i < location_count; i++)
    if (locations[i].at == at) return i;
  PROVE(location_count < LOCATIONS_MAX);
  struct location *l = &locations[location_count];
  *l = (struct location){.at = at, .bytes = bytes, .count = 1, .stores = {{.value = read_memory(at, bytes)}}};
  l->stores[0].is_release = true; /* what began the threads released it */
  return location_count++;
}

/* ---- steps ---- */

static bool depend(const struct step *a, const struct step *b) {
  return a->at == b->at && (a->is_write || b->is_write);
}

static bool is_possible(const struct step *s) {
  if (s->waits_for) return *s->waits_for;
  return !s->waits_behind || locations[location_of(s->at, 0)].count > s->waits_behind;
}

static void do_next(struct step step) {
  struct thread *t = &threads[current];
  t->next = step;
  swapcontext(&t->context, &scheduler);
  t->knowledge.steps[current]++;
}

/* Lets the scheduler choose who does its next step. */
static void before_step(const volatile void *at, bool is_write) {
  if (current == SETUP) return;
  do_next((struct step){at, is_write, NULL, 0});
}

static void start_thread(void) {
  bodies[current]();
  threads[current].is_over = true;
  swapcontext(&threads[current].context, &scheduler);
}

static void begin_thread(unsigned i) {
  struct thread *t = &threads[i];
  getcontext(&t->context);
  t->context.uc_stack.ss_sp = t->stack;
  t->context.uc_stack.ss_size = sizeof t->stack;
  t->context.uc_link = NULL;
  makecontext(&t->context, start_thread, 0);
  t->knowledge = threads[SETUP].knowledge;
  t->knowledge.steps[i] = 1;
  t->is_over = false;
  t->next = (struct step){0};
}

static void resume(unsigned i) {
  current = i;
  swapcontext(&scheduler, &threads[i].context);
  current = SETUP;
}

enum { NONE = MEMORY_THREADS_MAX };

/* Chooses among those that can go on and are not asleep, and returns it; NONE: all that are left wait. Those
 * before it fall asleep, since the runs before this one began with their steps. */
static unsigned choose_thread(uint32_t *asleep) {
  unsigned ready[MEMORY_THREADS_MAX], count = 0;
  bool is_any = false;
  for (unsigned i = 0; i < thread_count; i++) {
    const struct thread *t = &threads[i];
    if (t->is_over || !is_possible(&t->next)) continue;
    is_any = true;
    if (!(*asleep >> i & 1)) ready[count++] = i;
  }
  if (!is_any) return NONE;
  if (!count) prove_skip();
  uint32_t chosen = count > 1 ? prove_choose(count) : 0;
  for (uint32_t i = 0; i < chosen; i++) *asleep |= 1u << ready[i];
  return ready[chosen];
}

static bool is_one_left(void) {
  for (unsigned i = 0; i < thread_count; i++)
    if (!threads[i].is_over) return true;
  return false;
}

bool memory_run(void (*const of_threads[])(void), unsigned count) {
  uint32_t asleep = 0;
  PROVE(count <= MEMORY_THREADS_MAX);
  location_count = plain_count = 0;
  bodies = of_threads;
  thread_count = count;
  threads[SETUP].knowledge = (struct knowledge){.steps = {[SETUP] = 1}};
  for (unsigned i = 0; i < count; i++) begin_thread(i);
  for (unsigned i = 0; i < count; i++) resume(i); /* to its first step */
  while (is_one_left()) {
    unsigned i = choose_thread(&asleep);
    if (i == NONE) return false;
    struct step done = threads[i].next;
    for (unsigned k = 0; k < count; k++)
      if (depend(&threads[k].next, &done)) asleep &= ~(1u << k);
    resume(i);
  }
  return true;
}

/* ---- waiting ---- */

static struct knowledge posted; /* by all posts */

void memory_post(uint64_t *count) {
  before_step(count, true);
  if (!*count) memset(&posted, 0, sizeof posted);
  learn(&posted, mine());
  ++*count;
}

void memory_wait(uint64_t *count) {
  do_next((struct step){count, true, count, 0});
  learn(mine(), &posted);
  *count = 0;
}

void memory_await_store(const volatile void *at) {
  do_next((struct step){at, false, NULL, locations[location_of(at, 0)].count});
}

/* ---- atomic accesses ---- */

static bool acquires(int order) {
  return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE;
}
static bool releases(int order) {
  return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static void see(unsigned l, unsigned store, int order) {
  struct knowledge *k = mine();
  if (store > k->seen[l]) k->seen[l] = (uint8_t)store;
  if (acquires(order)) learn(k, &locations[l].stores[store].knowledge);
  if (order == __ATOMIC_SEQ_CST && store > locations[l].sc_seen) locations[l].sc_seen = (uint8_t)store;
}

static uint64_t load(const volatile void *at, unsigned bytes, int order) {
  before_step(at, false);
  unsigned l = location_of(at, bytes), oldest = mine()->seen[l], newest = locations[l].count - 1;
  if (order == __ATOMIC_SEQ_CST && locations[l].sc_seen > oldest) oldest = locations[l].sc_seen;
  unsigned store = newest - (newest > oldest ? prove_choose(newest - oldest + 1) : 0);
  see(l, store, order);
  return locations[l].stores[store].value;
}

/* Appends a store; one of a read-modify-write continues the release of what it read. */
static void append(unsigned l, uint64_t value, int order, bool continues) {
  struct location *at = &locations[l];
  PROVE(at->count < STORES_MAX);
  struct store *s = &at->stores[at->count];
  *s = (struct store){.value = value};
  mine()->seen[l] = (uint8_t)at->count;
  if (releases(order))
    s->knowledge = *mine();
  else
    s->knowledge.seen[l] = (uint8_t)at->count;
  if (continues) learn(&s->knowledge, &at->stores[at->count - 1].knowledge);
  if (order == __ATOMIC_SEQ_CST) at->sc_seen = (uint8_t)at->count;
  at->count++;
  memcpy((void *)(uintptr_t)at->at, &value, at->bytes);
}

static void store(volatile void *at, unsigned bytes, uint64_t value, int order) {
  before_step(at, true);
  append(location_of(at, bytes), value, order, false);
}

enum change { EXCHANGE, ADD, OR };

static uint64_t change(volatile void *at, unsigned bytes, enum change what, uint64_t by, int order) {
  before_step(at, true);
  unsigned l = location_of(at, bytes), newest = locations[l].count - 1;
  uint64_t value = locations[l].stores[newest].value;
  see(l, newest, order);
  append(l, what == EXCHANGE ? by : what == ADD ? value + by : value | by, order, true);
  return value;
}

/* ---- plain accesses ---- */

static bool is_on_a_stack(const void *at) {
  const char *first = (const char *)threads, *end = (const char *)(threads + ALL);
  return (const char *)at >= first && (const char *)at < end;
}

static struct plain *plain_of(const void *at) {
  const void *aligned = (const void *)((uintptr_t)at & ~7ul);
  for (unsigned i = 0; i < plain_count; i++)
    if (plains[i].at == aligned) return &plains[i];
  PROVE(plain_count < BYTES_MAX);
  plains[plain_count] = (struct plain){.at = aligned};
  return &plains[plain_count++];
}

static void plain_byte(const char *at, bool is_write) {
  struct plain *p = plain_of(at);
  unsigned byte = (uintptr_t)at & 7;
  for (unsigned i = 0; i < ALL; i++) {
    bool is_known = p->bytes[byte].write_step[i] <= mine()->steps[i] &&
                    (!is_write || p->bytes[byte].read_step[i] <= mine()->steps[i]);
    if (i != current && !is_known) PROVE(!"no data race");
  }
  uint16_t now = mine()->steps[current];
  if (is_write)
    p->bytes[byte].write_step[current] = now;
  else
    p->bytes[byte].read_step[current] = now;
}

static void plain(const void *at, unsigned bytes, bool is_write) {
  if (current == SETUP || is_on_a_stack(at)) return;
  for (unsigned i = 0; i < bytes; i++) plain_byte((const char *)at + i, is_write);
}

/* ---- what the compiler calls ---- */

#define NAME(a, b) a##b
#define ACCESS(n)                                                                                            \
  void NAME(__tsan_read, n)(void *at);                                                                       \
  void NAME(__tsan_write, n)(void *at);                                                                      \
  void NAME(__tsan_read, n)(void *at) {                                                                      \
    plain(at, n, false);                                                                                     \
  }                                                                                                          \
  void NAME(__tsan_write, n)(void *at) {                                                                     \
    plain(at, n, true);                                                                                      \
  }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

#define ATOMIC(bits, type)                                                                                   \
  type __tsan_atomic##bits##_load(const volatile type *at, int order);                                       \
  void __tsan_atomic##bits##_store(volatile type *at, type value, int order);                                \
  type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order);                             \
  type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order);                            \
  type __tsan_atomic##bits##_fetch_or(volatile type *at, type value, int order);                             \
  type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                      \
    return (type)load(at, sizeof *at, order);                                                                \
  }                                                                                                          \
  void __tsan_atomic##bits##_store(volatile type *at, type value, int order) {                               \
    store(at, sizeof *at, value, order);                                                                     \
  }                                                                                                          \
  type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) {                            \
    return (type)change(at, sizeof *at, EXCHANGE, value, order);                                             \
  }                                                                                                          \
  type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order) {                           \
    return (type)change(at, sizeof *at, ADD, value, order);                                                  \
  }                                                                                                          \
  type __tsan_atomic##bits##_fetch_or(volatile type *at, type value, int order) {                            \
    return (type)change(at, sizeof *at, OR, value, order);                                                   \
  }
ATOMIC(8, uint8_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes) {
  plain(at, (unsigned)bytes, false);
}
void __tsan_write_range(void *at, size_t bytes) {
  plain(at, (unsigned)bytes, true);
}

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller) {
  (void)caller;
}
void __tsan_func_exit(void) {}
