/* SPDX-License-Identifier: Apache-2.0 */
/* What a build reports of itself. The tests are linked with an id of their own, see tests.mk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/identity.h"

static void test_version_begins_with_a_number(void **state) {
  (void)state;
  assert_in_range(harp_version()[0], '0', '9');
  assert_non_null(strchr(harp_version(), '.'));
  assert_true(strlen(harp_version()) <= 40); /* what harpctl reads of the mark */
}

static void test_build_id_is_that_of_the_linker(void **state) {
  char text[HARP_BUILD_ID_TEXT_BYTES];
  (void)state;
  harp_build_id(text);
  assert_string_equal(text, "0123456789ab");
}

/* A note is sizes, type, name and content. */
struct note {
  uint32_t name_bytes, content_bytes, type;
  char name[4];
  uint8_t content[8];
};

static void test_notes_of_others_are_passed_by(void **state) {
  char text[HARP_BUILD_ID_TEXT_BYTES] = "none";
  struct note notes[] = {
      {4, 8, NT_GNU_ABI_TAG, "GNU", {1}},
      {4, 8, NT_GNU_BUILD_ID, "ABC", {2}},
      {4, 8, NT_GNU_BUILD_ID, "GNU", {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10}},
  };
  (void)state;
  assert_false(harp_build_id_read((uint8_t *)notes, 2 * sizeof *notes, text));
  assert_false(harp_build_id_read((uint8_t *)notes, 3 * sizeof *notes - 1, text)); /* cut off */
  assert_string_equal(text, "none");
  assert_true(harp_build_id_read((uint8_t *)notes, sizeof notes, text));
  assert_string_equal(text, "fedcba987654");
  notes[2].content_bytes = 2; /* a short one */
  assert_true(harp_build_id_read((uint8_t *)notes, sizeof notes, text));
  assert_string_equal(text, "fedc");
}

static void test_an_address_is_in_a_library_or_not(void **state) {
  uint8_t *heap = malloc(16);
  assert_non_null(heap);
  assert_true(harp_is_in_library((uintptr_t)test_an_address_is_in_a_library_or_not));
  assert_true(harp_is_in_library((uintptr_t)&snprintf));
  assert_false(harp_is_in_library((uintptr_t)heap));
  assert_false(harp_is_in_library((uintptr_t)&state));
  free(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_version_begins_with_a_number),
      cmocka_unit_test(test_build_id_is_that_of_the_linker),
      cmocka_unit_test(test_notes_of_others_are_passed_by),
      cmocka_unit_test(test_an_address_is_in_a_library_or_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
