/* SPDX-License-Identifier: Apache-2.0 */
/* What eight ranks of a host take of its 1 GiB pages. This program has mmap and madvise of its own, by which
 * the host has as many huge pages as a test says. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/arena.h"

enum { RANKS = 8, RANK_BYTES = 18 << 20, HUGE_SHIFT = 26, HUGE_MASK = 63, LOG2_2M = 21, LOG2_1G = 30 };
enum { POPULATE_WRITE = 23 };

static size_t free_2m, free_1g; /* pages */

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (flags & MAP_HUGETLB) {
    int log2 = flags >> HUGE_SHIFT & HUGE_MASK;
    size_t *left = log2 == LOG2_1G ? &free_1g : &free_2m;
    assert_true(log2 == LOG2_1G || log2 == LOG2_2M);
    if (*left < bytes >> log2) return errno = ENOMEM, MAP_FAILED;
    *left -= bytes >> log2;
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  }
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

int madvise(void *at, size_t bytes, int advice) {
  return advice == POPULATE_WRITE ? 0 : (int)syscall(SYS_madvise, at, bytes, advice);
}

static void open_all(enum harp_page_size expected) {
  struct harp_arena arenas[RANKS];
  for (unsigned i = 0; i < RANKS; i++) {
    assert_int_equal(harp_arena_open(&arenas[i], RANK_BYTES, HARP_PAGE_1G, -1), 0);
    assert_int_equal(arenas[i].page_size, expected);
  }
  for (unsigned i = 0; i < RANKS; i++) harp_arena_close(&arenas[i]);
}

/* Smaller pages are taken where there are any, though the conf file names 1 GiB. */
static void test_2m_pages_come_first(void **state) {
  (void)state;
  free_1g = RANKS;
  free_2m = RANKS * RANK_BYTES >> LOG2_2M;
  open_all(HARP_PAGE_2M);
  assert_int_equal(free_1g, RANKS);
  assert_int_equal(free_2m, 0);
}

/* Where there are none, a rank takes one page and no more. */
static void test_one_page_for_a_rank(void **state) {
  (void)state;
  free_1g = RANKS + 1;
  free_2m = 0;
  open_all(HARP_PAGE_1G);
  assert_int_equal(free_1g, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_2m_pages_come_first),
      cmocka_unit_test(test_one_page_for_a_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
