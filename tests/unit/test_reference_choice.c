/* SPDX-License-Identifier: Apache-2.0 */
/* engine/reference_choice: which method of handing payload to the kernel a class of records uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/tcp/reference_choice.h"

enum {
  SIZE = 512 << 10,
  RECORDS = HARP_REFERENCE_TURN_BYTES / SIZE, /* the records of a turn */
};

static struct harp_reference_choice c;

/* What a MiB costs by each method, in microseconds. */
static unsigned copy_us, reference_us;

/* Sends a record by the method that is chosen. Returns whether the first turns have ended with it. */
static bool send_record(uint32_t size) {
  bool by_reference = harp_reference_choice_method(&c, size);
  harp_ns took = HARP_US(by_reference ? reference_us : copy_us) * size >> 20;
  return harp_reference_choice_on_sent(&c, size, by_reference, size, took);
}

/* Sends so many turns of a size. Returns how many of their records went by reference. */
static unsigned send_turns(unsigned turns, uint32_t size) {
  unsigned by_reference = 0;
  for (unsigned i = 0; i < turns * (HARP_REFERENCE_TURN_BYTES / size); i++) {
    by_reference += harp_reference_choice_method(&c, size);
    send_record(size);
  }
  return by_reference;
}

static int setup(void **state) {
  (void)state;
  c = (struct harp_reference_choice){0};
  copy_us = reference_us = 100;
  return 0;
}

static void test_first_turns_alternate(void **state) {
  (void)state;
  unsigned ends = 0;
  for (unsigned turn = 0; turn < HARP_REFERENCE_FIRST_TURNS; turn++)
    for (unsigned i = 0; i < RECORDS; i++) {
      assert_int_equal(harp_reference_choice_method(&c, SIZE), turn % 2);
      ends += send_record(SIZE);
    }
  assert_int_equal(ends, 1);
}

static void test_the_cheaper_method_has_all_turns_but_trials(void **state) {
  (void)state;
  reference_us = 70;
  send_turns(HARP_REFERENCE_FIRST_TURNS, SIZE);
  unsigned by_reference = send_turns(10 * HARP_REFERENCE_TRIAL_TURNS, SIZE);
  assert_int_equal(by_reference, 10 * (HARP_REFERENCE_TRIAL_TURNS - 1) * RECORDS);
  setup(NULL);
  reference_us = 130;
  send_turns(HARP_REFERENCE_FIRST_TURNS, SIZE);
  by_reference = send_turns(10 * HARP_REFERENCE_TRIAL_TURNS, SIZE);
  assert_int_equal(by_reference, 10 * RECORDS);
}

static void test_a_tie_is_copied(void **state) {
  (void)state;
  reference_us = 97;
  send_turns(HARP_REFERENCE_FIRST_TURNS, SIZE);
  assert_false(harp_reference_choice_method(&c, SIZE));
}

/* A first turn that was interrupted for milliseconds does not decide. */
static void test_an_interruption_decides_nothing(void **state) {
  (void)state;
  reference_us = 70;
  send_turns(1, SIZE);
  reference_us = 5000;
  send_turns(1, SIZE);
  reference_us = 70;
  send_turns(HARP_REFERENCE_FIRST_TURNS - 2, SIZE);
  assert_true(harp_reference_choice_method(&c, SIZE));
  copy_us = 100, reference_us = 100000;
  send_turns(1, SIZE); /* counts as twice the cost at most */
  reference_us = 70;
  send_turns(1, SIZE);
  assert_true(c.classes[harp_reference_choice_class(SIZE)].cost[1] < 100000);
}

static void test_a_change_of_cost_is_found(void **state) {
  (void)state;
  reference_us = 70;
  send_turns(HARP_REFERENCE_FIRST_TURNS, SIZE);
  reference_us = 150;
  send_turns(8, SIZE);
  assert_false(harp_reference_choice_method(&c, SIZE));
  reference_us = 70;
  send_turns(4 * HARP_REFERENCE_TRIAL_TURNS, SIZE);
  assert_true(harp_reference_choice_method(&c, SIZE));
}

static void test_each_class_chooses_for_itself(void **state) {
  (void)state;
  reference_us = 70;
  send_turns(HARP_REFERENCE_FIRST_TURNS, SIZE);
  reference_us = 130;
  send_turns(HARP_REFERENCE_FIRST_TURNS, 64 << 10);
  assert_true(harp_reference_choice_method(&c, SIZE));
  assert_false(harp_reference_choice_method(&c, 64 << 10));
}

static void test_classes_begin_at_twice_the_size(void **state) {
  (void)state;
  for (unsigned k = 0; k < HARP_REFERENCE_CLASSES; k++) {
    uint32_t least = harp_reference_class_min_bytes(k);
    assert_int_equal(harp_reference_choice_class(least), k);
    assert_int_equal(harp_reference_choice_class(2 * least - 1), k);
  }
  assert_int_equal(harp_reference_choice_class(1 << 20), HARP_REFERENCE_CLASSES - 1);
}

/* The time of the first records of a turn belongs to the turn before. */
static void test_the_begin_of_a_turn_is_not_counted(void **state) {
  (void)state;
  copy_us = 1000000;
  for (unsigned i = 0; i < HARP_REFERENCE_UNCOUNTED_BYTES / SIZE; i++) send_record(SIZE);
  copy_us = 100;
  while (!harp_reference_choice_method(&c, SIZE)) send_record(SIZE);
  assert_in_range(c.classes[harp_reference_choice_class(SIZE)].cost[0], 99000, 101000);
}

static void test_records_of_the_turn_before_do_not_count(void **state) {
  (void)state;
  assert_false(harp_reference_choice_on_sent(&c, SIZE, true, SIZE, HARP_US(1)));
  assert_int_equal(c.classes[harp_reference_choice_class(SIZE)].bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_first_turns_alternate, setup),
      cmocka_unit_test_setup(test_the_cheaper_method_has_all_turns_but_trials, setup),
      cmocka_unit_test_setup(test_a_tie_is_copied, setup),
      cmocka_unit_test_setup(test_an_interruption_decides_nothing, setup),
      cmocka_unit_test_setup(test_a_change_of_cost_is_found, setup),
      cmocka_unit_test_setup(test_each_class_chooses_for_itself, setup),
      cmocka_unit_test_setup(test_classes_begin_at_twice_the_size, setup),
      cmocka_unit_test_setup(test_the_begin_of_a_turn_is_not_counted, setup),
      cmocka_unit_test_setup(test_records_of_the_turn_before_do_not_count, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
