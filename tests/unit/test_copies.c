/* SPDX-License-Identifier: Apache-2.0 */
/* Small sends that are copied: their ring, the credit that they need, and what becomes of them when NCCL has
 * closed the link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/peer_life.h"
#include "lib/sides.h"
#include "net/net.h"

enum { MESSAGE = 3000, MESSAGES = HARP_EARLY_MESSAGES };

static unsigned warn_count;

static void count_warns(enum harp_log_level level, const char *where, int line, const char *text) {
  (void)where, (void)line, (void)text;
  warn_count += level == HARP_LOG_WARN;
}

static void open_both(struct side *a, struct side *b, uint32_t loss) {
  *a = *b = (struct side){0};
  sides_now_ns = HARP_SEC(1);
  warn_count = 0;
  harp_log_set_sink(count_warns);
  side_open(a, b, false, 1000, loss);
  side_open(b, a, false, 2000, loss);
  sides_connect(a, b, 0xfffffff0u);
}

static void close_both(struct side *a, struct side *b) {
  side_close(b);
  assert_int_equal(a->engine->outstanding, 0);
  harp_engine_close(a->engine); /* asserts that no link is left */
  harp_log_set_sink(NULL);
}

static void pass_both(struct side *a, struct side *b, unsigned times) {
  while (times--) {
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
    sides_now_ns += HARP_US(20);
  }
}

/* Submits a send as harp_net_send does; returns whether it was copied. */
static bool send_small(struct harp_link *link, void *data, uint32_t bytes) {
  harp_copies_collect(link);
  assert_true(link->requests_free);
  struct harp_request *r = &link->requests[__builtin_ctzll(link->requests_free)];
  link->requests_free &= link->requests_free - 1;
  *r = (struct harp_request){.link = link, .data = data, .capacity = bytes, .state = HARP_REQUEST_POSTED};
  bool copied = harp_copies_take(link, r);
  link->submitted++;
  assert_true(harp_spsc_push(&link->submit, r));
  harp_engine_ring_mt(link->engine, link->slot);
  r->is_tested = copied; /* as NCCL's test does, at once */
  return copied;
}

/* The ring takes what fits, in one piece each, and has room again when the oldest are delivered. */
static void test_ring(void **state) {
  (void)state;
  static struct harp_link link;
  static uint8_t data[HARP_COPY_MAX_BYTES + 1];
  struct harp_request *r = link.requests;
  memset(&link, 0, sizeof link);
  link.requests_free = 0;
  link.credit = 1000;
  assert_true(harp_copies_init(&link.copies));
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++)
    r[i] = (struct harp_request){
        .link = &link, .data = data, .capacity = HARP_COPY_MAX_BYTES, .state = HARP_REQUEST_POSTED};
  r[0].capacity++;
  assert_false(harp_copies_take(&link, &r[0])); /* too large */
  unsigned fit = HARP_COPIES_BYTES / HARP_COPY_MAX_BYTES;
  r[0].capacity -= 2;
  for (unsigned i = 0; i < fit; i++) assert_true(harp_copies_take(&link, &r[i]));
  r[fit].capacity = 1;
  assert_false(harp_copies_take(&link, &r[fit])); /* full */
  assert_ptr_equal(r[fit].data, data);
  assert_false(r[fit].is_copy);
  r[fit].capacity = 0; /* takes no room */
  assert_true(harp_copies_take(&link, &r[fit]));

  r[1].state = HARP_REQUEST_DONE; /* not the oldest: it waits for its turn */
  harp_copies_collect(&link);
  assert_int_equal(harp_copies_count(&link.copies), fit + 1);
  r[0].is_tested = true;
  r[0].state = HARP_REQUEST_DONE;
  harp_copies_collect(&link);
  assert_int_equal(harp_copies_count(&link.copies), fit - 1);
  assert_int_equal(link.requests_free, 1); /* the one that was tested */
  assert_false(r[1].is_copy);              /* the other is an ordinary request */
  assert_int_equal(r[1].state, HARP_REQUEST_DONE);

  /* The place of the first two. The end of memory is not cut across. */
  r[10].capacity = HARP_COPY_MAX_BYTES;
  r[11].capacity = HARP_COPY_MAX_BYTES - HARP_CACHE_LINE + 1;
  r[12].capacity = 1;
  assert_true(harp_copies_take(&link, &r[10]));
  assert_true(harp_copies_take(&link, &r[11]));
  assert_false(harp_copies_take(&link, &r[12]));
  for (unsigned i = 0; i < HARP_REQUESTS_MAX; i++) {
    if (!r[i].is_copy) continue;
    uint8_t *at = r[i].data;
    assert_true(at >= link.copies.memory);
    assert_true(at + r[i].capacity <= link.copies.memory + HARP_COPIES_BYTES);
    r[i].state = HARP_REQUEST_DONE;
  }
  harp_copies_collect(&link);
  assert_int_equal(harp_copies_count(&link.copies), 0);
  r[12].state = HARP_REQUEST_POSTED;
  assert_true(harp_copies_take(&link, &r[12]));
  assert_ptr_equal(r[12].data, link.copies.memory); /* from the start again */
  harp_copies_fini(&link.copies);
}

/* Sends of uneven sizes, delivered in order a few at a time, for many turns of the ring: no copy overlaps
 * another that is under way. */
static void test_ring_turns(void **state) {
  (void)state;
  static struct harp_link link;
  static uint8_t data[HARP_COPY_MAX_BYTES];
  uint32_t random = 1, first = 0, next = 0, refused = 0;
  memset(&link, 0, sizeof link);
  assert_true(harp_copies_init(&link.copies));
  link.credit = 1u << 30;
  for (unsigned step = 0; step < 20000; step++) {
    random = random * 1664525u + 1013904223u;
    struct harp_request *r = &link.requests[next % HARP_REQUESTS_MAX];
    if (next - first < HARP_REQUESTS_MAX && random >> 30) {
      *r = (struct harp_request){.link = &link, .data = data, .state = HARP_REQUEST_POSTED};
      r->capacity = (random >> 8) % (random & 0x80 ? HARP_COPY_MAX_BYTES + 1u : 200u);
      memset(data, (int)(next & 0xff), r->capacity);
      if (harp_copies_take(&link, r))
        next++;
      else
        refused++;
    } else if (first != next) {
      struct harp_request *done = &link.requests[first % HARP_REQUESTS_MAX];
      const uint8_t *copy = done->data;
      for (uint32_t i = 0; i < done->capacity; i++) assert_int_equal(copy[i], first & 0xff);
      done->state = HARP_REQUEST_DONE;
      first++;
      harp_copies_collect(&link);
      assert_int_equal(harp_copies_count(&link.copies), next - first);
    }
  }
  assert_true(refused > 100 && next > 5000);
  harp_copies_fini(&link.copies);
}

/* Without a posted receive as many are copied as there are early places, and more when the peer has
 * posted. */
static void test_credit(void **state) {
  (void)state;
  struct side a, b;
  static uint8_t from[8], to[HARP_REQUESTS_MAX][8];
  open_both(&a, &b, 0);
  for (unsigned i = 0; i < HARP_EARLY_MESSAGES; i++) assert_true(send_small(a.link, from, sizeof from));
  assert_false(send_small(a.link, from, sizeof from));
  assert_int_equal(a.engine->outstanding, 0);
  pass_both(&a, &b, 200);
  assert_int_equal(a.engine->outstanding, 1); /* NCCL waits for none of the copies */
  assert_int_equal(a.link->copies_outstanding, 0);
  for (unsigned i = 0; i < 20; i++) side_submit(b.link, i, to[i], sizeof to[i]);
  pass_both(&a, &b, 4000); /* the sender requests credit now and then */
  assert_int_equal(a.engine->outstanding, 0);
  for (unsigned i = HARP_EARLY_MESSAGES + 1; i < 20 + HARP_EARLY_MESSAGES; i++)
    assert_true(send_small(a.link, from, sizeof from));
  assert_false(send_small(a.link, from, sizeof from));
  pass_both(&a, &b, 200);
  harp_link_destroy(a.link); /* it has a request of NCCL's, so that it does not wait for copies */
  assert_null(a.engine->closing);
  assert_int_equal(a.engine->link_count, 0);
  close_both(&a, &b);
  assert_int_equal(warn_count, 0);
}

/* Credit that comes alone, while nothing is under way, counts for the next sends. */
static void test_credit_counts_at_once(void **state) {
  (void)state;
  enum { POSTED = 20 };
  struct side a, b;
  static uint8_t from[8], to[POSTED][8];
  open_both(&a, &b, 0);
  for (unsigned i = 0; i < POSTED; i++) side_submit(b.link, i, to[i], sizeof to[i]);
  pass_both(&a, &b, 200);
  for (unsigned i = 0; i < POSTED + HARP_EARLY_MESSAGES; i++)
    assert_true(send_small(a.link, from, sizeof from));
  assert_false(send_small(a.link, from, sizeof from));
  pass_both(&a, &b, 200);
  harp_link_destroy(a.link);
  close_both(&a, &b);
}

/* NCCL closes the link when test has returned that its sends are done: every byte arrives, under loss, though
 * the buffer holds something else by then, and the link goes. */
static void test_closed_link_delivers(void **state) {
  (void)state;
  static uint8_t from[MESSAGE], to[MESSAGES][MESSAGE];
  for (uint32_t seed = 0; seed < 20; seed++) {
    struct side a, b;
    open_both(&a, &b, 200);
    a.random += seed, b.random += seed;
    memset(to, 0xee, sizeof to);
    for (unsigned m = 0; m < MESSAGES; m++) {
      memset(from, (int)m + 1, sizeof from);
      assert_true(send_small(a.link, from, sizeof from));
    }
    memset(from, 0x77, sizeof from);
    harp_link_destroy(a.link);
    assert_int_equal(a.engine->link_count, 1);
    for (unsigned m = 0; m < MESSAGES; m++) side_submit(b.link, m, to[m], MESSAGE);
    for (unsigned i = 0; i < 100000 && a.engine->closing; i++) pass_both(&a, &b, 1);
    assert_null(a.engine->closing);
    assert_int_equal(a.engine->link_count, 0);
    for (unsigned m = 0; m < MESSAGES; m++) {
      assert_int_equal(atomic_load(&b.link->requests[m].state), HARP_REQUEST_DONE);
      for (unsigned i = 0; i < MESSAGE; i++) assert_int_equal(to[m][i], m + 1);
    }
    close_both(&a, &b);
    assert_int_equal(warn_count, 0);
  }
}

/* A peer that takes nothing is waited for until the peer timeout, and that is logged. */
static void test_closing_link_ends_in_time(void **state) {
  (void)state;
  struct side a, b;
  static uint8_t from[8];
  open_both(&a, &b, 1000);
  assert_true(send_small(a.link, from, sizeof from));
  harp_link_destroy(a.link);
  harp_ns end = sides_now_ns + a.engine->instance.peer_timeout_ns;
  while (sides_now_ns + HARP_MS(1) < end) {
    harp_engine_pass(a.engine);
    assert_non_null(a.engine->closing);
    sides_now_ns += HARP_MS(1);
  }
  sides_now_ns = end;
  harp_engine_pass(a.engine);
  assert_null(a.engine->closing);
  assert_int_equal(a.engine->link_count, 0);
  assert_int_equal(warn_count, 1);
  close_both(&a, &b);
}

/* A peer that has failed is not waited for; that its acknowledgement is missing proves no loss. */
static void test_closing_link_ends_with_the_peer(void **state) {
  (void)state;
  struct side a, b;
  static uint8_t from[8];
  open_both(&a, &b, 1000);
  assert_true(send_small(a.link, from, sizeof from));
  struct harp_peer *peer = a.link->peer;
  harp_link_destroy(a.link);
  harp_engine_pass(a.engine);
  assert_non_null(a.engine->closing);
  harp_peer_fail(peer, HARP_ERR_REMOTE, sides_now_ns, "it died");
  harp_engine_pass(a.engine);
  assert_null(a.engine->closing);
  assert_int_equal(a.engine->link_count, 0);
  assert_int_equal(warn_count, 0);
  close_both(&a, &b);
}

/* A link that has failed before NCCL tests a copy is an error, once WARN; what was delivered before is
 * done. */
static void test_failed_link(void **state) {
  (void)state;
  struct side a, b;
  static uint8_t from[8], to[8];
  bool done;
  size_t bytes;
  open_both(&a, &b, 0);
  side_submit(b.link, 0, to, sizeof to);
  assert_true(send_small(a.link, from, sizeof from));
  a.link->requests[0].is_tested = false;
  pass_both(&a, &b, 100);
  assert_true(send_small(a.link, from, sizeof from));
  a.link->requests[1].is_tested = false;
  harp_engine_lock(a.engine);
  harp_link_fail(a.link, HARP_ERR_REMOTE, "it failed");
  harp_engine_unlock(a.engine);
  assert_int_equal(harp_net_test(&a.link->requests[1], &done, &bytes), HARP_ERR_REMOTE);
  assert_false(done);
  assert_int_equal(harp_net_test(&a.link->requests[0], &done, &bytes), HARP_OK);
  assert_true(done);
  assert_int_equal(bytes, 8);
  harp_link_destroy(a.link);
  assert_null(a.engine->closing);
  assert_int_equal(warn_count, 1);
  close_both(&a, &b);
}

/* A copy that turns out to be undeliverable while its link is being closed is logged: no call reports it. */
static void test_link_fails_as_it_is_closed(void **state) {
  (void)state;
  const struct harp_close close = {.is_sender = false};
  struct side a, b;
  static uint8_t from[8];
  open_both(&a, &b, 0);
  harp_engine_lock(a.engine);
  harp_link_on_close(a.link, &close, sides_now_ns);
  harp_engine_unlock(a.engine);
  assert_true(send_small(a.link, from, sizeof from));
  assert_int_equal(atomic_load(&a.link->status), HARP_OK);
  harp_link_destroy(a.link);
  assert_null(a.engine->closing);
  assert_int_equal(warn_count, 1);
  close_both(&a, &b);
}

/* Nothing that lies in a buffer of NCCL's is borrowed by a copy: it may be deregistered at once. */
static void test_quiesce_leaves_copies_alone(void **state) {
  (void)state;
  struct side a, b;
  static uint8_t from[64];
  open_both(&a, &b, 0);
  assert_true(send_small(a.link, from, sizeof from));
  harp_link_quiesce(a.link, from, sizeof from);
  assert_int_equal(atomic_load(&a.link->status), HARP_OK);
  assert_int_equal(a.link->copies_outstanding, 1);
  harp_link_destroy(a.link);
  pass_both(&a, &b, 200);
  assert_null(a.engine->closing);
  close_both(&a, &b);
}

/* What was copied is done at the peer already: its acknowledgement waits for data to ride on. Another one is
 * done when we acknowledge it, so that leaves though NCCL may not call again. */
static void test_only_awaited_messages_are_hurried(void **state) {
  (void)state;
  static uint8_t from[MESSAGE + HARP_COPY_MAX_BYTES], to[sizeof from];
  static const uint32_t sizes[] = {MESSAGE, sizeof from};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    struct side a, b;
    open_both(&a, &b, 0);
    side_submit(b.link, 0, to, sizes[i]);
    pass_both(&a, &b, 200);
    assert_int_equal(send_small(a.link, from, sizes[i]), sizes[i] <= HARP_COPY_MAX_BYTES);
    harp_engine_pass(a.engine);
    uint64_t acks = b.engine->counters.tx_acks;
    harp_engine_pass(b.engine);
    assert_int_equal(atomic_load(&b.link->requests[0].state), HARP_REQUEST_DONE);
    assert_int_equal(b.engine->counters.tx_acks > acks, sizes[i] > HARP_COPY_MAX_BYTES);
    sides_now_ns += HARP_US(450);
    harp_engine_pass(b.engine);
    assert_int_equal(b.engine->counters.tx_acks > acks, sizes[i] > HARP_COPY_MAX_BYTES);
    sides_now_ns += HARP_US(60);
    harp_engine_pass(b.engine);
    assert_true(b.engine->counters.tx_acks > acks);
    pass_both(&a, &b, 10);
    harp_link_destroy(a.link);
    close_both(&a, &b);
  }
}

/* Thousands of connections fit a bounded memory. */
static void test_many_rings_are_small(void **state) {
  (void)state;
  static struct harp_copies rings[HARP_COPIES_LARGE_RINGS + 1];
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(rings); i++) assert_true(harp_copies_init(&rings[i]));
  assert_int_equal(rings[HARP_COPIES_LARGE_RINGS - 1].bytes, HARP_COPIES_BYTES);
  assert_int_equal(rings[HARP_COPIES_LARGE_RINGS].bytes, HARP_COPIES_SMALL_BYTES);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(rings); i++) harp_copies_fini(&rings[i]);
  assert_true(harp_copies_init(&rings[0])); /* those that are gone do not count */
  assert_int_equal(rings[0].bytes, HARP_COPIES_BYTES);
  harp_copies_fini(&rings[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ring),
      cmocka_unit_test(test_ring_turns),
      cmocka_unit_test(test_many_rings_are_small),
      cmocka_unit_test(test_credit),
      cmocka_unit_test(test_credit_counts_at_once),
      cmocka_unit_test(test_closed_link_delivers),
      cmocka_unit_test(test_closing_link_ends_in_time),
      cmocka_unit_test(test_closing_link_ends_with_the_peer),
      cmocka_unit_test(test_failed_link),
      cmocka_unit_test(test_link_fails_as_it_is_closed),
      cmocka_unit_test(test_quiesce_leaves_copies_alone),
      cmocka_unit_test(test_only_awaited_messages_are_hurried),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
