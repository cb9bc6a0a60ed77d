/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

void harp_engine_lock(struct harp_engine *e) {
  while (atomic_exchange_explicit(&e->locked, 1, memory_order_acquire)) {
    atomic_store_explicit(&e->lock_left_until_ns, e->clock() + HARP_LOCK_LEFT_NS, memory_order_relaxed);
    sched_yield();
  }
  if (atomic_load_explicit(&e->lock_left_until_ns, memory_order_relaxed)) /* others that wait set it again */
    atomic_store_explicit(&e->lock_left_until_ns, 0, memory_order_relaxed);
}

unsigned harp_engine_copy_enis(struct harp_engine *e, struct harp_instance *enis) {
  harp_engine_lock(e);
  unsigned count = e->eni_count;
  memcpy(enis, e->enis, count * sizeof *enis);
  harp_engine_unlock(e);
  return count;
}

/* ---- slots ---- */

int harp_engine_reserve_slot(struct harp_engine *e) {
  /* Round robin, so that a slot rests as long as possible before packets of its last user could reach a new
   * one. */
  for (uint32_t i = 0; i < HARP_ENGINE_PEERS_MAX; i++) {
    uint32_t slot = (e->peer_next + i) % HARP_ENGINE_PEERS_MAX;
    if (e->peers[slot]) continue;
    HARP_ASSERT(e->peer_count < HARP_ENGINE_PEERS_MAX);
    e->peers[slot] = HARP_SLOT_RESERVED;
    e->peer_next = slot + 1;
    e->peer_count++;
    return (int)slot;
  }
  return -1;
}

void harp_engine_release_slot(struct harp_engine *e, uint32_t slot) {
  HARP_ASSERT(slot < HARP_ENGINE_PEERS_MAX && e->peers[slot] == HARP_SLOT_RESERVED);
  HARP_ASSERT(e->peer_count);
  e->peers[slot] = NULL;
  e->peer_count--;
}

static int set_control(struct harp_engine *e, const struct harp_peer *peer, int operation, bool writable) {
  struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | (writable ? EPOLLOUT : 0u),
                           .data.u64 = harp_io_ready_name(HARP_READY_PEER, peer->slot)};
  return epoll_ctl(e->ready.fd, operation, peer->monitor.fd, &ev);
}

int harp_engine_attach(struct harp_engine *e, struct harp_peer *peer) {
  HARP_ASSERT(peer->engine == e && e->peers[peer->slot] == HARP_SLOT_RESERVED);
  e->peers[peer->slot] = peer;
  e->counters.peers++;
  return peer->monitor.fd >= 0 && set_control(e, peer, EPOLL_CTL_ADD, false) ? -errno : 0;
}

void harp_engine_watch_control(struct harp_engine *e, struct harp_peer *peer, bool writable) {
  (void)set_control(e, peer, EPOLL_CTL_MOD, writable);
}

void harp_engine_ignore_control(struct harp_engine *e, struct harp_peer *peer) {
  if (peer->monitor.fd >= 0) harp_io_ready_unwatch(&e->ready, peer->monitor.fd);
}

void harp_engine_activate(struct harp_engine *e, struct harp_peer *peer) {
  if (peer->active) return;
  peer->active = true;
  peer->next_active = NULL;
  HARP_ASSERT(!e->active_first == !e->active_last);
  if (e->active_last)
    e->active_last->next_active = peer;
  else
    e->active_first = peer;
  e->active_last = peer;
}

static void deactivate_peer(struct harp_engine *e, struct harp_peer *peer) {
  if (!peer->active) return;
  struct harp_peer **at = &e->active_first, *before = NULL;
  while (*at != peer) {
    HARP_ASSERT(*at); /* one that is active is in the list */
    before = *at;
    at = &before->next_active;
  }
  *at = peer->next_active;
  if (e->active_last == peer) e->active_last = before;
  peer->active = false;
}

void harp_engine_detach(struct harp_engine *e, struct harp_peer *peer) {
  HARP_ASSERT(e->peers[peer->slot] == peer && e->peer_count);
  deactivate_peer(e, peer);
  harp_engine_ignore_control(e, peer);
  e->peers[peer->slot] = NULL;
  e->peer_count--;
}

struct harp_peer *harp_engine_next_peer(struct harp_peer_walk *walk) {
  while (walk->left && walk->slot < HARP_ENGINE_PEERS_MAX) {
    uint32_t slot = walk->slot++;
    walk->left -= walk->engine->peers[slot] != NULL;
    struct harp_peer *peer = harp_engine_peer_at(walk->engine, slot);
    if (peer) return peer;
  }
  return NULL;
}

bool harp_engine_add_link(struct harp_engine *e, struct harp_link *link) {
  for (uint32_t i = 0; i < HARP_ENGINE_LINKS_MAX; i++) {
    uint32_t slot = (e->link_next + i) % HARP_ENGINE_LINKS_MAX;
    if (e->links[slot]) continue;
    HARP_ASSERT(e->link_count < HARP_ENGINE_LINKS_MAX);
    link->slot = slot;
    e->links[slot] = link;
    e->link_next = slot + 1;
    e->link_count++;
    return true;
  }
  HARP_ASSERT(e->link_count == HARP_ENGINE_LINKS_MAX);
  return false;
}

void harp_engine_remove_link(struct harp_engine *e, struct harp_link *link) {
  HARP_ASSERT(e->links[link->slot] == link && e->link_count);
  e->links[link->slot] = NULL;
  e->link_count--;
}

/* ---- pool ---- */

void *harp_engine_take_block(struct harp_engine *e) {
  if (e->block_free) {
    void *block = e->block_free;
    e->block_free = *(void **)block;
    return block;
  }
  HARP_ASSERT(e->blocks_used <= e->block_count);
  if (e->blocks_used == e->block_count) return NULL;
  return e->memory + e->blocks_used++ * (size_t)HARP_BLOCK_BYTES;
}

void harp_engine_give_block(struct harp_engine *e, void *block) {
  size_t at = (size_t)((uint8_t *)block - e->memory);
  HARP_ASSERT(at % HARP_BLOCK_BYTES == 0 && at / HARP_BLOCK_BYTES < e->blocks_used);
  *(void **)block = e->block_free;
  e->block_free = block;
}

/* ---- submissions ---- */

void harp_engine_ring_mt(struct harp_engine *e, uint32_t slot) {
  HARP_ASSERT(slot < HARP_ENGINE_LINKS_MAX);
  /* The word before its summary: a pass that takes the summary bit finds the word's bit. */
  atomic_fetch_or_explicit(&e->doorbells[slot / 64], 1ull << (slot % 64), memory_order_release);
  atomic_fetch_or_explicit(&e->doorbell_words, 1ull << (slot / 64 / HARP_DOORBELL_WORDS),
                           memory_order_seq_cst);
}

void harp_engine_wake_mt(struct harp_engine *e) {
  /* (I) The submitter's doorbell (sequentially consistent) pairs with (J): either it sees `sleeping`, or the
   * thread sees the doorbell after it has set it. Who has passed since (J), as an inline engine's callers do,
   * has taken the lock after it was set, and sees it too. */
  if (!atomic_load_explicit(&e->sleeping, memory_order_seq_cst)) return;
  uint64_t one = 1;
  (void)!write(e->wake_fd, &one, sizeof one);
}
