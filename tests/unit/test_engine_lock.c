/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's lock: passes leave it to a control call that waits for it, but not for longer than that call
 * runs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_open.h"
#include "lib/sides.h"

/* A thread that waits for the lock. It stops when it reads the clock for the second time, as one that has
 * lost its core stops anywhere. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  bool is_stopped, may_go;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
static _Thread_local unsigned looks_left;

static harp_ns clock_with_gate(void) {
  if (looks_left && !--looks_left) {
    pthread_mutex_lock(&gate.lock);
    gate.is_stopped = true;
    pthread_cond_broadcast(&gate.moved);
    while (!gate.may_go) pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
  }
  return sides_now_ns;
}

static void *take_the_lock(void *engine) {
  looks_left = 2;
  harp_engine_lock(engine);
  harp_engine_unlock(engine);
  return NULL;
}

static void await_stop(void) {
  pthread_mutex_lock(&gate.lock);
  while (!gate.is_stopped) pthread_cond_wait(&gate.moved, &gate.lock);
  pthread_mutex_unlock(&gate.lock);
}

static void let_go(void) {
  pthread_mutex_lock(&gate.lock);
  gate.may_go = true;
  pthread_cond_broadcast(&gate.moved);
  pthread_mutex_unlock(&gate.lock);
}

static void test_a_waiter_off_its_core_stops_no_passes(void **state) {
  struct side a = {0}, b = {0};
  pthread_t waiter;
  (void)state;
  sides_now_ns = HARP_SEC(1);
  side_open(&a, &b, false, 1000, 0);
  a.engine->clock = clock_with_gate;
  harp_engine_lock(a.engine);
  assert_int_equal(pthread_create(&waiter, NULL, take_the_lock, a.engine), 0);
  await_stop();
  harp_engine_unlock(a.engine);
  assert_false(harp_engine_try_lock(a.engine)); /* the lock is the waiter's, if it comes */
  sides_now_ns += HARP_LOCK_LEFT_NS;
  assert_true(harp_engine_try_lock(a.engine));
  harp_engine_unlock(a.engine);
  let_go();
  pthread_join(waiter, NULL);
  assert_true(harp_engine_try_lock(a.engine)); /* nobody waits any more */
  harp_engine_unlock(a.engine);
  harp_engine_close(a.engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_waiter_off_its_core_stops_no_passes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
