/* SPDX-License-Identifier: Apache-2.0 */
/* Listens that NCCL has given up: what the engine's thread finds at its looks, which the test does itself. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/runner.h"
#include "net/device.h"
#include "net/net.h"

enum { LISTENS = 20 };

static unsigned closed_count, warn_count;

static void count_lines(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  closed_count += strstr(text, "NCCL has not polled a listener") != NULL;
  warn_count += level == HARP_LOG_WARN;
}

static unsigned count_files(void) {
  unsigned count = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

struct scene {
  struct harp_context *ctx;
  struct harp_engine *engine;
  struct harp_listen *listens[LISTENS];
};

static void open_scene(struct scene *s) {
  setenv("HARP_PEER_TIMEOUT", "600", 1); /* the engine's own thread finds nothing in the time of a test */
  closed_count = warn_count = 0;
  assert_int_equal(harp_net_open(&s->ctx, -1), HARP_OK);
  harp_log_set_sink(count_lines);
  for (unsigned i = 0; i < LISTENS; i++) {
    uint8_t handle[HARP_HANDLE_BYTES] = {0};
    assert_int_equal(harp_net_listen(s->ctx, 0, handle, HARP_HANDLE_BYTES, &s->listens[i]), HARP_OK);
  }
  harp_devices_hold(0);
  s->engine = harp_devices_use(0, NULL, NULL); /* the one engine, which stays open so */
  assert_non_null(s->engine->on_tick);
}

static void close_scene(struct scene *s) {
  for (unsigned i = 0; i < LISTENS; i++) harp_net_close_listen(s->listens[i]);
  harp_devices_drop(0, s->engine);
  harp_devices_release(0);
  harp_net_close(s->ctx);
  harp_log_set_sink(NULL);
}

/* Does the looks of so many seconds. */
static void look_for(struct scene *s, unsigned seconds) {
  for (harp_ns ns = 0; ns < HARP_SEC((harp_ns)seconds); ns += HARP_RUNNER_TICK_NS)
    assert_false(s->engine->on_tick(s->engine));
}

static void poll_accept(struct harp_listen *listen) {
  struct harp_comm *comm;
  assert_int_equal(harp_net_accept(listen, &comm), HARP_OK);
  assert_null(comm);
}

/* A rank may come much later than the first one, so what was never polled stays for an hour. */
static void test_never_polled_ones_end_after_an_hour(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s);
  unsigned files = count_files();
  look_for(&s, 3550);
  assert_int_equal(closed_count, 0);
  look_for(&s, 100);
  assert_int_equal(closed_count, LISTENS);
  assert_int_equal(count_files(), files - LISTENS);
  close_scene(&s);
}

static void test_those_polled_end_when_they_are_so_no_more(void **state) {
  (void)state;
  struct scene s;
  struct harp_comm *comm;
  open_scene(&s);
  for (unsigned minutes = 0; minutes < 120; minutes++) {
    for (unsigned i = 0; i < LISTENS; i++) poll_accept(s.listens[i]);
    look_for(&s, 60);
  }
  assert_int_equal(closed_count, 0);
  for (unsigned minutes = 0; minutes < 60; minutes++) {
    poll_accept(s.listens[0]);
    look_for(&s, 60);
  }
  assert_int_equal(closed_count, LISTENS - 1);
  poll_accept(s.listens[0]);
  assert_int_equal(warn_count, 0);
  assert_int_equal(harp_net_accept(s.listens[1], &comm), HARP_ERR_INTERNAL); /* late, and harmless */
  assert_int_equal(harp_net_accept(s.listens[1], &comm), HARP_ERR_INTERNAL);
  assert_int_equal(warn_count, 2);
  close_scene(&s);
}

static int set_up(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_ENGINE", "inline", 1);
  setenv("HARP_STATS_DIR", "off", 1);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_never_polled_ones_end_after_an_hour),
      cmocka_unit_test(test_those_polled_end_when_they_are_so_no_more),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
