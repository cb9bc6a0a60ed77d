/* SPDX-License-Identifier: Apache-2.0 */
/* The messages that are large where several interfaces have paths over both carriers. */
#include "proto/send_carrier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/bring_up.h"
#include "wire/record.h"

enum {
  ENIS = 2,
  PATHS = 2 * ENIS,
  MTU_LINES = 11,
  MESSAGE_BYTES = HARP_SMALL_QUEUED_MAX_BYTES,
  MESSAGES = 16
};

static struct harp_sender *s;
static struct harp_tx_stream st;
static struct harp_counters counters;
static uint8_t data[MESSAGE_BYTES];
static harp_ns now;

static void start(unsigned enis, uint32_t window_bytes) {
  struct harp_sender_config c = {
      .stream_max = 1, .path_count = 2 * enis, .window_bytes = 8 << 20, .cc = &harp_cc_target};
  static const struct harp_tx_stream_config stream = {0};
  for (unsigned i = 0; i < 2 * enis; i++) {
    bool is_tcp = i >= enis;
    uint8_t eni = (uint8_t)(i % enis);
    c.paths[i] = (struct harp_path_config){.lines_max = is_tcp ? HARP_RECORD_MAX_LINES : MTU_LINES,
                                           .is_tcp = is_tcp,
                                           .local_eni = eni,
                                           .remote_eni = eni};
  }
  s = malloc(harp_sender_bytes(&c));
  assert_non_null(s);
  now = HARP_MS(1);
  harp_sender_init(s, &c, NULL, &counters, now);
  harp_sender_open(s, &st, &stream);
  for (unsigned i = enis; i < 2 * enis; i++) harp_sender_unblock(s, i, now);
  bring_up(s, now);
  for (unsigned i = 0; i < enis; i++) {
    s->paths[i].cc.slow_start = false;
    s->paths[i].cc.window_bytes = window_bytes;
  }
  assert_true(harp_tx_stream_on_credit(&st, MESSAGES));
}

static int fini(void **state) {
  (void)state;
  free(s);
  return 0;
}

/* Posts messages, of which nothing is sent, and returns the class of the first. */
static unsigned class_of_queued(void) {
  for (unsigned i = 0; i < MESSAGES; i++)
    assert_int_equal(harp_sender_post(s, &st, data, MESSAGE_BYTES, NULL, true, now), 0);
  return harp_tx_stream_class(&st);
}

static void test_what_waits_for_many_windows_is_large(void **state) {
  (void)state;
  start(ENIS, MESSAGES * MESSAGE_BYTES / 8);
  assert_int_equal(class_of_queued(), HARP_TX_LARGE);
}

static void test_what_waits_for_few_is_not(void **state) {
  (void)state;
  start(ENIS, MESSAGES * MESSAGE_BYTES / 2);
  assert_int_equal(class_of_queued(), HARP_TX_SMALL);
}

static void test_windows_in_slow_start_are_not_few(void **state) {
  (void)state;
  start(ENIS, MESSAGES * MESSAGE_BYTES / 8);
  for (unsigned i = 0; i < ENIS; i++) s->paths[i].cc.slow_start = true;
  assert_int_equal(class_of_queued(), HARP_TX_SMALL);
}

/* There superframes are whole, which pays. */
static void test_on_one_interface_it_is_not(void **state) {
  (void)state;
  start(1, MESSAGES * MESSAGE_BYTES / 8);
  assert_int_equal(class_of_queued(), HARP_TX_SMALL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_what_waits_for_many_windows_is_large, fini),
      cmocka_unit_test_teardown(test_what_waits_for_few_is_not, fini),
      cmocka_unit_test_teardown(test_windows_in_slow_start_are_not_few, fini),
      cmocka_unit_test_teardown(test_on_one_interface_it_is_not, fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
