/* SPDX-License-Identifier: Apache-2.0 */
/* One NIC queue: a UMEM of its own, four rings, and the account of who owns each frame.
 *
 * The first frames of the UMEM are for receiving and circulate POOL -> FILL -> RX_HELD -> POOL. The others
 * are for sending, in runs of HARP_XDP_RUN_FRAMES neighbours, so that a superframe's segments lie at equal
 * distances and a packet larger than a frame lies in one piece: POOL -> TX_BUILD -> TX_RING -> POOL.
 *
 * The kernel's side is three system calls behind a table, and memory: a test brings its own. What the kernel
 * says is checked, never trusted: a descriptor that makes no sense marks the queue broken, with the reason,
 * and the driver goes on without it. Owned by one xdp driver; no locks, no allocation after init. */
#ifndef HARP_IO_XDP_QUEUE_H
#define HARP_IO_XDP_QUEUE_H

#include "base/base.h"
#include "io/xdp/ring.h"

enum {
  HARP_XDP_FRAME_BYTES = 4096, /* a chunk: the kernel takes none larger than a page */
  HARP_XDP_RUN_FRAMES = 16,
  HARP_XDP_RING_ENTRIES = 4096,
  HARP_XDP_PIECES_MAX = 18, /* descriptors of one packet, MAX_SKB_FRAGS + 1 */
};

enum harp_xdp_owner {
  HARP_XDP_POOL,
  HARP_XDP_FILL,
  HARP_XDP_RX_HELD,
  HARP_XDP_TX_BUILD,
  HARP_XDP_TX_RING,
  HARP_XDP_OWNERS,
};

/* What a queue asks of the kernel. Each returns 0 or -errno and never blocks. */
struct harp_xdp_kernel {
  int (*wake_tx)(int fd);
  int (*wake_rx)(int fd);
};
extern const struct harp_xdp_kernel harp_xdp_kernel_system;

struct harp_xdp_queue {
  int fd;
  const struct harp_xdp_kernel *kernel;
  uint8_t *umem; /* borrowed */
  uint32_t rx_frames, tx_runs;
  struct harp_xdp_ring rx, tx, fill, completion;
  const char *broken; /* why the queue is used no more; NULL while it works */

  uint8_t *rx_owners;               /* enum harp_xdp_owner of each frame for receiving */
  uint8_t *run_owners;              /* and of each run; TX_RING until its last frame is completed */
  uint16_t *run_out;                /* the frames of each run that the kernel has, a bit each */
  uint32_t counts[HARP_XDP_OWNERS]; /* frames of each owner: they add up to all */
  uint32_t *rx_pool, rx_pool_count; /* frames of the pool, last in first out */
  uint32_t *run_pool, run_pool_count;
  uint32_t fill_target;             /* receive frames that the kernel is to have; init sets all */
  uint64_t tx_frames, tx_completed; /* since open, for the deadline */
  uint64_t rx_frames_taken;
  uint64_t tx_busy, tx_dropped; /* wakes that said "later", packets that the kernel threw away */
};

/* Returns the UMEM bytes for so many frames and runs. */
size_t harp_xdp_queue_umem_bytes(uint32_t rx_frames, uint32_t tx_runs);

/* Starts the account: all frames in the pool. The caller has set fd, kernel and the rings. `umem` is borrowed
 * until fini. Returns 0 or -ENOMEM. */
HARP_MUST_CHECK int harp_xdp_queue_init(struct harp_xdp_queue *q, uint8_t *umem, uint32_t rx_frames,
                                        uint32_t tx_runs);
void harp_xdp_queue_fini(struct harp_xdp_queue *q);

/* Hands free receive frames to the kernel, until it has fill_target of them, and wakes it where it asks for
 * that. A target of few frames keeps these in the caches; one of which the kernel has used up three quarters
 * is doubled. */
void harp_xdp_queue_refill(struct harp_xdp_queue *q);

/* One received packet of `piece_count` frames; piece 0 begins with its Ethernet header. */
struct harp_xdp_received {
  uint32_t piece_count, bytes; /* of all pieces */
  const uint8_t *data[HARP_XDP_PIECES_MAX];
  uint32_t piece_bytes[HARP_XDP_PIECES_MAX];
  uint32_t frames[HARP_XDP_PIECES_MAX];
};

/* Takes up to `max` packets; their frames are RX_HELD until released. Packets in more pieces than we take,
 * or cut short, are dropped. Returns how many. */
unsigned harp_xdp_queue_rx(struct harp_xdp_queue *q, struct harp_xdp_received *out, unsigned max);
void harp_xdp_queue_rx_release(struct harp_xdp_queue *q, uint32_t frame);

/* Lends a run; false when none is free. Frame i of it is at harp_xdp_queue_frame(q, first + i). */
bool harp_xdp_queue_tx_take(struct harp_xdp_queue *q, uint32_t *run);
void harp_xdp_queue_tx_give_back(struct harp_xdp_queue *q, uint32_t run);
uint8_t *harp_xdp_queue_run_data(const struct harp_xdp_queue *q, uint32_t run);

/* Queues `count` packets of a lent run: packet i begins at run data + i * stride + lead, is bytes[i] long,
 * and stride is a multiple of the frame size. The run comes back by completions. False when the ring is full:
 * the run is given back and nothing was queued. */
bool harp_xdp_queue_tx_put(struct harp_xdp_queue *q, uint32_t run, uint32_t count, uint32_t stride,
                           uint32_t lead, const uint32_t *bytes);

/* Shows the kernel what was queued and wakes it. Returns 0, or -errno of the wake: -EAGAIN and the like mean
 * that it goes on later. */
int harp_xdp_queue_tx_flush(struct harp_xdp_queue *q);

/* Wakes the kernel where it sleeps on what it was given: it may have asked for that only afterwards, and a
 * queue without frames to receive into brings nothing that would make us give it more. To be called now and
 * then. */
void harp_xdp_queue_rouse(struct harp_xdp_queue *q);

/* Collects completions; returns how many frames came back. */
unsigned harp_xdp_queue_reap(struct harp_xdp_queue *q);

/* Asserts that every frame has one owner and the counts add up. */
void harp_xdp_queue_check(const struct harp_xdp_queue *q);

#endif
