/* SPDX-License-Identifier: Apache-2.0 */
/* A listener with unauthenticated connections and with a shortage of files, on a real engine over loopback
 * whose passes the test does itself. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/control/connect.h"
#include "engine/control/listener.h"
#include "engine/engine_open.h"
#include "engine/limits.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/routes.h"
#include "lib/accepted.h"
#include "lib/hello.h"
#include "lib/loopback.h"
#include "lib/sides.h"

static int connect_raw(const struct harp_handle *handle) {
  struct harp_contact to;
  struct harp_error error = {0};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0 && harp_handle_decode(handle, HARP_HANDLE_BYTES, &to, &error));
  assert_int_equal(connect(fd, (struct sockaddr *)&to.at[0], sizeof(struct sockaddr_in)), 0);
  return fd;
}

static bool control_is_ready(const struct harp_engine *e) {
  struct pollfd p = {.fd = e->ready.fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

/* Does passes until the control epoll is ready or not, as `want` selects. */
static bool until_ready(struct harp_engine *e, bool want) {
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; loopback_seconds() < limit;) {
    if (control_is_ready(e) == want) return true;
    harp_engine_pass(e);
  }
  return false;
}

static unsigned shortage_count;

static void count_shortages(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)level, (void)file, (void)line;
  shortage_count +=
      strstr(text, "lo: cannot accept a connection: the process has all 0 files open that it may: raise") !=
      NULL;
}

/* A shortage makes accept fail and leaves the socket ready: the engine must be able to sleep all the same,
 * and accept the connection once there are files again. */
static void test_shortage_of_files(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  struct rlimit before, none;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  int fd = connect_raw(&handle);
  none = before;
  none.rlim_cur = 0;
  assert_true(control_is_ready(e));
  harp_log_set_sink(count_shortages);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (unsigned i = 0; i < 100; i++) {
    e->control_ns = 0;
    harp_engine_pass(e);
  }
  none.rlim_cur = before.rlim_cur;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  assert_false(control_is_ready(e));
  assert_int_equal(e->strangers.count, 0);
  assert_int_equal(shortage_count, 1);
  harp_log_set_sink(NULL);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       !e->strangers.count && loopback_seconds() < limit;)
    harp_engine_pass(e);
  assert_int_equal(e->strangers.count, 1);
  assert_int_equal(send(fd, "nonsense, and more of it than a header", 38, 0), 38);
  assert_true(until_ready(e, false));
  close(fd);
  fd = connect_raw(&handle);
  assert_true(control_is_ready(e)); /* it is waited for again */
  close(fd);
  harp_listener_close(l);
  harp_engine_close(e);
}

static int connect_to_port(uint16_t port) {
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

static bool tcp_is_ready(const struct harp_engine *e) {
  struct pollfd p = {.fd = e->ready.fd, .events = POLLIN};
  return poll(&p, 1, 0) > 0;
}

static bool has_accepted(struct harp_engine *e, unsigned count) {
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->tcp->accepted_count != count && loopback_seconds() < limit;)
    loopback_pass(e);
  return e->tcp->accepted_count == count;
}

/* The same at a listener for data: it kept the engine awake for as long as the shortage lasted. */
static void test_shortage_of_files_for_data(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct rlimit before, none;
  assert_non_null(e->tcp);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  int fd = connect_to_port(harp_tcp_port(e->tcp, 0));
  none = before;
  none.rlim_cur = 0;
  assert_true(tcp_is_ready(e));
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (unsigned i = 0; i < 100; i++) loopback_pass(e);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_false(tcp_is_ready(e));
  assert_int_equal(e->tcp->accepted_count, 0);
  assert_true(has_accepted(e, 1));
  close(fd);
  harp_engine_close(e);
}

/* Without tcp paths its kernel shows all the same whether the process runs. */
static void test_an_engine_of_datagrams_answers(void **state) {
  (void)state;
  struct harp_instance instance = loopback_instance();
  struct harp_endpoint_eni eni;
  instance.driver = HARP_DRIVER_UDP;
  struct harp_engine *e = loopback_open_engine_with(&instance);
  harp_routes_describe(e, 0, &eni);
  assert_int_equal(eni.tcp_port, 0);
  int fd = connect_to_port(eni.answer_port);
  assert_true(has_accepted(e, 1));
  close(fd);
  assert_true(has_accepted(e, 0));
  assert_int_equal(e->counters.handshake_refused, 0);
  harp_engine_close(e);
}

static unsigned slow_count;

static void count_slow(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  slow_count += level == HARP_LOG_INFO && strstr(text, "lo: cannot watch the listening socket") != NULL;
}

/* A listener that cannot end the engine's sleep is logged as slow, and accepts connections all the same. */
static void test_unwatched_listener(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  int fd_of_set = e->ready.fd;
  harp_log_set_sink(count_slow);
  e->ready.fd = -1;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  e->ready.fd = fd_of_set;
  harp_log_set_sink(NULL);
  assert_int_equal(slow_count, 1);
  int fd = connect_raw(&handle);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       !e->strangers.count && loopback_seconds() < limit;)
    harp_engine_pass(e);
  assert_int_equal(e->strangers.count, 1);
  close(fd);
  harp_listener_close(l);
  harp_engine_close(e);
}

/* More unauthenticated connections than there are places, with no bytes, part of a message or garbage: none
 * keeps the engine awake. */
static void test_unauthenticated_connections_do_not_keep_it_awake(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  int fds[HARP_PENDING_PEERS_MAX + 10];
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(fds); i++) {
    fds[i] = connect_raw(&handle);
    if (i % 3 == 1) assert_int_equal(send(fds[i], "H", 1, 0), 1);
    if (i % 3 == 2) assert_int_equal(send(fds[i], "nonsense, and more of it than a header", 38, 0), 38);
    if (i % 5 == 0) shutdown(fds[i], SHUT_RDWR);
  }
  for (unsigned i = 0; i < 20; i++) {
    e->control_ns = 0;
    harp_engine_pass(e);
  }
  assert_true(until_ready(e, false));
  assert_true(e->strangers.count <= HARP_PENDING_PEERS_MAX);
  assert_int_equal(e->peer_count, 0); /* none has a slot */
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(fds); i++) close(fds[i]);
  assert_true(until_ready(e, false));
  harp_listener_close(l);
  assert_int_equal(e->strangers.count, 0);
  harp_engine_close(e);
}

static unsigned line_count;

static void count_lines(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)level, (void)file, (void)line, (void)text;
  line_count++;
}

/* Who tries several addresses of the listener closes all connections but one before it has said anything:
 * that is no refusal, and worth no line. */
static void test_who_leaves_without_a_byte_costs_nothing(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  harp_log_set_sink(count_lines);
  for (unsigned i = 0; i < 20; i++) {
    int fd = connect_raw(&handle);
    for (unsigned k = 0; i % 2 && k < 5; k++) harp_engine_pass(e); /* accepted before, or after it */
    close(fd);
    for (unsigned k = 0; k < 5; k++) harp_engine_pass(e);
  }
  assert_true(until_ready(e, false));
  harp_log_set_sink(NULL);
  assert_int_equal(e->strangers.count, 0);
  assert_int_equal(l->pending_count, 0);
  assert_int_equal(e->counters.handshake_refused, 0);
  assert_int_equal(line_count, 0);
  harp_listener_close(l);
  harp_engine_close(e);
}

enum { LISTENERS = 20, CONNECTIONS_EACH = 10 };

struct swarm {
  struct harp_listener *listeners[LISTENERS];
  int fds[LISTENERS * CONNECTIONS_EACH];
};

/* Unauthenticated connections wait at many listeners, before the engine's first pass. */
static void open_swarm(struct harp_engine *e, struct swarm *s) {
  struct harp_handle handle;
  for (unsigned i = 0; i < LISTENERS * CONNECTIONS_EACH; i++) {
    if (i % CONNECTIONS_EACH == 0)
      assert_int_equal(
          harp_listener_open(&s->listeners[i / CONNECTIONS_EACH], e, &handle, HARP_HANDLE_BYTES, -1),
          HARP_OK);
    s->fds[i] = connect_raw(&handle);
  }
}

static void close_swarm(struct swarm *s) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(s->fds); i++) close(s->fds[i]);
  for (unsigned i = 0; i < LISTENERS; i++) harp_listener_close(s->listeners[i]);
}

/* However many listeners there are, and however many wait at each: the lock is given back in between. */
static void test_a_pass_lets_in_only_so_many(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  static struct swarm s;
  open_swarm(e, &s);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->strangers.count < HARP_ARRAY_COUNT(s.fds) && loopback_seconds() < limit;) {
    uint32_t before = e->strangers.count;
    e->control_ns = 0;
    harp_engine_pass(e);
    assert_in_range(e->strangers.count - before, 1, 64);
  }
  assert_int_equal(e->strangers.count, HARP_ARRAY_COUNT(s.fds));
  assert_true(until_ready(e, false));
  close_swarm(&s);
  assert_int_equal(e->strangers.count, 0);
  harp_engine_close(e);
}

static harp_ns later(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return HARP_SEC((harp_ns)t.tv_sec) + (harp_ns)t.tv_nsec + 2 * HARP_PENDING_PEER_NS;
}

/* Though nothing ever comes from them. */
static void test_silent_connections_are_closed(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  static struct swarm s;
  open_swarm(e, &s);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->strangers.count < HARP_ARRAY_COUNT(s.fds) && loopback_seconds() < limit;)
    harp_engine_pass(e);
  assert_int_equal(e->strangers.count, HARP_ARRAY_COUNT(s.fds));
  e->clock = later;
  for (unsigned passes = 0; passes < 2 * LISTENERS; passes++) {
    e->control_ns = 0;
    harp_engine_pass(e);
  }
  assert_int_equal(e->strangers.count, 0);
  close_swarm(&s);
  harp_engine_close(e);
}

/* ---- more who know the secret than are accepted ---- */

struct crowd {
  struct harp_connect *connects[3 * HARP_UNACCEPTED_MAX];
  struct harp_link *links[3 * HARP_UNACCEPTED_MAX];
  unsigned met;
};

static unsigned refusal_count;

static void count_refusals(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)level, (void)file, (void)line;
  refusal_count += strstr(text, "too many connections wait") != NULL;
}

/* Polls all connects once. */
static void poll_crowd(struct crowd *c) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(c->connects); i++) {
    if (c->links[i]) continue;
    assert_int_equal(harp_connect_poll(c->connects[i], &c->links[i]), HARP_OK);
    c->met += c->links[i] != NULL;
  }
}

/* Lets everything go on until all who have not met were refused `refusals` times more in sum. */
static void run_crowd(struct harp_engine *e, struct crowd *c, unsigned refusals) {
  uint64_t until = e->counters.handshake_refused + refusals;
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->counters.handshake_refused < until && loopback_seconds() < limit;) {
    poll_crowd(c);
    loopback_pass(e);
  }
  assert_true(e->counters.handshake_refused >= until);
}

static struct harp_link *connect_again(struct harp_engine *e, struct harp_link **accepted) {
  struct harp_listener *l;
  struct harp_handle handle;
  struct harp_connect *d;
  struct harp_link *link = NULL;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  assert_int_equal(harp_connect_open(&d, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  *accepted = NULL;
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       (!link || !*accepted) && loopback_seconds() < limit;) {
    if (!link) assert_int_equal(harp_connect_poll(d, &link), HARP_OK);
    loopback_pass(e);
    if (!*accepted) *accepted = take_accepted(l);
  }
  harp_connect_close(d);
  harp_listener_close(l);
  return link;
}

/* Only so many become links before they are accepted. The others are refused, try again, and get in as room
 * is made; other listeners do not notice. */
static void test_unaccepted_are_bounded(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  static struct crowd c;
  struct harp_link *accepted, *link;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  harp_log_set_sink(count_refusals);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(c.connects); i++)
    assert_int_equal(harp_connect_open(&c.connects[i], e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  run_crowd(e, &c, 3 * HARP_ARRAY_COUNT(c.connects));
  assert_int_equal(c.met, HARP_UNACCEPTED_MAX);
  assert_int_equal(atomic_load(&l->ready_count), HARP_UNACCEPTED_MAX);
  assert_int_equal(e->counters.connections, 2 * HARP_UNACCEPTED_MAX);
  /* Logged once here, and once by each that was refused. */
  assert_int_equal(refusal_count, 1 + HARP_ARRAY_COUNT(c.connects) - HARP_UNACCEPTED_MAX);

  link = connect_again(e, &accepted);
  assert_true(link && accepted);
  harp_link_destroy(link);
  harp_link_destroy(accepted);

  for (unsigned taken = 0; taken < HARP_ARRAY_COUNT(c.connects); taken++) {
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         !(link = take_accepted(l)) && loopback_seconds() < limit;) {
      poll_crowd(&c);
      loopback_pass(e);
    }
    assert_non_null(link);
    harp_link_destroy(link);
  }
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       c.met < HARP_ARRAY_COUNT(c.connects) && loopback_seconds() < limit;) {
    poll_crowd(&c); /* the answers to the last ones */
    loopback_pass(e);
  }
  assert_int_equal(c.met, HARP_ARRAY_COUNT(c.connects));
  harp_log_set_sink(NULL);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(c.connects); i++) {
    harp_connect_close(c.connects[i]);
    harp_link_destroy(c.links[i]);
  }
  harp_listener_close(l);
  assert_int_equal(e->link_count, 0);
  harp_engine_close(e);
}

/* ---- links that die before they are accepted ---- */

/* Lets the first side connect until its link waits for accept at the second, and then cuts their control
 * connection, of which the first one does not know yet that it worked. */
static void connect_and_cut(struct loopback_side s[2]) {
  loopback_connect(s, 0, 0);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       !atomic_load(&s[1].l->ready_count) && loopback_seconds() < limit;) {
    loopback_poll(&s[0], 0);
    loopback_pass(s[1].e);
  }
  assert_int_equal(atomic_load(&s[1].l->ready_count), 1);
  assert_null(s[0].links[0]);
  struct harp_peer *peer = loopback_only_peer(s[1].e);
  shutdown(peer->monitor.fd, SHUT_RDWR);
}

/* The peer tries again: accept returns the second link, and only that. */
static void test_the_living_link_is_accepted(void **state) {
  struct loopback_side s[2];
  (void)state;
  loopback_open(s);
  connect_and_cut(s);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[0].links[0] && loopback_seconds() < limit;) {
    loopback_poll(&s[0], 0);
    for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
  }
  assert_non_null(s[0].links[0]);
  loopback_pass_side(&s[1]);
  assert_int_equal(s[1].accepted_count, 1);
  loopback_transfer(s);
  loopback_close(s);
}

/* Somebody who connects and leaves is accepted: NCCL is to learn that it is gone. */
static void test_a_dead_link_alone_is_accepted(void **state) {
  struct loopback_side s[2];
  (void)state;
  loopback_open(s);
  connect_and_cut(s);
  for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
  loopback_pass_side(&s[1]);
  assert_int_equal(s[1].accepted_count, 1);
  loopback_close(s);
}

/* Those that have left do not keep others out. */
static void test_dead_links_are_not_counted(void **state) {
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  struct harp_link *link = NULL;
  (void)state;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  for (unsigned i = 0; i < 2 * HARP_UNACCEPTED_MAX; i++) {
    struct harp_connect *c;
    assert_int_equal(harp_connect_open(&c, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !link && loopback_seconds() < limit;) {
      assert_int_equal(harp_connect_poll(c, &link), HARP_OK);
      loopback_pass(e);
    }
    assert_non_null(link);
    harp_connect_close(c);
    harp_link_destroy(link);
    link = NULL;
    for (unsigned passes = 0; passes < 10; passes++) loopback_pass(e);
  }
  assert_int_equal(atomic_load(&l->ready_count), 1);
  assert_int_equal(e->link_count, 1);
  harp_listener_close(l);
  harp_engine_close(e);
}

/* What was sent before its sender left is not lost to one that comes later. */
static void test_a_link_with_a_message_stays(void **state) {
  static uint8_t sent[8] = "message", received[8];
  struct loopback_side s[2];
  (void)state;
  loopback_open(s);
  for (unsigned n = 0; n < 2; n++) {
    loopback_connect(s, 0, n);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         !s[0].links[n] && loopback_seconds() < limit;) {
      loopback_poll(&s[0], n);
      for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
    }
    assert_non_null(s[0].links[n]);
    if (n) break;
    side_submit(s[0].links[0], 0, sent, sizeof sent);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         atomic_load(&s[0].links[0]->requests[0].state) != HARP_REQUEST_DONE && loopback_seconds() < limit;)
      for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
    harp_link_destroy(s[0].links[0]);
    s[0].links[0] = NULL;
    for (unsigned passes = 0; passes < 10; passes++) loopback_pass(s[1].e);
  }
  loopback_pass_side(&s[1]);
  assert_int_equal(s[1].accepted_count, 2);
  side_submit(s[1].accepted[0], 0, received, sizeof received);
  loopback_pass(s[1].e);
  assert_int_equal(atomic_load(&s[1].accepted[0]->requests[0].state), HARP_REQUEST_DONE);
  assert_memory_equal(received, sent, sizeof sent);
  loopback_close(s);
}

/* Drivers know an engine's packets by the upper half, the engine knows the link by the lowest bits. */
static void test_tokens_of_an_engine_begin_alike(void **state) {
  (void)state;
  enum { CONNECTIONS = 8 };
  struct harp_engine *e = loopback_open_engine(), *other = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  int fds[CONNECTIONS];
  uint64_t middles = 0;
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  for (unsigned i = 0; i < CONNECTIONS; i++) {
    struct harp_handshake h;
    hello_begin(&h, &handle, (uint8_t)i);
    fds[i] = connect_raw(&handle);
    assert_int_equal(send(fds[i], h.out, h.out_bytes, 0), h.out_bytes);
  }
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->peer_count < CONNECTIONS && loopback_seconds() < limit;)
    harp_engine_pass(e);
  for (unsigned i = 0; i < CONNECTIONS; i++) {
    uint64_t token = l->pending[i]->handshake.local.token;
    assert_int_equal(token >> 32, e->token_prefix);
    assert_int_equal(token & 0xffff, l->pending[i]->slot);
    middles |= (token ^ l->pending[0]->handshake.local.token) >> 16 & 0xffff;
  }
  assert_int_not_equal(middles, 0);
  assert_int_not_equal(other->token_prefix, e->token_prefix);
  for (unsigned i = 0; i < CONNECTIONS; i++) close(fds[i]);
  harp_listener_close(l);
  harp_engine_close(e);
  harp_engine_close(other);
}

/* ---- limits ---- */

static char last_warn[1024], last_info[1024];
static unsigned warn_count;

static void keep_last(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  snprintf(level == HARP_LOG_WARN ? last_warn : last_info, sizeof last_warn, "%s", text);
  warn_count += level == HARP_LOG_WARN;
}

/* A firewall may open `ports` alone. */
static void test_it_listens_inside_ports_while_one_is_free(void **state) {
  (void)state;
  enum { COUNT = 4 };
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *listeners[COUNT];
  struct harp_handle handle;
  assert_int_equal(harp_listener_open(&listeners[0], e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  uint16_t port = listeners[0]->port;
  harp_listener_close(listeners[0]);
  e->enis[0].ports = (struct harp_ports){port, port};
  harp_log_set_sink(keep_last);
  last_info[0] = warn_count = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    assert_int_equal(harp_listener_open(&listeners[i], e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
    assert_true((listeners[i]->port == port) == !i);
    assert_true((strstr(last_info, "no TCP port of `ports`") != NULL) == (i > 0));
  }
  harp_log_set_sink(NULL);
  assert_int_equal(warn_count, 0);
  for (unsigned i = 0; i < COUNT; i++) harp_listener_close(listeners[i]);
  harp_engine_close(e);
}

/* What is full, and at which side. */
enum full { FULL_LINKS, FULL_LINKS_THERE, FULL_LINKS_THERE_AT_FIRST, FULL_STREAMS, FULL_PEERS, FULL_FILES };

static void fill_links(struct harp_engine *e, const struct harp_link *only, struct harp_link *with) {
  for (unsigned i = 0; i < HARP_ENGINE_LINKS_MAX; i++) {
    e->link_count += e->links[i] == only ? (with ? 1u : -1u) : 0u;
    if (e->links[i] == only) e->links[i] = with;
  }
}

static void fill_peers(struct harp_engine *e, const struct harp_peer *only, struct harp_peer *with) {
  for (unsigned i = 0; i < HARP_ENGINE_PEERS_MAX; i++) {
    e->peer_count += e->peers[i] == only ? (with ? 1u : -1u) : 0u;
    if (e->peers[i] == only) e->peers[i] = with;
  }
}

static void fill_streams(struct harp_peer *peer, const struct harp_tx_stream *only,
                         struct harp_tx_stream *with) {
  struct harp_sender *sender = peer->session.sender;
  for (unsigned i = 0; i < sender->stream_max; i++)
    if (sender->streams[i] == only) sender->streams[i] = with;
}

static void set_full(struct loopback_side s[2], enum full what, bool full) {
  static struct harp_link link;
  static struct harp_tx_stream stream;
  static struct rlimit before;
  if (what <= FULL_LINKS_THERE_AT_FIRST)
    fill_links(s[what != FULL_LINKS].e, full ? NULL : &link, full ? &link : NULL);
  if (what == FULL_STREAMS)
    fill_streams(loopback_only_peer(s[0].e), full ? NULL : &stream, full ? &stream : NULL);
  if (what == FULL_PEERS)
    fill_peers(s[0].e, full ? NULL : HARP_SLOT_RESERVED, full ? HARP_SLOT_RESERVED : NULL);
  if (what == FULL_FILES) {
    if (full) assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit limit = {.rlim_cur = full ? 0 : before.rlim_cur, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
}

/* Each limit that a connect can reach has one WARN that names it, its number, and what to change. */
static void test_each_limit_is_named(void **state) {
  static const struct {
    bool needs_peer;
    const char *number, *cure;
  } cases[] = {
      [FULL_LINKS] = {true, "all 8192 connections that an engine can have", "NCCL_MAX_NCHANNELS"},
      [FULL_LINKS_THERE] = {true, "all 8192 connections that an engine can have", "NCCL_MAX_NCHANNELS"},
      [FULL_LINKS_THERE_AT_FIRST] = {false, "all 8192 connections that an engine", "NCCL_MAX_NCHANNELS"},
      [FULL_STREAMS] = {true, "all 4096 connections to that peer", "NCCL_MAX_NCHANNELS"},
      [FULL_PEERS] = {false, "all 4096 peers that an engine can have", "fewer ranks"},
      [FULL_FILES] = {false, "all 0 files open that it may", "ulimit -n"},
  };
  static const bool both[2] = {true, true}, none[2], first[2] = {true, false};
  (void)state;
  for (enum full what = FULL_LINKS; what <= FULL_FILES; what++) {
    struct loopback_side s[2];
    enum harp_status status = HARP_OK;
    loopback_open(s);
    s[0].e->instance.peer_timeout_ns = HARP_MS(300);
    if (cases[what].needs_peer) loopback_connect(s, 0, 0);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         s[0].connects[0] && !s[0].links[0] && loopback_seconds() < limit;)
      loopback_run(s, first, both, 1);
    warn_count = 0;
    harp_log_set_sink(keep_last);
    set_full(s, what, true);
    loopback_connect(s, 0, 1);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         status == HARP_OK && loopback_seconds() < limit;) {
      status = harp_connect_poll(s[0].connects[1], &s[0].links[1]);
      loopback_run(s, none, both, 1);
    }
    set_full(s, what, false);
    harp_log_set_sink(NULL);
    assert_int_not_equal(status, HARP_OK);
    assert_int_equal(warn_count, 1);
    assert_non_null(strstr(last_warn, cases[what].number));
    assert_non_null(strstr(last_warn, cases[what].cure));
    loopback_close(s);
  }
}

/* The flight recorder has a word for each state. */
static void test_states_have_words(void **state) {
  (void)state;
  unsigned words = 1;
  for (const char *at = HARP_TRACE_CONNECT_STATES; *at; at++) words += *at == '|';
  assert_int_equal(words, HARP_CONNECT_STATES);
}

/* ---- a peer that ends before it has a link ---- */

/* The side that listens has no place left when the handshake ends there, and ends the new peer: its FINAL is
 * no confirmation, and the other side tries again. */
static void test_final_confirms_no_connect(void **state) {
  static const bool first[2] = {true, false}, second[2] = {false, true}, both[2] = {true, true};
  (void)state;
  struct loopback_side s[2];
  loopback_open(s);
  const struct harp_connect *c;
  loopback_connect(s, 0, 0);
  c = s[0].connects[0];
  time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
  while (!s[1].l->place_count && loopback_seconds() < limit) loopback_run(s, first, second, 1);
  const struct harp_pending_peer *welcomed = s[1].l->pending[0];
  assert_non_null(welcomed);
  while (welcomed->handshake.state != HARP_HANDSHAKE_WAIT_CONFIRM && loopback_seconds() < limit)
    loopback_run(s, first, second, 1);
  set_full(s, FULL_LINKS_THERE, true);
  while (harp_connect_state(c) != HARP_CONNECT_CONFIRMING && loopback_seconds() < limit)
    loopback_poll(&s[0], 0);
  while (s[1].e->peer_count && loopback_seconds() < limit) loopback_pass(s[1].e);
  while (harp_connect_state(c) == HARP_CONNECT_CONFIRMING && loopback_seconds() < limit)
    loopback_poll(&s[0], 0);
  set_full(s, FULL_LINKS_THERE, false);
  assert_null(s[0].links[0]);
  assert_int_equal(harp_connect_state(c), HARP_CONNECT_WAITING);
  while ((!s[0].links[0] || !s[1].accepted[0]) && loopback_seconds() < limit) loopback_run(s, first, both, 1);
  assert_true(s[0].links[0] && s[1].accepted[0]);
  loopback_transfer(s);
  loopback_close(s);
}

/* Listens at another address on the port of a handle, in front of whose address it is put, and never says
 * anything. Returns the socket. */
static int put_mute_first(struct harp_handle *handle) {
  struct harp_contact contact;
  struct harp_error error = {0};
  assert_true(harp_handle_decode(handle, HARP_HANDLE_BYTES, &contact, &error));
  contact.at[contact.count++] = contact.at[0];
  struct sockaddr_in *first = (struct sockaddr_in *)&contact.at[0];
  first->sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  harp_handle_encode(handle, HARP_HANDLE_BYTES, &contact);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)first, sizeof *first), 0);
  assert_int_equal(listen(fd, 16), 0);
  return fd;
}

/* What accepts TCP at the first address answers no HELLO: the handshake moves to the next. */
static void test_hello_is_never_answered(void **state) {
  (void)state;
  static const bool first[2] = {true, false}, both[2] = {true, true};
  struct loopback_side s[2];
  loopback_open(s);
  loopback_stop_clock(s);
  int mute = put_mute_first(&s[1].handle);
  loopback_connect(s, 0, 0);
  struct harp_connect *c = s[0].connects[0];
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       harp_connect_state(c) != HARP_CONNECT_HANDSHAKE && loopback_seconds() < limit;)
    loopback_run(s, first, both, 1);
  loopback_run(s, first, both, 100);
  assert_int_equal(harp_connect_state(c), HARP_CONNECT_HANDSHAKE);
  loopback_now_ns += HARP_DIAL_NEXT_NS;
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[0].links[0] && loopback_seconds() < limit;)
    loopback_run(s, first, both, 1);
  assert_non_null(s[0].links[0]);
  assert_int_equal(c->moves, 1);
  assert_int_equal(c->dials.open_count, 0);
  loopback_close(s);
  close(mute);
}

/* A peer that is slow at its only address is waited for on the same connection. */
static void test_slow_peer_keeps_its_handshake(void **state) {
  (void)state;
  static const bool first[2] = {true, false}, both[2] = {true, true};
  struct loopback_side s[2];
  loopback_open(s);
  loopback_stop_clock(s);
  loopback_connect(s, 0, 0);
  struct harp_connect *c = s[0].connects[0];
  for (unsigned i = 0; i < 100; i++) {
    loopback_now_ns += HARP_DIAL_NEXT_NS;
    loopback_run(s, first, first, 1);
  }
  assert_int_equal(harp_connect_state(c), HARP_CONNECT_HANDSHAKE);
  assert_int_equal(c->moves, 0);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[0].links[0] && loopback_seconds() < limit;)
    loopback_run(s, first, both, 1);
  assert_non_null(s[0].links[0]);
  loopback_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shortage_of_files),
      cmocka_unit_test(test_shortage_of_files_for_data),
      cmocka_unit_test(test_an_engine_of_datagrams_answers),
      cmocka_unit_test(test_unwatched_listener),
      cmocka_unit_test(test_unauthenticated_connections_do_not_keep_it_awake),
      cmocka_unit_test(test_who_leaves_without_a_byte_costs_nothing),
      cmocka_unit_test(test_a_pass_lets_in_only_so_many),
      cmocka_unit_test(test_silent_connections_are_closed),
      cmocka_unit_test(test_unaccepted_are_bounded),
      cmocka_unit_test(test_the_living_link_is_accepted),
      cmocka_unit_test(test_a_dead_link_alone_is_accepted),
      cmocka_unit_test(test_dead_links_are_not_counted),
      cmocka_unit_test(test_a_link_with_a_message_stays),
      cmocka_unit_test(test_tokens_of_an_engine_begin_alike),
      cmocka_unit_test(test_it_listens_inside_ports_while_one_is_free),
      cmocka_unit_test(test_each_limit_is_named),
      cmocka_unit_test(test_states_have_words),
      cmocka_unit_test(test_final_confirms_no_connect),
      cmocka_unit_test(test_hello_is_never_answered),
      cmocka_unit_test(test_slow_peer_keeps_its_handshake),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
