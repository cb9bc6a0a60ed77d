/* SPDX-License-Identifier: Apache-2.0 */
/* The HARP_ variables. */
#include "host/env.h"
#include "unit/host_tree.h"

static struct harp_error error;
static struct harp_env env;

#define READ(...) harp_env_read(&env, (const char *const[]){__VA_ARGS__, NULL}, &error)

static void test_every_variable(void **state) {
  (void)state;
  assert_int_equal(READ("PATH=/bin", "HARP_CONF_DIR=/etc/harp", "HARP_IFNAME=^docker,lo", "HARP_DRIVER=udp",
                        "HARP_ENGINE=thread", "HARP_PEER_TIMEOUT=600", "HARP_PATHS=16",
                        "HARP_CONGESTION=reno", "HARP_DEVICES=enis", "HARP_STATS_DIR=/run/x",
                        "HARP_STALL_TIME=3", "HARP_DUMP_DIR=off", "HARP_DISABLE=0", "HARP_ZEROCOPY=off",
                        "HARP_TCP_CHECKSUM=off", "HARP_ECN=off", "HARP_SHARED_CLOCK=off", "HARP_AUTH=mac"),
                   0);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    bool has_variable = harp_setting_table[id].variable;
    assert_int_equal(env.text[id] != NULL, has_variable);
    assert_int_equal(harp_setting_is_set(&env.values, id), has_variable);
  }
  assert_string_equal(env.text[HARP_SETTING_CONF_DIR], "/etc/harp");
  assert_string_equal(env.text[HARP_SETTING_IFNAME], "^docker,lo");
  assert_int_equal(env.values.driver, HARP_DRIVER_UDP);
  assert_int_equal(env.values.mode, HARP_ENGINE_THREAD);
  assert_int_equal(env.values.peer_timeout_ns, HARP_SEC(600));
  assert_int_equal(env.values.paths, 16);
  assert_int_equal(env.values.congestion, HARP_CONGESTION_RENO);
  assert_int_equal(env.values.devices, HARP_DEVICES_ENIS);
  assert_int_equal(env.values.ecn, HARP_ECN_OFF);
  assert_int_equal(env.values.shared_clock, HARP_SHARED_CLOCK_OFF);
  assert_int_equal(env.values.stall_ns, HARP_SEC(3));
  assert_int_equal(env.values.zerocopy, HARP_ZEROCOPY_MODE_OFF);
  assert_int_equal(env.values.tcp_checksum, HARP_TCP_CHECKSUM_OFF);
  assert_int_equal(env.values.auth, HARP_AUTH_MAC);
  assert_string_equal(tree_log, "");
}

static void test_empty_is_unset(void **state) {
  (void)state;
  assert_int_equal(READ("HARP_PATHS=", "HARP_IFNAME="), 0);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) assert_null(env.text[id]);
  assert_int_equal(env.values.set, 0);
  assert_string_equal(tree_log, "");
}

static void test_bad_values_name_variable_and_value(void **state) {
  (void)state;
  static const struct {
    const char *setting, *sentence;
  } rows[] = {
      {"HARP_DISABLE=yes", "HARP_DISABLE = 'yes': expected 0 or 1"},
      {"HARP_DRIVER=rdma", "HARP_DRIVER = 'rdma': expected auto, xdp, xdp-zc, xdp-copy, udp, tcp or udp+tcp"},
      {"HARP_ENGINE=fast", "HARP_ENGINE = 'fast': expected auto, inline or thread"},
      {"HARP_PEER_TIMEOUT=0", "HARP_PEER_TIMEOUT = '0': expected whole seconds from 1 to 600"},
      {"HARP_PEER_TIMEOUT=601", "HARP_PEER_TIMEOUT = '601': expected whole seconds from 1 to 600"},
      {"HARP_STALL_TIME=0.5", "HARP_STALL_TIME = '0.5': expected whole seconds from 1 to 3600"},
      {"HARP_ZEROCOPY=1", "HARP_ZEROCOPY = '1': expected auto, on or off"},
      {"HARP_AUTH=on", "HARP_AUTH = 'on': expected off or mac"},
      {"HARP_TCP_CHECKSUM=0", "HARP_TCP_CHECKSUM = '0': expected on or off"},
      {"HARP_PATHS= 4", "HARP_PATHS = ' 4': expected a number from 1 to 16"},
      {"HARP_STATS_DIR=stats",
       "HARP_STATS_DIR = 'stats': expected off, or an absolute directory path of at most 255 characters"},
      {"HARP_CONGESTION=bbr\n", "HARP_CONGESTION = 'bbr?': expected target or reno"},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    assert_int_equal(READ(rows[i].setting), -EINVAL);
    assert_string_equal(error.text, rows[i].sentence);
  }
  char path[400] = "HARP_CONF_DIR=/";
  memset(path + 15, 'd', 300);
  assert_int_equal(READ(path), -EINVAL);
  assert_non_null(strstr(error.text, "expected a directory path of at most 255 characters"));
}

static void test_only_1_disables(void **state) {
  static const char *const on[] = {"HARP_PATHS=0", "HARP_DISABLE=1", NULL};
  static const char *const off[] = {"HARP_DISABLE=0", NULL}, *const empty[] = {"HARP_DISABLE=", NULL};
  static const char *const wrong[] = {"HARP_DISABLE=11", NULL};
  (void)state;
  assert_true(harp_env_is_disabled(on));
  assert_false(harp_env_is_disabled(off));
  assert_false(harp_env_is_disabled(empty));
  assert_false(harp_env_is_disabled(wrong));
}

/* At INFO, never WARN: NCCL keeps a process's last WARN as the reason of a later error. */
static void test_unknown_variables_are_logged(void **state) {
  (void)state;
  assert_int_equal(READ("HARP_PATH=4", "HARP_PEER_TIMOUT=3", "HARP_IFNAMES=eth0", "HARP_DRINE=udp",
                        "HARP_SOMETHING_ELSE=1", "HARPO=1", "HARP_=1", "HARP_NO_EQUALS"),
                   0);
  assert_string_equal(tree_log,
                      "I environment: unknown variable HARP_PATH; did you mean HARP_PATHS?\n"
                      "I environment: unknown variable HARP_PEER_TIMOUT; did you mean HARP_PEER_TIMEOUT?\n"
                      "I environment: unknown variable HARP_IFNAMES; did you mean HARP_IFNAME?\n"
                      "I environment: unknown variable HARP_DRINE; did you mean HARP_DRIVER?\n"
                      "I environment: unknown variable HARP_SOMETHING_ELSE\n"
                      "I environment: unknown variable HARP_; did you mean HARP_ECN?\n"
                      "I environment: unknown variable HARP_NO_EQUALS\n");
}

static void test_unknown_variables_are_bounded(void **state) {
  (void)state;
  char texts[64][40];
  const char *environment[65] = {NULL};
  for (unsigned i = 0; i < 64; i++) {
    snprintf(texts[i], sizeof texts[i], "HARP_%u_%s=1", i, "ABCDEFGHIJKLMNOPQRSTUVWXY");
    environment[i] = texts[i];
  }
  assert_int_equal(harp_env_read(&env, environment, &error), 0);
  unsigned lines = 0;
  for (const char *at = tree_log; *at; at++) lines += *at == '\n';
  assert_int_equal(lines, 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_every_variable, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_empty_is_unset, tree_setup, tree_teardown),
      cmocka_unit_test(test_only_1_disables),
      cmocka_unit_test_setup_teardown(test_bad_values_name_variable_and_value, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_unknown_variables_are_logged, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_unknown_variables_are_bounded, tree_setup, tree_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
