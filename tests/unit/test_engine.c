/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines over the sim driver on a virtual clock: passes, requests, superframes of both shapes, with
 * loss, refused sends and late completions. The protocol itself is tested in tests/sim; here it is everything
 * around it. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/engine_open.h"
#include "engine/inbound.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/runner.h"
#include "engine/transmit.h"
#include "io/sim.h"
#include "lib/sides.h"
#include "net/net.h"

enum { MESSAGES = 24, MESSAGE_MAX = 300000 };

static uint8_t byte_of(unsigned message, size_t i) {
  return (uint8_t)(message * 37 + i * 11 + (i >> 8));
}

/* All that `a` sent came marked. */
static void check_marks(const struct harp_counters *a, const struct harp_counters *b) {
  assert_true(b->ce_packets > 0 && b->ce_packets <= a->tx_packets);
  assert_true(a->ce_reported_bytes > 0 && a->ce_reported_bytes <= a->tx_bytes);
  assert_int_equal(a->ce_packets + b->ce_reported_bytes + a->absurd_marks + b->absurd_marks, 0);
}

static void transfer(bool framed_a, bool framed_b, uint32_t loss, bool trouble) {
  static uint8_t from[MESSAGES][MESSAGE_MAX], to[MESSAGES][MESSAGE_MAX];
  static const uint32_t sizes[] = {0, 1, 128, 129, 5000, 16384, 16385, 65536, 300000, 8, 8, 8};
  struct side a = {0}, b = {0};
  sides_now_ns = HARP_SEC(1);
  side_open(&a, &b, framed_a, 1000, loss);
  side_open(&b, &a, framed_b, 2000, loss);
  a.marks = true;
  sides_connect(&a, &b, 0xfffffff0u);
  memset(to, 0xee, sizeof to);
  for (unsigned m = 0; m < MESSAGES; m++) {
    uint32_t bytes = sizes[m % HARP_ARRAY_COUNT(sizes)];
    for (size_t i = 0; i < bytes; i++) from[m][i] = byte_of(m, i);
    side_submit(a.link, m, from[m], bytes);
    side_submit(b.link, m, to[m], MESSAGE_MAX);
  }
  unsigned done = 0;
  for (unsigned step = 0; done < 2 * MESSAGES; step++) {
    assert_true(step < 2000000);
    /* The socket takes packets for half of the time, or a lone probe would always be what is refused. */
    if (trouble && step % 50 == 0) harp_io_sim_refuse(a.engine->io, step / 50 % 2);
    if (trouble) harp_io_sim_hold_completions(a.engine->io, step % 20 < 10);
    harp_engine_pass(a.engine);
    harp_engine_pass(b.engine);
    harp_io_sim_check(a.engine->io);
    harp_io_sim_check(b.engine->io);
    harp_sender_check(a.link->peer->session.sender);
    harp_receiver_check(b.link->peer->session.receiver);
    sides_now_ns += HARP_US(5);
    for (done = 0; done < 2 * MESSAGES;) {
      struct side *s = done < MESSAGES ? &a : &b;
      if (atomic_load(&s->link->requests[done % MESSAGES].state) != HARP_REQUEST_DONE) break;
      done++;
    }
  }
  for (unsigned m = 0; m < MESSAGES; m++) {
    uint32_t bytes = sizes[m % HARP_ARRAY_COUNT(sizes)];
    assert_int_equal(b.link->requests[m].bytes, bytes);
    assert_memory_equal(to[m], from[m], bytes);
    for (size_t i = bytes; i < HARP_MIN(bytes + 4096u, (uint32_t)MESSAGE_MAX); i++)
      assert_int_equal(to[m][i], 0xee);
  }
  if (trouble) assert_true(a.wire_counters.tx_busy > 0);
  check_marks(&a.engine->counters, &b.engine->counters);
  side_close(&a);
  side_close(&b);
}

/* Messages of both ways at once. Acknowledgements that are due ride on data of their path. */
static void both_ways(void) {
  enum { COUNT = 16 };
  static uint8_t from[2][COUNT][MESSAGE_MAX], to[2][COUNT][MESSAGE_MAX];
  struct side sides[2] = {0};
  struct harp_link_config back = {.role = HARP_ROLE_RECEIVER};
  sides_now_ns = HARP_SEC(1);
  for (unsigned i = 0; i < 2; i++) side_open(&sides[i], &sides[!i], false, (uint16_t)(1000 + i), 0);
  sides_connect(&sides[0], &sides[1], 0);
  assert_int_equal(harp_link_create(&sides[0].back, sides[0].link->peer, &back), 0);
  back.role = HARP_ROLE_SENDER;
  assert_int_equal(harp_link_create(&sides[1].back, sides[1].link->peer, &back), 0);
  struct harp_link *out[2] = {sides[0].link, sides[1].back}, *in[2] = {sides[0].back, sides[1].link};
  for (unsigned m = 0; m < COUNT; m++)
    for (unsigned i = 0; i < 2; i++) {
      for (size_t k = 0; k < MESSAGE_MAX; k++) from[i][m][k] = byte_of(m + i, k);
      side_submit(in[i], m, to[i][m], MESSAGE_MAX);
      side_submit(out[i], m, from[i][m], m % 2 ? MESSAGE_MAX : 1);
    }
  for (unsigned step = 0; sides[0].engine->outstanding + sides[1].engine->outstanding || !step; step++) {
    assert_true(step < 100000);
    for (unsigned i = 0; i < 2; i++) harp_engine_pass(sides[i].engine);
    sides_now_ns += HARP_US(5);
  }
  for (unsigned i = 0; i < 2; i++) {
    const struct harp_counters *c = &sides[i].engine->counters;
    for (unsigned m = 0; m < COUNT; m++)
      assert_memory_equal(to[!i][m], from[i][m], in[!i]->requests[m].bytes);
    assert_true(c->acks_riding > 0 && c->acks_riding <= c->tx_acks);
    assert_int_equal(c->drops[HARP_DROP_CRC] + c->drops[HARP_DROP_FIELD] + c->drops[HARP_DROP_SHORT], 0);
  }
  for (unsigned i = 0; i < 2; i++) side_close(&sides[i]);
}

static void test_acknowledgements_ride_on_data(void **state) {
  (void)state;
  both_ways();
}

static void test_acknowledgements_ride_where_payload_is_gathered(void **state) {
  (void)state;
  sides_mtu = 9000;
  sides_gather = true;
  both_ways();
  sides_mtu = 1500;
  sides_gather = false;
}

static size_t resident_pages(const void *memory, size_t bytes) {
  enum { PAGES = 512 };
  unsigned char residency[PAGES];
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), count = 0;
  uintptr_t from = (uintptr_t)memory & ~(page_bytes - 1);
  size_t pages = ((uintptr_t)memory + bytes - from + page_bytes - 1) / page_bytes;
  assert_true(pages <= PAGES);
  assert_int_equal(mincore((void *)from, pages * page_bytes, residency), 0);
  for (size_t i = 0; i < pages; i++) count += residency[i] & 1;
  return count;
}

static void pass_both(struct side *a, struct side *b, harp_ns ns, harp_ns step_ns) {
  for (harp_ns end_ns = sides_now_ns + ns; sides_now_ns < end_ns; sides_now_ns += step_ns) {
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
  }
}

/* What its sender and the staging of its links have touched; and it works as before. */
static void test_an_idle_peer_gives_memory_back(void **state) {
  enum { COUNT = 4, SMALL = 8192 };
  static uint8_t from[MESSAGE_MAX], to[COUNT][MESSAGE_MAX];
  struct side a = {0}, b = {0};
  (void)state;
  sides_now_ns = HARP_SEC(1);
  side_open(&a, &b, true, 1000, 0);
  side_open(&b, &a, true, 2000, 0);
  sides_connect(&a, &b, 0);
  const struct harp_peer *peer = a.link->peer;
  size_t fresh = resident_pages(peer->session.sender, peer->sender_bytes);
  for (unsigned round = 0; round < 2; round++) {
    for (size_t i = 0; i < MESSAGE_MAX; i++) from[i] = byte_of(round, i);
    for (unsigned i = 0; i < 60; i++) { /* the flight goes round */
      side_submit(a.link, 0, from, MESSAGE_MAX);
      side_submit(b.link, 0, to[0], MESSAGE_MAX);
      pass_both(&a, &b, HARP_MS(5), HARP_US(5));
      assert_int_equal(atomic_load(&b.link->requests[0].state), HARP_REQUEST_DONE);
    }
    assert_memory_equal(to[0], from, MESSAGE_MAX);
    size_t used = resident_pages(peer->session.sender, peer->sender_bytes);
    assert_true(used >= fresh + 8);
    side_submit(a.link, 0, from, SMALL); /* waits in staging */
    pass_both(&a, &b, HARP_MS(5), HARP_US(5));
    memset(b.link->staging + HARP_STAGING_BYTES / 2, 1, HARP_STAGING_BYTES / 2);
    pass_both(&a, &b, HARP_PEER_REST_NS + HARP_SEC(1), HARP_MS(50));
    assert_true(resident_pages(peer->session.sender, peer->sender_bytes) <= fresh + 1);
    side_submit(b.link, 0, to[1], MESSAGE_MAX);
    pass_both(&a, &b, HARP_MS(5), HARP_US(5));
    assert_memory_equal(to[1], from, SMALL); /* the copy was kept */
    pass_both(&a, &b, 2 * HARP_PEER_REST_NS, HARP_MS(50));
    assert_true(resident_pages(b.link->staging, HARP_STAGING_BYTES) <= 2);
  }
  side_close(&a);
  side_close(&b);
}

/* A packet comes over each of the first `count` paths, and requests its acknowledgement. */
static void feed_probes(struct harp_peer *peer, unsigned count) {
  struct harp_placement place;
  for (unsigned i = 0; i < count; i++) {
    struct harp_receiver *r = peer->session.receiver;
    struct harp_packet p = {.type = HARP_PACKET_PROBE,
                            .path = (uint8_t)i,
                            .flags = HARP_FLAG_ACK_SOON,
                            .data.length = HARP_PROBE_PADDING_BYTES};
    uint64_t number = r->paths[i].next_number;
    assert_int_equal(harp_receiver_on_packet(r, &p, number, &place, sides_now_ns), HARP_DROP_NONE);
  }
  harp_peer_touch(peer);
}

/* A pass sends a bounded number of acknowledgements, however many paths a peer has. Those left over are first
 * in the next pass, though others are due again. */
static void test_the_acknowledgements_of_a_pass_are_bounded(void **state) {
  (void)state;
  enum { PATHS = 2 * HARP_TRANSMIT_PEER_ACKS };
  struct side a = {0}, b = {0};
  sides_now_ns = HARP_SEC(1);
  sides_paths = PATHS;
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  sides_connect(&a, &b, 5);
  sides_paths = 2;
  for (unsigned i = 0; i < 100; i++) { /* until nothing is left to acknowledge */
    harp_engine_pass(a.engine);
    harp_engine_pass(b.engine);
    sides_now_ns += HARP_US(20);
  }
  struct harp_peer *peer = b.link->peer;
  const struct harp_receiver *r = peer->session.receiver;
  assert_int_equal(peer->path_count, PATHS);
  assert_int_equal(r->waiting, 0);

  const uint64_t first = (1ull << HARP_TRANSMIT_PEER_ACKS) - 1; /* the paths whose turn is first */
  feed_probes(peer, PATHS);
  sides_now_ns += HARP_US(20);
  harp_engine_pass(b.engine);
  assert_int_equal(r->waiting, first << HARP_TRANSMIT_PEER_ACKS);
  assert_true(harp_engine_deadline_ns(b.engine) <= sides_now_ns);
  feed_probes(peer, HARP_TRANSMIT_PEER_ACKS);
  assert_int_equal(__builtin_popcountll(r->waiting), PATHS);
  sides_now_ns += HARP_US(20);
  harp_engine_pass(b.engine);
  assert_int_equal(r->waiting, first);
  harp_engine_pass(b.engine);
  assert_int_equal(r->waiting, 0);
  side_close(&a);
  side_close(&b);
}

static void test_packed(void **state) {
  (void)state;
  transfer(false, false, 0, false);
}
static void test_framed(void **state) {
  (void)state;
  transfer(true, true, 0, false);
}
static void test_packed_to_framed_with_loss(void **state) {
  (void)state;
  transfer(false, true, 50, false);
}
static void test_framed_with_loss_refusals_and_late_completions(void **state) {
  (void)state;
  transfer(true, false, 100, true);
}

/* Nothing may be written after a quiesce, though the data arrives. */
static void test_quiesce_stops_writes(void **state) {
  (void)state;
  static uint8_t from[50000], to[50000];
  struct side a = {0}, b = {0};
  sides_now_ns = HARP_SEC(1);
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  sides_connect(&a, &b, 5);
  memset(from, 1, sizeof from);
  memset(to, 0, sizeof to);
  side_submit(b.link, 0, to, sizeof to);
  side_submit(a.link, 0, from, sizeof from);
  harp_engine_pass(b.engine);
  harp_link_quiesce(b.link, to, sizeof to);
  for (unsigned i = 0; i < 1000; i++) {
    harp_engine_pass(a.engine);
    harp_engine_pass(b.engine);
    sides_now_ns += HARP_US(5);
  }
  for (size_t i = 0; i < sizeof to; i++) assert_int_equal(to[i], 0);
  assert_int_equal(atomic_load(&b.link->status), HARP_ERR_INTERNAL);
  assert_int_equal(b.engine->outstanding, 0);
  side_close(&a);
  side_close(&b);
}

static const struct harp_io_ops *counted_ops;
static unsigned rx_count;
static unsigned counting_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  rx_count++;
  return counted_ops->rx(io, out, max);
}

/* Tests `count` requests, none of which is done; returns how often the driver was polled for input. */
static unsigned test_pending(struct harp_link *link, unsigned first, unsigned count) {
  rx_count = 0;
  for (unsigned i = first; i < first + count; i++) {
    bool done;
    size_t bytes;
    assert_int_equal(harp_net_test(&link->requests[i], &done, &bytes), HARP_OK);
    assert_false(done);
  }
  return rx_count;
}

/* The tests of many open requests look for input once, until time has gone by, something was submitted or a
 * deadline has come. Each of them counts as a visit. */
static void test_a_look_stands_for_the_tests_of_other_requests(void **state) {
  (void)state;
  static uint8_t to[MESSAGES][64], from[64];
  struct harp_io_ops counting;
  struct side a = {0}, b = {0};
  sides_now_ns = HARP_SEC(1);
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  sides_connect(&a, &b, 5);
  counting = *(counted_ops = b.engine->io->ops);
  counting.rx = counting_rx;
  b.engine->io->ops = &counting;
  for (unsigned m = 0; m < MESSAGES; m++) side_submit(b.link, m, to[m], sizeof to[m]);
  for (unsigned i = 0; i < 1000; i++) { /* until the paths are probed and the receives announced */
    harp_engine_pass(a.engine);
    harp_engine_pass(b.engine);
    sides_now_ns += HARP_US(5);
  }
  uint32_t visits = atomic_load(&b.engine->visit_count);
  assert_int_equal(test_pending(b.link, 0, MESSAGES), 1);
  assert_int_equal(test_pending(b.link, 1, MESSAGES - 1), 0);
  assert_int_equal(atomic_load(&b.engine->visit_count) - visits, 2 * MESSAGES - 1);
  assert_int_equal(test_pending(b.link, 0, 1), 1); /* the same request again: a new round */
  assert_int_equal(test_pending(b.link, 0, 1), 1);
  sides_now_ns += HARP_RUNNER_LOOK_NS - 1;
  assert_int_equal(test_pending(b.link, 1, 1), 0);
  sides_now_ns += 1;
  assert_int_equal(test_pending(b.link, 1, 1), 1);
  assert_int_equal(test_pending(b.link, 2, 1), 0);
  harp_engine_ring_mt(b.engine, b.link->slot);
  assert_int_equal(test_pending(b.link, 2, 1), 1);
  harp_runner_inline_transmit_mt(b.engine); /* may have made a deadline */
  assert_int_equal(test_pending(b.link, 3, 1), 1);
  harp_engine_lock(b.engine); /* somebody else is at it */
  assert_int_equal(test_pending(b.link, 3, 1), 0);
  assert_int_equal(test_pending(b.link, 4, 1), 0);
  harp_engine_unlock(b.engine);

  /* What has arrived is found when the time is over, and its acknowledgement leaves when it is due. */
  side_submit(a.link, 0, from, sizeof from);
  harp_engine_pass(a.engine);
  sides_now_ns += HARP_RUNNER_LOOK_NS;
  bool done;
  size_t bytes;
  assert_int_equal(harp_net_test(&b.link->requests[0], &done, &bytes), HARP_OK);
  assert_true(done);
  assert_int_equal(test_pending(b.link, 1, 1), 1); /* the pass before it moved something */
  harp_ns deadline_ns = harp_engine_deadline_ns(b.engine);
  assert_true(deadline_ns > sides_now_ns && deadline_ns < HARP_NEVER);
  sides_now_ns = deadline_ns - 1;
  assert_int_equal(test_pending(b.link, 1, 1), 1);
  assert_int_equal(test_pending(b.link, 2, 1), 0);
  sides_now_ns = deadline_ns;
  uint64_t acks = b.engine->counters.tx_acks;
  assert_int_equal(test_pending(b.link, 2, 1), 1);
  assert_true(b.engine->counters.tx_acks > acks);
  b.engine->io->ops = counted_ops;
  side_close(&a);
  side_close(&b);
}

/* The watchdog naps longer while it finds NCCL's threads at work, however slow their passes, and takes over
 * after one whole nap without a sign of them. */
static void test_the_watchdog_leaves_threads_alone_that_pass(void **state) {
  (void)state;
  harp_ns nap_ns = HARP_WATCHDOG_NS;
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(harp_runner_next_nap_ns(nap_ns, (uint32_t)(nap_ns / HARP_WATCHDOG_NS), false),
                     2 * nap_ns);
    assert_int_equal(harp_runner_next_nap_ns(nap_ns, 0, true), 2 * nap_ns); /* a long pass */
    nap_ns *= 2;
  }
  assert_int_equal(nap_ns, HARP_WATCHDOG_MAX_NS);
  assert_int_equal(harp_runner_next_nap_ns(nap_ns, 0, true), HARP_WATCHDOG_MAX_NS);
  assert_int_equal(harp_runner_next_nap_ns(nap_ns, UINT32_MAX, false), HARP_WATCHDOG_MAX_NS);
  /* Rare visits: it has to see how long they stay away. */
  assert_int_equal(harp_runner_next_nap_ns(nap_ns, 15, false), HARP_WATCHDOG_NS);
  assert_int_equal(harp_runner_next_nap_ns(2 * HARP_WATCHDOG_NS, 1, false), HARP_WATCHDOG_NS);
  assert_int_equal(harp_runner_next_nap_ns(HARP_WATCHDOG_NS, 0, false), 0);
  assert_int_equal(harp_runner_next_nap_ns(nap_ns, 0, false), 0);
}

/* A slot is not handed out again before the others were. */
static void test_slots_rest(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  side_open(&a, &b, false, 1000, 0);
  int first = harp_engine_reserve_slot(a.engine);
  harp_engine_release_slot(a.engine, (uint32_t)first);
  assert_int_equal(harp_engine_reserve_slot(a.engine), first + 1);
  harp_engine_release_slot(a.engine, (uint32_t)first + 1);
  harp_engine_close(a.engine);
}

/* Peers whose packets come to one buffer share it, those that sent lately. */
static void test_senders_share_the_receive_buffer(void **state) {
  (void)state;
  enum { PEERS = 3 };
  struct side a = {0}, b = {0};
  struct harp_link *links[PEERS][2];
  const struct harp_receiver *r[PEERS];
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  uint32_t whole = harp_inbound_window_bytes(b.engine), unit = HARP_WINDOW_UNIT_BYTES;
  for (unsigned i = 0; i < PEERS; i++) {
    sides_connect(&a, &b, 10 * i);
    links[i][0] = a.link, links[i][1] = b.link;
    r[i] = b.link->peer->session.receiver;
    for (unsigned k = 0; k <= i; k++)
      assert_in_range(r[k]->window_bytes, whole / (i + 1) - unit, whole / (i + 1));
  }
  harp_inbound_on_data(links[0][1]->peer, sides_now_ns);
  assert_in_range(r[0]->window_bytes, whole / 2 - unit, whole / 2);
  assert_in_range(r[1]->window_bytes, whole / 4 - unit, whole / 4);
  harp_inbound_on_data(links[1][1]->peer, sides_now_ns + HARP_INBOUND_LATELY_NS / 2);
  for (unsigned i = 0; i < PEERS; i++) assert_in_range(r[i]->window_bytes, whole / 3 - unit, whole / 3);
  harp_inbound_on_time(b.engine, sides_now_ns + HARP_INBOUND_LATELY_NS);
  assert_in_range(r[1]->window_bytes, whole / 2 - unit, whole / 2);
  assert_in_range(r[0]->window_bytes, whole / 4 - unit, whole / 4);
  for (unsigned i = 0; i < PEERS; i++) harp_link_destroy(links[i][0]), harp_link_destroy(links[i][1]);
  harp_engine_close(a.engine);
  harp_engine_close(b.engine);
}

/* An engine has the memory of all its interfaces, and a thread if one is to have it. */
static void test_interfaces_are_configured_as_one(void **state) {
  (void)state;
  struct harp_counters counters = {0};
  struct harp_instance first = {
      .ifname = "eth1", .mode = HARP_ENGINE_INLINE, .memory_bytes = 4 << 20, .driver = HARP_DRIVER_UDP};
  struct harp_instance second = {
      .ifname = "eth2", .mode = HARP_ENGINE_THREAD, .memory_bytes = 2 << 20, .driver = HARP_DRIVER_UDP};
  struct harp_engine_enis enis = {2, {&first, &second}};
  struct harp_io_sim_config config = {.port_count = 1, .send = side_carry, .counters = &counters};
  struct harp_engine *e;
  struct harp_error error = {0};
  struct harp_io *bundle = harp_io_bundle_make(&error);
  for (unsigned i = 0; i < 2; i++) harp_io_bundle_take(bundle, harp_io_sim_open(&config));
  assert_int_equal(harp_engine_open_with(&e, &enis, bundle, sides_clock, &error), 0);
  assert_int_equal(e->instance.mode, HARP_ENGINE_THREAD);
  assert_int_equal(e->core, -1);
  assert_int_equal(harp_engine_memory_bytes(&enis, 1), 6 << 20);
  assert_string_equal(e->name, "eth1+eth2");
  harp_engine_close(e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_acknowledgements_of_a_pass_are_bounded),
      cmocka_unit_test(test_packed),
      cmocka_unit_test(test_acknowledgements_ride_on_data),
      cmocka_unit_test(test_acknowledgements_ride_where_payload_is_gathered),
      cmocka_unit_test(test_framed),
      cmocka_unit_test(test_packed_to_framed_with_loss),
      cmocka_unit_test(test_framed_with_loss_refusals_and_late_completions),
      cmocka_unit_test(test_quiesce_stops_writes),
      cmocka_unit_test(test_a_look_stands_for_the_tests_of_other_requests),
      cmocka_unit_test(test_the_watchdog_leaves_threads_alone_that_pass),
      cmocka_unit_test(test_slots_rest),
      cmocka_unit_test(test_senders_share_the_receive_buffer),
      cmocka_unit_test(test_interfaces_are_configured_as_one),
      cmocka_unit_test(test_an_idle_peer_gives_memory_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
