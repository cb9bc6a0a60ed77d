/* SPDX-License-Identifier: Apache-2.0 */
/* What one bare kernel TCP connection can do here with the records of a tcp path: a head of 64 bytes, a
 * payload that stands in the user's buffer, and no protocol.
 *
 * Not part of the product and not run by the tests: it puts the figures of docs/reference/benchmarks.md into
 * proportion. Built from the repository's root; latency and throughput, in two namespaces:
 *
 *   cc -O2 -Iplugin/src -o tcp_floor tests/bench/tcp_floor.c \
 *      plugin/src/wire/crc32c*.c plugin/src/base/assert.c
 *
 *   ip netns exec B taskset -c 1 ./tcp_floor echo 10.0.0.2 BYTES CRC &
 *   ip netns exec A taskset -c 0 ./tcp_floor ping 10.0.0.2 BYTES CRC
 *
 *   ip netns exec B taskset -c 1 ./tcp_floor sink 10.0.0.2 BYTES CRC &
 *   ip netns exec A taskset -c 0 ./tcp_floor flood 10.0.0.2 BYTES CRC
 *
 *   ip netns exec B taskset -c 1 ./tcp_floor meet 10.0.0.2 BYTES CRC &    both ways at once, as a collective
 * does ip netns exec A taskset -c 0 ./tcp_floor both 10.0.0.2 BYTES CRC
 *
 * BYTES: of a message, one record each; eight buffers are used in turn. CRC: 1 takes the payload's CRC-32C
 * before it is sent and when it has come; 0 does without.
 *
 * A fifth argument, OFFSET from 0 to 4095, sends records of whole pages whose payload, which begins a page in
 * the user's memory, begins OFFSET bytes behind a page of the byte stream. The kernel's copy is one
 * instruction (rep movsb), whose speed depends on that. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "wire/crc32c.h"

enum { PORT = 9997, HEAD = 64, BUFFERS = 8, CRC_AT = 32, PAGE = 4096 };
static const double WARM_UP_S = 0.2, MEASURED_S = 1.0;

/* The record under way in one direction. */
struct record {
  unsigned count; /* the records before it */
  size_t done;    /* the bytes of it that were moved */
  uint8_t head[2 * PAGE];
};

struct connection {
  int fd;
  bool checks;
  size_t bytes;         /* the bytes of a payload */
  size_t before, after; /* the bytes in front of a record, and behind it */
  uint8_t *buffers;
  struct record sent, received;
};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int open_connection(const char *address, bool listens) {
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(address)};
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listens) {
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 1)) fail("listen");
    int accepted = accept(fd, NULL, NULL);
    close(fd);
    fd = accepted;
  } else if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
    fail("connect");
  }
  if (fd < 0) fail("accept");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/* Cuts what was moved already off the front of a part. */
static void skip(struct iovec *part, size_t *done) {
  size_t n = *done < part->iov_len ? *done : part->iov_len;
  part->iov_base = (uint8_t *)part->iov_base + n;
  part->iov_len -= n;
  *done -= n;
}

/* Moves some of the record under way, if the kernel takes or has some; false: the other side is done. */
static bool move_some(struct connection *c, struct record *r, bool sends) {
  static uint8_t rest[PAGE];
  uint8_t *payload = c->buffers + r->count % BUFFERS * c->bytes;
  struct iovec iov[3] = {{r->head, c->before}, {payload, c->bytes}, {rest, c->after}};
  struct msghdr m = {.msg_iov = iov, .msg_iovlen = c->after ? 3 : 2};
  size_t skipped = r->done;
  for (unsigned i = 0; i < m.msg_iovlen; i++) skip(&iov[i], &skipped);
  ssize_t n = sends ? sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(c->fd, &m, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
  if (n > 0) r->done += (size_t)n;
  return true;
}

/* Returns whether the record under way has moved as a whole; then the next one begins. */
static bool is_moved(const struct connection *c, struct record *r) {
  if (r->done < c->before + c->bytes + c->after) return false;
  r->done = 0;
  r->count++;
  return true;
}

static uint32_t crc_of(const struct connection *c, const struct record *r) {
  return c->checks ? harp_crc32c(0, c->buffers + r->count % BUFFERS * c->bytes, c->bytes) : 0;
}

/* Sends some of a message; the process ends when the other side is done. */
static void send_some(struct connection *c) {
  struct record *r = &c->sent;
  if (!r->done) {
    uint32_t crc = crc_of(c, r);
    memcpy(r->head + CRC_AT, &crc, sizeof crc);
  }
  if (!move_some(c, r, true)) exit(0);
}

static bool receive_some(struct connection *c) {
  struct record *r = &c->received;
  uint32_t crc;
  if (!move_some(c, r, false)) return false;
  memcpy(&crc, r->head + CRC_AT, sizeof crc);
  if (c->checks && r->done == c->before + c->bytes + c->after && crc != crc_of(c, r)) {
    fprintf(stderr, "tcp_floor: wrong bytes\n");
    exit(1);
  }
  return true;
}

static void send_message(struct connection *c) {
  do send_some(c);
  while (!is_moved(c, &c->sent));
}

static bool receive_message(struct connection *c) {
  do {
    if (!receive_some(c)) return false;
  } while (!is_moved(c, &c->received));
  return true;
}

/* Sends and receives in turns, some of a message each. */
static bool move_both(struct connection *c) {
  send_some(c);
  (void)is_moved(c, &c->sent);
  if (!receive_some(c)) return false;
  (void)is_moved(c, &c->received);
  return true;
}

static void measure(struct connection *c, bool pings, bool goes_both) {
  double start = seconds(), begin = start + WARM_UP_S, end = begin + MEASURED_S;
  unsigned before = 0;
  for (double now = start; now < end; now = seconds()) {
    if (now < begin) before = c->sent.count;
    if (goes_both && !move_both(c)) exit(1);
    if (!goes_both) send_message(c);
    if (pings && !receive_message(c)) exit(1);
  }
  double count = c->sent.count - before, us = 1e6 * (seconds() - begin) / count;
  if (pings)
    printf("half round trip of %zu bytes: %.2f us\n", c->bytes, us / 2);
  else
    printf("stream of %zu bytes: %.1f Gbit/s\n", c->bytes, 8e-3 * (double)c->bytes / us);
}

int main(int argc, char **argv) {
  size_t offset = argc == 6 ? strtoul(argv[5], NULL, 10) : 0;
  if (argc < 5 || argc > 6 || offset >= PAGE) {
    fprintf(stderr, "usage: tcp_floor echo|ping|sink|flood|meet|both ADDRESS BYTES CRC [OFFSET]\n");
    return 2;
  }
  bool meets = !strcmp(argv[1], "meet");
  bool listens = meets || !strcmp(argv[1], "echo") || !strcmp(argv[1], "sink");
  harp_crc32c_init(0);
  struct connection c = {.bytes = strtoul(argv[3], NULL, 10), .checks = argv[4][0] == '1', .before = HEAD};
  if (argc == 6) {
    c.before = PAGE + offset;
    c.after = -(c.before + c.bytes) % PAGE;
  }
  c.buffers = aligned_alloc(4096, (BUFFERS * c.bytes + 4095) & ~4095ul);
  if (!c.buffers) fail("memory");
  memset(c.buffers, 1, BUFFERS * c.bytes);
  c.fd = open_connection(argv[2], listens);
  if (!listens) measure(&c, !strcmp(argv[1], "ping"), !strcmp(argv[1], "both"));
  while (meets && move_both(&c))
    ;
  while (listens && receive_message(&c))
    if (!strcmp(argv[1], "echo")) send_message(&c);
  close(c.fd);
  return 0;
}
