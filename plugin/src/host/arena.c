/* SPDX-License-Identifier: Apache-2.0 */
/* See arena.h.
 *
 * A hugetlb page may fail at its first access though mmap has reserved it: the hugetlb cgroup of a container
 * (a pod's hugepages-1Gi limit) is charged at the page fault, and over the limit the kernel raises SIGBUS. So
 * all pages are populated at open. MADV_POPULATE_WRITE returns an errno instead of the signal; before
 * Linux 5.14 a child process writes to the pages, and the signal kills only the child. The hugetlb pages are
 * shared mappings for that reason: the pages that the child has populated are the parent's, whose first
 * access then allocates and charges nothing. */
#include "host/arena.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/text_file.h"
#include "host/node.h"
#include "host/setting.h"

/* From the kernel's interface; the C library's headers may be older than the kernel. */
enum {
  ADVICE_POPULATE_WRITE = 23, /* Linux 5.14 */
  HUGE_SHIFT = 26,            /* mmap flag: log2 of the huge page's size */
};

#define PAGE_2M_BYTES ((size_t)2 << 20)
#define PAGE_1G_BYTES ((size_t)1 << 30)

const char *harp_page_size_name(enum harp_page_size size) {
  return harp_setting_word(HARP_SETTING_PAGE_SIZE, size);
}

/* Returns how many huge pages of this size the host has free, -1 when it does not have the size at all. */
static long free_pages(enum harp_page_size size) {
  const char *path = size == HARP_PAGE_1G ? "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages"
                                          : "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
  char text[64];
  return harp_text_file_read(path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : -1;
}

static bool is_hugetlb(enum harp_page_size size) {
  return size == HARP_PAGE_1G || size == HARP_PAGE_2M;
}

/* Appends one refusal to the note: "1G pages: mmap: Cannot allocate memory (0 free on this host)". */
static void record_refusal(struct harp_arena *arena, enum harp_page_size size, const char *step, int error) {
  size_t used = strlen(arena->note);
  char extra[96] = "";
  if (is_hugetlb(size)) {
    long count = free_pages(size);
    const char *hint = strcmp(step, "populate") == 0 ? "; a container's hugetlb limit may be lower" : "";
    if (count >= 0) snprintf(extra, sizeof extra, " (%ld free on this host%s)", count, hint);
  }
  snprintf(arena->note + used, sizeof arena->note - used, "%s%s pages: %s: %s%s", used ? "; " : "",
           harp_page_size_name(size), step, strerror(error), extra);
}

static size_t page_bytes_of(enum harp_page_size size) {
  if (size == HARP_PAGE_1G) return PAGE_1G_BYTES;
  if (size == HARP_PAGE_2M || size == HARP_PAGE_THP) return PAGE_2M_BYTES;
  return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- populating ---- */

static void touch_pages(uint8_t *base, size_t bytes, size_t page_bytes) {
  for (size_t at = 0; at < bytes; at += page_bytes) {
    volatile uint8_t *byte = base + at;
    *byte = 0;
  }
}

/* Writes to the pages in a child process, which SIGBUS may kill. A plain clone, so that neither the host
 * process's atfork handlers run nor SIGCHLD is raised. Returns 0 or -errno. */
static int touch_in_child(uint8_t *base, size_t bytes, size_t page_bytes) {
  long child = syscall(SYS_clone, 0L, NULL, NULL, NULL, NULL);
  if (child < 0) return -errno;
  if (child == 0) {
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none);
    sigaction(SIGBUS, &fatal, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_DUMPABLE, 0L, 0L, 0L, 0L); /* no core file */
    touch_pages(base, bytes, page_bytes);
    syscall(SYS_exit_group, 0L);
    __builtin_unreachable();
  }
  int status = 0;
  pid_t got;
  do got = waitpid((pid_t)child, &status, __WCLONE);
  while (got < 0 && errno == EINTR);
  if (got < 0) return -errno;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOMEM;
}

static int populate_pages(uint8_t *base, size_t bytes, enum harp_page_size size) {
  int rc;
  do rc = madvise(base, bytes, ADVICE_POPULATE_WRITE);
  while (rc < 0 && (errno == EINTR || errno == EAGAIN));
  if (rc == 0) return 0;
  if (errno != EINVAL) return errno == EFAULT ? -ENOMEM : -errno; /* EFAULT: an access would raise SIGBUS */
  if (is_hugetlb(size)) {
    rc = touch_in_child(base, bytes, page_bytes_of(size));
    if (rc < 0) return rc;
  }
  touch_pages(base, bytes, (size_t)sysconf(_SC_PAGESIZE));
  return 0;
}

/* ---- one page size ---- */

/* Maps `bytes`, a multiple of the page size, aligned to it. Returns NULL with errno set. */
static uint8_t *map_pages(enum harp_page_size size, size_t bytes) {
  int protection = PROT_READ | PROT_WRITE;
  if (is_hugetlb(size)) {
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | (size == HARP_PAGE_1G ? 30 : 21) << HUGE_SHIFT;
    void *base = mmap(NULL, bytes, protection, flags, -1, 0);
    return base == MAP_FAILED ? NULL : base;
  }
  size_t align = page_bytes_of(size);
  size_t slack = size == HARP_PAGE_THP ? align : 0;
  uint8_t *raw = mmap(NULL, bytes + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  uint8_t *base = (uint8_t *)(uintptr_t)harp_align_up((uintptr_t)raw, align);
  if (base > raw) munmap(raw, (size_t)(base - raw));
  if (base + bytes < raw + bytes + slack) munmap(base + bytes, (size_t)(raw + slack - base));
  return base;
}

/* Reads a file of transparent_hugepage; "" where there is none. */
static const char *read_thp(const char *sysfs_root, const char *name, char *text, size_t text_bytes) {
  char path[256];
  snprintf(path, sizeof path, "%s/kernel/mm/transparent_hugepage/%s", sysfs_root, name);
  (void)harp_text_file_read(path, text, text_bytes);
  return text;
}

const char *harp_arena_thp_refusal(const char *sysfs_root) {
  char text[64];
  if (strstr(read_thp(sysfs_root, "enabled", text, sizeof text), "[never]"))
    return "transparent_hugepage/enabled is never";
  if (strtoull(read_thp(sysfs_root, "hpage_pmd_size", text, sizeof text), NULL, 10) > PAGE_2M_BYTES)
    return "transparent_hugepage/hpage_pmd_size is above 2 MiB";
  return NULL;
}

/* Prefers pages of a node; a failure is only logged. */
static void prefer_node(uint8_t *base, size_t bytes, int numa) {
  int rc = numa < 0 ? 0 : harp_node_prefer(base, bytes, numa);
  if (rc < 0) HARP_INFO("memory: cannot prefer NUMA node %d: %s", numa, strerror(-rc));
}

/* Populates the pages. Returns 0, or -errno with the name of the step that failed. */
static int prepare_pages(uint8_t *base, size_t bytes, enum harp_page_size size, int numa, const char **step) {
  *step = "madvise";
  if (size == HARP_PAGE_THP && madvise(base, bytes, MADV_HUGEPAGE) < 0) return -errno;
  prefer_node(base, bytes, numa);
  *step = "populate";
  int rc = populate_pages(base, bytes, size);
  if (rc < 0) return rc;
  /* After populating: the child that populates on old kernels needs the mapping. */
  *step = "dontfork";
  return madvise(base, bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

/* Tries one page size. Returns 0, or -errno with the reason in the note. */
static int try_size(struct harp_arena *arena, enum harp_page_size size) {
  size_t page_bytes = page_bytes_of(size);
  if (arena->requested_bytes > SIZE_MAX / 2) {
    record_refusal(arena, size, "size", ENOMEM);
    return -ENOMEM;
  }
  size_t bytes = harp_align_up(arena->requested_bytes, page_bytes);
  const char *thp_refusal = size == HARP_PAGE_THP ? harp_arena_thp_refusal("/sys") : NULL;
  if (thp_refusal) {
    record_refusal(arena, size, thp_refusal, EOPNOTSUPP);
    return -EOPNOTSUPP;
  }
  uint8_t *base = map_pages(size, bytes);
  if (!base) {
    int error = errno;
    record_refusal(arena, size, "mmap", error);
    return -error;
  }
  const char *step;
  int rc = prepare_pages(base, bytes, size, arena->numa, &step);
  if (rc < 0) {
    munmap(base, bytes);
    record_refusal(arena, size, step, -rc);
    if (is_hugetlb(size)) arena->limited = true;
    return rc;
  }
  arena->base = base;
  arena->bytes = bytes;
  arena->page_size = size;
  return 0;
}

/* Tries the sizes from `want` on, larger ones first. A block that would waste most of a 1 GiB page takes 2
 * MiB pages where the host has them: eight processes would take 8 GiB for some hundred MiB. */
static int try_sizes(struct harp_arena *arena, enum harp_page_size want) {
  bool is_small = arena->requested_bytes < HARP_ARENA_1G_BYTES_MIN;
  enum harp_page_size size = want == HARP_PAGE_AUTO ? (is_small ? HARP_PAGE_2M : HARP_PAGE_1G) : want;
  bool is_small_first = want == HARP_PAGE_1G && is_small;
  int rc = is_small_first ? try_size(arena, HARP_PAGE_2M) : -ENOMEM;
  for (; rc < 0 && size <= HARP_PAGE_4K; size++)
    if (!is_small_first || size != HARP_PAGE_2M) rc = try_size(arena, size);
  return rc;
}

int harp_arena_open(struct harp_arena *arena, size_t bytes, enum harp_page_size want, int numa) {
  memset(arena, 0, sizeof *arena);
  arena->numa = numa;
  arena->requested_bytes = bytes;
  if (bytes == 0) return -EINVAL;
  HARP_ASSERT(want <= HARP_PAGE_4K);
  if (try_sizes(arena, want) < 0) return -ENOMEM;
  enum harp_page_size size = arena->page_size;
  size_t mib = arena->bytes >> 20;
  if (!arena->note[0])
    HARP_INFO("memory: %zu MiB of %s pages", mib, harp_page_size_name(size));
  else if (arena->limited)
    HARP_INFO("memory: the host has hugepages, but this process may not use them (a hugetlb limit of its "
              "container or cgroup?); using %zu MiB of %s pages: %s",
              mib, harp_page_size_name(size), arena->note);
  else if (want == HARP_PAGE_AUTO || size <= want)
    HARP_INFO("memory: %zu MiB of %s pages (%s)", mib, harp_page_size_name(size), arena->note);
  else
    HARP_INFO("memory: page_size %s was requested, using %zu MiB of %s pages: %s", harp_page_size_name(want),
              mib, harp_page_size_name(size), arena->note);
  return 0;
}

void harp_arena_close(struct harp_arena *arena) {
  if (!arena->base) return;
  int rc = munmap(arena->base, arena->bytes);
  HARP_ASSERT(rc == 0);
  arena->base = NULL;
  arena->bytes = 0;
}
