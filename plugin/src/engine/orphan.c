/* See orphan.h. Owns the list of engines that the handler visits, and nothing of theirs.
 *
 * The handler runs in the child, whose only thread is the one that forked; others may have been in the middle
 * of anything. It takes no lock and calls nothing but close. What it reads is in order at any moment: an
 * engine enters the list when it is complete and leaves it before it is freed, and so do a link and a
 * listener with the engine's, whose sockets are closed only after that. */
#include "engine/orphan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/meet.h"
#include "io/files.h"

static _Atomic(struct harp_engine *) engines[HARP_ENGINES_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_copies(const struct harp_engine *e) {
  for (unsigned slot = 0; slot < HARP_ENGINE_LINKS_MAX; slot++) {
    const struct harp_link *link = e->links[slot];
    if (link && link != HARP_SLOT_RESERVED && link->monitor.fd >= 0) close(link->monitor.fd);
  }
  for (const struct harp_listener *l = e->listeners; l; l = l->next) close(l->fd);
}

/* What is closed is forgotten: the numbers are other files' by the time the child forks. */
static void in_child(void) {
  for (unsigned i = 0; i < HARP_ENGINES_MAX; i++) {
    const struct harp_engine *e = atomic_exchange(&engines[i], NULL);
    if (e) close_copies(e);
  }
  harp_files_close_copies();
}

/* Without memory for the handler we go on as if there were no children. */
static void install(void) {
  (void)!pthread_atfork(NULL, NULL, in_child);
}

static bool replace(struct harp_engine *from, struct harp_engine *to) {
  for (unsigned i = 0; i < HARP_ENGINES_MAX; i++) {
    struct harp_engine *expected = from;
    if (atomic_compare_exchange_strong(&engines[i], &expected, to)) return true;
  }
  return false;
}

void harp_orphan_watch(struct harp_engine *e) {
  pthread_once(&once, install);
  (void)replace(NULL, e);
}

void harp_orphan_forget(struct harp_engine *e) {
  (void)replace(e, NULL);
}
