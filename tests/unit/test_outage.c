/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces that are reported to be out: when, once, by which name, and that they are forgotten. Links
 * over two interfaces each way on a virtual clock; the states of their paths are set by hand. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/peer_life.h"
#include "io/sim.h"
#include "lib/new_link.h"

enum { ENIS = 2, LINKS = 3, COMING = 64, MANY = 200 };

static harp_ns now_ns;
static harp_ns virtual_clock(void) {
  return now_ns;
}

static unsigned out_count, back_count;
static char last_out[HARP_LOG_LINE_BYTES], last_back[HARP_LOG_LINE_BYTES];

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (!strstr(text, "nothing gets through") && !strstr(text, "works again")) return;
  bool is_out = strstr(text, "nothing gets through");
  assert_int_equal(level, HARP_LOG_INFO); /* the job goes on */
  *(is_out ? &out_count : &back_count) += 1;
  snprintf(is_out ? last_out : last_back, HARP_LOG_LINE_BYTES, "%s", text);
}

struct scene {
  struct harp_engine *engine;
  struct harp_link *links[LINKS];
  struct harp_counters wire_counters;
};

static void carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                  uint32_t bytes, bool ect) {
  (void)wire, (void)port, (void)to, (void)data, (void)bytes, (void)ect;
}

static struct in_addr address(unsigned host, unsigned eni) {
  return (struct in_addr){htonl(0x0a000000 | eni << 8 | host)};
}

static struct harp_endpoint endpoint_of(unsigned host, uint64_t token) {
  struct harp_endpoint e = {
      .token = token, .window_bytes = 1 << 20, .path_count = 1, .eni_count = ENIS, .pid = 7};
  snprintf(e.name, sizeof e.name, "host%u", host);
  for (unsigned i = 0; i < ENIS; i++) {
    struct in_addr a = address(host, i);
    e.enis[i] = (struct harp_endpoint_eni){.family = 4, .mtu = 1500, .port_count = 1, .ports = {1000}};
    memcpy(e.enis[i].addr, &a, 4);
  }
  return e;
}

/* Our host is 1; connects to a host. */
static struct harp_link *connect_to(struct scene *s, unsigned host) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  close(pair[1]);
  int slot = harp_engine_reserve_slot(s->engine);
  struct harp_endpoint self = endpoint_of(1, 0x10000u | (uint64_t)slot), peer = endpoint_of(host, 0x20000);
  struct harp_peer_config config = {.is_client = true,
                                    .slot = (uint32_t)slot,
                                    .control_fd = pair[0],
                                    .local = &self,
                                    .peer = &peer,
                                    .traffic_class = -1,
                                    .keys = {.tx_token = peer.token, .rx_token = self.token}};
  config.peer_addr.ss_family = AF_INET;
  struct harp_link *link = new_link(s->engine, &config);
  assert_non_null(link);
  assert_true(link->peer->is_multihomed);
  for (unsigned i = 0; i < link->peer->session.sender->path_count; i++) {
    link->peer->session.sender->paths[i].state = HARP_PATH_UP;
    link->peer->session.sender->paths[i].loss.any_acked = true;
  }
  return link;
}

/* Links go to hosts 2, 3, ... */
static void open_scene(struct scene *s, unsigned links) {
  struct harp_instance instances[ENIS];
  struct harp_engine_enis enis = {.count = ENIS};
  struct harp_error error = {0};
  memset(s, 0, sizeof *s);
  memset(instances, 0, sizeof instances);
  now_ns = HARP_SEC(1);
  out_count = back_count = 0;
  struct harp_io *bundle = harp_io_bundle_make(&error);
  assert_non_null(bundle);
  for (unsigned i = 0; i < ENIS; i++) {
    struct harp_instance *instance = &instances[i];
    enis.at[i] = instance;
    struct harp_io_sim_config config = {
        .port_count = 1, .first_port = 1000, .send = carry, .counters = &s->wire_counters};
    snprintf(instance->ifname, sizeof instance->ifname, "eth%u", i);
    instance->mtu = 1500;
    instance->paths = 1;
    instance->peer_timeout_ns = HARP_SEC(10);
    instance->stall_ns = HARP_SEC(10);
    ((struct sockaddr_in *)&instance->addr)->sin_family = AF_INET;
    ((struct sockaddr_in *)&instance->addr)->sin_addr = address(1, i);
    harp_io_bundle_take(bundle, harp_io_sim_open(&config));
  }
  assert_int_equal(harp_engine_open_with(&s->engine, &enis, bundle, virtual_clock, &error), 0);
  for (unsigned i = 0; i < links; i++) s->links[i] = connect_to(s, 2 + i);
  harp_log_set_sink(keep_line);
}

static void close_scene(struct scene *s) {
  for (unsigned i = 0; i < LINKS; i++)
    if (s->links[i]) harp_link_destroy(s->links[i]);
  harp_engine_close(s->engine);
}

static int silence(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

enum { ANY = -1 };

/* Moves the paths of a link over these interfaces. */
static void move(struct scene *s, unsigned link, int ours, int theirs, enum harp_path_state to) {
  struct harp_sender *sender = s->links[link]->peer->session.sender;
  for (unsigned i = 0; i < sender->path_count; i++) {
    struct harp_path *path = &sender->paths[i];
    if ((ours != ANY && path->local_eni != ours) || (theirs != ANY && path->remote_eni != theirs)) continue;
    path->state = to;
    *(to == HARP_PATH_UP ? &s->engine->counters.path_up : &s->engine->counters.path_down) += 1;
  }
}

static void review_for(struct scene *s, harp_ns ns) {
  for (harp_ns end = now_ns + ns; now_ns < end; now_ns += HARP_MS(1)) harp_outages_on_pass(s->engine, now_ns);
}

static void test_ours_is_logged_once_and_by_name(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 2);
  move(&s, 0, 0, ANY, HARP_PATH_DOWN);
  move(&s, 1, 0, ANY, HARP_PATH_DOWN);
  review_for(&s, HARP_MS(250));
  assert_int_equal(out_count, 0);
  review_for(&s, HARP_MS(100));
  assert_int_equal(out_count, 1);
  assert_non_null(strstr(last_out, "eth0: nothing gets through on this interface (10.0.0.1)"));
  assert_non_null(strstr(last_out, "eth0+eth1"));
  review_for(&s, HARP_SEC(20)); /* nor are the peers' interfaces, which have no other way */
  assert_int_equal(out_count, 1);
  assert_int_equal(back_count, 0);
  move(&s, 1, 0, ANY, HARP_PATH_UP);
  review_for(&s, HARP_MS(60));
  assert_int_equal(back_count, 1);
  assert_non_null(strstr(last_back, "eth0: this interface works again"));
  move(&s, 0, 0, ANY, HARP_PATH_UP);
  review_for(&s, HARP_SEC(5));
  assert_int_equal(out_count + back_count, 2);
  assert_int_equal(s.engine->outages.count, 0);
  close_scene(&s);
}

static void test_a_short_one_is_not_logged(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  for (unsigned i = 0; i < 20; i++) {
    move(&s, 0, 0, ANY, HARP_PATH_DOWN);
    review_for(&s, HARP_MS(250));
    move(&s, 0, 0, ANY, HARP_PATH_UP);
    review_for(&s, HARP_MS(250));
  }
  assert_int_equal(out_count + back_count, 0);
  close_scene(&s);
}

static void test_a_peers_is_logged_where_ours_works(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 2);
  move(&s, 0, ANY, 1, HARP_PATH_DOWN);
  review_for(&s, HARP_MS(1400));
  assert_int_equal(out_count, 0);
  review_for(&s, HARP_MS(400));
  assert_int_equal(out_count, 1);
  assert_non_null(strstr(last_out, "nothing gets through to the interface 10.0.1.2 of host2"));
  move(&s, 0, ANY, 1, HARP_PATH_UP);
  review_for(&s, HARP_MS(60));
  assert_int_equal(back_count, 1);
  assert_non_null(strstr(last_back, "10.0.1.2 of host2"));
  close_scene(&s);
}

/* A link with no path left may have lost its peer: it is no sign about interfaces. */
static void test_a_link_without_paths_is_no_witness(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  move(&s, 0, ANY, ANY, HARP_PATH_DOWN);
  review_for(&s, HARP_SEC(5));
  assert_int_equal(out_count, 0);
  close_scene(&s);
}

/* Paths that are up for want of proof, while nothing comes on any: nor does that. */
static void test_a_link_that_receives_nothing_proves_nothing(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  move(&s, 0, 0, ANY, HARP_PATH_DOWN);
  s.links[0]->peer->session.sender->stall.since_ns = now_ns;
  review_for(&s, HARP_SEC(5));
  assert_int_equal(out_count, 0);
  close_scene(&s);
}

/* What was about to be reported when the last link that knew of it went is forgotten. */
static void test_what_nobody_knows_of_any_more_is_forgotten(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  move(&s, 0, 0, ANY, HARP_PATH_DOWN);
  review_for(&s, HARP_MS(100));
  harp_link_destroy(s.links[0]);
  review_for(&s, HARP_SEC(10));
  s.links[0] = connect_to(&s, 2);
  move(&s, 0, 0, ANY, HARP_PATH_DOWN);
  review_for(&s, HARP_MS(200));
  assert_int_equal(out_count, 0);
  review_for(&s, HARP_MS(200));
  assert_int_equal(out_count, 1);
  close_scene(&s);
}

/* Reported as back by a new link, whose paths never were down. */
static void test_a_new_link_shows_that_it_works(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  move(&s, 0, 0, ANY, HARP_PATH_DOWN);
  review_for(&s, HARP_SEC(1));
  assert_int_equal(out_count, 1);
  harp_link_destroy(s.links[0]);
  review_for(&s, HARP_SEC(1));
  s.links[0] = connect_to(&s, 2);
  review_for(&s, HARP_SEC(2));
  assert_int_equal(back_count, 1);
  assert_int_equal(s.engine->outages.count, 0);
  close_scene(&s);
}

/* Peers come and go with their interfaces; the table holds those of now. */
static void test_outages_of_peers_that_left_make_room(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, 1);
  for (unsigned host = 0; host < COMING; host++) {
    s.links[1] = connect_to(&s, 10 + host);
    move(&s, 1, ANY, 1, HARP_PATH_DOWN);
    review_for(&s, HARP_SEC(2));
    assert_int_equal(out_count, host + 1);
    harp_link_destroy(s.links[1]);
  }
  s.links[1] = NULL;
  close_scene(&s);
}

/* Those of all peers are logged, however many there are, and a call looks at a few peers only. */
static void test_many_peers(void **state) {
  (void)state;
  static struct harp_link *links[MANY];
  struct scene s;
  open_scene(&s, 1);
  for (unsigned i = 0; i < MANY; i++) {
    links[i] = s.links[1] = connect_to(&s, 10 + i);
    move(&s, 1, ANY, 1, HARP_PATH_DOWN);
  }
  s.links[1] = NULL;
  now_ns += HARP_SEC(1);
  harp_outages_on_pass(s.engine, now_ns);
  assert_int_equal(s.engine->outages.slot, HARP_OUTAGE_PEERS_PER_CALL);
  assert_int_not_equal(s.engine->outages.stage, HARP_OUTAGES_IDLE);
  review_for(&s, HARP_SEC(2));
  assert_int_equal(out_count, MANY);
  for (unsigned i = 0; i < MANY; i++) {
    s.links[1] = links[i];
    move(&s, 1, ANY, 1, HARP_PATH_UP);
  }
  review_for(&s, HARP_SEC(1));
  assert_int_equal(back_count, MANY);
  assert_int_equal(s.engine->outages.count, 0);
  for (unsigned i = 0; i < MANY; i++) harp_link_destroy(links[i]);
  s.links[1] = NULL;
  close_scene(&s);
}

static void review_both(struct scene s[2], harp_ns ns) {
  for (harp_ns end = now_ns + ns; now_ns < end; now_ns += HARP_MS(1)) {
    harp_outages_on_pass(s[0].engine, now_ns);
    harp_outages_on_pass(s[1].engine, now_ns);
  }
}

/* A process with an engine for each core: what it loses, all of them lose. */
static void test_engines_log_it_once_together(void **state) {
  (void)state;
  struct scene s[2];
  open_scene(&s[0], 1);
  open_scene(&s[1], 1);
  for (unsigned round = 1; round <= 2; round++) {
    for (unsigned i = 0; i < 2; i++) move(&s[i], 0, 0, ANY, HARP_PATH_DOWN);
    review_both(s, HARP_SEC(3));
    assert_int_equal(out_count, round);
    for (unsigned i = 0; i < 2; i++) move(&s[i], 0, 0, ANY, HARP_PATH_UP);
    review_both(s, HARP_SEC(3));
    assert_int_equal(back_count, round);
  }
  /* An engine that closes takes what it knows with it. */
  move(&s[0], 0, 0, ANY, HARP_PATH_DOWN);
  review_both(s, HARP_SEC(1));
  assert_int_equal(out_count, 3);
  close_scene(&s[0]);
  open_scene(&s[0], 1);
  move(&s[0], 0, 0, ANY, HARP_PATH_DOWN);
  review_both(s, HARP_SEC(1));
  assert_int_equal(out_count, 1);
  close_scene(&s[0]);
  close_scene(&s[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ours_is_logged_once_and_by_name),
      cmocka_unit_test(test_a_short_one_is_not_logged),
      cmocka_unit_test(test_a_peers_is_logged_where_ours_works),
      cmocka_unit_test(test_a_link_without_paths_is_no_witness),
      cmocka_unit_test(test_a_link_that_receives_nothing_proves_nothing),
      cmocka_unit_test(test_what_nobody_knows_of_any_more_is_forgotten),
      cmocka_unit_test(test_a_new_link_shows_that_it_works),
      cmocka_unit_test(test_outages_of_peers_that_left_make_room),
      cmocka_unit_test(test_many_peers),
      cmocka_unit_test(test_engines_log_it_once_together),
  };
  return cmocka_run_group_tests(tests, NULL, silence);
}
