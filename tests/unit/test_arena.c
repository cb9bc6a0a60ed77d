/* SPDX-License-Identifier: Apache-2.0 */
/* The arena's page sizes, with what this host has and with some refused by a system call filter. */
#include <sys/mman.h>

#include "host/arena.h"
#include "unit/host_deny.h"
#include "unit/host_tree.h"

enum { MIB = 1 << 20 };

static long free_2m_pages(void) {
  long count = 0;
  FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld", &count) != 1) count = 0;
  fclose(file);
  return count;
}

static bool is_zeroed(const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i]) return false;
  return true;
}

static bool is_mapped(const void *page) {
  unsigned char residency;
  return mincore((void *)(uintptr_t)page, 1, &residency) == 0;
}

/* ---- what this host has ---- */

static void test_every_page_size_gives_memory(void **state) {
  (void)state;
  for (enum harp_page_size want = HARP_PAGE_AUTO; want <= HARP_PAGE_4K; want++) {
    if (want == HARP_PAGE_1G) continue; /* a host that has one should keep it */
    struct harp_arena arena;
    tree_log[0] = 0;
    assert_int_equal(harp_arena_open(&arena, 3 * MIB, want, -1), 0);
    assert_true(arena.page_size >= want && arena.page_size >= HARP_PAGE_2M);
    assert_true(arena.bytes >= 3 * MIB);
    assert_int_equal(arena.requested_bytes, 3 * MIB);
    if (arena.page_size <= HARP_PAGE_THP) {
      assert_int_equal(arena.bytes, 4 * MIB);
      assert_int_equal((uintptr_t)arena.base % (2 * MIB), 0);
    }
    assert_true(is_zeroed(arena.base, arena.bytes));
    memset(arena.base, 0xa5, arena.bytes);

    /* One line, and no WARN: smaller pages will do. */
    bool is_refused = want != HARP_PAGE_AUTO && arena.page_size != want;
    assert_int_equal(tree_log[0], 'I');
    assert_ptr_equal(strchr(tree_log, '\n') + 1, tree_log + strlen(tree_log));
    assert_int_equal(arena.note[0] != 0,
                     want == HARP_PAGE_AUTO ? arena.page_size != HARP_PAGE_2M : is_refused);

    void *base = arena.base;
    harp_arena_close(&arena);
    assert_false(is_mapped(base));
    assert_null(arena.base);
    harp_arena_close(&arena);
  }
}

static void test_2m_pages_are_used_where_free(void **state) {
  (void)state;
  struct harp_arena arena;
  if (free_2m_pages() < 2) {
    print_message("no free 2 MiB pages on this host\n");
    skip();
  }
  assert_int_equal(harp_arena_open(&arena, 3 * MIB, HARP_PAGE_AUTO, 0), 0);
  assert_int_equal(arena.page_size, HARP_PAGE_2M);
  assert_string_equal(arena.note, "");
  memset(arena.base, 1, arena.bytes);
  harp_arena_close(&arena);
}

static void test_sizes(void **state) {
  (void)state;
  struct harp_arena arena;
  assert_int_equal(harp_arena_open(&arena, 0, HARP_PAGE_AUTO, -1), -EINVAL);
  assert_null(arena.base);
  assert_int_equal(harp_arena_open(&arena, 1, HARP_PAGE_4K, -1), 0);
  assert_int_equal(arena.bytes, sysconf(_SC_PAGESIZE));
  harp_arena_close(&arena);

  /* More than any address space: every size is refused, and the note has them all. */
  assert_int_equal(harp_arena_open(&arena, (size_t)1 << 60, HARP_PAGE_AUTO, -1), -ENOMEM);
  assert_null(arena.base);
  assert_non_null(strstr(arena.note, "1G pages: "));
  assert_non_null(strstr(arena.note, "; 2M pages: "));
  assert_non_null(strstr(arena.note, "; 4K pages: "));
  assert_int_equal(harp_arena_open(&arena, SIZE_MAX, HARP_PAGE_AUTO, -1), -ENOMEM);
}

static void test_1g_pages_only_for_much_memory(void **state) {
  (void)state;
  struct harp_arena arena;
  assert_int_equal(harp_arena_open(&arena, MIB, HARP_PAGE_AUTO, -1), 0);
  assert_null(strstr(arena.note, "1G"));
  assert_true(arena.bytes < 512u * MIB);
  harp_arena_close(&arena);

  /* On request only after 2 MiB pages. */
  tree_log[0] = 0;
  assert_int_equal(harp_arena_open(&arena, 3 * MIB, HARP_PAGE_1G, -1), 0);
  if (arena.page_size == HARP_PAGE_2M) {
    assert_int_equal(tree_log[0], 'I');
    assert_string_equal(arena.note, "");
  } else {
    assert_int_equal(strncmp(arena.note, "2M pages: ", 10), 0);
    assert_int_equal(tree_log[0], 'I');
    assert_null(strstr(arena.note + 1, "2M pages: ")); /* they are tried once */
  }
  harp_arena_close(&arena);
}

static void test_not_in_children(void **state) {
  (void)state;
  struct harp_arena arena;
  assert_int_equal(harp_arena_open(&arena, MIB, HARP_PAGE_AUTO, -1), 0);
  uint8_t *byte = arena.base;
  *byte = 0xa5; /* a sanitizer may map something else there in the child */
  pid_t child = fork();
  if (child == 0) _exit(is_mapped(byte) && *byte == 0xa5);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_true(is_mapped(arena.base));
  harp_arena_close(&arena);
}

static void test_unknown_node_is_only_logged(void **state) {
  (void)state;
  struct harp_arena arena;
  assert_int_equal(harp_arena_open(&arena, MIB, HARP_PAGE_4K, 1000), 0);
  assert_int_equal(tree_log[0], 'I');
  harp_arena_close(&arena);
}

/* ---- refusals ---- */

/* Opens, writes everything, closes. Returns the page size, or 100 for an error. */
static int open_and_use(enum harp_page_size want) {
  struct harp_arena arena;
  if (harp_arena_open(&arena, 3 * MIB, want, -1) < 0) return 100;
  if (!is_zeroed(arena.base, arena.bytes)) return 101;
  memset(arena.base, 0x5a, arena.bytes);
  int size = (int)arena.page_size;
  harp_arena_close(&arena);
  return size;
}

enum { POPULATE_WRITE = 23 };

static int without_hugetlb(void) {
  if (!deny_call(SYS_mmap, 3, MAP_HUGETLB, MAP_HUGETLB, ENOMEM)) return CHILD_NO_FILTER;
  return open_and_use(HARP_PAGE_AUTO);
}

static int without_hugetlb_and_thp(void) {
  if (!deny_call(SYS_madvise, 2, UINT32_MAX, MADV_HUGEPAGE, EINVAL)) return CHILD_NO_FILTER;
  return without_hugetlb();
}

/* A kernel before 5.14: the pages are touched instead, in a child where that can be fatal. */
static int without_populate(void) {
  if (!deny_call(SYS_madvise, 2, UINT32_MAX, POPULATE_WRITE, EINVAL)) return CHILD_NO_FILTER;
  return open_and_use(HARP_PAGE_AUTO);
}

/* A hugetlb or memory cgroup that is full: populating fails for every size, so nothing may be handed out. */
static int with_populate_refused(void) {
  if (!deny_call(SYS_madvise, 2, UINT32_MAX, POPULATE_WRITE, EFAULT)) return CHILD_NO_FILTER;
  struct harp_arena arena;
  int rc = harp_arena_open(&arena, 3 * MIB, HARP_PAGE_AUTO, -1);
  if (rc != -ENOMEM || arena.base) return 1;
  return strstr(arena.note, "4K pages: populate: Cannot allocate memory") ? 0 : 2;
}

/* The pages of the hugetlb and transparent sizes, 4 MiB of them, can be mapped but not populated. */
static int with_hugetlb_limited(void) {
  if (!deny_call(SYS_madvise, 1, UINT32_MAX, 4 * MIB, EFAULT)) return CHILD_NO_FILTER;
  tree_log[0] = 0;
  int size = open_and_use(HARP_PAGE_AUTO);
  if (size != HARP_PAGE_4K) return size;
  return tree_log[0] == 'I' && strstr(tree_log, "hugetlb limit") ? 0 : 2;
}

/* Without DONTFORK a child could write the frames: the size is refused rather than kept. */
static int with_dontfork_refused(void) {
  if (!deny_call(SYS_madvise, 2, UINT32_MAX, MADV_DONTFORK, EINVAL)) return CHILD_NO_FILTER;
  return open_and_use(HARP_PAGE_4K);
}

static void assert_child(int (*body)(void), int expected) {
  int status = in_child(body);
  if (status == CHILD_NO_FILTER) {
    print_message("no system call filters here\n");
    skip();
  }
  assert_int_equal(status, expected);
}

static bool has_thp(void) {
  return !harp_arena_thp_refusal("/sys");
}

static void test_refusals_of_transparent_huge_pages(void **state) {
  (void)state;
  assert_null(harp_arena_thp_refusal(tree_root)); /* madvise will tell */
  tree_write("kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  tree_write("kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  assert_null(harp_arena_thp_refusal(tree_root));
  tree_write("kernel/mm/transparent_hugepage/hpage_pmd_size", "536870912\n"); /* pages of 64 KiB */
  assert_string_equal(harp_arena_thp_refusal(tree_root),
                      "transparent_hugepage/hpage_pmd_size is above 2 MiB");
  tree_write("kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  assert_string_equal(harp_arena_thp_refusal(tree_root), "transparent_hugepage/enabled is never");
}

static void test_without_hugetlb(void **state) {
  (void)state;
  assert_child(without_hugetlb, has_thp() ? HARP_PAGE_THP : HARP_PAGE_4K);
}

static void test_without_hugetlb_and_thp(void **state) {
  (void)state;
  assert_child(without_hugetlb_and_thp, HARP_PAGE_4K);
}

static void test_without_populate(void **state) {
  (void)state;
  int expected = free_2m_pages() >= 2 ? HARP_PAGE_2M : has_thp() ? HARP_PAGE_THP : HARP_PAGE_4K;
  assert_child(without_populate, expected);
}

static void test_populate_refused(void **state) {
  (void)state;
  assert_child(with_populate_refused, 0);
}

static void test_a_hugetlb_limit_is_logged(void **state) {
  (void)state;
  if (free_2m_pages() < 2) {
    print_message("no free 2 MiB pages here\n");
    skip();
  }
  assert_child(with_hugetlb_limited, 0);
}

static void test_dontfork_refused(void **state) {
  (void)state;
  assert_child(with_dontfork_refused, 100);
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(harp_page_size_name(HARP_PAGE_AUTO), "auto");
  assert_string_equal(harp_page_size_name(HARP_PAGE_1G), "1G");
  assert_string_equal(harp_page_size_name(HARP_PAGE_2M), "2M");
  assert_string_equal(harp_page_size_name(HARP_PAGE_THP), "thp");
  assert_string_equal(harp_page_size_name(HARP_PAGE_4K), "4K");
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)
  const struct CMUnitTest tests[] = {
      T(test_every_page_size_gives_memory),
      T(test_2m_pages_are_used_where_free),
      T(test_sizes),
      T(test_1g_pages_only_for_much_memory),
      T(test_not_in_children),
      T(test_unknown_node_is_only_logged),
      T(test_refusals_of_transparent_huge_pages),
      T(test_without_hugetlb),
      T(test_without_hugetlb_and_thp),
      T(test_without_populate),
      T(test_populate_refused),
      T(test_a_hugetlb_limit_is_logged),
      T(test_dontfork_refused),
      T(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
