/* SPDX-License-Identifier: Apache-2.0 */
/* Several of NCCL's threads on one device at once, over loopback: each connects, moves checked messages,
 * aborts and closes on comms of its own while the others do the same on the same engine, or on the engine of
 * another core. Run under ThreadSanitizer by tests/sanitize. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/cores.h"
#include "net/net.h"

enum { WORKERS = 3, ROUNDS = 4, MESSAGES = 24, MESSAGE_MAX = 70000, LIMIT_S = 60 };

struct worker {
  pthread_t thread;
  struct harp_context *ctx;
  uint32_t random;
  const char *failed; /* what went wrong; asserts belong to the main thread */
};

struct pair {
  struct harp_comm *sender, *receiver;
};

static time_t seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

static uint32_t draw(struct worker *w, uint32_t below) {
  w->random = w->random * 1664525u + 1013904223u;
  return (w->random >> 8) % below;
}

static bool connect_pair(struct worker *w, struct pair *p) {
  uint8_t handle[HARP_HANDLE_BYTES];
  struct harp_listen *listen;
  time_t limit = seconds() + LIMIT_S;
  *p = (struct pair){0};
  if (harp_net_listen(w->ctx, 0, handle, HARP_HANDLE_BYTES, &listen)) return false;
  bool ok = true;
  while (ok && (!p->sender || !p->receiver) && seconds() < limit) {
    if (!p->sender) ok = !harp_net_connect(w->ctx, 0, handle, HARP_HANDLE_BYTES, -1, &p->sender);
    if (ok && !p->receiver) ok = !harp_net_accept(listen, &p->receiver);
  }
  harp_net_close_listen(listen);
  return ok && p->sender && p->receiver;
}

static bool wait_for(struct harp_request *request, size_t want) {
  time_t limit = seconds() + LIMIT_S;
  bool done = false;
  size_t bytes = 0;
  while (!done && seconds() < limit) {
    if (harp_net_test(request, &done, &bytes)) return false;
  }
  return done && bytes == want;
}

/* One message after the other, the receive sometimes posted before and sometimes after its send. */
static bool move(struct worker *w, const struct pair *p, uint8_t *from, uint8_t *to) {
  for (unsigned m = 0; m < MESSAGES; m++) {
    struct harp_request *send = NULL, *receive = NULL;
    size_t bytes = draw(w, 4) ? draw(w, 600) : draw(w, MESSAGE_MAX);
    bool receive_first = draw(w, 2);
    for (size_t i = 0; i < bytes; i += 61) from[i] = (uint8_t)draw(w, 256);
    if (receive_first && harp_net_receive(p->receiver, to, MESSAGE_MAX, true, &receive)) return false;
    if (harp_net_send(p->sender, from, bytes, &send)) return false;
    if (!receive_first && harp_net_receive(p->receiver, to, MESSAGE_MAX, true, &receive)) return false;
    if (!wait_for(receive, bytes) || !wait_for(send, bytes)) return false;
    if (memcmp(from, to, bytes) != 0) return false;
  }
  return true;
}

/* As NCCL does it upon an abort: requests under way, buffers deregistered and freed, comms closed. */
static bool leave(struct worker *w, const struct pair *p, void *from, void *to, bool unfinished) {
  struct harp_request *request;
  void *from_mr, *to_mr;
  if (harp_net_register(p->sender, from, MESSAGE_MAX, &from_mr)) return false;
  if (harp_net_register(p->receiver, to, MESSAGE_MAX, &to_mr)) return false;
  if (unfinished) {
    unsigned sends = draw(w, 3), receives = draw(w, 3);
    for (unsigned i = 0; i < sends; i++) {
      if (harp_net_send(p->sender, from, MESSAGE_MAX, &request)) return false;
    }
    for (unsigned i = 0; i < receives; i++) {
      if (harp_net_receive(p->receiver, to, MESSAGE_MAX, true, &request)) return false;
    }
  }
  harp_net_deregister(p->sender, from_mr);
  harp_net_deregister(p->receiver, to_mr);
  free(from); /* AddressSanitizer sees whoever still touches them */
  free(to);
  harp_net_close_comm(p->sender);
  harp_net_close_comm(p->receiver);
  return true;
}

static void *work(void *arg) {
  struct worker *w = arg;
  for (unsigned round = 0; round < ROUNDS && !w->failed; round++) {
    struct pair p;
    uint8_t *from = calloc(1, MESSAGE_MAX), *to = calloc(1, MESSAGE_MAX);
    if (!connect_pair(w, &p))
      w->failed = "connect";
    else if (!move(w, &p, from, to))
      w->failed = "move";
    else if (!leave(w, &p, from, to, round % 2))
      w->failed = "leave";
  }
  return NULL;
}

static void run(const char *paths) {
  struct worker workers[WORKERS];
  setenv("HARP_PATHS", paths, 1);
  for (unsigned i = 0; i < WORKERS; i++) {
    workers[i] = (struct worker){.random = i + 1};
    assert_int_equal(harp_net_open(&workers[i].ctx, -1), HARP_OK);
  }
  for (unsigned i = 0; i < WORKERS; i++)
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  for (unsigned i = 0; i < WORKERS; i++) pthread_join(workers[i].thread, NULL);
  for (unsigned i = 0; i < WORKERS; i++) {
    if (workers[i].failed) print_error("worker %u: %s failed\n", i, workers[i].failed);
    assert_null(workers[i].failed);
    harp_net_close(workers[i].ctx);
  }
}

static void test_inline(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_ENGINE", "inline", 1);
  run("1");
}
static void test_thread(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_ENGINE", "thread", 1);
  run("4");
}

/* Engines open and close while others run. */
static void test_an_engine_for_each_core(void **state) {
  struct cores_conf conf;
  (void)state;
  if (!cores_conf_open(&conf)) skip();
  run("2");
  cores_conf_close(&conf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_inline),
      cmocka_unit_test(test_thread),
      cmocka_unit_test(test_an_engine_for_each_core),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
