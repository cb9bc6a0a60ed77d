/* SPDX-License-Identifier: Apache-2.0 */
/* See queue.h. */
#include "io/xdp/queue.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"

enum { WAKES_PER_FLUSH = 8 }; /* in copy mode one sendto sends as few as 32 packets */

static int system_wake_tx(int fd) {
  return sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? -errno : 0;
}

static int system_wake_rx(int fd) {
  return recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL) < 0 ? -errno : 0;
}

const struct harp_xdp_kernel harp_xdp_kernel_system = {system_wake_tx, system_wake_rx};

static uint32_t frame_count(const struct harp_xdp_queue *q) {
  return q->rx_frames + q->tx_runs * HARP_XDP_RUN_FRAMES;
}

size_t harp_xdp_queue_umem_bytes(uint32_t rx_frames, uint32_t tx_runs) {
  return ((size_t)rx_frames + (size_t)tx_runs * HARP_XDP_RUN_FRAMES) * HARP_XDP_FRAME_BYTES;
}

static void count_move(struct harp_xdp_queue *q, enum harp_xdp_owner from, enum harp_xdp_owner to,
                       uint32_t frames) {
  HARP_ASSERT(q->counts[from] >= frames);
  q->counts[from] -= frames;
  q->counts[to] += frames;
}

/* Moves a receive frame from one owner to the next. */
static void move_frame(struct harp_xdp_queue *q, uint32_t frame, enum harp_xdp_owner from,
                       enum harp_xdp_owner to) {
  HARP_ASSERT(frame < q->rx_frames && q->rx_owners[frame] == from);
  q->rx_owners[frame] = (uint8_t)to;
  count_move(q, from, to, 1);
}

static void set_broken(struct harp_xdp_queue *q, const char *why) {
  if (!q->broken) q->broken = why;
}

/* ---- owners ---- */

int harp_xdp_queue_init(struct harp_xdp_queue *q, uint8_t *umem, uint32_t rx_frames, uint32_t tx_runs) {
  q->umem = umem;
  q->rx_frames = rx_frames;
  q->tx_runs = tx_runs;
  q->rx_owners = calloc(rx_frames, 1);
  q->rx_pool = calloc(rx_frames, sizeof *q->rx_pool);
  q->run_owners = calloc(tx_runs, 1);
  q->run_out = calloc(tx_runs, sizeof *q->run_out);
  q->run_pool = calloc(tx_runs, sizeof *q->run_pool);
  if (!q->rx_owners || !q->rx_pool || !q->run_owners || !q->run_out || !q->run_pool) {
    harp_xdp_queue_fini(q);
    return -ENOMEM;
  }
  q->fill_target = HARP_MIN(rx_frames, q->fill.size);
  q->counts[HARP_XDP_POOL] = frame_count(q);
  for (uint32_t i = 0; i < rx_frames; i++) q->rx_pool[q->rx_pool_count++] = rx_frames - 1 - i;
  for (uint32_t i = 0; i < tx_runs; i++) q->run_pool[q->run_pool_count++] = tx_runs - 1 - i;
  return 0;
}

void harp_xdp_queue_fini(struct harp_xdp_queue *q) {
  free(q->rx_owners);
  free(q->rx_pool);
  free(q->run_owners);
  free(q->run_out);
  free(q->run_pool);
  q->rx_owners = q->run_owners = NULL, q->rx_pool = q->run_pool = NULL, q->run_out = NULL;
}

void harp_xdp_queue_check(const struct harp_xdp_queue *q) {
  uint32_t counts[HARP_XDP_OWNERS] = {0}, pooled = 0;
  for (uint32_t i = 0; i < q->rx_frames; i++) counts[q->rx_owners[i]]++;
  HARP_ASSERT(counts[HARP_XDP_POOL] == q->rx_pool_count);
  for (uint32_t i = 0; i < q->rx_pool_count; i++) HARP_ASSERT(q->rx_owners[q->rx_pool[i]] == HARP_XDP_POOL);
  for (uint32_t run = 0; run < q->tx_runs; run++) {
    uint32_t out = harp_popcount(q->run_out[run]);
    bool is_built = q->run_owners[run] == HARP_XDP_TX_BUILD;
    HARP_ASSERT((q->run_owners[run] == HARP_XDP_TX_RING) == (out != 0));
    counts[HARP_XDP_TX_RING] += out;
    counts[is_built ? HARP_XDP_TX_BUILD : HARP_XDP_POOL] += HARP_XDP_RUN_FRAMES - out;
    pooled += q->run_owners[run] == HARP_XDP_POOL;
  }
  HARP_ASSERT(pooled == q->run_pool_count);
  for (unsigned i = 0; i < HARP_XDP_OWNERS; i++) HARP_ASSERT(counts[i] == q->counts[i]);
}

/* ---- receiving ---- */

/* Doubles the target if less than a quarter of it is left in the ring. */
static void raise_target(struct harp_xdp_queue *q, uint32_t left) {
  if (q->fill.ours && left < q->fill_target / 4)
    q->fill_target = HARP_MIN(2 * q->fill_target, HARP_MIN(q->rx_frames, q->fill.size));
}

void harp_xdp_queue_refill(struct harp_xdp_queue *q) {
  if (q->broken || !q->rx_pool_count) return;
  uint32_t room = harp_xdp_ring_room(&q->fill, q->fill.size);
  raise_target(q, q->fill.size - room);
  room = HARP_MIN(room, q->fill_target - HARP_MIN(q->counts[HARP_XDP_FILL], q->fill_target));
  room = HARP_MIN(room, q->rx_pool_count);
  if (q->fill.is_broken) set_broken(q, "the fill ring's counters are out of range");
  for (uint32_t i = 0; i < room; i++) {
    uint32_t frame = q->rx_pool[--q->rx_pool_count];
    move_frame(q, frame, HARP_XDP_POOL, HARP_XDP_FILL);
    harp_xdp_ring_put_address(&q->fill, (uint64_t)frame * HARP_XDP_FRAME_BYTES);
  }
  if (!room) return;
  harp_xdp_ring_publish(&q->fill);
  if (harp_xdp_ring_needs_wakeup(&q->fill)) (void)q->kernel->wake_rx(q->fd);
}

/* Takes the frame of one descriptor from the kernel; false when the descriptor is invalid. */
static bool take_frame(struct harp_xdp_queue *q, const struct harp_xdp_descriptor *d, uint32_t *frame) {
  uint64_t index = d->address / HARP_XDP_FRAME_BYTES, offset = d->address % HARP_XDP_FRAME_BYTES;
  if (index >= q->rx_frames || offset + d->bytes > HARP_XDP_FRAME_BYTES ||
      q->rx_owners[index] != HARP_XDP_FILL) {
    set_broken(q, "the kernel delivered a frame that it does not have");
    return false;
  }
  *frame = (uint32_t)index;
  move_frame(q, *frame, HARP_XDP_FILL, HARP_XDP_RX_HELD);
  return true;
}

static void drop_pieces(struct harp_xdp_queue *q, const struct harp_xdp_received *packet) {
  for (uint32_t i = 0; i < HARP_MIN(packet->piece_count, (uint32_t)HARP_XDP_PIECES_MAX); i++)
    harp_xdp_queue_rx_release(q, packet->frames[i]);
}

/* Collects the pieces of the next packet; false when there is none, or it is dropped. */
static bool next_packet(struct harp_xdp_queue *q, struct harp_xdp_received *packet, uint32_t *waiting) {
  packet->piece_count = packet->bytes = 0;
  bool more = true;
  while (more && *waiting) {
    struct harp_xdp_descriptor d = harp_xdp_ring_take(&q->rx);
    uint32_t frame, at = packet->piece_count;
    (*waiting)--;
    if (!take_frame(q, &d, &frame)) break;
    more = d.options & HARP_XDP_PACKET_CONTINUES;
    if (at == HARP_XDP_PIECES_MAX) {
      harp_xdp_queue_rx_release(q, frame); /* too many pieces: drops the packet, these included */
      packet->bytes = 0;
      continue;
    }
    packet->frames[at] = frame;
    packet->data[at] = q->umem + d.address;
    packet->piece_bytes[at] = d.bytes;
    packet->piece_count++;
    packet->bytes += d.bytes;
  }
  if (!more && packet->bytes && packet->piece_count <= HARP_XDP_PIECES_MAX) return true;
  drop_pieces(q, packet); /* the kernel delivers whole packets: without its last piece it is invalid */
  return false;
}

unsigned harp_xdp_queue_rx(struct harp_xdp_queue *q, struct harp_xdp_received *out, unsigned max) {
  if (q->broken) return 0;
  uint32_t waiting = harp_xdp_ring_waiting(&q->rx, UINT32_MAX);
  unsigned got = 0;
  if (q->rx.is_broken) set_broken(q, "the rx ring's counters are out of range");
  if (!waiting) return 0;
  uint32_t before = waiting;
  while (waiting && got < max && !q->broken) got += next_packet(q, &out[got], &waiting);
  q->rx_frames_taken += before - waiting;
  harp_xdp_ring_release(&q->rx);
  return got;
}

void harp_xdp_queue_rx_release(struct harp_xdp_queue *q, uint32_t frame) {
  move_frame(q, frame, HARP_XDP_RX_HELD, HARP_XDP_POOL);
  q->rx_pool[q->rx_pool_count++] = frame;
}

/* ---- sending ---- */

static uint32_t first_frame(const struct harp_xdp_queue *q, uint32_t run) {
  return q->rx_frames + run * HARP_XDP_RUN_FRAMES;
}

uint8_t *harp_xdp_queue_run_data(const struct harp_xdp_queue *q, uint32_t run) {
  return q->umem + (size_t)first_frame(q, run) * HARP_XDP_FRAME_BYTES;
}

static void move_run(struct harp_xdp_queue *q, uint32_t run, enum harp_xdp_owner from,
                     enum harp_xdp_owner to) {
  HARP_ASSERT(run < q->tx_runs && q->run_owners[run] == from);
  q->run_owners[run] = (uint8_t)to;
}

bool harp_xdp_queue_tx_take(struct harp_xdp_queue *q, uint32_t *run) {
  if (q->broken || !q->run_pool_count) return false;
  *run = q->run_pool[--q->run_pool_count];
  move_run(q, *run, HARP_XDP_POOL, HARP_XDP_TX_BUILD);
  count_move(q, HARP_XDP_POOL, HARP_XDP_TX_BUILD, HARP_XDP_RUN_FRAMES);
  return true;
}

void harp_xdp_queue_tx_give_back(struct harp_xdp_queue *q, uint32_t run) {
  move_run(q, run, HARP_XDP_TX_BUILD, HARP_XDP_POOL);
  count_move(q, HARP_XDP_TX_BUILD, HARP_XDP_POOL, HARP_XDP_RUN_FRAMES);
  q->run_pool[q->run_pool_count++] = run;
}

static uint32_t pieces_of(uint32_t lead, uint32_t bytes) {
  return (lead + bytes + HARP_XDP_FRAME_BYTES - 1) / HARP_XDP_FRAME_BYTES;
}

/* Puts one packet into the tx ring, a descriptor for each of its frames; returns the frames, a bit each. */
static uint32_t put_packet(struct harp_xdp_queue *q, uint32_t frame, uint32_t lead, uint32_t bytes) {
  uint32_t count = pieces_of(lead, bytes);
  for (uint32_t i = 0; i < count; i++, lead = 0) {
    uint32_t piece = HARP_MIN(bytes, HARP_XDP_FRAME_BYTES - lead);
    bytes -= piece;
    harp_xdp_ring_put(&q->tx, (struct harp_xdp_descriptor){
                                  .address = (uint64_t)(frame + i) * HARP_XDP_FRAME_BYTES + lead,
                                  .bytes = piece,
                                  .options = bytes ? HARP_XDP_PACKET_CONTINUES : 0,
                              });
  }
  return (1u << count) - 1;
}

bool harp_xdp_queue_tx_put(struct harp_xdp_queue *q, uint32_t run, uint32_t count, uint32_t stride,
                           uint32_t lead, const uint32_t *bytes) {
  uint32_t frames = 0, out = 0, step = stride / HARP_XDP_FRAME_BYTES;
  HARP_ASSERT(count && stride % HARP_XDP_FRAME_BYTES == 0 && count * step <= HARP_XDP_RUN_FRAMES);
  for (uint32_t i = 0; i < count; i++) {
    HARP_ASSERT(bytes[i] && lead + bytes[i] <= stride);
    frames += pieces_of(lead, bytes[i]);
  }
  if (q->broken || harp_xdp_ring_room(&q->tx, frames) < frames) {
    if (q->tx.is_broken) set_broken(q, "the tx ring's counters are out of range");
    harp_xdp_queue_tx_give_back(q, run);
    q->tx_busy++;
    return false;
  }
  for (uint32_t i = 0; i < count; i++)
    out |= put_packet(q, first_frame(q, run) + i * step, lead, bytes[i]) << i * step;
  move_run(q, run, HARP_XDP_TX_BUILD, HARP_XDP_TX_RING);
  count_move(q, HARP_XDP_TX_BUILD, HARP_XDP_TX_RING, frames);
  count_move(q, HARP_XDP_TX_BUILD, HARP_XDP_POOL, HARP_XDP_RUN_FRAMES - frames);
  q->run_out[run] = (uint16_t)out;
  q->tx_frames += frames;
  return true;
}

int harp_xdp_queue_tx_flush(struct harp_xdp_queue *q) {
  int err = 0;
  if (q->broken) return -EPIPE;
  harp_xdp_ring_publish(&q->tx);
  for (unsigned i = 0; i < WAKES_PER_FLUSH; i++) {
    if (!harp_xdp_ring_needs_wakeup(&q->tx)) return 0;
    err = q->kernel->wake_tx(q->fd);
    if (err == -EBUSY) q->tx_dropped++; /* the kernel consumed a packet and dropped it */
    if (err && err != -EBUSY && err != -EAGAIN) break;
    if (harp_xdp_ring_room(&q->tx, q->tx.size) == q->tx.size) return 0; /* the kernel has taken them all */
  }
  if (err == -EAGAIN || err == -EBUSY || err == -ENOBUFS) q->tx_busy++;
  return err;
}

void harp_xdp_queue_wake(struct harp_xdp_queue *q) {
  if (q->broken) return;
  if (q->counts[HARP_XDP_FILL] && harp_xdp_ring_needs_wakeup(&q->fill)) (void)q->kernel->wake_rx(q->fd);
  bool waits = harp_xdp_ring_room(&q->tx, q->tx.size) < q->tx.size;
  if (waits && harp_xdp_ring_needs_wakeup(&q->tx)) (void)q->kernel->wake_tx(q->fd);
}

/* Returns one completed frame to the pool; false when it was not in the tx ring. */
static bool take_back(struct harp_xdp_queue *q, uint64_t frame) {
  uint64_t index = frame - q->rx_frames, run = index / HARP_XDP_RUN_FRAMES;
  if (frame < q->rx_frames || run >= q->tx_runs) return false;
  uint16_t bit = (uint16_t)(1u << index % HARP_XDP_RUN_FRAMES);
  if (!(q->run_out[run] & bit)) return false;
  count_move(q, HARP_XDP_TX_RING, HARP_XDP_POOL, 1);
  q->run_out[run] = (uint16_t)(q->run_out[run] & ~bit);
  if (q->run_out[run]) return true;
  move_run(q, (uint32_t)run, HARP_XDP_TX_RING, HARP_XDP_POOL);
  q->run_pool[q->run_pool_count++] = (uint32_t)run;
  return true;
}

unsigned harp_xdp_queue_reap(struct harp_xdp_queue *q) {
  if (q->broken) return 0;
  uint32_t waiting = harp_xdp_ring_waiting(&q->completion, UINT32_MAX), taken = 0;
  if (q->completion.is_broken) set_broken(q, "the completion ring's counters are out of range");
  while (taken < waiting && take_back(q, harp_xdp_ring_take_address(&q->completion) / HARP_XDP_FRAME_BYTES))
    taken++;
  if (taken < waiting) set_broken(q, "the kernel completed a frame that it does not have");
  if (waiting) harp_xdp_ring_release(&q->completion);
  q->tx_completed += taken;
  return taken;
}
