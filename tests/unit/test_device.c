/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that are used by several threads while one of their engines is slow to open, as with AF_XDP, whose
 * queues take seconds. Real engines over loopback, which is merged into a second device; the line that an
 * engine logs when its driver is open is where it is held up. At the end, connects that nobody polls any
 * more. */
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "base/log.h"
#include "lib/cores.h"
#include "net/net.h"

enum { LIMIT_S = 10 };

/* ---- the gate ---- */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  bool shut, reached;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_slow;  /* this thread stops at the gate */
static _Thread_local bool runs_out; /* the thread runs out of files, once its engine is open */
static _Atomic unsigned opened_count, closed_count, warn_count;

static void limit_files(rlim_t most) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most ? most : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void on_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level == HARP_LOG_WARN) {
    atomic_fetch_add(&warn_count, 1);
    if (runs_out) limit_files(0);
  }
  if (strstr(text, ": closing driver")) atomic_fetch_add(&closed_count, 1);
  if (!strstr(text, "path(s) from UDP port")) return;
  atomic_fetch_add(&opened_count, 1);
  if (is_slow) {
    pthread_mutex_lock(&gate.lock);
    gate.reached = true;
    pthread_cond_broadcast(&gate.moved);
    while (gate.shut) pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
  }
  if (runs_out) limit_files(1);
}

static void shut_gate(void) {
  pthread_mutex_lock(&gate.lock);
  gate.shut = true;
  gate.reached = false;
  pthread_mutex_unlock(&gate.lock);
}

static void open_gate(void) {
  pthread_mutex_lock(&gate.lock);
  gate.shut = false;
  pthread_cond_broadcast(&gate.moved);
  pthread_mutex_unlock(&gate.lock);
}

static struct timespec limit(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_sec += LIMIT_S;
  return t;
}

static bool is_gate_reached(void) {
  struct timespec end = limit();
  pthread_mutex_lock(&gate.lock);
  while (!gate.reached && !pthread_cond_timedwait(&gate.moved, &gate.lock, &end)) continue;
  bool reached = gate.reached;
  pthread_mutex_unlock(&gate.lock);
  return reached;
}

/* ---- threads ---- */

struct job {
  pthread_t thread;
  struct harp_context *ctx;
  int dev;
  bool slow, short_of_files;
  struct harp_listen *listen;
  uint8_t handle[HARP_HANDLE_BYTES];
  enum harp_status status;
};

static void begin(struct job *j, void *(*work)(void *)) {
  assert_int_equal(pthread_create(&j->thread, NULL, work, j), 0);
}

/* Waits for the thread's end; false: not within the limit. */
static bool ends(struct job *j) {
  struct timespec end = limit();
  return !pthread_timedjoin_np(j->thread, NULL, &end);
}

static void *listening(void *arg) {
  struct job *j = arg;
  is_slow = j->slow;
  runs_out = j->short_of_files;
  j->status = harp_net_listen(j->ctx, j->dev, j->handle, HARP_HANDLE_BYTES, &j->listen);
  return NULL;
}

static void *closing_listen(void *arg) {
  harp_net_close_listen(((struct job *)arg)->listen);
  return NULL;
}

static void *finalizing(void *arg) {
  harp_net_close(((struct job *)arg)->ctx);
  return NULL;
}

/* Connects to a listener and closes both ends. */
static enum harp_status connect_pair(struct harp_context *ctx, int dev, uint8_t *handle,
                                     struct harp_listen *listen) {
  struct harp_comm *sender = NULL, *receiver = NULL;
  enum harp_status status = HARP_OK;
  while (status == HARP_OK && !(sender && receiver)) {
    if (!sender) status = harp_net_connect(ctx, dev, handle, HARP_HANDLE_BYTES, -1, &sender);
    if (status == HARP_OK && !receiver) status = harp_net_accept(listen, &receiver);
  }
  harp_net_close_comm(sender);
  harp_net_close_comm(receiver);
  return status;
}

/* All that NCCL does on a device, from the first to the last. */
static void *living(void *arg) {
  struct job *j = arg;
  struct harp_context *ctx;
  j->status = harp_net_open(&ctx, -1);
  if (j->status == HARP_OK)
    j->status = harp_net_listen(ctx, j->dev, j->handle, HARP_HANDLE_BYTES, &j->listen);
  if (j->status == HARP_OK) j->status = connect_pair(ctx, j->dev, j->handle, j->listen);
  harp_net_close_listen(j->listen);
  if (j->status == HARP_OK)
    j->status = harp_net_listen(ctx, j->dev, j->handle, HARP_HANDLE_BYTES, &j->listen);
  harp_net_close(ctx);
  return NULL;
}

/* ---- scenes ---- */

static struct harp_context *open_context(void) {
  struct harp_context *ctx;
  assert_int_equal(harp_net_open(&ctx, -1), HARP_OK);
  return ctx;
}

/* Returns the second device. */
static int merged(void) {
  int dev = -1;
  assert_int_equal(harp_net_merge((int[]){0}, 1, &dev), HARP_OK);
  return dev;
}

/* A context reads the configuration anew only when nothing is left on any device. */
static void assert_nothing_is_left(void) {
  struct harp_context *ctx;
  setenv("HARP_ENGINE", "no such word", 1);
  assert_int_not_equal(harp_net_open(&ctx, -1), HARP_OK);
  setenv("HARP_ENGINE", "inline", 1);
}

static int set_up(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_ENGINE", "inline", 1);
  setenv("HARP_PATHS", "1", 1);
  setenv("LOCAL_RANK", "0", 1); /* all cores are this process's, at once */
  setenv("LOCAL_WORLD_SIZE", "1", 1);
  atomic_store(&opened_count, 0);
  atomic_store(&closed_count, 0);
  atomic_store(&warn_count, 0);
  harp_log_set_sink(on_line);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

static void test_other_devices_do_not_wait(void **state) {
  (void)state;
  struct harp_context *ctx = open_context();
  struct job slow = {.ctx = ctx, .dev = merged(), .slow = true}, other = {.dev = 0};
  assert_int_not_equal(slow.dev, 0);
  shut_gate();
  begin(&slow, listening);
  bool reached = is_gate_reached();
  begin(&other, living);
  bool ended = ends(&other);
  open_gate();
  assert_true(reached && ends(&slow));
  assert_true(ended || ends(&other));
  assert_true(ended);
  assert_int_equal(other.status, HARP_OK);
  assert_int_equal(slow.status, HARP_OK);
  assert_int_equal(connect_pair(ctx, slow.dev, slow.handle, slow.listen), HARP_OK);
  harp_net_close_listen(slow.listen);
  harp_net_close(ctx);
  assert_int_equal(atomic_load(&warn_count), 0);
  assert_nothing_is_left();
}

/* Lets the first open its device to the middle, has the second work then, and lets both end. */
static void open_beside(struct job *first, struct job *second, void *(*work)(void *)) {
  first->slow = true;
  shut_gate();
  begin(first, listening);
  bool reached = is_gate_reached();
  begin(second, work);
  open_gate();
  assert_true(reached && ends(first) && ends(second));
}

/* Both get the one engine. */
static void test_two_on_the_device_that_opens(void **state) {
  (void)state;
  struct harp_context *ctx = open_context();
  struct job first = {.ctx = ctx}, second = {.ctx = ctx};
  open_beside(&first, &second, listening);
  assert_int_equal(first.status, HARP_OK);
  assert_int_equal(second.status, HARP_OK);
  assert_int_equal(atomic_load(&opened_count), 1);
  harp_net_close_listen(first.listen);
  assert_int_equal(connect_pair(ctx, 0, second.handle, second.listen), HARP_OK);
  harp_net_close_listen(second.listen);
  harp_net_close(ctx);
  assert_nothing_is_left();
}

/* What the call made goes with its context. */
static void test_finalize_while_a_device_opens(void **state) {
  (void)state;
  struct harp_context *ctx = open_context();
  struct job slow = {.ctx = ctx}, last = {.ctx = ctx};
  open_beside(&slow, &last, finalizing);
  assert_int_equal(slow.status, HARP_OK);
  assert_nothing_is_left();
}

/* The first fails when its engine is open; who waited for it has one all the same. */
static void test_failure_while_another_waits(void **state) {
  (void)state;
  struct harp_context *ctx = open_context();
  struct job first = {.ctx = ctx, .short_of_files = true}, second = {.ctx = ctx};
  open_beside(&first, &second, listening);
  assert_int_equal(first.status, HARP_ERR_SYSTEM);
  assert_null(first.listen);
  if (second.status != HARP_OK) /* it had its engine while there were no files */
    assert_int_equal(harp_net_listen(ctx, 0, second.handle, HARP_HANDLE_BYTES, &second.listen), HARP_OK);
  assert_int_equal(connect_pair(ctx, 0, second.handle, second.listen), HARP_OK);
  harp_net_close_listen(second.listen);
  harp_net_close(ctx);
  assert_nothing_is_left();
}

/* The last user of one engine goes while the engine of another core opens. */
static void test_drop_while_another_engine_opens(void **state) {
  struct cores_conf conf;
  (void)state;
  if (!cores_conf_open(&conf)) skip();
  struct harp_context *ctx = open_context();
  struct job first = {.ctx = ctx}, second = {.ctx = ctx, .slow = true};
  begin(&first, listening);
  assert_true(ends(&first));
  shut_gate();
  begin(&second, listening);
  bool reached = is_gate_reached();
  begin(&first, closing_listen);
  open_gate();
  assert_true(ends(&first) && ends(&second));
  assert_int_equal(second.status, HARP_OK);
  assert_true(reached || atomic_load(&opened_count) == 1); /* the other core may be another process's */
  assert_int_equal(connect_pair(ctx, 0, second.handle, second.listen), HARP_OK);
  harp_net_close(ctx);
  cores_conf_close(&conf);
  setenv("HARP_IFNAME", "=lo", 1);
  assert_nothing_is_left();
}

/* ---- given up ---- */

/* A peer that never answers: who connects waits for ever. */
static int open_silent(uint8_t handle[HARP_HANDLE_BYTES]) {
  struct sockaddr_storage a = {.ss_family = AF_INET};
  socklen_t n = sizeof(struct sockaddr_in);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
  assert_int_equal(listen(fd, 16), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
  const struct harp_contact contact = {.port = harp_address_port(&a), .count = 1, .at = {a}};
  harp_handle_encode(handle, HARP_HANDLE_BYTES, &contact);
  return fd;
}

static bool is_closed_by(time_t end) {
  while (!atomic_load(&closed_count) && time(NULL) < end) usleep(1000);
  return atomic_load(&closed_count);
}

/* The engine's own thread ends it, and with it the engine, while others begin to connect on it. */
static void test_connect_that_is_given_up(void **state) {
  _Alignas(8) uint8_t handles[3][HARP_HANDLE_BYTES];
  struct harp_comm *comm;
  (void)state;
  setenv("HARP_PEER_TIMEOUT", "1", 1);
  struct harp_context *ctx = open_context();
  int silent = open_silent(handles[0]);
  memcpy(handles[1], handles[0], sizeof handles[0]);
  memcpy(handles[2], handles[0], sizeof handles[0]);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(harp_net_connect(ctx, 0, handles[i], HARP_HANDLE_BYTES, -1, &comm), HARP_OK);
    assert_null(comm);
  }
  assert_int_equal(atomic_load(&opened_count), 1);
  assert_true(is_closed_by(time(NULL) + LIMIT_S));
  /* It begins anew where it is polled after all; finalizing ends it as ever. */
  for (unsigned i = 0; i < 3; i++)
    assert_int_equal(harp_net_connect(ctx, 0, handles[i], HARP_HANDLE_BYTES, -1, &comm), HARP_OK);
  assert_int_equal(atomic_load(&opened_count), 2);
  harp_net_close(ctx);
  close(silent);
  unsetenv("HARP_PEER_TIMEOUT");
  assert_int_equal(atomic_load(&warn_count), 0);
  assert_nothing_is_left();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_other_devices_do_not_wait, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_two_on_the_device_that_opens, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_finalize_while_a_device_opens, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_failure_while_another_waits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_drop_while_another_engine_opens, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_connect_that_is_given_up, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
