/* SPDX-License-Identifier: Apache-2.0 */
/* One large block of memory for frames and rings, from the best pages the host gives.
 *
 * The ladder: 1 GiB pages, 2 MiB pages, transparent huge pages, ordinary pages. Every page is populated
 * before the block is handed out, so that a hugetlb or memory limit shows as a refused rung here and never as
 * a SIGBUS later. The block does not exist in forked children. Opened and closed by engine/ at start and end,
 * from one thread at a time per arena; never on the data path. */
#ifndef HARP_HOST_ARENA_H
#define HARP_HOST_ARENA_H

#include "base/base.h"

/* The rungs, best first; also what [memory] page_size asks for, where AUTO means the whole ladder. */
enum harp_page_rung {
  HARP_PAGE_AUTO,
  HARP_PAGE_1G,
  HARP_PAGE_2M,
  HARP_PAGE_THP, /* ordinary memory, 2 MiB aligned, with transparent huge pages requested */
  HARP_PAGE_4K,  /* ordinary pages of the kernel's size (64 KiB on some aarch64 kernels) */
};

enum {
  HARP_ARENA_NOTE_BYTES = 320,
  HARP_ARENA_1G_BYTES_MIN = 512 << 20, /* below this, AUTO does not spend a 1 GiB page */
};

struct harp_arena {
  void *base;         /* aligned to the page size of the rung; NULL when closed */
  size_t bytes;       /* usable: what was asked, rounded up to whole pages of the rung */
  size_t asked_bytes; /* as given to harp_arena_open */
  enum harp_page_rung rung;
  bool limited; /* hugepages were there and mapped, but refused when they were populated */
  int numa;     /* node the pages prefer, -1 for none */
  char note[HARP_ARENA_NOTE_BYTES]; /* one line: why better rungs were refused; "" when none was */
};

/* Maps and populates at least `bytes` bytes, starting the ladder at `want` and going down it until a rung
 * works; `numa` is the node to prefer or -1. Says which rung it got, and each refused rung with its reason,
 * in one INFO line; in a WARN when `want` named the rung that was refused, or hugepages are there but
 * limited. Zeroed memory. The arena is the caller's struct, the memory is released by harp_arena_close.
 * Returns 0 or -errno: -EINVAL for 0 bytes, -ENOMEM when even ordinary pages are refused (arena->note says
 * why). On error the arena is closed. */
HARP_MUST_CHECK int harp_arena_open(struct harp_arena *arena, size_t bytes, enum harp_page_rung want,
                                    int numa);

/* Unmaps the block; does nothing to a closed arena. */
void harp_arena_close(struct harp_arena *arena);

/* Returns the rung's name as in the conf file: "auto", "1G", "2M", "thp", "4K". */
const char *harp_page_rung_name(enum harp_page_rung rung);

#endif
