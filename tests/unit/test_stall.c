/* SPDX-License-Identifier: Apache-2.0 */
/* Why NCCL waits, on a virtual clock: the right reason within seconds, and nothing of an idle job. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/control/connect.h"
#include "engine/control/listener.h"
#include "engine/pass.h"
#include "engine/watch/stall.h"
#include "lib/addresses.h"
#include "lib/sides.h"

enum { BYTES = 100000 };

static char log_text[8192];
static unsigned log_count;
static struct side a, b;
static uint8_t from[BYTES], to[BYTES];

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  assert_int_equal(level, HARP_LOG_INFO);
  if (!strstr(text, "NCCL") && !strstr(text, "thread")) return;
  size_t n = strlen(log_text);
  snprintf(log_text + n, sizeof log_text - n, "%s\n", text);
  log_count++;
}

static int setup(void **state) {
  (void)state;
  log_text[0] = 0;
  log_count = 0;
  a = b = (struct side){0};
  sides_now_ns = HARP_SEC(1);
  harp_log_set_sink(keep_line);
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  sides_connect(&a, &b, 0);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  side_close(&a);
  side_close(&b);
  harp_log_set_sink(NULL);
  return 0;
}

static void step(harp_ns for_ns, harp_ns by_ns) {
  for (harp_ns end = sides_now_ns + for_ns; sides_now_ns < end; sides_now_ns += by_ns) {
    harp_engine_pass(a.engine);
    harp_engine_pass(b.engine);
  }
}

static enum harp_stall_reason reason(const struct side *s) {
  return harp_stall_of_peer(s->link->peer, sides_now_ns);
}

static void test_no_receive(void **state) {
  (void)state;
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(9), HARP_MS(1));
  assert_int_equal(log_count, 0);
  assert_int_equal(reason(&a), HARP_STALL_NONE);
  step(HARP_SEC(3), HARP_MS(1));
  assert_int_equal(reason(&a), HARP_STALL_NO_RECEIVE);
  assert_int_equal(reason(&b), HARP_STALL_NONE);
  assert_non_null(strstr(log_text,
                         "sim0: NCCL has waited for 10 s for host (0.0.0.0) process 7 (1 requests): it has "
                         "posted no receive"));
  step(HARP_SEC(60), HARP_MS(1));
  assert_int_equal(log_count, 3); /* at 10, 40 and 70 s */
  assert_int_equal(a.link->peer->stall.count, 1);
  side_submit(b.link, 0, to, BYTES);
  step(HARP_SEC(5), HARP_MS(1));
  assert_int_equal(reason(&a), HARP_STALL_NONE);
  assert_int_equal(log_count, 3);
}

static void test_nothing_is_sent(void **state) {
  (void)state;
  side_submit(b.link, 0, to, BYTES);
  step(HARP_SEC(13), HARP_MS(1));
  assert_int_equal(reason(&b), HARP_STALL_SENDS_NOTHING);
  assert_int_equal(log_count, 1);
  assert_non_null(strstr(log_text, "nothing of what it is to send has come"));
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(5), HARP_MS(1));
  assert_int_equal(reason(&b), HARP_STALL_NONE);
}

static void test_no_packet_gets_through(void **state) {
  (void)state;
  side_submit(b.link, 0, to, BYTES);
  side_submit(a.link, 0, from, BYTES);
  a.loss_permille = 1000;
  step(HARP_SEC(13), HARP_MS(1));
  assert_int_equal(reason(&a), HARP_STALL_NOT_THROUGH);
  assert_non_null(strstr(log_text, "nothing sent by UDP from sim0 is acknowledged: look for a firewall or "
                                   "security group that drops UDP"));
  a.loss_permille = 0;
  step(HARP_SEC(5), HARP_MS(1));
  assert_int_equal(reason(&a), HARP_STALL_NONE);
}

/* A peer that has not answered a PING, and whose kernel has: there is no socket here to query. */
static void test_a_peer_that_does_not_answer(void **state) {
  (void)state;
  side_submit(b.link, 0, to, BYTES);
  b.link->peer->monitor.ping_ns = sides_now_ns + HARP_SEC(7);
  step(HARP_SEC(13), HARP_MS(1));
  assert_int_equal(reason(&b), HARP_STALL_STOPPED);
  assert_non_null(strstr(log_text, "its process does not"));
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(5), HARP_MS(1));
}

/* We were stopped ourselves: that is logged, and the peer is not blamed. */
static void test_no_core(void **state) {
  (void)state;
  side_submit(b.link, 0, to, BYTES);
  step(HARP_SEC(2), HARP_MS(1));
  sides_now_ns += HARP_SEC(20);
  step(HARP_SEC(5), HARP_MS(1));
  assert_int_equal(log_count, 1);
  assert_non_null(strstr(log_text, "this engine has had no pass for "));
  assert_int_equal(reason(&b), HARP_STALL_NONE);
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(2), HARP_MS(1));
}

/* Its thread runs, but rarely. */
static void test_a_core_that_is_shared(void **state) {
  (void)state;
  harp_ns delay = 0;
  side_submit(b.link, 0, to, BYTES);
  for (unsigned i = 0; i < 200; i++) { /* what an engine may well bear */
    step(HARP_MS(100), HARP_MS(1));
    harp_stalls_on_core_delay(b.engine, delay += HARP_MS(40), sides_now_ns);
  }
  assert_int_equal(reason(&b), HARP_STALL_SENDS_NOTHING);
  log_text[0] = 0, log_count = 0;
  for (unsigned i = 0; i < 200; i++) {
    step(HARP_MS(100), HARP_MS(1));
    harp_stalls_on_core_delay(b.engine, delay += HARP_MS(90), sides_now_ns);
    assert_int_equal(reason(&b) == HARP_STALL_NO_CORE, i >= 99);
  }
  assert_int_equal(log_count, 1); /* no peer is blamed */
  assert_non_null(
      strstr(log_text, "sim0: of the last 10 s this engine's thread has waited for a core for 9 s"));
  step(HARP_SEC(4), HARP_MS(1));
  harp_stalls_on_core_delay(b.engine, delay, sides_now_ns);
  assert_int_equal(reason(&b), HARP_STALL_SENDS_NOTHING);
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(2), HARP_MS(1));
}

static void visit(harp_ns for_ns) {
  for (harp_ns end = sides_now_ns + for_ns; sides_now_ns < end; sides_now_ns += HARP_MS(100))
    harp_stall_watch_mt(b.engine);
}

/* It does not run at all: NCCL's thread logs it. */
static void test_a_thread_that_does_not_run(void **state) {
  (void)state;
  b.engine->turn_count = 5;
  visit(HARP_SEC(40));
  assert_int_equal(log_count, 0); /* an engine without a thread of its own */
  b.engine->threaded = true;
  visit(HARP_SEC(9));
  assert_int_equal(log_count, 0);
  b.engine->turn_count++;
  visit(HARP_SEC(9));
  assert_int_equal(log_count, 0);
  visit(HARP_SEC(40));
  assert_int_equal(log_count, 2); /* at 10 and 40 s */
  assert_non_null(strstr(log_text, "sim0: NCCL waits, and this engine's thread has not run for 10 s"));
  b.engine->threaded = false;
}

static void test_an_accept_that_waits(void **state) {
  (void)state;
  struct harp_listener *l = calloc(1, sizeof *l);
  assert_non_null(l);
  l->engine = a.engine;
  l->fd = -1;
  harp_ns now = HARP_SEC(100);
  for (unsigned i = 0; i < 50; i++, now += HARP_SEC(1)) harp_stall_log_accept(l, now);
  assert_int_equal(log_count, 2);
  assert_non_null(strstr(log_text, "sim0: an accept of NCCL has waited for 10 s for anybody to connect to "));
  struct harp_pending_peer free_place = {.fd = -1}, p = {.fd = 0};
  l->place_count = 2;
  l->pending[0] = &free_place;
  l->pending[1] = &p;
  struct sockaddr_in *addr = (struct sockaddr_in *)&p.peer_addr;
  *addr = (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(99), .sin_addr.s_addr = htonl(0x0a000007)};
  harp_stall_log_accept(l, now + HARP_SEC(30));
  assert_non_null(strstr(log_text, "for a process at 10.0.0.7:99: it has connected"));
  free(l);
}

static void test_the_time_is_the_operators(void **state) {
  (void)state;
  a.engine->instance.stall_ns = HARP_SEC(2);
  side_submit(a.link, 0, from, BYTES);
  step(HARP_MS(1800), HARP_MS(1));
  assert_int_equal(log_count, 0);
  step(HARP_MS(600), HARP_MS(1));
  assert_int_equal(reason(&a), HARP_STALL_NO_RECEIVE);
  assert_non_null(strstr(log_text, "waited for 2 s"));
  side_submit(b.link, 0, to, BYTES);
  step(HARP_SEC(2), HARP_MS(1));
}

static void test_a_connect_that_waits(void **state) {
  (void)state;
  struct harp_connect d = {.engine = a.engine, .last_errno = ECONNREFUSED};
  d.contact.at[d.contact.count++] = address("10.0.0.7", 99);
  d.contact.at[d.contact.count++] = address("10.0.1.7", 99);
  harp_ns now = HARP_SEC(100);
  for (unsigned i = 0; i < 50; i++, now += HARP_SEC(1)) harp_stall_log_connect(&d, now);
  assert_int_equal(log_count, 2); /* at 10 and 40 s */
  assert_non_null(strstr(
      log_text,
      "sim0: a connect of NCCL has waited for 10 s for 10.0.0.7:99, 10.0.1.7:99: Connection refused\n"));
  d.last_errno = HARP_EPEERFILES;
  harp_stall_log_connect(&d, now + HARP_SEC(30));
  assert_non_null(strstr(log_text, "its process has all files open that it may"));
  d.state = HARP_CONNECT_HANDSHAKE;
  harp_stall_log_connect(&d, now + HARP_SEC(60));
  assert_non_null(strstr(log_text, "has not answered"));
}

static void test_an_idle_job_logs_nothing(void **state) {
  (void)state;
  side_submit(b.link, 0, to, BYTES);
  side_submit(a.link, 0, from, BYTES);
  step(HARP_SEC(2), HARP_MS(1));
  assert_int_equal(atomic_load(&b.link->requests[0].state), HARP_REQUEST_DONE);
  step(HARP_SEC(3600), HARP_MS(100));
  assert_int_equal(log_count, 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_no_receive),
      TEST(test_nothing_is_sent),
      TEST(test_no_packet_gets_through),
      TEST(test_a_peer_that_does_not_answer),
      TEST(test_no_core),
      TEST(test_a_core_that_is_shared),
      TEST(test_a_thread_that_does_not_run),
      TEST(test_an_accept_that_waits),
      TEST(test_the_time_is_the_operators),
      TEST(test_a_connect_that_waits),
      TEST(test_an_idle_job_logs_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
