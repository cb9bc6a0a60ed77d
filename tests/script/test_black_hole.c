/* SPDX-License-Identifier: Apache-2.0 */
/* A path whose MTU is smaller than its ends know, beside small messages that never end: their packets arrive,
 * so that no timeout shows what becomes of the large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/duo.h"

enum {
  PATH_MTU_BYTES = 8500 - 20 - 8, /* the payload of a datagram: less IPv4 and UDP headers */
  SMALL_BYTES = 1024,
  SMALL_COUNT = 1000,
  IN_FLIGHT = 8,
};
#define SMALL_EVERY_NS HARP_US(200)
#define DONE_WITHIN_NS HARP_MS(200)

static struct duo d;

/* Sends one large message beside the small ones; returns how long it took. */
static harp_ns send_beside_small(uint32_t bytes) {
  struct duo_config c = {.seed = 1,
                         .is_one_way = true,
                         .path_count = 1,
                         .stream_max = 2,
                         .paths = {{.lines_max = HARP_PACKET_MAX_LINES}},
                         .window_bytes = 4 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64};
  duo_start(&d, &c);
  snprintf(d.label, sizeof d.label, "a message of %u bytes", bytes);
  d.net.links[SIMNET_THERE][0].delay_ns = d.net.links[SIMNET_BACK][0].delay_ns = HARP_US(25);
  d.net.links[SIMNET_THERE][0].mtu_bytes = PATH_MTU_BYTES;
  d.net.links[SIMNET_THERE][0].own.rate_bytes_s = 10 * 125000000ull;
  struct duo_stream *large = duo_open(&d, &(struct duo_stream_config){.in_flight_max = 1});
  duo_add(&d, bytes, bytes, d.now, d.now);
  duo_open(&d, &(struct duo_stream_config){.id = 1, .in_flight_max = IN_FLIGHT});
  for (unsigned k = 0; k < SMALL_COUNT; k++)
    duo_add(&d, SMALL_BYTES, SMALL_BYTES, d.now + k * SMALL_EVERY_NS, d.now);
  assert_true(SMALL_COUNT * SMALL_EVERY_NS >= DONE_WITHIN_NS);
  assert_true(duo_run(&d, d.now + HARP_SEC(60)));
  const struct duo_message *m = duo_message(&d, large, 0);
  return m->received_at - m->posted_at;
}

static void test_large_messages_arrive_beside_small_ones(void **state) {
  static const uint32_t sizes[] = {16 << 10, 32 << 10, 64 << 10};
  (void)state;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    harp_ns took = send_beside_small(sizes[i]);
    const struct harp_path *p = &d.ends[0].sender->paths[0];
    print_message("%u bytes over a smaller MTU: %llu us, %llu packets lost, window %u\n", sizes[i],
                  (unsigned long long)took / 1000, (unsigned long long)d.ends[0].counters.lost_packets,
                  p->cc.window_bytes);
    assert_true(took <= DONE_WITHIN_NS);
    assert_true(p->size.is_limited);
    assert_int_equal(p->cc.target.cut_ns, 0); /* no decrease: it is no congestion */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_messages_arrive_beside_small_ones)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
