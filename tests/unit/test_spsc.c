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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_it_is_bounded_and_in_order),
      cmocka_unit_test(test_two_threads_see_what_was_pushed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
