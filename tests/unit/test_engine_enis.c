/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines over two interfaces each, on a virtual clock: an interface whose driver sends no more, and
 * returns no frames, holds up neither the data nor the acknowledgements that others can carry. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "io/sim.h"
#include "lib/new_link.h"

enum {
  ENIS = 2,
  MESSAGE = 100000, /* bytes */
  OPEN = 8,         /* messages at the same time */
  MTU = 1500,
  WINDOW_PACKETS = 100,
  PORT_A = 1000,
  PORT_B = 2000,
};

static harp_ns now_ns;
static harp_ns virtual_clock(void) {
  return now_ns;
}

struct side;
struct wire {
  struct side *from;
  unsigned eni;
};

struct side {
  struct harp_engine *engine;
  struct harp_link *link;
  struct side *other;
  struct harp_counters wire_counters;
  struct wire wires[ENIS];
  bool stuck[ENIS]; /* its queue sends nothing */
  uint64_t carried[ENIS];
  uint8_t data[OPEN][MESSAGE];
  uint64_t done; /* messages */
};

/* Interface n here is joined to interface n there. */
static void carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                  uint32_t bytes, bool ect) {
  struct wire *w = wire;
  (void)port, (void)to, (void)ect;
  if (w->from->stuck[w->eni]) return;
  w->from->carried[w->eni]++;
  harp_io_sim_deliver(harp_engine_io(w->from->other->engine, w->eni), data, bytes, false);
}

static void open_side(struct side *s, struct side *other, uint16_t port) {
  struct harp_instance instances[ENIS] = {0};
  struct harp_engine_enis enis = {.count = ENIS};
  struct harp_error error = {0};
  struct harp_io *bundle = harp_io_bundle_make(&error);
  assert_non_null(bundle);
  s->other = other;
  for (unsigned i = 0; i < ENIS; i++) {
    s->wires[i] = (struct wire){s, i};
    struct harp_io_sim_config config = {.framed = true,
                                        .port_count = 1,
                                        .first_port = port,
                                        .send = carry,
                                        .wire = &s->wires[i],
                                        .counters = &s->wire_counters};
    snprintf(instances[i].ifname, sizeof instances[i].ifname, "sim%u", i);
    instances[i].mtu = MTU;
    instances[i].paths = 1;
    instances[i].peer_timeout_ns = HARP_SEC(10);
    instances[i].stall_ns = HARP_SEC(10);
    instances[i].addr.ss_family = AF_INET;
    enis.at[i] = &instances[i];
    harp_io_bundle_take(bundle, harp_io_sim_open(&config));
  }
  assert_int_equal(harp_engine_open_with(&s->engine, &enis, bundle, virtual_clock, &error), 0);
}

static struct harp_endpoint endpoint_of(uint16_t port) {
  struct harp_endpoint e = {
      .window_bytes = WINDOW_PACKETS * MTU, .path_count = 1, .eni_count = ENIS, .name = "host"};
  for (unsigned i = 0; i < ENIS; i++)
    e.enis[i] = (struct harp_endpoint_eni){.family = 4, .mtu = MTU, .port_count = 1, .ports = {port}};
  return e;
}

static void connect_sides(struct side *a, struct side *b) {
  struct harp_endpoint of_a = endpoint_of(PORT_A), of_b = endpoint_of(PORT_B);
  new_link_pair(a->engine, &of_a, &a->link, b->engine, &of_b, &b->link);
}

/* Collects what is done and submits it anew. */
static void keep_busy(struct side *s) {
  for (unsigned i = 0; i < OPEN; i++) {
    struct harp_request *r = &s->link->requests[i];
    uint32_t state = atomic_load(&r->state);
    if (state == HARP_REQUEST_POSTED) continue;
    s->done += state == HARP_REQUEST_DONE;
    r->data = s->data[i];
    r->capacity = MESSAGE;
    atomic_store(&r->state, HARP_REQUEST_POSTED);
    assert_true(harp_spsc_push(&s->link->submit, r));
    harp_engine_ring_mt(s->engine, s->link->slot);
  }
}

/* Returns the longest time in which no message was received. */
static harp_ns run(struct side *a, struct side *b, harp_ns ns) {
  harp_ns last_ns = now_ns, worst_ns = 0;
  uint64_t done = b->done;
  for (harp_ns end = now_ns + ns; now_ns < end; now_ns += HARP_US(10)) {
    keep_busy(a);
    keep_busy(b);
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
    if (b->done != done) last_ns = now_ns;
    done = b->done;
    worst_ns = HARP_MAX(worst_ns, now_ns - last_ns);
    assert_int_equal(atomic_load(&a->link->status), HARP_OK);
  }
  return worst_ns;
}

static void stick(struct side *s, unsigned eni, bool stuck) {
  s->stuck[eni] = stuck;
  harp_io_sim_hold_completions(harp_engine_io(s->engine, eni), stuck);
}

static void stuck_queue(bool of_sender, unsigned eni) {
  static struct side a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  now_ns = HARP_SEC(1);
  open_side(&a, &b, PORT_A);
  open_side(&b, &a, PORT_B);
  connect_sides(&a, &b);
  run(&a, &b, HARP_MS(20));
  assert_true(a.carried[0] > 50 && a.carried[1] > 50);
  stick(of_sender ? &a : &b, eni, true);
  harp_ns stall_ns = run(&a, &b, HARP_MS(150));
  print_message("%s's interface %u stuck: no message for %llu us\n", of_sender ? "sender" : "receiver", eni,
                (unsigned long long)(stall_ns / 1000));
  assert_true(stall_ns < HARP_MS(100));
  stick(of_sender ? &a : &b, eni, false);
  uint64_t carried = a.carried[eni];
  run(&a, &b, HARP_MS(100));
  assert_true(a.carried[eni] > carried + 100);
  harp_link_destroy(a.link);
  harp_link_destroy(b.link);
  for (unsigned i = 0; i < ENIS; i++) {
    harp_io_sim_check(harp_engine_io(a.engine, i));
    harp_io_sim_check(harp_engine_io(b.engine, i));
  }
  harp_engine_close(a.engine);
  harp_engine_close(b.engine);
}

static void test_a_stuck_queue_of_the_sender(void **state) {
  (void)state;
  stuck_queue(true, 0);
  stuck_queue(true, 1);
}

static void test_a_stuck_queue_of_the_receiver(void **state) {
  (void)state;
  stuck_queue(false, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_stuck_queue_of_the_sender),
      cmocka_unit_test(test_a_stuck_queue_of_the_receiver),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
