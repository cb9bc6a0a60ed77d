/* SPDX-License-Identifier: Apache-2.0 */
/* See look_up.h. */
#include "io/xdp/look_up.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* LEFT: the owner has no more use for it, and the thread frees it. */
enum { READY, UNDER_WAY, DONE, LEFT };

/* Returns an earlier look-up that led to the same next hop. */
static const struct harp_xdp_look_up *find_same(const struct harp_xdp_look_ups *l,
                                                const struct harp_xdp_look_up *to) {
  const struct harp_xdp_look_up *a = l->at;
  while (a < to && !(a->has_via && harp_neighbour_is_same(&a->via, &to->via))) a++;
  return a < to ? a : NULL;
}

static void look_up(const struct harp_xdp_look_ups *l, struct harp_xdp_look_up *to) {
  to->has_via = !harp_neighbour_find(l->ifindex, &l->local, &to->peer, &to->via);
  if (!to->has_via) return;
  const struct harp_xdp_look_up *same = find_same(l, to);
  if (same) memcpy(to->mac, same->mac, sizeof to->mac);
  to->is_resolved = same ? same->is_resolved : !harp_neighbour_find_mac(l->ifindex, &to->via, to->mac);
}

static void *run_round(void *arg) {
  struct harp_xdp_look_ups *l = arg;
  for (unsigned i = 0; i < l->count; i++) look_up(l, &l->at[i]);
  if (atomic_exchange_explicit(&l->state, DONE, memory_order_acq_rel) == LEFT) free(l);
  return NULL;
}

struct harp_xdp_look_ups *harp_xdp_look_ups_make(unsigned ifindex, const struct sockaddr_storage *local,
                                                 unsigned count) {
  struct harp_xdp_look_ups *l = calloc(1, sizeof *l + count * sizeof *l->at);
  if (!l) return NULL;
  l->ifindex = ifindex;
  l->local = *local;
  l->count = count;
  return l;
}

int harp_xdp_look_ups_start(struct harp_xdp_look_ups *l) {
  sigset_t all, old;
  pthread_t thread;
  l->state = UNDER_WAY;
  sigfillset(&all); /* as the engine's thread */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int err = pthread_create(&thread, NULL, run_round, l);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (err) {
    l->state = READY;
    return -err;
  }
  pthread_detach(thread);
  return 0;
}

bool harp_xdp_look_ups_are_done(const struct harp_xdp_look_ups *l) {
  return atomic_load_explicit(&l->state, memory_order_acquire) == DONE;
}

void harp_xdp_look_ups_free(struct harp_xdp_look_ups *l) {
  if (l && atomic_exchange_explicit(&l->state, LEFT, memory_order_acq_rel) != UNDER_WAY) free(l);
}
