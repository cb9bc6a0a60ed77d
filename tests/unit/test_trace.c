/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring and its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/trace.h"

static struct harp_trace trace;

static void an_event_reads_as_text(void **state) {
  (void)state;
  char text[200];
  struct harp_trace_entry e = {1234567, HARP_EVENT_LOST, {1, 0x100000002, 30, 4}};
  int length = harp_trace_format(&e, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_string_equal(text, "[     1234.567 us] path 1 lost packet 4294967298 at line 30 count 4");
}

static void every_event_has_text(void **state) {
  (void)state;
  char text[200];
  for (int i = 0; i < HARP_EVENT_COUNT; i++) {
    struct harp_trace_entry e = {0, (enum harp_event)i, {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    assert_in_range(harp_trace_format(&e, text, sizeof text), 20, sizeof text - 1);
  }
  struct harp_trace_entry bad = {0, HARP_EVENT_COUNT, {0}};
  harp_trace_format(&bad, text, sizeof text);
  assert_string_equal(text, "unknown event");
}

static void a_short_buffer_is_not_overrun(void **state) {
  (void)state;
  char text[40];
  struct harp_trace_entry e = {1, HARP_EVENT_RX_ACK, {1, 2, 3, 4}};
  for (size_t n = 1; n < sizeof text; n++) {
    memset(text, 'x', sizeof text);
    harp_trace_format(&e, text, n);
    assert_int_equal(text[n], 'x');
    assert_true(memchr(text, 0, n) != NULL);
  }
}

static void the_ring_keeps_the_last(void **state) {
  (void)state;
  for (uint64_t i = 0; i < HARP_TRACE_SLOTS + 5; i++) harp_trace(&trace, i, HARP_EVENT_SENT, i, 0, 0, 0);
  assert_int_equal(trace.count, HARP_TRACE_SLOTS + 5);
  assert_int_equal(trace.slots[4].arg[0], HARP_TRACE_SLOTS + 4);
  assert_int_equal(trace.slots[5].arg[0], 5);
  harp_trace(NULL, 0, HARP_EVENT_SENT, 0, 0, 0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_reads_as_text),
      cmocka_unit_test(every_event_has_text),
      cmocka_unit_test(a_short_buffer_is_not_overrun),
      cmocka_unit_test(the_ring_keeps_the_last),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
