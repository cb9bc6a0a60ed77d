/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a device: how many there are and on which cores, who gets which, when they end, and what
 * each has of memory and queues. Real engines over loopback, with sockets. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "host/claim.h"
#include "host/cpu.h"
#include "net/crew.h"

enum { MISSING_CORE = HARP_CPU_MAX - 1, PORT = 47310 };

static unsigned warn_count, missing_count, without_count, crowded_count;
static char last_warn[HARP_LOG_LINE_BYTES];

static void hear(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level == HARP_LOG_WARN) snprintf(last_warn, sizeof last_warn, "%s", text);
  warn_count += level == HARP_LOG_WARN;
  missing_count += strstr(text, "not available to this process") != NULL;
  without_count += strstr(text, "; going on with ") != NULL;
  crowded_count += strstr(text, "have engines already") != NULL;
}

static struct harp_instance loopback(void) {
  struct harp_instance i = {.ifname = "lo",
                            .mtu = 65536,
                            .paths = 1,
                            .peer_timeout_ns = HARP_SEC(10),
                            .numa = -1,
                            .mode = HARP_ENGINE_THREAD,
                            .driver = HARP_DRIVER_UDP,
                            .page_size = HARP_PAGE_4K};
  ((struct sockaddr_in *)&i.addr)->sin_family = AF_INET;
  ((struct sockaddr_in *)&i.addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return i;
}

static void give_cores(struct harp_instance *i, unsigned count, const uint16_t *cores) {
  i->core_count = count;
  memcpy(i->cores, cores, count * sizeof cores[0]);
}

static int set_up(void **state) {
  (void)state;
  warn_count = missing_count = without_count = crowded_count = 0;
  harp_log_set_sink(hear);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

/* Gives two cores that this process may use; false where there is but one. */
static bool two_cores(uint16_t cores[2]) {
  return harp_cpu_allowed(cores, 2) >= 2;
}

static void drop_all(struct harp_crew *c, struct harp_engine **users, unsigned count) {
  for (unsigned i = 0; i < count; i++) harp_crew_drop(c, users[i]);
}

static void test_an_engine_for_each_core(void **state) {
  struct harp_instance first = loopback(), second = loopback();
  struct harp_engine_enis enis = {2, {&first, &second}};
  struct harp_crew crew = {0};
  struct harp_engine *users[3];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&first, 1, &cores[0]);
  give_cores(&second, 2, (uint16_t[]){cores[1], cores[0]}); /* one of them twice */
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
  assert_int_equal(crew.count, 2);
  assert_ptr_not_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_not_equal(users[0]->core, users[1]->core);
  assert_int_equal(users[0]->core + users[1]->core, cores[0] + cores[1]);
  for (unsigned i = 0; i < 2; i++) {
    char want[HARP_ENGINE_NAME_BYTES];
    assert_int_equal(users[i]->eni_count, 2);
    snprintf(want, sizeof want, "lo+lo engine %u (core %d)", i + 1, users[i]->core);
    assert_string_equal(users[i]->name, want);
  }
  drop_all(&crew, users, 3);
  assert_int_equal(crew.count, 0);
  assert_null(crew.arena.base);
  assert_int_equal(warn_count + missing_count, 0);
}

static void test_one_engine_without_cores_or_a_thread(void **state) {
  struct harp_crew crew = {0};
  uint16_t cores[2] = {0, 1};
  (void)state;
  for (unsigned is_inline = 0; is_inline < 2; is_inline++) {
    struct harp_instance lo = loopback();
    struct harp_engine_enis enis = {1, {&lo}};
    struct harp_engine *users[2];
    if (is_inline) {
      lo.mode = HARP_ENGINE_INLINE;
      give_cores(&lo, 2, cores);
    }
    for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
    assert_ptr_equal(users[0], users[1]);
    assert_int_equal(users[0]->core, -1);
    assert_string_equal(users[0]->name, "lo");
    drop_all(&crew, users, 2);
  }
}

/* The next user goes where fewest are, also when that engine has closed meanwhile; the last user of one
 * closes it alone. */
static void test_fewest_users_first(void **state) {
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_crew crew = {0};
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  struct harp_engine *a = harp_crew_use(&crew, &enis, "delay");
  assert_null(crew.seats[1].engine); /* not before it is needed */
  harp_crew_share(&crew, a);
  harp_crew_share(&crew, a);
  struct harp_engine *b = harp_crew_use(&crew, &enis, "delay");
  assert_ptr_not_equal(a, b);
  assert_ptr_equal(harp_crew_use(&crew, &enis, "delay"), b);
  assert_ptr_equal(harp_crew_use(&crew, &enis, "delay"), b);
  harp_crew_drop(&crew, a);
  harp_crew_drop(&crew, a);
  assert_ptr_equal(harp_crew_use(&crew, &enis, "delay"), a);
  harp_crew_drop(&crew, a);
  harp_crew_drop(&crew, a); /* its last */
  assert_null(crew.seats[0].engine);
  assert_ptr_equal(crew.seats[1].engine, b);
  assert_int_equal(crew.seats[1].users, 3);
  a = harp_crew_use(&crew, &enis, "delay");
  assert_ptr_equal(crew.seats[0].engine, a);
  for (unsigned i = 0; i < 3; i++) harp_crew_drop(&crew, b);
  assert_int_equal(crew.count, 2);
  harp_crew_drop(&crew, a);
  assert_int_equal(crew.count, 0);
}

/* Another process has one of two cores, and gives it back; then it has both. */
static void test_cores_that_others_have(void **state) {
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_crew crew = {0};
  struct harp_engine *users[4];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  int claim = harp_claim_core(cores[1]);
  assert_true(claim >= 0);
  assert_int_equal(harp_claim_core(cores[1]), -EADDRINUSE);
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
  assert_ptr_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_equal(users[0]->core, cores[0]);
  assert_int_equal(crowded_count, 1);
  close(claim);
  assert_non_null(users[3] = harp_crew_use(&crew, &enis, "delay"));
  assert_int_equal(users[3]->core, cores[1]);
  drop_all(&crew, users, 4);

  int claims[2] = {harp_claim_core(cores[0]), harp_claim_core(cores[1])};
  assert_true(claims[0] >= 0 && claims[1] >= 0); /* ours have gone with their engines */
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
  assert_ptr_equal(users[0], users[1]);
  assert_true(users[0]->core == cores[0] || users[0]->core == cores[1]);
  assert_int_equal(crowded_count, 2);
  drop_all(&crew, users, 2);
  for (unsigned i = 0; i < 2; i++) close(claims[i]);
  assert_int_equal(warn_count + without_count, 0);
}

static void test_cores_that_are_missing(void **state) {
  struct harp_crew crew = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *e;
  uint16_t cores[2];
  (void)state;
  assert_true(harp_cpu_allowed(cores, 1) >= 1);
  give_cores(&lo, 2, (uint16_t[]){MISSING_CORE, cores[0]});
  assert_non_null(e = harp_crew_use(&crew, &enis, "delay"));
  assert_int_equal(crew.count, 1);
  assert_int_equal(e->core, cores[0]);
  assert_string_equal(e->name, "lo");
  assert_int_equal(missing_count, 1);
  harp_crew_drop(&crew, e);

  give_cores(&lo, 2, (uint16_t[]){MISSING_CORE, MISSING_CORE - 1});
  assert_non_null(e = harp_crew_use(&crew, &enis, "delay"));
  assert_int_equal(crew.count, 1);
  assert_int_equal(e->core, -1);
  assert_int_equal(missing_count, 2);
  harp_crew_drop(&crew, e);
  assert_int_equal(warn_count, 0);
}

/* The whole range of ports is the first engine's: the second is done without, and not tried again while the
 * first runs. Without the first there is no device. */
static void test_an_engine_that_can_not_be_opened(void **state) {
  struct harp_crew crew = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[3];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  lo.port_low = lo.port_high = PORT;
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
  assert_ptr_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_equal(without_count, 1);
  assert_int_equal(warn_count, 0);
  struct harp_crew other = {0};
  assert_null(harp_crew_use(&other, &enis, "delay"));
  assert_int_equal(warn_count, 1);
  assert_non_null(strstr(last_warn, "47310"));
  assert_null(other.arena.base);
  drop_all(&crew, users, 3);
  assert_non_null(users[0] = harp_crew_use(&other, &enis, "delay")); /* it can be tried again */
  harp_crew_drop(&other, users[0]);
}

/* By itself none asks for more than its part of the range. */
static void test_ports_are_shared(void **state) {
  static const struct {
    unsigned paths, ports, each;
  } rows[] = {{8, 4, 2}, {2, 16, 2}, {16, 5, 2}, {3, 2, 1}};
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  for (size_t row = 0; row < HARP_ARRAY_COUNT(rows); row++) {
    struct harp_crew crew = {0};
    struct harp_instance lo = loopback();
    struct harp_engine_enis enis = {1, {&lo}};
    struct harp_engine *users[2];
    give_cores(&lo, 2, cores);
    lo.paths = rows[row].paths;
    lo.port_low = PORT;
    lo.port_high = (uint16_t)(PORT + rows[row].ports - 1);
    for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
    for (unsigned i = 0; i < 2; i++) assert_int_equal(users[i]->io->info.port_count, rows[row].each);
    drop_all(&crew, users, 2);
    assert_int_equal(without_count + warn_count, 0);
  }
}

/* Each has its part of one block, and its part of what the conf gives. */
static void test_memory(void **state) {
  enum { MIB = 1 << 20 };
  struct harp_crew crew = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[2];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  lo.memory_bytes = 48 * MIB;
  assert_int_equal(harp_engine_memory_bytes(&enis, 1), 48 * MIB);
  assert_int_equal(harp_engine_memory_bytes(&enis, 3), 16 * MIB);
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_crew_use(&crew, &enis, "delay"));
  assert_int_equal(crew.arena.bytes, 48 * MIB);
  assert_ptr_equal(users[1]->memory, users[0]->memory + 24 * MIB);
  uint8_t *last = NULL, *next;
  while ((next = harp_engine_take_block(users[0]))) last = next;
  assert_ptr_equal(last + HARP_BLOCK_BYTES, users[1]->memory);
  drop_all(&crew, users, 2);
  lo.memory_bytes = 2 * MIB;
  assert_true(harp_engine_memory_bytes(&enis, 16) >= MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_an_engine_for_each_core, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_one_engine_without_cores_or_a_thread, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fewest_users_first, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cores_that_others_have, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cores_that_are_missing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_engine_that_can_not_be_opened, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ports_are_shared, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
