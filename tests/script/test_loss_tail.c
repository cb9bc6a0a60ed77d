/* SPDX-License-Identifier: Apache-2.0 */
/* How long single messages take where the network loses much of what is sent, both ways, on the virtual
 * clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

static struct duo duo;

enum {
  BYTES = 32 * 1024,     /* the bytes of a message: the largest that a send copies */
  LOSS_PPM = 300 * 1000, /* each way */
  SESSIONS = 8,
  MESSAGES = 1000, /* the messages of a session */
  NEW_SESSIONS = 500,
  NEW_MESSAGES = 4, /* the messages of each round: as many as travel before their receives are posted */
  TOOK_MAX = SESSIONS * MESSAGES,
};
#define ONE_WAY_NS   HARP_US(50)
#define TOOK_P999_NS HARP_MS(200)

static harp_ns took_ns[TOOK_MAX];

static void start_session(uint64_t seed, unsigned paths, uint32_t lines, harp_ns gap_ns, unsigned messages) {
  struct duo_config c = {.seed = seed,
                         .path_count = paths,
                         .window_bytes = 1 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64,
                         .is_one_way = true};
  for (unsigned i = 0; i < paths; i++)
    c.paths[i] =
        (struct harp_path_config){.lines_max = lines, .local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
  duo_start(&duo, &c);
  snprintf(duo.label, sizeof duo.label, "seed %u, %u paths, %u lines", (unsigned)seed, paths, lines);
  duo.check_steps = 64;
  for (unsigned i = 0; i < paths; i++) {
    for (unsigned way = 0; way < SIMNET_WAYS; way++) {
      struct simnet_link *l = &duo.net.links[way][i];
      l->own.rate_bytes_s = 1250000000; /* 10 Gbit/s */
      l->own.queue_bytes = 1 << 20;
      l->loss_ppm = LOSS_PPM;
      l->delay_ns = ONE_WAY_NS;
    }
  }
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 16});
  for (unsigned k = 0; k < messages; k++)
    duo_add(&duo, BYTES, BYTES, duo.now + k * gap_ns, duo.now + k * gap_ns);
}

/* Runs the session, and notes how long each of its messages took. */
static void run_session(harp_ns *took) {
  assert_true(duo_run(&duo, duo.now + HARP_SEC(3600)));
  duo_check_buffers(&duo);
  for (unsigned k = 0; k < duo.count; k++) took[k] = duo.messages[k].received_at - duo.messages[k].send_at;
}

static int compare_times(const void *a, const void *b) {
  harp_ns x = *(const harp_ns *)a, y = *(const harp_ns *)b;
  return x < y ? -1 : x > y;
}

static void assert_p999(const char *name, unsigned count) {
  qsort(took_ns, count, sizeof took_ns[0], compare_times);
  harp_ns p50 = took_ns[count / 2], p99 = took_ns[count * 99 / 100], p999 = took_ns[count * 999 / 1000];
  print_message("%-36s p50 %4.1f, p99 %5.1f, p99.9 %6.1f, longest %6.1f ms\n", name, (double)p50 / 1e6,
                (double)p99 / 1e6, (double)p999 / 1e6, (double)took_ns[count - 1] / 1e6);
  assert_true(p999 <= TOOK_P999_NS);
}

/* One message after the other, in sessions that last. */
static void messages_arrive_soon(const char *name, unsigned paths, uint32_t lines) {
  for (unsigned i = 0; i < SESSIONS; i++) {
    start_session(1 + i, paths, lines, HARP_MS(400), MESSAGES);
    run_session(&took_ns[i * MESSAGES]);
  }
  assert_p999(name, SESSIONS * MESSAGES);
}

/* The first messages of new sessions. */
static void first_messages_arrive_soon(const char *name, unsigned paths, uint32_t lines) {
  for (unsigned i = 0; i < NEW_SESSIONS; i++) {
    start_session(1 + i, paths, lines, 0, NEW_MESSAGES);
    run_session(&took_ns[i * NEW_MESSAGES]);
  }
  assert_p999(name, NEW_SESSIONS * NEW_MESSAGES);
}

static void test_messages_arrive_soon(void **state) {
  (void)state;
  messages_arrive_soon("one path, 1500", 1, 11);
  messages_arrive_soon("one path, 9000", 1, 69);
  messages_arrive_soon("two interfaces, 1500", 2, 11);
  messages_arrive_soon("two interfaces, 9000", 2, 69);
}

static void test_first_messages_arrive_soon(void **state) {
  (void)state;
  first_messages_arrive_soon("new session, one path, 1500", 1, 11);
  first_messages_arrive_soon("new session, one path, 9000", 1, 69);
  first_messages_arrive_soon("new session, two interfaces, 1500", 2, 11);
  first_messages_arrive_soon("new session, two interfaces, 9000", 2, 69);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages_arrive_soon),
      cmocka_unit_test(test_first_messages_arrive_soon),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
