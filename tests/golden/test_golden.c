/* SPDX-License-Identifier: Apache-2.0 */
/* Golden traces: short stories on a virtual clock, whose text is the product's own trace of both ends.
 *
 * A difference prints the first line that differs. `make check UPDATE=1` writes the traces anew; what changed
 * is then to be read in the diff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

static struct duo duo;

static void start(const char *name, unsigned paths, uint32_t lines) {
  struct duo_config c = {.seed = 1,
                         .path_count = paths,
                         .first_number = 100,
                         .window_bytes = 1 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64,
                         .is_one_way = true,
                         .trace = true};
  for (unsigned i = 0; i < paths; i++)
    c.paths[i] =
        (struct harp_path_config){.lines_max = lines, .local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
  duo_start(&duo, &c);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 32});
  snprintf(duo.label, sizeof duo.label, "story %s", name);
  for (unsigned i = 0; i < paths; i++) {
    duo.net.links[SIMNET_THERE][i].delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(20 + 10 * i);
  }
}

static void message(uint32_t bytes, harp_ns after_ns) {
  duo_add(&duo, bytes, bytes, duo.now + after_ns, duo.now + after_ns);
}

/* Drops the data datagrams whose number in order of sending is in the list that ends with UINT64_MAX. */
static bool drop_some(void *context, enum simnet_way way, unsigned path, uint64_t nth, const uint8_t *wire,
                      uint32_t bytes, harp_ns now) {
  (void)path, (void)wire, (void)bytes, (void)now;
  if (way != SIMNET_THERE) return true;
  for (const uint64_t *n = context; *n != UINT64_MAX; n++) {
    if (*n == nth) return false;
  }
  return true;
}

static void drop_all_on(unsigned path, harp_ns from_ns, harp_ns to_ns) {
  simnet_blackhole(&duo.net.links[SIMNET_THERE][path], from_ns, to_ns);
  simnet_blackhole(&duo.net.links[SIMNET_BACK][path], from_ns, to_ns);
}

/* Three messages, the last of them empty, on a network without fault. */
static void clean(void) {
  start("clean", 1, 26);
  message(20000, 0);
  message(64, HARP_US(5));
  message(0, HARP_US(400));
}

static void one_loss(void) {
  static const uint64_t lost[] = {3, UINT64_MAX};
  start("one_loss", 1, 26);
  duo.net.filter = drop_some;
  duo.net.filter_context = (void *)lost;
  message(30000, 0);
}

static void tail_loss(void) {
  static const uint64_t lost[] = {9, 10, UINT64_MAX};
  start("tail_loss", 1, 26);
  duo.net.filter = drop_some;
  duo.net.filter_context = (void *)lost;
  message(30000, 0);
}

/* Every fourth datagram comes 90 us late: the first of them are called lost, then the sender is patient. */
static void reordering(void) {
  start("reordering", 1, 26);
  duo.net.links[SIMNET_THERE][0].late_ppm = 250000;
  duo.net.links[SIMNET_THERE][0].late_ns = HARP_US(90);
  for (unsigned i = 0; i < 3; i++) message(30000, HARP_US(400) * i);
}

static void blackhole(void) {
  start("blackhole", 1, 11);
  message(5000, 0);
  message(5000, HARP_MS(1));
  drop_all_on(0, duo.now + HARP_US(500), duo.now + HARP_MS(40));
}

static void path_death(void) {
  start("path_death", 2, 26);
  message(5000, 0);
  message(60000, HARP_US(200));
  drop_all_on(0, duo.now + HARP_US(150), HARP_NEVER);
}

/* Two hosts of two ENIs each: paths 0 and 1 are primary, 2 joins ENI 0 to ENI 1, 3 the other way round. ENI 0
 * of the sender dies, and then ENI 1 of the receiver: only path 3 is left, from ENI 1 to ENI 0. */
static void all_but_one(void) {
  start("all_but_one", 4, 26);
  static const uint8_t local[] = {0, 1, 0, 1}, remote[] = {0, 1, 1, 0};
  struct duo_config c = duo.config;
  for (unsigned i = 0; i < 4; i++) {
    c.paths[i].local_eni = local[i], c.paths[i].remote_eni = remote[i];
    c.paths[i].standby = i >= 2;
  }
  duo_start(&duo, &c);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 32});
  for (unsigned i = 0; i < 4; i++)
    duo.net.links[SIMNET_THERE][i].delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(20 + 10 * i);
  message(5000, 0);
  message(5000, HARP_MS(1));
  message(5000, HARP_MS(60));
  for (unsigned i = 0; i < 3; i++)
    drop_all_on(i, duo.now + (local[i] ? HARP_MS(50) : HARP_US(500)), HARP_NEVER);
}

/* A path that fails comes back, and is used again. */
static void failover(void) {
  start("failover", 2, 26);
  message(5000, 0);
  message(40000, HARP_US(200));
  for (unsigned i = 0; i < 4; i++) message(40000, HARP_MS(15) * (i + 1));
  drop_all_on(0, duo.now + HARP_US(150), duo.now + HARP_MS(50));
}

/* One flow between two ENIs is lost: another, which was dormant, takes its place. */
static void flow_death(void) {
  start("flow_death", 2, 26);
  struct duo_config c = duo.config;
  c.paths[1] = c.paths[0];
  duo_start(&duo, &c);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 32});
  for (unsigned i = 0; i < 2; i++)
    duo.net.links[SIMNET_THERE][i].delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(20 + 10 * i);
  message(5000, 0);
  message(60000, HARP_US(200));
  drop_all_on(0, duo.now + HARP_US(150), HARP_NEVER);
}

struct story {
  const char *name;
  void (*build)(void);
};

static char *slurp(const char *path) {
  FILE *f = fopen(path, "r");
  char *text = NULL;
  size_t room = 0;
  if (!f) return strdup("");
  if (getdelim(&text, &room, 0, f) < 0) text[0] = 0;
  fclose(f);
  return text;
}

static void compare(const char *file, const char *is, const char *wanted) {
  unsigned line = 1;
  const char *a = is, *b = wanted;
  if (!strcmp(is, wanted)) return;
  for (;;) {
    size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
    if (na != nb || memcmp(a, b, na)) {
      print_error("%s:%u differs\n  is:  %.*s\n  was: %.*s\n", file, line, (int)na, a, (int)nb, b);
      break;
    }
    a += na + 1, b += nb + 1, line++;
  }
  fail();
}

static void run(void **state) {
  const struct story *story = *state;
  char file[512];
  char *text = NULL;
  size_t bytes = 0;
  const char *folder = getenv("HARP_GOLDEN"), *update = getenv("UPDATE");
  static const char here[] = __FILE__;
  if (folder)
    snprintf(file, sizeof file, "%s/%s.trace", folder, story->name);
  else
    snprintf(file, sizeof file, "%.*s/%s.trace", (int)(strrchr(here, '/') - here), here, story->name);
  story->build();
  duo.trace_out = open_memstream(&text, &bytes);
  assert_non_null(duo.trace_out);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
  harp_ns end = duo.now + HARP_US(200); /* and what follows at once */
  while (duo_step(&duo, end)) {
  }
  fclose(duo.trace_out);
  duo.trace_out = NULL;
  duo_check_buffers(&duo);
  if (update && *update == '1') {
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
  }
  char *wanted = slurp(file);
  compare(file, text, wanted);
  free(wanted);
  free(text);
}

static int fini(void **state) {
  (void)state;
  duo_fini(&duo);
  return 0;
}

int main(void) {
  static struct story stories[] = {
      {"clean", clean},           {"one_loss", one_loss},       {"tail_loss", tail_loss},
      {"reordering", reordering}, {"blackhole", blackhole},     {"path_death", path_death},
      {"failover", failover},     {"all_but_one", all_but_one}, {"flow_death", flow_death},
  };
  struct CMUnitTest tests[HARP_ARRAY_COUNT(stories)];
  for (size_t i = 0; i < HARP_ARRAY_COUNT(stories); i++)
    tests[i] = (struct CMUnitTest){.name = stories[i].name, .test_func = run, .initial_state = &stories[i]};
  return cmocka_run_group_tests(tests, NULL, fini);
}
