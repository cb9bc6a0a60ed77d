/* SPDX-License-Identifier: Apache-2.0 */
/* One NIC queue: its UMEM, its four rings, and the owner of each frame.
 *
 * The first frames of the UMEM are for receiving: POOL -> FILL -> RX_HELD -> POOL. The others are for
 * sending, in runs of HARP_XDP_RUN_FRAMES adjacent frames, so that the segments of a superframe have a
 * constant stride and a packet larger than a frame is contiguous: POOL -> TX_BUILD -> TX_RING -> POOL.
 *
 * The kernel's side is two system calls behind a table and the memory of the rings; a test supplies its own.
 * Every descriptor from the kernel is checked: an invalid one marks the queue broken, with the reason, and
 * the driver stops using it. Owned by one xdp driver and called by its thread; no locks, no allocation after
 * init, nothing blocks. */
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

/* The system calls of a queue. Each returns 0 or -errno and never blocks. */
struct harp_xdp_kernel {
  int (*wake_tx)(int fd);
  int (*wake_rx)(int fd);
};
extern const struct harp_xdp_kernel harp_xdp_kernel_system;

struct harp_xdp_queue {
  int fd;
  const struct harp_xdp_kernel *kernel;
  uint8_t *umem; /* the UMEM, borrowed */
  uint32_t rx_frames, tx_runs;
  struct harp_xdp_ring rx, tx, fill, completion;
  const char *broken; /* the reason why the queue has failed; NULL while it works */

  uint8_t *rx_owners;               /* enum harp_xdp_owner of each receive frame */
  uint8_t *run_owners;              /* the owner of each run; TX_RING until its last frame is completed */
  uint16_t *run_out;                /* frames of each run in the tx ring, a bit each */
  uint32_t counts[HARP_XDP_OWNERS]; /* frames of each owner; their sum is constant */
  uint32_t *rx_pool, rx_pool_count; /* free receive frames, last in first out */
  uint32_t *run_pool, run_pool_count;
  uint32_t fill_target; /* receive frames to keep in the fill ring; init sets all of them */

  /* The sums since open: */
  uint64_t tx_frames, tx_completed;
  uint64_t rx_frames_taken;
  uint64_t tx_busy;    /* full rings, and wakeups that returned EAGAIN, EBUSY or ENOBUFS */
  uint64_t tx_dropped; /* packets that the kernel dropped */
};

/* Returns the UMEM bytes of `rx_frames` frames and `tx_runs` runs. */
size_t harp_xdp_queue_umem_bytes(uint32_t rx_frames, uint32_t tx_runs);

/* Puts all frames into the pool. The caller has set fd, kernel and the rings. `umem` is borrowed until fini.
 * Returns 0 or -ENOMEM. */
HARP_MUST_CHECK int harp_xdp_queue_init(struct harp_xdp_queue *q, uint8_t *umem, uint32_t rx_frames,
                                        uint32_t tx_runs);
void harp_xdp_queue_fini(struct harp_xdp_queue *q);

/* Fills the fill ring up to fill_target frames, and wakes the kernel if the ring's flag requires it. A small
 * target keeps the frames in the caches; it doubles when the kernel has used three quarters of them. */
void harp_xdp_queue_refill(struct harp_xdp_queue *q);

/* One received packet in `piece_count` frames; piece 0 begins with the Ethernet header. */
struct harp_xdp_received {
  uint32_t piece_count, bytes; /* the number of pieces, and the bytes of all of them */
  const uint8_t *data[HARP_XDP_PIECES_MAX];
  uint32_t piece_bytes[HARP_XDP_PIECES_MAX];
  uint32_t frames[HARP_XDP_PIECES_MAX];
};

/* Receives up to `max` packets; their frames are RX_HELD until rx_release. A packet of more than
 * HARP_XDP_PIECES_MAX frames, or without its last one, is dropped. Returns the number of packets. */
unsigned harp_xdp_queue_rx(struct harp_xdp_queue *q, struct harp_xdp_received *out, unsigned max);
/* Returns a RX_HELD frame to the pool. */
void harp_xdp_queue_rx_release(struct harp_xdp_queue *q, uint32_t frame);

/* Lends a run (TX_BUILD) until tx_put or tx_give_back; false when none is free or the queue is broken. */
bool harp_xdp_queue_tx_take(struct harp_xdp_queue *q, uint32_t *run);
void harp_xdp_queue_tx_give_back(struct harp_xdp_queue *q, uint32_t run);
/* Returns the memory of a run: HARP_XDP_RUN_FRAMES adjacent frames. */
uint8_t *harp_xdp_queue_run_data(const struct harp_xdp_queue *q, uint32_t run);

/* Puts `count` packets of a lent run into the tx ring: packet i begins at run data + i * stride + lead and is
 * bytes[i] long; stride is a multiple of the frame size. The run returns to the pool when all its frames are
 * completed. False when the ring is full or the queue is broken: nothing was put, and the run is back in the
 * pool. */
bool harp_xdp_queue_tx_put(struct harp_xdp_queue *q, uint32_t run, uint32_t count, uint32_t stride,
                           uint32_t lead, const uint32_t *bytes);

/* Publishes the tx ring to the kernel and wakes it. Returns 0, or -errno of the wakeup: with -EAGAIN, -EBUSY
 * and -ENOBUFS the rest stays in the ring until the next flush. */
int harp_xdp_queue_tx_flush(struct harp_xdp_queue *q);

/* Wakes the kernel if a ring with entries for it has the need-wakeup flag. The kernel may set the flag after
 * the last flush or refill, and no event follows; so the driver calls this periodically. */
void harp_xdp_queue_wake(struct harp_xdp_queue *q);

/* Collects completions; returns the number of frames. */
unsigned harp_xdp_queue_reap(struct harp_xdp_queue *q);

/* Asserts that every frame has exactly one owner and that the counts agree. */
void harp_xdp_queue_check(const struct harp_xdp_queue *q);

#endif
