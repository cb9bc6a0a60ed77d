/* SPDX-License-Identifier: Apache-2.0 */
/* The page that is wiped in children. See fork.h.
 *
 * `mark` is NULL before init; then it points to a word that is OWNER in this process and 0 in a child.
 * `owner_pid` replaces it on kernels without MADV_WIPEONFORK, where a child would inherit the word. Both are
 * published once, by the thread that wins the exchange on `state`. A concurrent second init does not wait;
 * until the first one has published, harp_fork_is_child returns false, which is correct in the same
 * process. */
#include "host/fork.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

enum { OWNER = 1, MARK_BYTES = 4096 };
enum { STATE_NONE, STATE_INIT };

static _Atomic int state;
static _Atomic(const volatile uint32_t *) mark;
static _Atomic int owner_pid; /* 0: use `mark` */

static uint32_t *mark_create(void) {
  void *page = mmap(NULL, MARK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (madvise(page, MARK_BYTES, MADV_WIPEONFORK) == 0) return page;
  munmap(page, MARK_BYTES);
  return NULL;
}

void harp_fork_init(void) {
  int expected = STATE_NONE;
  if (!atomic_compare_exchange_strong(&state, &expected, STATE_INIT)) return;
  uint32_t *page = mark_create();
  if (!page) {
    atomic_store(&owner_pid, (int)getpid());
    return;
  }
  *page = OWNER;
  atomic_store(&mark, page); /* release: pairs with the acquire load in harp_fork_is_child */
}

bool harp_fork_is_child(void) {
  const volatile uint32_t *page = atomic_load_explicit(&mark, memory_order_acquire);
  if (harp_likely(page != NULL)) return *page != OWNER;
  int pid = atomic_load_explicit(&owner_pid, memory_order_relaxed);
  return pid != 0 && pid != (int)getpid();
}
