/* SPDX-License-Identifier: Apache-2.0 */
/* How many TCP connections for data two engines hold: none before the first large message, one for it
 * whichever side sends, and none again after long without. Over the kernel's loopback. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/peer_life.h"
#include "engine/tcp/tcp.h"
#include "engine/tcp/tcp_path.h"
#include "lib/loopback.h"
#include "lib/sides.h"
#include "proto/path_report.h"

enum { CLIENT, SERVER, SMALL_BYTES = 8192, LARGE_BYTES = 256 << 10, ROUNDS_MAX = 100000, ROUNDS_IDLE = 200 };
#define REST_NS HARP_SEC(120) /* without a large message: connections are of no use */

static const bool both[2] = {true, true};
static struct loopback_side sides[2];
static uint8_t sent[LARGE_BYTES], received[LARGE_BYTES];

static harp_ns read_takes_ns; /* what each read from a connection takes of the sides' time */

ssize_t readv(int fd, const struct iovec *iov, int count) {
  loopback_now_ns += read_takes_ns;
  return syscall(SYS_readv, fd, iov, count);
}

static unsigned open_count(void) {
  unsigned count = 0;
  for (unsigned i = 0; i < 2; i++) count += sides[i].e->tcp->open_count;
  return count;
}

static uint64_t tcp_ends(void) {
  return sides[0].e->counters.tcp_ends + sides[1].e->counters.tcp_ends;
}

/* One peer, a link each way. */
static int init(void **state) {
  static const bool client_alone[2] = {true, false};
  (void)state;
  loopback_open(sides);
  loopback_connect(sides, CLIENT, 0);
  for (unsigned n = 0; n < ROUNDS_MAX && (!sides[CLIENT].links[0] || !sides[SERVER].accepted_count); n++)
    loopback_run(sides, client_alone, both, 1);
  loopback_connect(sides, SERVER, 0);
  for (unsigned n = 0; n < ROUNDS_MAX && (!sides[SERVER].links[0] || !sides[CLIENT].accepted_count); n++)
    loopback_run(sides, both, both, 1);
  assert_true(sides[CLIENT].accepted_count == 1 && sides[SERVER].accepted_count == 1);
  assert_true(loopback_only_peer(sides[CLIENT].e)->is_client);
  loopback_stop_clock(sides);
  read_takes_ns = 0;
  return 0;
}

static int fini(void **state) {
  (void)state;
  loopback_close(sides);
  return 0;
}

static void pass(void) {
  for (unsigned i = 0; i < 2; i++) loopback_pass(sides[i].e);
  loopback_now_ns += LOOPBACK_STEP_NS;
}

static bool is_done(const struct harp_link *link) {
  return atomic_load(&link->requests[0].state) == HARP_REQUEST_DONE;
}

static void deliver(unsigned from, uint32_t bytes, uint8_t fill) {
  struct harp_link *to = sides[!from].accepted[0];
  memset(sent, fill, bytes);
  side_submit(to, 0, received, bytes);
  side_submit(sides[from].links[0], 0, sent, bytes);
  for (unsigned n = 0; n < ROUNDS_MAX && !(is_done(to) && is_done(sides[from].links[0])); n++) pass();
  assert_true(is_done(to));
  assert_memory_equal(received, sent, bytes);
}

static void wait_for(unsigned count) {
  for (unsigned n = 0; n < ROUNDS_MAX && open_count() != count; n++) pass();
  assert_int_equal(open_count(), count);
}

static void test_small_messages_need_none(void **state) {
  (void)state;
  deliver(CLIENT, SMALL_BYTES, 1);
  deliver(SERVER, SMALL_BYTES, 2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass();
  assert_int_equal(open_count(), 0);
}

/* Each side counts its end. */
static void test_a_large_message_of_the_client_opens_one(void **state) {
  (void)state;
  deliver(CLIENT, LARGE_BYTES, 3);
  wait_for(2);
  deliver(CLIENT, LARGE_BYTES, 4);
  assert_in_range(sides[CLIENT].e->counters.tx_records, 1, UINT32_MAX);
}

static void test_so_does_one_of_the_server(void **state) {
  (void)state;
  deliver(SERVER, LARGE_BYTES, 5);
  wait_for(2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass(); /* it proves itself */
  deliver(SERVER, LARGE_BYTES, 6);
  assert_in_range(sides[SERVER].e->counters.tx_records, 1, UINT32_MAX);
  assert_true(harp_sender_is_dormant(loopback_only_peer(sides[CLIENT].e)->session.sender, 1));
}

static void rest(unsigned from) {
  deliver(from, LARGE_BYTES, 7);
  wait_for(2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass(); /* it proves itself */
  loopback_now_ns += REST_NS;
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass();
  assert_int_equal(open_count(), 2); /* it is kept for a while */
  loopback_now_ns += HARP_TCP_KEEP_NS;
  wait_for(0);
  assert_int_equal(tcp_ends(), 0);
  deliver(from, LARGE_BYTES, 8);
  wait_for(2);
}

/* The time to rest comes while a probe of the connection waits for its answer, which comes late. */
static void test_rest_comes_beside_a_probe_under_way(void **state) {
  (void)state;
  deliver(CLIENT, LARGE_BYTES, 7);
  wait_for(2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass();
  struct harp_engine *e = sides[CLIENT].e;
  struct harp_peer *peer = loopback_only_peer(e);
  loopback_now_ns += REST_NS - HARP_MS(10);
  harp_path_set_request_probe(peer->session.sender, &peer->session.sender->paths[1]);
  harp_peer_complete_news(peer);
  loopback_pass(e); /* sends it */
  assert_true(peer->session.sender->paths[1].is_tcp && peer->session.sender->paths[1].inflight_bytes);
  loopback_now_ns += HARP_MS(10);
  e->control_ns = e->linger_ns = 0;
  loopback_pass(e); /* looks whether it is to rest */
  for (harp_ns until = loopback_now_ns + HARP_MS(400); loopback_now_ns < until;
       loopback_now_ns += HARP_US(100))
    loopback_pass(e);
  deliver(CLIENT, LARGE_BYTES, 8);
}

static void test_none_is_left_after_long_without_one(void **state) {
  (void)state;
  rest(CLIENT);
}

static void test_nor_where_the_server_sends(void **state) {
  (void)state;
  rest(SERVER);
}

/* A connection that the other side has closed right behind its last bytes ends here without that anything is
 * sent on it. */
static void test_an_end_behind_bytes_is_seen(void **state) {
  (void)state;
  deliver(CLIENT, LARGE_BYTES, 9);
  wait_for(2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass();
  struct harp_peer *at_client = loopback_only_peer(sides[CLIENT].e);
  struct harp_peer *at_server = loopback_only_peer(sides[SERVER].e);
  unsigned i = 0;
  while (at_client->tcp[i].fd < 0) i++;
  assert_true(at_server->tcp[i].fd >= 0);
  assert_int_equal(send(at_client->tcp[i].fd, "h", 1, 0), 1); /* the first byte of a record's head */
  assert_int_equal(shutdown(at_client->tcp[i].fd, SHUT_WR), 0);
  sides[SERVER].e->ready.is_steady = false; /* another connection brought something last */
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) {
    loopback_pass(sides[SERVER].e);
    loopback_now_ns += LOOPBACK_STEP_NS;
  }
  assert_int_equal(at_server->tcp[i].fd, -1);
}

/* The client has no use for the connection and does not see that the server's end is gone: the network lost
 * what would show it. Until the client learns it from the server, none has a connection. */
static void test_an_end_that_is_not_seen_is_told(void **state) {
  (void)state;
  enum { STEP_NS = 1000000, ROUNDS = 4000 };
  deliver(SERVER, LARGE_BYTES, 5);
  wait_for(2);
  for (unsigned n = 0; n < ROUNDS_IDLE; n++) pass();
  struct harp_peer *at_client = loopback_only_peer(sides[CLIENT].e);
  struct harp_tcp_path *p = &loopback_only_peer(sides[SERVER].e)->tcp[0];
  assert_true(p->fd >= 0 && at_client->tcp[0].fd >= 0);
  assert_true(harp_sender_is_dormant(at_client->session.sender, p->path));
  int kept = dup(p->fd);
  harp_tcp_path_end(p, loopback_now_ns, "a reset that only this side has seen");
  assert_true(at_client->tcp[0].fd >= 0);
  for (unsigned n = 0; n < ROUNDS && p->fd < 0; n++, loopback_now_ns += STEP_NS) pass();
  assert_true(p->fd >= 0);
  deliver(SERVER, LARGE_BYTES, 6);
  close(kept);
}

/* A record is there once it was read, and so is its acknowledgement: a round trip has both reads in it. */
static void test_no_round_trip_is_shorter_than_its_reads(void **state) {
  (void)state;
  unsigned known = 0;
  read_takes_ns = HARP_US(20);
  deliver(CLIENT, LARGE_BYTES, 10);
  wait_for(2);
  for (uint8_t fill = 11; fill < 31; fill++) {
    deliver(CLIENT, LARGE_BYTES, fill);
    deliver(SERVER, LARGE_BYTES, fill);
  }
  for (unsigned side = 0; side < 2; side++) {
    struct harp_peer *peer = loopback_only_peer(sides[side].e);
    for (unsigned i = 0; i < peer->tcp_count; i++) {
      harp_ns min_ns = harp_path_report_of(&peer->session, peer->tcp[i].path).rtt_min_ns;
      if (!min_ns) continue;
      assert_in_range(min_ns, 2 * read_takes_ns - 2ull * HARP_TICK_NS, HARP_SEC(1));
      known++;
    }
  }
  assert_in_range(known, 1, 8);
}

/* Sends a head to the server's port for data. */
static int send_head(const uint8_t *head) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons(harp_tcp_port(sides[SERVER].e->tcp, 0)),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  assert_int_equal(send(fd, head, HARP_RECORD_HEAD_BYTES, 0), HARP_RECORD_HEAD_BYTES);
  return fd;
}

/* Who has seen the JOIN of a connection cannot take its path over; nor can who knows all that travels, but
 * not the key of the proof. */
static void test_a_recorded_join_is_refused(void **state) {
  (void)state;
  deliver(CLIENT, LARGE_BYTES, 3);
  wait_for(2);
  const struct harp_peer *client = loopback_only_peer(sides[CLIENT].e),
                         *server = loopback_only_peer(sides[SERVER].e);
  const struct harp_tcp_path *p = &server->tcp[0];
  for (unsigned i = 1; p->fd < 0; i++) p = &server->tcp[i];
  int fd = p->fd;
  for (unsigned forged = 0; forged < 2; forged++) {
    uint8_t head[HARP_RECORD_HEAD_BYTES], key[HARP_MAC_KEY_BYTES];
    memcpy(key, client->monitor.keys.tx, sizeof key);
    key[0] ^= (uint8_t)forged;
    harp_record_encode_join(head, client->session.keys.tx_token, p->path, p->attempts - 1 + forged,
                            client->session.keys.tx_seed, key);
    uint64_t refused = sides[SERVER].e->counters.handshake_refused;
    int other = send_head(head);
    for (unsigned n = 0; n < 10 * ROUNDS_IDLE && sides[SERVER].e->counters.handshake_refused == refused; n++)
      pass();
    assert_int_equal(sides[SERVER].e->counters.handshake_refused, refused + 1);
    assert_int_equal(recv(other, head, sizeof head, 0), 0);
    close(other);
  }
  assert_int_equal(p->fd, fd);
  assert_int_equal(tcp_ends(), 0);
  deliver(CLIENT, LARGE_BYTES, 4);
}

#define T(test) cmocka_unit_test_setup_teardown(test, init, fini)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(test_small_messages_need_none),
      T(test_a_large_message_of_the_client_opens_one),
      T(test_so_does_one_of_the_server),
      T(test_rest_comes_beside_a_probe_under_way),
      T(test_none_is_left_after_long_without_one),
      T(test_nor_where_the_server_sends),
      T(test_an_end_behind_bytes_is_seen),
      T(test_an_end_that_is_not_seen_is_told),
      T(test_no_round_trip_is_shorter_than_its_reads),
      T(test_a_recorded_join_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
