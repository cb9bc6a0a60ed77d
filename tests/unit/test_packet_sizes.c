/* SPDX-License-Identifier: Apache-2.0 */
/* The INFO lines about a network whose MTU is smaller than that of the interfaces: one when large packets do
 * not arrive, one when they arrive again, whatever the number of paths. Two engines on a virtual clock. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "io/sim.h"
#include "lib/new_link.h"
#include "proto/path_report.h"

enum {
  MESSAGE = 20000, /* bytes */
  OPEN = 4,        /* messages at the same time */
  MTU = 1500,
  PATHS = 2,
  WINDOW_PACKETS = 100,
  PORT_A = 1000,
  PORT_B = 2000,
  LINES_MAX = 8,
  HEADERS_BYTES = 20 + 8 + HARP_DATA_HEADER_BYTES,
  LARGE = HEADERS_BYTES + 11 * HARP_LINE_BYTES, /* bytes of the largest IP packet of whole lines in the MTU */
  SMALL = HEADERS_BYTES + HARP_PACKET_MIN_LINES * HARP_LINE_BYTES,
};
#define STEP_NS HARP_US(20)

static harp_ns now_ns;
static harp_ns virtual_clock(void) {
  return now_ns;
}

static unsigned line_count;
static char lines[LINES_MAX][HARP_LOG_LINE_BYTES]; /* INFO */

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level != HARP_LOG_INFO || !strstr(text, "packets of ")) return;
  assert_true(line_count < LINES_MAX);
  snprintf(lines[line_count++], sizeof lines[0], "%s", text);
}

struct side {
  struct harp_engine *engine;
  struct harp_link *link;
  struct side *other;
  struct harp_counters wire_counters;
  uint32_t limit_bytes; /* the UDP payload that arrives at the other side */
  uint8_t data[OPEN][MESSAGE];
};

static void carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                  uint32_t bytes, bool ect) {
  struct side *s = wire;
  (void)port, (void)to, (void)ect;
  if (bytes <= s->limit_bytes) harp_io_sim_deliver(s->other->engine->io, data, bytes, false);
}

static void open_side(struct side *s, struct side *other, uint16_t port) {
  struct harp_instance instance = {.ifname = "sim0",
                                   .mtu = MTU,
                                   .paths = PATHS,
                                   .peer_timeout_ns = HARP_SEC(10),
                                   .stall_ns = HARP_SEC(10)};
  struct harp_io_sim_config config = {.framed = true,
                                      .port_count = PATHS,
                                      .first_port = port,
                                      .send = carry,
                                      .wire = s,
                                      .counters = &s->wire_counters};
  struct harp_error error = {0};
  memset(s, 0, sizeof *s);
  instance.addr.ss_family = AF_INET;
  s->other = other;
  s->limit_bytes = MTU;
  assert_int_equal(harp_engine_open_with(&s->engine, &(struct harp_engine_enis){1, {&instance}},
                                         harp_io_sim_open(&config), virtual_clock, &error),
                   0);
}

static struct harp_endpoint endpoint_of(uint16_t port) {
  struct harp_endpoint e = {
      .window_bytes = WINDOW_PACKETS * MTU, .path_count = PATHS, .eni_count = 1, .name = "host"};
  e.enis[0] = (struct harp_endpoint_eni){
      .family = 4, .mtu = MTU, .port_count = PATHS, .ports = {port, (uint16_t)(port + 1)}};
  return e;
}

/* Submits anew what is done. */
static void keep_busy(struct side *s) {
  for (unsigned i = 0; i < OPEN; i++) {
    struct harp_request *r = &s->link->requests[i];
    if (atomic_load(&r->state) == HARP_REQUEST_POSTED) continue;
    r->data = s->data[i];
    r->capacity = MESSAGE;
    atomic_store(&r->state, HARP_REQUEST_POSTED);
    assert_true(harp_spsc_push(&s->link->submit, r));
    harp_engine_ring_mt(s->engine, s->link->slot);
  }
}

static void run(struct side *a, struct side *b, harp_ns ns) {
  for (harp_ns end = now_ns + ns; now_ns < end; now_ns += STEP_NS) {
    keep_busy(a);
    keep_busy(b);
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
    assert_int_equal(atomic_load(&a->link->status), HARP_OK);
  }
}

/* Has both paths in use, as where an experiment has shown that two flows pay. */
static void use_all_paths(struct harp_peer *peer) {
  struct harp_flows *f = &peer->session.sender->pairs.flows[0];
  assert_int_equal(peer->route_count, PATHS);
  assert_int_equal(f->count, PATHS);
  f->wanted = f->proven = PATHS;
}

/* Returns how many paths have the limit that the network has now, of those that are in use. */
static unsigned count_limited(const struct harp_peer *peer) {
  unsigned limited = 0;
  for (unsigned i = 0; i < PATHS; i++) {
    struct harp_path_report r = harp_path_report_of(&peer->session, i);
    assert_int_equal(r.state, HARP_PATH_UP);
    limited += r.is_size_limited && r.packet_bytes == HARP_PACKET_MIN_LINES * HARP_LINE_BYTES;
  }
  return limited;
}

static void test_a_smaller_mtu_is_logged_once(void **state) {
  static struct side a, b;
  char expected[HARP_LOG_LINE_BYTES];
  (void)state;
  now_ns = HARP_SEC(1);
  open_side(&a, &b, PORT_A);
  open_side(&b, &a, PORT_B);
  struct harp_endpoint of_a = endpoint_of(PORT_A), of_b = endpoint_of(PORT_B);
  new_link_pair(a.engine, &of_a, &a.link, b.engine, &of_b, &b.link);
  harp_log_set_sink(keep_line);
  use_all_paths(a.link->peer);
  run(&a, &b, HARP_MS(100));
  assert_int_equal(line_count, 0); /* paths begin, and there is nothing to tell */

  a.limit_bytes = SMALL - 28;
  run(&a, &b, HARP_MS(500));
  snprintf(
      expected, sizeof expected,
      "sim0: packets of %u bytes do not arrive at the interface 0.0.0.0 of %s; continuing with %u bytes: "
      "the MTU of the network between them may be smaller than that of the interfaces",
      LARGE, a.link->peer->name, SMALL);
  assert_int_equal(count_limited(a.link->peer), PATHS);
  assert_int_equal(line_count, 1);
  assert_string_equal(lines[0], expected);

  a.limit_bytes = MTU;
  run(&a, &b, HARP_SEC(3));
  snprintf(expected, sizeof expected, "sim0: packets of %u bytes arrive at the interface 0.0.0.0 of %s again",
           LARGE, a.link->peer->name);
  assert_int_equal(count_limited(a.link->peer), 0);
  assert_int_equal(line_count, 2);
  assert_string_equal(lines[1], expected);
  harp_log_set_sink(NULL);
  harp_link_destroy(a.link);
  harp_link_destroy(b.link);
  harp_engine_close(a.engine);
  harp_engine_close(b.engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_smaller_mtu_is_logged_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
