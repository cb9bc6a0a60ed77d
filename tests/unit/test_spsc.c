/* SPDX-License-Identifier: Apache-2.0 */
/* The ring between two threads: bounds, order, and both threads at once (the TSan build watches the
 * barriers). */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/spsc.h"

static struct harp_spsc ring;

static void test_it_is_bounded_and_in_order(void **state) {
  (void)state;
  memset(&ring, 0, sizeof ring);
  /* Free-running counters pass 2^32 without notice. */
  atomic_store(&ring.head, 0xFFFFFFF0);
  atomic_store(&ring.tail, 0xFFFFFFF0);
  char items[HARP_SPSC_SLOTS + 1];
  assert_null(harp_spsc_peek(&ring));
  for (int i = 0; i < HARP_SPSC_SLOTS; i++) assert_true(harp_spsc_push(&ring, &items[i]));
  assert_false(harp_spsc_push(&ring, &items[HARP_SPSC_SLOTS]));
  for (int i = 0; i < HARP_SPSC_SLOTS; i++) {
    assert_ptr_equal(harp_spsc_peek(&ring), &items[i]);
    assert_ptr_equal(harp_spsc_peek(&ring), &items[i]); /* peek takes nothing */
    harp_spsc_pop(&ring);
  }
  assert_null(harp_spsc_peek(&ring));
}

enum { ITEMS = 50000 };
static uint32_t values[ITEMS];

static void *produce(void *arg) {
  (void)arg;
  for (uint32_t i = 0; i < ITEMS; i++) {
    values[i] = i * 7 + 1; /* plain store, published by the push */
    while (!harp_spsc_push(&ring, &values[i])) sched_yield();
  }
  return NULL;
}

static void test_two_threads_see_what_was_pushed(void **state) {
  (void)state;
  memset(&ring, 0, sizeof ring);
  memset(values, 0, sizeof values);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, produce, NULL), 0);
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < ITEMS; i++) {
    uint32_t *item;
    while (!(item = harp_spsc_peek(&ring))) sched_yield();
    wrong += item != &values[i] || *item != i * 7 + 1;
    harp_spsc_pop(&ring);
  }
  pthread_join(thread, NULL);
  assert_int_equal(wrong, 0);
}

/* Pairs of threads that pass buffers to and fro by two rings: each overwrites what it has taken, so a slot or
 * content that is seen too early or too late shows. */
enum { PAIRS = 4, BUFFERS = 16, WORDS = 8, PASSES = 20000 };

struct pair {
  pthread_t filler, reader;
  struct harp_spsc filled, empty;
  uint64_t buffers[BUFFERS][WORDS];
  uint64_t wrong;
};

static uint64_t *take(struct harp_spsc *q) {
  uint64_t *buffer;
  while (!(buffer = harp_spsc_peek(q))) sched_yield();
  harp_spsc_pop(q);
  return buffer;
}

static void *fill(void *arg) {
  struct pair *p = arg;
  for (uint64_t i = 0; i < PASSES; i++) {
    uint64_t *buffer = take(&p->empty);
    for (unsigned k = 0; k < WORDS; k++) {
      p->wrong += buffer[k] != 0;
      buffer[k] = i * WORDS + k + 1;
    }
    while (!harp_spsc_push(&p->filled, buffer)) sched_yield();
  }
  return NULL;
}

static void *read_and_clear(void *arg) {
  struct pair *p = arg;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < PASSES; i++) {
    uint64_t *buffer = take(&p->filled);
    for (unsigned k = 0; k < WORDS; k++) {
      wrong += buffer[k] != i * WORDS + k + 1;
      buffer[k] = 0;
    }
    while (!harp_spsc_push(&p->empty, buffer)) sched_yield();
  }
  return (void *)(uintptr_t)wrong;
}

static void test_pairs_of_threads_reuse_what_was_read(void **state) {
  (void)state;
  static struct pair pairs[PAIRS];
  memset(pairs, 0, sizeof pairs);
  for (unsigned i = 0; i < PAIRS; i++) {
    struct pair *p = &pairs[i];
    for (unsigned k = 0; k < BUFFERS; k++) assert_true(harp_spsc_push(&p->empty, p->buffers[k]));
    assert_int_equal(pthread_create(&p->filler, NULL, fill, p), 0);
    assert_int_equal(pthread_create(&p->reader, NULL, read_and_clear, p), 0);
  }
  for (unsigned i = 0; i < PAIRS; i++) {
    void *wrong;
    pthread_join(pairs[i].filler, NULL);
    pthread_join(pairs[i].reader, &wrong);
    assert_null(wrong);
    assert_int_equal(pairs[i].wrong, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_it_is_bounded_and_in_order),
      cmocka_unit_test(test_two_threads_see_what_was_pushed),
      cmocka_unit_test(test_pairs_of_threads_reuse_what_was_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
