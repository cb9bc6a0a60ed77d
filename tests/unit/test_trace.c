/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder's ring and its text. */
#include <ctype.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/counters.h"
#include "base/status.h"
#include "lib/trace_text.h"

static struct harp_trace_ring ring;
static const struct harp_trace trace = {.ring = &ring, .peer = 7};

static int setup(void **state) {
  (void)state;
  harp_trace_init(&ring);
  return 0;
}

static void write_one(harp_ns now, enum harp_event event, uint64_t number) {
  harp_trace(&trace, now, (struct harp_trace_entry){.event = (uint8_t)event, .number = number});
}

static void test_an_event_reads_as_text(void **state) {
  (void)state;
  char text[200];
  struct harp_trace_entry e = {
      .at_ns = 1234567, .event = HARP_EVENT_LOST, .path = 1, .number = 0x100000002, .count = 4, .a = 30};
  size_t length = trace_text(&e, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_string_equal(text, "[     1234.567 us] path 1 lost 4 packets from 4294967298 on, line 30 first");
}

static void test_numbers_with_names_read_as_words(void **state) {
  (void)state;
  char text[200];
  struct harp_trace_entry e = {.event = HARP_EVENT_PATH_STATE, .path = 3, .a = 1, .b = 9};
  trace_text(&e, text, sizeof text);
  assert_string_equal(text, "[        0.000 us] path 3 goes from up to 9");
}

/* The trace has a word for each value of the enums, and for drops that of the counters. */
static void test_reasons_and_statuses_read_as_words(void **state) {
  (void)state;
  char text[200];
  for (unsigned i = 0; i <= HARP_DROP_COUNT; i++) {
    struct harp_trace_entry e = {.event = HARP_EVENT_RX_DROP, .a = i};
    trace_text(&e, text, sizeof text);
    const char *word = strrchr(text, ' ') + 1;
    if (i == HARP_DROP_COUNT)
      assert_int_equal(atoi(word), HARP_DROP_COUNT);
    else
      assert_int_equal(strcasecmp(word, harp_drop_name((enum harp_drop)i)), 0);
  }
  for (unsigned i = 0; i <= HARP_ERR_INTERNAL + 1; i++) {
    struct harp_trace_entry e = {.event = HARP_EVENT_STREAM_CLOSED, .b = i};
    trace_text(&e, text, sizeof text);
    const char *word = strstr(text, "closes: ") + strlen("closes: ");
    assert_int_equal(isdigit((unsigned char)*word) != 0, i > HARP_ERR_INTERNAL);
  }
}

static void test_every_event_has_text(void **state) {
  (void)state;
  char text[256];
  for (unsigned i = 0; i < HARP_EVENT_COUNT; i++) {
    struct harp_trace_entry e = {.at_ns = UINT64_MAX,
                                 .number = UINT64_MAX,
                                 .a = UINT32_MAX,
                                 .b = UINT32_MAX,
                                 .stream = UINT16_MAX,
                                 .path = UINT8_MAX,
                                 .count = UINT8_MAX,
                                 .event = (uint8_t)i};
    assert_in_range(trace_text(&e, text, sizeof text), 40, sizeof text - 2);
    assert_null(strpbrk(text, "{}|"));
  }
  struct harp_trace_entry bad = {.event = HARP_EVENT_COUNT};
  trace_text(&bad, text, sizeof text);
  assert_string_equal(text, "unknown event");
}

static void test_a_short_buffer_is_not_overrun(void **state) {
  (void)state;
  char text[80];
  struct harp_trace_entry e = {
      .at_ns = 1, .event = HARP_EVENT_RX_ACK, .path = 1, .number = 2, .a = 3, .b = 4};
  for (size_t n = 1; n < sizeof text; n++) {
    memset(text, 'x', sizeof text);
    trace_text(&e, text, n);
    assert_int_equal(text[n], 'x');
    assert_true(memchr(text, 0, n) != NULL);
  }
}

static void test_the_ring_keeps_the_last(void **state) {
  (void)state;
  for (uint64_t i = 0; i < HARP_TRACE_FLOW_SLOTS + 5; i++) write_one(i, HARP_EVENT_SENT, i);
  assert_int_equal(ring.heads[HARP_TRACE_FLOW].count, HARP_TRACE_FLOW_SLOTS + 5);
  assert_int_equal(ring.flow[4].number, HARP_TRACE_FLOW_SLOTS + 4);
  assert_int_equal(ring.flow[5].number, 5);
  assert_int_equal(ring.flow[5].peer, 7);
  harp_trace(NULL, 0, (struct harp_trace_entry){0});
}

/* What is rare outlives what is frequent. */
static void test_parts_do_not_push_each_other_out(void **state) {
  (void)state;
  write_one(1, HARP_EVENT_PATH_STATE, 0);
  write_one(2, HARP_EVENT_PTO, 0);
  for (uint64_t i = 0; i < 3 * HARP_TRACE_FLOW_SLOTS; i++) write_one(3, HARP_EVENT_TX_DATA, i);
  assert_int_equal(ring.heads[HARP_TRACE_STATE].count, 1);
  assert_int_equal(ring.state[0].event, HARP_EVENT_PATH_STATE);
  assert_int_equal(ring.recovery[0].event, HARP_EVENT_PTO);
  assert_int_equal((uint8_t)(ring.recovery[0].order - ring.state[0].order), 1);
}

/* A ring contains where its parts are, for another process. */
static void test_heads_describe_the_ring(void **state) {
  (void)state;
  for (unsigned part = 0; part < HARP_TRACE_PARTS; part++) {
    const struct harp_trace_head *h = &ring.heads[part];
    assert_ptr_equal((char *)&ring + h->at_bytes, harp_trace_slot(&ring, (enum harp_trace_part)part, 0));
    assert_true(h->slots && !(h->slots & (h->slots - 1)));
  }
}

/* Another process that reads while this one writes finds whole entries behind the count. */
static void test_a_reader_beside_the_writer(void **state) {
  (void)state;
  enum { ROUNDS = 20, MARGIN = 64 };
  struct harp_trace_ring *shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(shared, MAP_FAILED);
  harp_trace_init(shared);
  pid_t writer = fork();
  if (!writer) {
    const struct harp_trace t = {.ring = shared};
    for (uint64_t i = 0;; i++) {
      harp_trace(&t, i,
                 (struct harp_trace_entry){
                     .event = HARP_EVENT_TX_DATA, .number = i, .a = (uint32_t)i, .b = ~(uint32_t)i});
      if (i % 1024 == 0) usleep(20); /* else it laps the reader */
    }
  }
  struct harp_trace_entry *copy = malloc(sizeof shared->flow);
  uint64_t seen = 0;
  for (unsigned round = 0; round < ROUNDS || seen < HARP_TRACE_FLOW_SLOTS; round++) {
    uint64_t end = atomic_load_explicit(&shared->heads[HARP_TRACE_FLOW].count, memory_order_acquire);
    memcpy(copy, shared->flow, sizeof shared->flow);
    atomic_thread_fence(memory_order_acquire);
    uint64_t after = atomic_load_explicit(&shared->heads[HARP_TRACE_FLOW].count, memory_order_relaxed);
    uint64_t from = after + MARGIN > HARP_TRACE_FLOW_SLOTS ? after + MARGIN - HARP_TRACE_FLOW_SLOTS : 0;
    for (uint64_t i = from; i < end; i++, seen++) {
      const struct harp_trace_entry *e = &copy[i % HARP_TRACE_FLOW_SLOTS];
      if (e->number != i || e->at_ns != i || e->a != (uint32_t)i || e->b != ~(uint32_t)i)
        fail_msg("entry %llu is torn", (unsigned long long)i);
    }
  }
  kill(writer, SIGKILL);
  waitpid(writer, NULL, 0);
  free(copy);
  munmap(shared, sizeof *shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_event_reads_as_text),
      cmocka_unit_test(test_numbers_with_names_read_as_words),
      cmocka_unit_test(test_reasons_and_statuses_read_as_words),
      cmocka_unit_test(test_every_event_has_text),
      cmocka_unit_test(test_a_short_buffer_is_not_overrun),
      cmocka_unit_test_setup(test_the_ring_keeps_the_last, setup),
      cmocka_unit_test_setup(test_parts_do_not_push_each_other_out, setup),
      cmocka_unit_test_setup(test_heads_describe_the_ring, setup),
      cmocka_unit_test(test_a_reader_beside_the_writer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
