/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sides.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "io/sim.h"
#include "lib/new_link.h"

harp_ns sides_now_ns;

harp_ns sides_clock(void) {
  return sides_now_ns;
}

uint32_t sides_mtu = 1500;
unsigned sides_paths = 2;
bool sides_gather;

static uint32_t draw(struct side *s) {
  s->random = s->random * 1664525u + 1013904223u;
  return s->random >> 8;
}

void side_carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                uint32_t bytes, bool ect) {
  struct side *s = wire;
  (void)port, (void)to;
  if (draw(s) % 1000 >= s->loss_permille)
    harp_io_sim_deliver(s->other->engine->io, data, bytes, ect && s->marks);
}

void side_open(struct side *s, struct side *other, bool framed, uint16_t port, uint32_t loss) {
  struct harp_instance instance = {.ifname = "sim0",
                                   .shared_clock = HARP_SHARED_CLOCK_ON, /* one process */
                                   .mtu = sides_mtu,
                                   .paths = sides_paths,
                                   .peer_timeout_ns = HARP_SEC(10),
                                   .stall_ns = HARP_SEC(10)};
  instance.addr.ss_family = AF_INET;
  struct harp_io_sim_config config = {.framed = framed,
                                      .gather = sides_gather,
                                      .port_count = sides_paths,
                                      .first_port = port,
                                      .send = side_carry,
                                      .wire = s,
                                      .counters = &s->wire_counters};
  struct harp_error error = {0};
  s->other = other;
  s->random = port;
  s->loss_permille = loss;
  assert_int_equal(harp_engine_open_with(&s->engine, &(struct harp_engine_enis){1, {&instance}},
                                         harp_io_sim_open(&config), sides_clock, &error),
                   0);
}

static struct harp_endpoint endpoint_of(const struct side *s, uint32_t first) {
  struct harp_endpoint e = {.first_line = first,
                            .first_message = first,
                            .first_number = first,
                            .window_bytes = s->engine->io->info.buffer_bytes,
                            .path_count = (uint16_t)sides_paths,
                            .eni_count = 1,
                            .pid = 7,
                            .name = "host"};
  e.enis[0] = (struct harp_endpoint_eni){.family = 4, .mtu = sides_mtu, .port_count = (uint8_t)sides_paths};
  for (unsigned i = 0; i < sides_paths; i++) e.enis[0].ports[i] = s->engine->io->info.ports[i];
  return e;
}

void sides_connect(struct side *a, struct side *b, uint32_t first) {
  struct harp_endpoint of_a = endpoint_of(a, first), of_b = endpoint_of(b, 0);
  new_link_pair(a->engine, &of_a, &a->link, b->engine, &of_b, &b->link);
}

void side_close(struct side *s) {
  if (s->back) harp_link_destroy(s->back);
  harp_link_destroy(s->link);
  assert_int_equal(s->engine->outstanding, 0);
  harp_engine_close(s->engine);
}

void side_submit(struct harp_link *link, unsigned slot, void *data, uint32_t bytes) {
  struct harp_request *r = &link->requests[slot];
  r->data = data;
  r->capacity = bytes;
  atomic_store(&r->state, HARP_REQUEST_POSTED);
  assert_true(harp_spsc_push(&link->submit, r));
  harp_engine_ring_mt(link->engine, link->slot);
}
