/* SPDX-License-Identifier: Apache-2.0 */
/* What bare AF_XDP sockets in generic mode can do here: the ceiling of a stream, without any protocol.
 *
 * Not part of the product and not run by the tests: it puts the figures of docs/reference/benchmarks.md into
 * proportion. In two namespaces joined by veth, built from plugin/src:
 *
 *   cc -O2 -D_GNU_SOURCE -I. -o xdp_floor ../../tests/bench/xdp_floor.c io/nic.c \
 *      base/{address,assert,error,files,log,netlink}.c io/xdp/{bpf,filter,header,program,queue,socket}.c
 *
 *   ip netns exec B ./xdp_floor sink eni0 10.0.0.2 10.0.0.1 WORK FRAMES [REST_US] &
 *
 *   ip netns exec A ./xdp_floor flood eni0 10.0.0.1 10.0.0.2 WORK UDP_BYTES RUNS
 *
 * WORK: 0 moves frames only; 1 copies each payload into its frame and out of it. FRAMES: what the kernel has
 * to receive into. RUNS, of 16 frames, bound what is under way, since a frame completes when the receiving
 * side has freed the packet. The sink yields its core when it has nothing, as NCCL's threads do, or looks
 * again after REST_US. XDP_FLOOR_PLAIN=1 in the environment loads the program for packets of one buffer,
 * which saves the kernel a copy and is what the driver does where the MTU allows. */
#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "io/nic.h"
#include "io/xdp/filter.h"
#include "io/xdp/header.h"
#include "io/xdp/socket.h"

enum {
  PORT = 9998,
  RX_FRAMES = 4096,
  TX_RUNS = 256,
  BATCH = 32,
  REFILL = 64,
  HEADER = 44,
  USER_BYTES = 8 << 20,
  LEAD = 64
};

static struct harp_xdp_filter filter;
static struct harp_xdp_socket s;
static uint8_t *user;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "xdp_floor: %s\n", what);
  exit(1);
}

static void *memory(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) fail("no memory");
  return at;
}

static struct sockaddr_storage address(const char *text) {
  struct sockaddr_storage a = {0};
  struct sockaddr_in *in = (struct sockaddr_in *)&a;
  in->sin_family = AF_INET;
  in->sin_port = htons(PORT);
  in->sin_addr.s_addr = inet_addr(text);
  return a;
}

static void open_all(unsigned ifindex, const struct sockaddr_storage *local, uint32_t frames) {
  struct harp_error error = {0};
  bool sg = !getenv("XDP_FLOOR_PLAIN");
  struct harp_xdp_socket_config c = {
      .ifindex = ifindex,
      .sg = sg,
      .umem = memory(harp_xdp_queue_umem_bytes(RX_FRAMES, TX_RUNS)),
      .rx_frames = RX_FRAMES,
      .tx_runs = TX_RUNS,
  };
  if (harp_xdp_filter_open(&filter, ifindex, HARP_XDP_GENERIC, sg, &error)) fail(error.text);
  if (harp_xdp_socket_open(&s, &c, &error)) fail(error.text);
  if (harp_xdp_filter_add_queue(&filter, 0, s.queue.fd)) fail("the queue is taken");
  if (harp_xdp_filter_add_port(&filter, local, PORT, 1, 0)) fail("the port is taken");
  s.queue.fill_target = frames;
  harp_xdp_queue_refill(&s.queue);
}

static void flood(const struct harp_xdp_header *h, int work, uint32_t bytes, uint32_t runs) {
  struct harp_xdp_queue *q = &s.queue;
  uint32_t run, sizes[HARP_XDP_RUN_FRAMES], held[TX_RUNS], held_count = 0;
  uint32_t stride = (LEAD + h->bytes + bytes + 4095) / 4096 * 4096;
  uint32_t count = HARP_XDP_RUN_FRAMES * HARP_XDP_FRAME_BYTES / stride;
  size_t at = 0;
  while (held_count < TX_RUNS - runs && harp_xdp_queue_tx_take(q, &held[held_count])) held_count++;
  for (double end = seconds() + 3; seconds() < end;) {
    for (int i = 0; i < 4 && harp_xdp_queue_tx_take(q, &run); i++) {
      for (uint32_t k = 0; k < count; k++) {
        uint8_t *payload = harp_xdp_queue_run_data(q, run) + k * stride + LEAD + h->bytes;
        if (work) memcpy(payload + HEADER, user + at, bytes - HEADER);
        at = (at + bytes) % (USER_BYTES - 65536);
        harp_xdp_header_write(h, payload, bytes);
        sizes[k] = h->bytes + bytes;
      }
      (void)harp_xdp_queue_tx_put(q, run, count, stride, LEAD, sizes);
    }
    (void)harp_xdp_queue_tx_flush(q);
    harp_xdp_queue_reap(q);
  }
}

static void rest(unsigned us) {
  if (!us) sched_yield();
  for (double end = seconds() + 1e-6 * us; seconds() < end;) __builtin_ia32_pause();
}

static void sink(int work, uint32_t frames, unsigned rest_us) {
  struct harp_xdp_queue *q = &s.queue;
  struct harp_xdp_received packets[BATCH];
  uint64_t got_bytes = 0, got = 0;
  size_t at = 0;
  double first = 0, last = 0;
  for (double end = seconds() + 10; seconds() < end && (!got || seconds() < last + 0.5);) {
    unsigned n = harp_xdp_queue_rx(q, packets, BATCH);
    for (unsigned i = 0; i < n; i++) {
      for (uint32_t k = 0; k < packets[i].piece_count; k++) {
        if (work) memcpy(user + at, packets[i].data[k], packets[i].piece_bytes[k]);
        at = (at + packets[i].piece_bytes[k]) % (USER_BYTES - 65536);
        harp_xdp_queue_rx_release(q, packets[i].frames[k]);
      }
      got_bytes += packets[i].bytes - HARP_XDP_HEADER_V4_BYTES - HEADER;
    }
    if (!n) {
      rest(rest_us);
      continue;
    }
    if (!got) first = seconds();
    got += n;
    last = seconds();
    q->fill_target = frames; /* refilling doubles it */
    if (q->counts[HARP_XDP_FILL] + REFILL <= frames) harp_xdp_queue_refill(q);
  }
  printf("work %d: %.1f Gbit/s of payload, %.2f million packets/s\n", work,
         (double)got_bytes * 8 / (last - first) / 1e9, (double)got / (last - first) / 1e6);
}

int main(int argc, char **argv) {
  if (argc < 7 || (!strcmp(argv[1], "flood") && argc < 8))
    fail("usage: xdp_floor sink|flood IFNAME LOCAL PEER WORK FRAMES|UDP_BYTES [RUNS]");
  unsigned ifindex = if_nametoindex(argv[2]);
  static const uint8_t everybody[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  struct sockaddr_storage local = address(argv[3]), peer = address(argv[4]);
  struct harp_xdp_header header;
  uint8_t mac[6];
  user = memory(USER_BYTES);
  if (harp_nic_mac(ifindex, mac)) fail("no such interface");
  bool floods = !strcmp(argv[1], "flood");
  open_all(ifindex, &local, floods ? RX_FRAMES : (uint32_t)atoi(argv[6]));
  harp_xdp_header_init(&header, mac, everybody, &local, &peer, 0);
  if (floods)
    flood(&header, atoi(argv[5]), (uint32_t)atoi(argv[6]), (uint32_t)atoi(argv[7]));
  else
    sink(atoi(argv[5]), (uint32_t)atoi(argv[6]), argc > 7 ? (unsigned)atoi(argv[7]) : 0);
  return 0;
}
