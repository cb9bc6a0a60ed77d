/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/loopback.h"
#include "lib/accepted.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "lib/sides.h"

enum { TRANSFER_BYTES = 5000 };

time_t loopback_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

struct harp_instance loopback_instance(void) {
  struct harp_instance instance = {.ifname = "lo",
                                   .mtu = 65536,
                                   .paths = 1,
                                   .peer_timeout_ns = HARP_SEC(10),
                                   .stall_ns = HARP_SEC(10),
                                   .numa = -1};
  struct sockaddr_in *in = (struct sockaddr_in *)&instance.addr;
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return instance;
}

struct harp_engine *loopback_open_engine(void) {
  struct harp_instance instance = loopback_instance();
  return loopback_open_engine_with(&instance);
}

struct harp_engine *loopback_open_engine_with(const struct harp_instance *instance) {
  struct harp_engine *e;
  struct harp_error error = {0};
  const struct harp_engine_enis enis = {1, {instance}};
  static _Alignas(4096) uint8_t memories[2][32 << 20]; /* the memory of two engines at the same time */
  static unsigned opened;
  uint8_t *memory = memories[opened++ % 2];
  const struct harp_engine_place place = {
      .count = 1, .core = -1, .memory = memory, .memory_bytes = sizeof memories[0]};
  assert_true(harp_engine_memory_bytes(&enis, 1) <= sizeof memories[0]);
  assert_int_equal(harp_engine_open(&e, &enis, &place, &error), 0);
  return e;
}

void loopback_pass(struct harp_engine *e) {
  e->control_ns = 0;
  harp_engine_pass(e);
}

void loopback_open(struct loopback_side s[2]) {
  memset(s, 0, 2 * sizeof *s);
  for (unsigned i = 0; i < 2; i++) s[i].e = loopback_open_engine();
  if (s[0].e->token_prefix > s[1].e->token_prefix) {
    struct harp_engine *e = s[0].e;
    s[0].e = s[1].e;
    s[1].e = e;
  }
  for (unsigned i = 0; i < 2; i++)
    assert_int_equal(harp_listener_open(&s[i].l, s[i].e, &s[i].handle, HARP_HANDLE_BYTES, -1), HARP_OK);
}

void loopback_connect(struct loopback_side s[2], unsigned i, unsigned n) {
  assert_int_equal(harp_connect_open(&s[i].connects[n], s[i].e, &s[!i].handle, HARP_HANDLE_BYTES, -1),
                   HARP_OK);
}

void loopback_poll(struct loopback_side *s, unsigned n) {
  if (!s->connects[n] || s->links[n]) return;
  assert_int_equal(harp_connect_poll(s->connects[n], &s->links[n]), HARP_OK);
  s->link_count += s->links[n] != NULL;
}

void loopback_pass_side(struct loopback_side *s) {
  struct harp_link *link;
  loopback_pass(s->e);
  while ((link = take_accepted(s->l))) s->accepted[s->accepted_count++] = link;
}

void loopback_close(struct loopback_side s[2]) {
  for (unsigned i = 0; i < 2; i++) {
    for (unsigned n = 0; n < LOOPBACK_LINKS_MAX; n++) {
      if (s[i].connects[n]) harp_connect_close(s[i].connects[n]);
      if (s[i].links[n]) harp_link_destroy(s[i].links[n]);
      if (s[i].accepted[n]) harp_link_destroy(s[i].accepted[n]);
    }
    harp_listener_close(s[i].l);
  }
  for (unsigned i = 0; i < 2; i++) harp_engine_close(s[i].e);
}

void loopback_run(struct loopback_side s[2], const bool polls[2], const bool passes[2], unsigned rounds) {
  for (unsigned r = 0; r < rounds; r++)
    for (unsigned i = 0; i < 2; i++) {
      if (polls[i]) loopback_poll(&s[i], 0);
      if (passes[i]) loopback_pass_side(&s[i]);
    }
}

struct harp_peer *loopback_only_peer(const struct harp_engine *e) {
  struct harp_peer_walk walk = harp_engine_peers(e);
  return harp_engine_next_peer(&walk);
}

/* ---- time ---- */

harp_ns loopback_now_ns;

static harp_ns stopped_clock(void) {
  return loopback_now_ns;
}

void loopback_stop_clock(struct loopback_side s[2]) {
  loopback_now_ns = s[0].e->clock();
  for (unsigned i = 0; i < 2; i++) s[i].e->clock = stopped_clock;
}

/* ---- transfers ---- */

/* One message on its way over the n-th link of side i. */
struct transfer {
  struct harp_link *from, *to;
  uint8_t sent[TRANSFER_BYTES], received[TRANSFER_BYTES];
};

/* Returns the other end of a link. */
static struct harp_link *other_end(const struct loopback_side *other, const struct harp_link *link) {
  for (unsigned n = 0; n < other->accepted_count; n++) {
    struct harp_link *a = other->accepted[n];
    bool is_same_session = a->peer->session.keys.rx_token == link->peer->session.keys.tx_token;
    if (is_same_session && a->rx->id == link->tx->id) return a;
  }
  return NULL;
}

static bool is_done(const struct harp_link *link) {
  return atomic_load(&link->requests[0].state) == HARP_REQUEST_DONE;
}

static void begin(struct transfer *t, uint8_t fill) {
  memset(t->sent, fill, sizeof t->sent);
  memset(t->received, 0, sizeof t->received);
  side_submit(t->to, 0, t->received, sizeof t->received);
  side_submit(t->from, 0, t->sent, sizeof t->sent);
}

void loopback_transfer(struct loopback_side s[2]) {
  static struct transfer transfers[2 * LOOPBACK_LINKS_MAX];
  unsigned count = 0, done = 0;
  for (unsigned i = 0; i < 2; i++)
    for (unsigned n = 0; n < LOOPBACK_LINKS_MAX; n++) {
      struct transfer *t = &transfers[count];
      if (!s[i].links[n] || atomic_load(&s[i].links[n]->status)) continue;
      t->from = s[i].links[n];
      t->to = other_end(&s[!i], t->from);
      assert_non_null(t->to);
      begin(t, (uint8_t)++count);
    }
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; done < count && loopback_seconds() < limit;) {
    for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
    loopback_now_ns += LOOPBACK_STEP_NS;
    done = 0;
    for (unsigned k = 0; k < count; k++) done += is_done(transfers[k].from) && is_done(transfers[k].to);
  }
  assert_int_equal(done, count);
  for (unsigned k = 0; k < count; k++)
    assert_memory_equal(transfers[k].received, transfers[k].sent, TRANSFER_BYTES);
}
