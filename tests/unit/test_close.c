/* SPDX-License-Identifier: Apache-2.0 */
/* Closing waits for no peer: what was copied is delivered by the engine, which outlives its last user for
 * that, also where the process ends. The peer is an engine whose passes the test does, so that it stands
 * still when the test likes. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "lib/accepted.h"
#include "lib/loopback.h"
#include "lib/sides.h"
#include "net/device.h"
#include "net/net.h"

enum { BYTES = 8 };

static _Atomic unsigned closed_count, warn_count;

static void count_lines(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level == HARP_LOG_WARN) atomic_fetch_add(&warn_count, 1);
  if (strstr(text, ": closing driver")) atomic_fetch_add(&closed_count, 1);
}

/* ---- the peer ---- */

struct peer {
  struct harp_engine *engine;
  struct harp_listener *listener;
  struct harp_handle handle;
  struct harp_link *link;
  uint8_t received[BYTES];
};

static void open_peer(struct peer *p) {
  *p = (struct peer){.engine = loopback_open_engine()};
  assert_int_equal(harp_listener_open(&p->listener, p->engine, &p->handle, HARP_HANDLE_BYTES, -1), HARP_OK);
}

static void pass(struct peer *p) {
  loopback_pass(p->engine);
  if (!p->link) p->link = take_accepted(p->listener);
}

static bool has_received(const struct peer *p) {
  return atomic_load(&p->link->requests[0].state) == HARP_REQUEST_DONE;
}

/* The peer goes on; the message of so many equal bytes arrives. */
static void receive(struct peer *p, uint8_t fill) {
  uint8_t want[BYTES];
  memset(want, fill, sizeof want);
  side_submit(p->link, 0, p->received, BYTES);
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S; !has_received(p) && loopback_seconds() < end;)
    pass(p);
  assert_true(has_received(p));
  assert_memory_equal(p->received, want, BYTES);
}

static void close_peer(struct peer *p) {
  if (p->link) harp_link_destroy(p->link);
  harp_listener_close(p->listener);
  harp_engine_close(p->engine);
}

/* ---- the side that closes ---- */

/* Sends a message, which is done at once, and closes the comm. The peer receives nothing before. */
static void send_and_close(struct harp_comm *comm, uint8_t fill) {
  uint8_t data[BYTES];
  struct harp_request *request;
  bool done = false;
  size_t bytes;
  memset(data, fill, sizeof data);
  if (harp_net_send(comm, data, sizeof data, &request) || harp_net_test(request, &done, &bytes) || !done)
    abort();
  harp_net_close_comm(comm);
}

static void await_closed(struct peer *p, unsigned count) {
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S;
       atomic_load(&closed_count) < count && loopback_seconds() < end;)
    pass(p);
  assert_int_equal(atomic_load(&closed_count), count);
}

static struct harp_comm *connect_to(struct harp_context *ctx, struct peer *p) {
  struct harp_comm *comm = NULL;
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S; !(comm && p->link) && loopback_seconds() < end;) {
    if (!comm) assert_int_equal(harp_net_connect(ctx, 0, &p->handle, HARP_HANDLE_BYTES, -1, &comm), HARP_OK);
    pass(p);
  }
  assert_non_null(comm);
  assert_non_null(p->link);
  return comm;
}

static int set_up(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_STATS_DIR", "off", 1);
  setenv("HARP_PEER_TIMEOUT", "600", 1); /* closing used to wait until the drain's own limit */
  atomic_store(&closed_count, 0);
  atomic_store(&warn_count, 0);
  harp_log_set_sink(count_lines);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

static void close_while_the_peer_stands_still(const char *mode, bool uses_again) {
  struct harp_context *ctx;
  struct harp_listen *listen = NULL;
  struct peer peer;
  uint8_t handle[HARP_HANDLE_BYTES];
  setenv("HARP_ENGINE", mode, 1);
  atomic_store(&closed_count, 0);
  open_peer(&peer);
  assert_int_equal(harp_net_open(&ctx, -1), HARP_OK);
  send_and_close(connect_to(ctx, &peer), 7);
  assert_int_equal(atomic_load(&closed_count), 0); /* it has the message */
  if (uses_again) assert_int_equal(harp_net_listen(ctx, 0, handle, sizeof handle, &listen), HARP_OK);
  if (!uses_again) harp_net_close(ctx);
  receive(&peer, 7);
  if (uses_again) {
    harp_net_close_listen(listen);
    harp_net_close(ctx);
  }
  await_closed(&peer, 1);
  assert_int_equal(atomic_load(&warn_count), 0);
  close_peer(&peer);
}

static void test_close_waits_for_no_peer(void **state) {
  (void)state;
  close_while_the_peer_stands_still("inline", false);
  close_while_the_peer_stands_still("thread", false);
}

/* What comes before the engine is gone has the same one. */
static void test_an_engine_that_drains_is_used_again(void **state) {
  (void)state;
  close_while_the_peer_stands_still("inline", true);
  close_while_the_peer_stands_still("thread", true);
}

/* ---- the end of the peer's process ---- */

static pid_t peer_process;
static int from_peer_process;

/* A process that lets one connect, then stands still. Forked before anything of HARP runs here. */
static void start_peer_process(void) {
  int fds[2];
  if (pipe(fds)) abort();
  from_peer_process = fds[0];
  peer_process = fork();
  if (peer_process) return;
  struct peer peer;
  void *none = NULL;
  set_up(&none);
  setenv("HARP_ENGINE", "inline", 1);
  open_peer(&peer);
  if (write(fds[1], &peer.handle, sizeof peer.handle) != sizeof peer.handle) _exit(1);
  while (!peer.link) pass(&peer);
  for (;;) pause();
}

/* Nobody waits for what was sent on a comm that was closed, and nothing says that it is lost: its
 * acknowledgement may be. */
static void test_a_peer_that_ends_while_copies_wait_is_no_warning(void **state) {
  struct harp_context *ctx;
  struct harp_handle handle;
  struct harp_comm *comm = NULL;
  (void)state;
  setenv("HARP_ENGINE", "thread", 1);
  assert_int_equal(read(from_peer_process, &handle, sizeof handle), sizeof handle);
  assert_int_equal(harp_net_open(&ctx, -1), HARP_OK);
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S; !comm && loopback_seconds() < end;)
    assert_int_equal(harp_net_connect(ctx, 0, &handle, HARP_HANDLE_BYTES, -1, &comm), HARP_OK);
  assert_non_null(comm);
  send_and_close(comm, 7);
  harp_net_close(ctx);
  kill(peer_process, SIGKILL);
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S;
       !atomic_load(&closed_count) && loopback_seconds() < end;)
    usleep(1000);
  assert_int_equal(atomic_load(&closed_count), 1);
  assert_int_equal(atomic_load(&warn_count), 0);
  waitpid(peer_process, NULL, 0);
}

/* ---- the end of the process ---- */

static int report_fd = -1;

/* After main: the peer goes on from here. */
static void report_exit(void) {
  (void)!write(report_fd, "e", 1);
}

/* After the plugin's own: whether its engine is gone. A destructor with a priority runs after those without.
 */
__attribute__((destructor(200))) static void report_end(void) {
  char closed = (char)('0' + atomic_load(&closed_count));
  if (report_fd >= 0) (void)!write(report_fd, &closed, 1);
}

/* A process that connects, sends once it is told that the peer stands still, closes and ends. */
static void run_sender(int from, int to) {
  struct harp_handle handle;
  struct harp_context *ctx;
  struct harp_comm *comm = NULL;
  char word;
  report_fd = to;
  if (read(from, &handle, sizeof handle) != sizeof handle) _exit(1);
  if (harp_net_open(&ctx, -1)) _exit(2);
  while (!comm)
    if (harp_net_connect(ctx, 0, &handle, HARP_HANDLE_BYTES, -1, &comm)) _exit(3);
  if (write(to, "c", 1) != 1 || read(from, &word, 1) != 1) _exit(4);
  send_and_close(comm, 9);
  harp_net_close(ctx);
  if (atomic_load(&closed_count)) _exit(5);
  atexit(report_exit);
  exit(0);
}

static void test_the_end_of_the_process_waits(void **state) {
  struct peer peer;
  int to_sender[2], from_sender[2], status;
  char what = 0;
  (void)state;
  setenv("HARP_ENGINE", "inline", 1);
  assert_int_equal(pipe(to_sender), 0);
  assert_int_equal(pipe(from_sender), 0);
  pid_t sender = fork(); /* before anything of HARP runs here */
  if (!sender) run_sender(to_sender[0], from_sender[1]);
  close(from_sender[1]);
  open_peer(&peer);
  assert_int_equal(write(to_sender[1], &peer.handle, sizeof peer.handle), sizeof peer.handle);
  struct pollfd word = {.fd = from_sender[0], .events = POLLIN};
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S; !poll(&word, 1, 0) && loopback_seconds() < end;)
    pass(&peer);
  assert_non_null(peer.link);
  assert_int_equal(read(from_sender[0], &what, 1), 1);
  assert_int_equal(what, 'c');
  assert_int_equal(write(to_sender[1], "s", 1), 1);
  assert_int_equal(read(from_sender[0], &what, 1), 1);
  assert_int_equal(what, 'e');
  receive(&peer, 9);
  for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S;
       !waitpid(sender, &status, WNOHANG) && loopback_seconds() < end;)
    pass(&peer);
  assert_int_equal(status, 0);
  assert_int_equal(read(from_sender[0], &what, 1), 1);
  assert_int_equal(what, '1');
  close(from_sender[0]);
  for (unsigned i = 0; i < 2; i++) close(to_sender[i]);
  close_peer(&peer);
}

int main(void) {
  start_peer_process();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_the_end_of_the_process_waits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_close_waits_for_no_peer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_engine_that_drains_is_used_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_peer_that_ends_while_copies_wait_is_no_warning, set_up,
                                      tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
