/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings: each row is complete, and fits what it is of. */
#include "host/setting.h"
#include "proto/cc.h"
#include "unit/host_tree.h"

static void test_rows_are_complete(void **state) {
  (void)state;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *s = &harp_setting_table[id];
    assert_int_equal(s->section != NULL, s->key != NULL);
    assert_true(s->key || s->variable);
    assert_true(!s->variable || strncmp(s->variable, "HARP_", 5) == 0);
    assert_int_equal(s->words != NULL, s->kind == HARP_KIND_WORD);
    assert_true((s->initial != NULL) != (s->otherwise != NULL));
    assert_non_null(s->help);
    assert_true(!s->key || s->offset != SIZE_MAX); /* the text of a file does not stay */
    assert_true(s->min <= s->max);
  }
}

static void test_each_is_there_once(void **state) {
  (void)state;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    for (unsigned other = 0; other < id; other++) {
      const struct harp_setting *a = &harp_setting_table[id], *b = &harp_setting_table[other];
      assert_true(!a->variable || !b->variable || strcmp(a->variable, b->variable) != 0);
      /* in Conf of harpctl they share one name space */
      assert_true(!a->key || !b->key || strcmp(a->key, b->key) != 0);
      assert_true(a->offset == SIZE_MAX || a->offset != b->offset);
    }
  }
}

/* Sections are in the order in which files are written. */
static void test_keys_stand_by_section(void **state) {
  (void)state;
  unsigned section = 0;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *s = &harp_setting_table[id];
    while (s->key && strcmp(s->section, harp_setting_sections[section]) != 0)
      assert_non_null(harp_setting_sections[++section]);
  }
}

/* Files of one job are compared by what this writes. */
static void test_settings_of_the_job_are_written_as_they_are_read(void **state) {
  (void)state;
  struct harp_settings settings, again = {0};
  harp_settings_init(&settings);
  assert_int_equal(settings.set, 0);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    char text[24];
    if (harp_setting_table[id].scope != HARP_SCOPE_JOB || harp_setting_table[id].offset == SIZE_MAX) continue;
    assert_string_equal(harp_settings_format(&settings, id, text), harp_setting_table[id].initial);
    assert_true(harp_settings_read(&again, id, text));
  }
}

static void test_what_is_expected_fits(void **state) {
  (void)state;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    char text[HARP_EXPECTED_BYTES] = "";
    assert_true(strlen(harp_setting_expected(id, text)) > 0);
  }
}

static void test_overlay_copies_what_is_set_of_its_scope(void **state) {
  (void)state;
  struct harp_settings low, high = {0};
  harp_settings_init(&low);
  assert_true(harp_settings_read(&low, HARP_SETTING_MTU, "1500"));
  assert_true(harp_settings_read(&high, HARP_SETTING_PATHS, "3"));
  assert_true(harp_settings_read(&high, HARP_SETTING_PEER_TIMEOUT, "7"));
  assert_false(harp_settings_read(&high, HARP_SETTING_DRIVER, "rdma"));
  harp_settings_overlay(&low, &high, HARP_SCOPE_ENI);
  assert_int_equal(low.mtu, 1500);
  assert_int_equal(low.paths, 3);
  assert_int_equal(low.peer_timeout_ns, HARP_SEC(60));
  assert_true(harp_setting_is_set(&low, HARP_SETTING_PATHS));
  assert_false(harp_setting_is_set(&low, HARP_SETTING_DRIVER));
  harp_settings_overlay(&low, &high, HARP_SCOPE_JOB);
  assert_int_equal(low.peer_timeout_ns, HARP_SEC(7));
}

static void test_every_congestion_control_is_there(void **state) {
  (void)state;
  for (const char *const *word = harp_setting_table[HARP_SETTING_CONGESTION].words; *word; word++)
    assert_string_equal(harp_cc_find(*word)->name, *word);
}

static void test_words_are_those_of_the_enums(void **state) {
  (void)state;
  assert_string_equal(harp_setting_word(HARP_SETTING_MODE, HARP_ENGINE_THREAD), "thread");
  assert_string_equal(harp_setting_word(HARP_SETTING_DRIVER, HARP_DRIVER_XDP_COPY), "xdp-copy");
  assert_string_equal(harp_setting_word(HARP_SETTING_DRIVER, HARP_DRIVER_UDP_TCP), "udp+tcp");
  assert_string_equal(harp_setting_word(HARP_SETTING_PAGE_SIZE, HARP_PAGE_4K), "4K");
  assert_string_equal(harp_setting_word(HARP_SETTING_CONGESTION, HARP_CONGESTION_RENO), "reno");
  assert_string_equal(harp_setting_word(HARP_SETTING_DEVICES, HARP_DEVICES_ENIS), "enis");
  assert_string_equal(harp_setting_word(HARP_SETTING_ZEROCOPY, HARP_ZEROCOPY_MODE_OFF), "off");
  assert_string_equal(harp_setting_word(HARP_SETTING_ZEROCOPY, 3), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_are_complete),
      cmocka_unit_test(test_each_is_there_once),
      cmocka_unit_test(test_keys_stand_by_section),
      cmocka_unit_test(test_settings_of_the_job_are_written_as_they_are_read),
      cmocka_unit_test(test_what_is_expected_fits),
      cmocka_unit_test(test_overlay_copies_what_is_set_of_its_scope),
      cmocka_unit_test(test_every_congestion_control_is_there),
      cmocka_unit_test(test_words_are_those_of_the_enums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
