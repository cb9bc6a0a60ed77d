/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is used in part: only what was touched is resident, whatever the host does with huge pages. */
#include "host/sparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = (8 << 20) + 1, STEP_BYTES = 512 << 10, LINE_BYTES = 512 };

static void test_only_what_is_touched_is_resident(void **state) {
  static unsigned char residency[BYTES];
  (void)state;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), pages = (BYTES + page_bytes - 1) / page_bytes;
  size_t touched = 0, resident = 0;
  uint8_t *base = harp_sparse_map(BYTES);
  assert_non_null(base);
  for (size_t at = 0; at < BYTES; at += STEP_BYTES, touched++) {
    assert_int_equal(base[at], 0);
    base[at] = 1;
  }
  assert_int_equal(mincore(base, BYTES, residency), 0);
  for (size_t i = 0; i < pages; i++) resident += residency[i] & 1;
  assert_int_equal(resident, touched);
  harp_sparse_unmap(base, BYTES);
  assert_int_not_equal(mincore(base, BYTES, residency), 0);
}

/* Returns whether the mapping at `base` refuses huge pages, as /proc/self/smaps says. */
static bool refuses_huge_pages(const void *base) {
  char line[LINE_BYTES], flags[LINE_BYTES] = "";
  bool inside = false;
  FILE *file = fopen("/proc/self/smaps", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    unsigned long from, to;
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = from <= (uintptr_t)base && (uintptr_t)base < to;
    if (inside && !strncmp(line, "VmFlags:", strlen("VmFlags:"))) memcpy(flags, line, sizeof flags);
  }
  fclose(file);
  return strstr(flags, " nh") != NULL;
}

static void test_no_huge_page_is_put_under_it(void **state) {
  (void)state;
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK)) skip(); /* this kernel has none */
  uint8_t *base = harp_sparse_map(BYTES);
  assert_non_null(base);
  assert_true(refuses_huge_pages(base));
  harp_sparse_unmap(base, BYTES);
}

static size_t resident_pages(void *base, size_t bytes) {
  static unsigned char residency[BYTES];
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), count = 0;
  assert_int_equal(mincore(base, bytes, residency), 0);
  for (size_t i = 0; i < (bytes + page_bytes - 1) / page_bytes; i++) count += residency[i] & 1;
  return count;
}

/* Whole pages alone: what shares a page with others is theirs, too. */
static void test_pages_are_given_back(void **state) {
  (void)state;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), bytes = 8 * page_bytes;
  uint8_t *base = harp_sparse_map(bytes);
  assert_non_null(base);
  memset(base, 7, bytes);
  harp_sparse_give_back(base + 1, 10);
  assert_int_equal(resident_pages(base, bytes), 8);
  harp_sparse_give_back(base + page_bytes / 2, 3 * page_bytes);
  assert_int_equal(resident_pages(base, bytes), 6);
  for (size_t i = 0; i < bytes; i++) assert_int_equal(base[i], i / page_bytes - 1 < 2 ? 0 : 7);
  harp_sparse_unmap(base, bytes);
}

static void test_what_cannot_be_mapped_is_null(void **state) {
  (void)state;
  assert_null(harp_sparse_map(SIZE_MAX / 2));
  harp_sparse_unmap(NULL, BYTES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_only_what_is_touched_is_resident),
      cmocka_unit_test(test_no_huge_page_is_put_under_it),
      cmocka_unit_test(test_pages_are_given_back),
      cmocka_unit_test(test_what_cannot_be_mapped_is_null),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
