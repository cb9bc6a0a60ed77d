/* SPDX-License-Identifier: Apache-2.0 */
/* One large block of memory for frames and rings, in the largest pages that the host grants.
 *
 * Tried in this order: 1 GiB pages, 2 MiB pages, transparent huge pages, ordinary pages. Every page is
 * populated before harp_arena_open returns, so that a hugetlb or memory limit makes it fail and raises no
 * SIGBUS later. Forked children do not inherit the block. Called by net/ with a device's first and last
 * engine, by one thread at a time; never on the data path. harp_arena_open may block for seconds. */
#ifndef HARP_HOST_ARENA_H
#define HARP_HOST_ARENA_H

#include "base/base.h"

/* Page sizes, largest first; also the values of [memory] page_size, where AUTO tries all. */
enum harp_page_size {
  HARP_PAGE_AUTO,
  HARP_PAGE_1G,
  HARP_PAGE_2M,
  HARP_PAGE_THP, /* ordinary memory, 2 MiB aligned, with transparent huge pages requested */
  HARP_PAGE_4K,  /* ordinary pages of the kernel's size (64 KiB on some aarch64 kernels) */
};

enum {
  HARP_ARENA_NOTE_BYTES = 320,
  HARP_ARENA_1G_BYTES_MIN = 512 << 20, /* smaller blocks use 2 MiB pages before 1 GiB ones */
};

struct harp_arena {
  void *base;             /* the memory, aligned to its page size; NULL when closed */
  size_t bytes;           /* requested_bytes, rounded up to whole pages */
  size_t requested_bytes; /* as given to harp_arena_open */
  enum harp_page_size page_size;
  bool limited; /* huge pages could be mapped but not populated: a limit applies */
  int numa;     /* the preferred node; -1: none */
  /* One line: why larger pages were refused; "" when none was. */
  char note[HARP_ARENA_NOTE_BYTES];
};

/* Maps and populates at least `bytes` zeroed bytes in pages of `want`, or of the largest smaller size that
 * works; `numa` is the preferred node or -1. A block below HARP_ARENA_1G_BYTES_MIN takes 1 GiB pages only on
 * request, and where there are no 2 MiB pages. Logs the resulting size and the reasons against larger ones in
 * one line: at WARN when `want` itself failed or huge pages are limited, else at INFO. The arena is the
 * caller's struct; harp_arena_close releases the memory. Returns 0, or -errno with a closed arena: -EINVAL
 * for 0 bytes, -ENOMEM when ordinary pages fail too (arena->note has the reasons). */
HARP_MUST_CHECK int harp_arena_open(struct harp_arena *arena, size_t bytes, enum harp_page_size want,
                                    int numa);

/* Unmaps the block; does nothing to a closed arena. */
void harp_arena_close(struct harp_arena *arena);

/* Returns why madvise, which succeeds all the same, would give a block no transparent huge pages: they are
 * disabled, or larger than blocks are aligned (512 MiB where ordinary pages have 64 KiB). NULL: it would. */
const char *harp_arena_thp_refusal(const char *sysfs_root);

/* Returns the name as in the conf file: "auto", "1G", "2M", "thp", "4K". */
const char *harp_page_size_name(enum harp_page_size size);

#endif
