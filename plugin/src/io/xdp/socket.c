/* SPDX-License-Identifier: Apache-2.0 */
/* See socket.h. */
#include "io/xdp/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/files.h"
#include "base/shortage.h"

enum { SEND_BUFFER_BYTES = 16 << 20, TX_BUDGET = 1024 };

static int set_error(struct harp_error *error, const char *what) {
  int err = errno;
  char text[HARP_SHORTAGE_TEXT_BYTES];
  return harp_error_set(error, -err, "%s: %s%s", what,
                        harp_shortage_text(err == ENOBUFS ? HARP_ELOCKED : err, text),
                        err == EPERM ? "; it needs CAP_NET_RAW" : "");
}

static int set_option(int fd, int option, const void *value, socklen_t bytes) {
  return setsockopt(fd, HARP_SOL_XDP, option, value, bytes);
}

static int register_umem(int fd, const struct harp_xdp_socket_config *c) {
  struct harp_xdp_umem_reg reg = {
      .address = (uint64_t)(uintptr_t)c->umem,
      .bytes = harp_xdp_queue_umem_bytes(c->rx_frames, c->tx_runs),
      .chunk_bytes = HARP_XDP_FRAME_BYTES,
      .headroom = c->headroom,
  };
  return set_option(fd, HARP_XDP_SO_UMEM_REG, &reg, sizeof reg);
}

static int size_rings(int fd) {
  static const int options[] = {HARP_XDP_SO_FILL_RING, HARP_XDP_SO_COMPLETION_RING, HARP_XDP_SO_RX_RING,
                                HARP_XDP_SO_TX_RING};
  uint32_t entries = HARP_XDP_RING_ENTRIES;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(options); i++)
    if (set_option(fd, options[i], &entries, sizeof entries)) return -1;
  return 0;
}

static int map_ring(struct harp_xdp_socket *s, unsigned slot, struct harp_xdp_ring *ring,
                    const struct harp_xdp_ring_offset *at, uint64_t page_offset, size_t entry_bytes) {
  size_t bytes = at->descriptors + HARP_XDP_RING_ENTRIES * entry_bytes;
  uint8_t *map =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->queue.fd, (off_t)page_offset);
  if (map == MAP_FAILED) return -1;
  (void)madvise(map, bytes, MADV_DONTFORK); /* a mapping keeps the socket open, as a file descriptor does */
  s->maps[slot].at = map;
  s->maps[slot].bytes = bytes;
  *ring = (struct harp_xdp_ring){
      .producer = (uint32_t *)(void *)(map + at->producer),
      .consumer = (uint32_t *)(void *)(map + at->consumer),
      .flags = (const uint32_t *)(const void *)(map + at->flags),
      .descriptors = map + at->descriptors,
      .size = HARP_XDP_RING_ENTRIES,
  };
  return 0;
}

static int map_rings(struct harp_xdp_socket *s) {
  struct harp_xdp_offsets at;
  socklen_t bytes = sizeof at;
  if (getsockopt(s->queue.fd, HARP_SOL_XDP, HARP_XDP_SO_MMAP_OFFSETS, &at, &bytes)) return -1;
  if (bytes != sizeof at) return errno = ENOTSUP, -1; /* before Linux 5.4: no wakeup flags */
  struct harp_xdp_queue *q = &s->queue;
  if (map_ring(s, 0, &q->rx, &at.rx, HARP_XDP_PGOFF_RX, sizeof(struct harp_xdp_descriptor)) ||
      map_ring(s, 1, &q->tx, &at.tx, HARP_XDP_PGOFF_TX, sizeof(struct harp_xdp_descriptor)) ||
      map_ring(s, 2, &q->fill, &at.fill, HARP_XDP_PGOFF_FILL, sizeof(uint64_t)) ||
      map_ring(s, 3, &q->completion, &at.completion, HARP_XDP_PGOFF_COMPLETION, sizeof(uint64_t)))
    return -1;
  return 0;
}

static int bind_queue(int fd, const struct harp_xdp_socket_config *c) {
  struct harp_xdp_address address = {
      .family = HARP_AF_XDP,
      .flags = (uint16_t)((c->zero_copy ? HARP_XDP_BIND_ZEROCOPY : HARP_XDP_BIND_COPY) |
                          HARP_XDP_BIND_NEED_WAKEUP | (c->sg ? HARP_XDP_BIND_SG : 0)),
      .ifindex = c->ifindex,
      .queue = c->queue,
  };
  return bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address);
}

/* Lets one flush send more than the 92 packets of the default send buffer. Failure only costs speed. */
static void raise_send_limits(int fd) {
  int bytes = SEND_BUFFER_BYTES, budget = TX_BUDGET;
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  (void)set_option(fd, HARP_XDP_SO_TX_SKB_BUDGET, &budget, sizeof budget);
}

static int open_steps(struct harp_xdp_socket *s, const struct harp_xdp_socket_config *c,
                      struct harp_error *error) {
  int fd = s->queue.fd = socket(HARP_AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) return set_error(error, "opening an AF_XDP socket");
  harp_files_own(fd);
  if (register_umem(fd, c)) return set_error(error, "registering the frames");
  if (size_rings(fd)) return set_error(error, "creating the rings");
  if (map_rings(s)) return set_error(error, "mapping the rings");
  if (bind_queue(fd, c)) {
    char what[64];
    snprintf(what, sizeof what, "binding queue %u %s%s", c->queue,
             c->zero_copy ? "zero-copy" : "in copy mode", c->sg ? " with several buffers" : "");
    return set_error(error, what);
  }
  uint32_t options = 0;
  socklen_t bytes = sizeof options;
  if (!getsockopt(fd, HARP_SOL_XDP, HARP_XDP_SO_OPTIONS, &options, &bytes))
    s->zero_copy = options & HARP_XDP_OPTION_ZEROCOPY;
  raise_send_limits(fd);
  return 0;
}

int harp_xdp_socket_open(struct harp_xdp_socket *s, const struct harp_xdp_socket_config *config,
                         struct harp_error *error) {
  memset(s, 0, sizeof *s);
  s->queue.fd = -1;
  s->queue.kernel = &harp_xdp_kernel_system;
  s->number = config->queue;
  int err = open_steps(s, config, error);
  if (!err && (err = harp_xdp_queue_init(&s->queue, config->umem, config->rx_frames, config->tx_runs)))
    harp_shortage_set(error, err, "allocating the frames' owners");
  if (err) harp_xdp_socket_close(s);
  return err;
}

void harp_xdp_socket_close(struct harp_xdp_socket *s) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(s->maps); i++)
    if (s->maps[i].at) munmap(s->maps[i].at, s->maps[i].bytes);
  if (s->queue.fd >= 0) harp_files_close(s->queue.fd);
  harp_xdp_queue_fini(&s->queue);
  memset(s, 0, sizeof *s);
  s->queue.fd = -1;
}
