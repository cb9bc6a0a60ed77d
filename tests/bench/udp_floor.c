/* SPDX-License-Identifier: Apache-2.0 */
/* What a bare UDP socket pair can do here: the floor of a half round trip and the ceiling of a stream,
 * without any protocol.
 *
 * Not part of the product and not run by the tests: it puts the figures of docs/reference/benchmarks.md into
 * proportion. Built from the repository's root; latency and throughput, in two namespaces:
 *
 *   cc -O2 -Iplugin/src -o udp_floor tests/bench/udp_floor.c \
 *      plugin/src/wire/crc32c*.c plugin/src/base/assert.c
 *
 *   ip netns exec B ./udp_floor echo 10.0.0.2 10.0.0.1 &
 *   ip netns exec A ./udp_floor ping 10.0.0.1 10.0.0.2 BYTES
 *
 *   ip netns exec B ./udp_floor sink 10.0.0.2 10.0.0.1 WORK &
 *   ip netns exec A ./udp_floor flood 10.0.0.1 10.0.0.2 WORK WINDOW
 *
 * WORK: 0 sends and receives one hot buffer; 1 packs payload behind 44-byte headers and places it (memcpy); 2
 * does the same with CRC-32C, fused with the copy at the sender, before the copy at the receiver. WINDOW
 * counts superframes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "wire/crc32c.h"

enum {
  PORT = 9998,
  HEADER = 44,
  PAYLOAD = 1408,
  SEGMENT = HEADER + PAYLOAD,
  SEGMENTS = 45,
  USER_BYTES = 8 << 20, /* as eight messages of 1 MB in flight */
  BUFFER_BYTES = 8 << 20,
  PINGS = 100000,
};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_socket(const char *local, const char *peer) {
  struct sockaddr_in me = {
      .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(local)};
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(peer)};
  int fd = socket(AF_INET, SOCK_DGRAM, 0), gro = 1, bytes = BUFFER_BYTES;
  if (fd < 0 || bind(fd, (struct sockaddr *)&me, sizeof me) ||
      connect(fd, (struct sockaddr *)&to, sizeof to)) {
    perror("udp_floor");
    exit(1);
  }
  setsockopt(fd, IPPROTO_UDP, 104 /* UDP_GRO */, &gro, sizeof gro);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
  return fd;
}

static ssize_t receive(int fd, void *buffer) {
  char control[128];
  struct iovec iov = {buffer, 65536};
  struct msghdr m = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  return recvmsg(fd, &m, MSG_DONTWAIT);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void ping(int fd, uint8_t *buffer, size_t bytes) {
  static double half_us[PINGS];
  for (int i = 0; i < PINGS; i++) {
    double start = seconds();
    while (send(fd, buffer, bytes, MSG_DONTWAIT) < 0) {
    }
    while (receive(fd, buffer) < 0) {
    }
    half_us[i] = (seconds() - start) * 5e5;
  }
  qsort(half_us, PINGS, sizeof half_us[0], by_value);
  printf("half round trip of %zu bytes: median %.2f us, 1 %% %.2f, 99 %% %.2f\n", bytes, half_us[PINGS / 2],
         half_us[PINGS / 100], half_us[PINGS - PINGS / 100]);
  send(fd, buffer, 1, 0);
}

static void echo(int fd, uint8_t *buffer) {
  for (ssize_t n = 0; n != 1;) {
    while ((n = receive(fd, buffer)) < 0) {
    }
    if (n > 1) send(fd, buffer, (size_t)n, 0);
  }
}

static void flood(int fd, uint8_t *frame, const uint8_t *user, int work, long window) {
  long sent = 0, acked = 0;
  size_t at = 0;
  int segment = SEGMENT;
  double start = seconds(), elapsed;
  setsockopt(fd, IPPROTO_UDP, 103 /* UDP_SEGMENT */, &segment, sizeof segment);
  while ((elapsed = seconds() - start) < 2) {
    if (sent - acked < window) {
      for (int i = 0; work && i < SEGMENTS; i++, at = (at + PAYLOAD) % (USER_BYTES - PAYLOAD)) {
        uint8_t *p = frame + (size_t)i * SEGMENT;
        memset(p, i, HEADER);
        if (work == 1)
          memcpy(p + HEADER, user + at, PAYLOAD);
        else
          p[0] = (uint8_t)harp_crc32c_copy(harp_crc32c(0, p + 4, HEADER - 4), p + HEADER, user + at, PAYLOAD);
      }
      sent += send(fd, frame, (size_t)SEGMENT * SEGMENTS, MSG_DONTWAIT) > 0;
    }
    while (sent - acked >= window / 2 && recv(fd, &acked, sizeof acked, MSG_DONTWAIT) > 0) {
    }
  }
  printf("work %d, window %ld: %.1f Gbit/s of payload\n", work, window,
         (double)sent * SEGMENTS * PAYLOAD * 8 / elapsed / 1e9);
  for (int i = 0; i < 3; i++) send(fd, frame, 1, 0);
}

static void sink(int fd, uint8_t *frame, uint8_t *user, int work) {
  long got = 0;
  size_t at = 0;
  uint32_t sum = 0;
  for (ssize_t n = 0; n != 1;) {
    if ((n = receive(fd, frame)) <= 1) continue;
    for (int i = 0; work && i < SEGMENTS; i++, at = (at + PAYLOAD) % (USER_BYTES - PAYLOAD)) {
      const uint8_t *p = frame + (size_t)i * SEGMENT;
      if (work == 2) sum ^= harp_crc32c(0, p + 4, SEGMENT - 4);
      memcpy(user + at, p + HEADER, PAYLOAD);
    }
    if (++got % 2 == 0) send(fd, &got, sizeof got, 0);
  }
  if (sum == 1) puts(""); /* so that the checksum is not optimised away */
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: udp_floor echo|ping|sink|flood LOCAL PEER [BYTES | WORK [WINDOW]]\n");
    return 2;
  }
  int fd = open_socket(argv[2], argv[3]), number = argc > 4 ? atoi(argv[4]) : 0;
  uint8_t *frame = aligned_alloc(4096, 131072), *user = aligned_alloc(4096, USER_BYTES);
  memset(frame, 0, 131072);
  memset(user, 1, USER_BYTES);
  if (!strcmp(argv[1], "ping"))
    ping(fd, frame, number > 1 ? (size_t)number : 52);
  else if (!strcmp(argv[1], "echo"))
    echo(fd, frame);
  else if (!strcmp(argv[1], "flood"))
    flood(fd, frame, user, number, argc > 5 ? atol(argv[5]) : 10);
  else
    sink(fd, frame, user, number);
  return 0;
}
