/* SPDX-License-Identifier: Apache-2.0 */
/* What the xdp driver's own code costs for a packet, without the kernel: N superframes of 16 packets go out
 * and N come in, over rings in plain memory with a kernel that does everything at once. count_xdp.py runs it
 * under callgrind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/xdp/header.h"
#include "io/xdp/queue.h"

enum { RX = 256, RUNS = 16, ENTRIES = 512, PACKETS = HARP_XDP_RUN_FRAMES, PAYLOAD = 1452, LEAD = 42 };

struct side {
  uint32_t producer, consumer, flags;
  union {
    uint64_t addresses[ENTRIES];
    struct harp_xdp_descriptor descriptors[ENTRIES];
  } of;
};

static struct side rx, tx, fill, completion;

/* The kernel: completes every packet, and delivers it again into the fill ring's next frame. */
static int wake_tx(int fd) {
  (void)fd;
  for (; tx.consumer != tx.producer; tx.consumer++)
    completion.of.addresses[completion.producer++ % ENTRIES] =
        tx.of.descriptors[tx.consumer % ENTRIES].address;
  return 0;
}

static int wake_rx(int fd) {
  (void)fd;
  return 0;
}

static const struct harp_xdp_kernel kernel = {wake_tx, wake_rx};

static struct harp_xdp_ring ring(struct side *side) {
  side->flags = HARP_XDP_RING_NEED_WAKEUP;
  return (struct harp_xdp_ring){
      &side->producer, &side->consumer, &side->flags, &side->of, ENTRIES, 0, 0, false};
}

__attribute__((noinline)) static void send_superframe(struct harp_xdp_queue *q,
                                                      const struct harp_xdp_header *h) {
  uint32_t run, bytes[PACKETS];
  if (!harp_xdp_queue_tx_take(q, &run)) abort();
  uint8_t *base = harp_xdp_queue_run_data(q, run) + LEAD + h->bytes;
  for (int i = 0; i < PACKETS; i++) {
    harp_xdp_header_write(h, base + (size_t)i * HARP_XDP_FRAME_BYTES, PAYLOAD);
    bytes[i] = h->bytes + PAYLOAD;
  }
  if (!harp_xdp_queue_tx_put(q, run, PACKETS, HARP_XDP_FRAME_BYTES, LEAD, bytes)) abort();
  if (harp_xdp_queue_tx_flush(q)) abort();
  if (harp_xdp_queue_reap(q) != PACKETS) abort();
}

__attribute__((noinline)) static void receive_batch(struct harp_xdp_queue *q,
                                                    const struct harp_xdp_header *h) {
  struct harp_xdp_received packets[PACKETS];
  for (int i = 0; i < PACKETS; i++) {
    uint64_t at = fill.of.addresses[fill.consumer++ % ENTRIES] + LEAD;
    harp_xdp_header_write(h, q->umem + at + h->bytes, PAYLOAD);
    rx.of.descriptors[rx.producer++ % ENTRIES] = (struct harp_xdp_descriptor){at, h->bytes + PAYLOAD, 0};
  }
  unsigned n = harp_xdp_queue_rx(q, packets, PACKETS);
  for (unsigned i = 0; i < n; i++) {
    uint32_t bytes;
    if (!harp_xdp_header_read(packets[i].data[0], packets[i].piece_bytes[0], packets[i].bytes, &bytes))
      abort();
    harp_xdp_queue_rx_release(q, packets[i].frames[0]);
  }
  harp_xdp_queue_refill(q);
}

int main(int argc, char **argv) {
  static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  struct sockaddr_storage local = {.ss_family = AF_INET}, peer = {.ss_family = AF_INET};
  struct harp_xdp_header header;
  struct harp_xdp_queue q = {.kernel = &kernel};
  int sends = argc > 1 ? atoi(argv[1]) : 0, receives = argc > 2 ? atoi(argv[2]) : 0;
  uint8_t *umem = aligned_alloc(4096, harp_xdp_queue_umem_bytes(RX, RUNS));
  if (!umem) return 1;
  memset(umem, 0, harp_xdp_queue_umem_bytes(RX, RUNS));
  q.rx = ring(&rx), q.tx = ring(&tx), q.fill = ring(&fill), q.completion = ring(&completion);
  if (harp_xdp_queue_init(&q, umem, RX, RUNS)) return 1;
  harp_xdp_header_init(&header, mac, mac, &local, &peer, 0);
  harp_xdp_queue_refill(&q);
  for (int i = 0; i < sends; i++) send_superframe(&q, &header);
  for (int i = 0; i < receives; i++) receive_batch(&q, &header);
  harp_xdp_queue_check(&q);
  return 0;
}
