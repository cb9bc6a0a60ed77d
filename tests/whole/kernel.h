/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a world's kernel share: files, names, connections, and what they call of each other. */
#ifndef HARP_TESTS_KERNEL_H
#define HARP_TESTS_KERNEL_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "whole/world.h"

enum {
  BACKLOG_MAX = 64,
  WATCHES_MAX = 128,
  UDP_LEVEL = 17,
  OPTION_SEGMENT = 103,
  OPTION_GRO = 104,
  OPTION_BIND_INDEX = 62,
};
#define LOST_NS     HARP_MS(200) /* until TCP sends again */
#define LOST_SYN_NS HARP_SEC(1)

enum kind { UDP, TCP, LISTENER, EPOLL, EVENT, PIPE_OUT, PIPE_IN, NULL_FILE, RANDOM, MEMORY, NETLINK, NAME };

struct name {
  uint32_t ip; /* with IPv6 the last four bytes of the address (put_address) */
  uint16_t port;
};

struct piece { /* a piece of a stream, or a datagram */
  struct piece *next;
  const uint8_t *data;
  uint32_t bytes;
  bool is_reference;
  struct name from;
};

struct queue {
  struct piece *first, **end;
  uint64_t bytes;
};

struct way { /* one direction of a TCP connection: what one end writes */
  struct queue arrived;
  uint64_t written, acked, read;
  harp_ns last_ns; /* when what was sent last arrives */
  bool is_ending, is_ended, is_room_wanted;
};

struct connection {
  struct way ways[2]; /* by the end that writes; end 0 connects */
  struct file *ends[2];
  struct name names[2];
  int error[2];
  bool is_over[2], is_up[2], is_closed[2];
  harp_ns heard_ns[2], timeout_ns[2];
};

struct watch {
  struct file *file;
  struct epoll_event event;
  uint64_t reported; /* `changes` of its file when it was told */
};

struct file {
  enum kind kind;
  int process, port_users;
  uint64_t changes;
  struct name name, peer;
  bool is_bound, reuses;
  int error;
  struct queue in;                         /* UDP, NETLINK, pipes */
  uint32_t room_bytes;                     /* UDP */
  bool merges, resets;                     /* UDP_GRO; SO_LINGER */
  harp_ns full_until;                      /* UDP: nothing is taken */
  struct connection *c;                    /* TCP */
  int end;                                 /* the end of it that this is */
  harp_ns timeout_ns;                      /* TCP_USER_TIMEOUT */
  struct connection *waiting[BACKLOG_MAX]; /* LISTENER */
  unsigned waiting_count, turn;
  struct watch *watches; /* EPOLL */
  uint64_t count;        /* EVENT */
  struct file *pipe;     /* PIPE_IN: where it comes out */
  int real;              /* MEMORY: the file descriptor of the machine's own kernel */
};

static inline void *new (size_t bytes) {
  void *p = calloc(1, bytes);
  if (!p) abort();
  return p;
}

static inline void put(struct queue *q, struct piece *p) {
  if (!q->first) q->end = &q->first;
  p->next = NULL;
  *q->end = p;
  q->end = &p->next;
  q->bytes += p->bytes;
}

static inline struct piece *take(struct queue *q) {
  struct piece *p = q->first;
  q->first = p->next;
  q->bytes -= p->bytes;
  return p;
}

static inline void touch(struct file *f) {
  if (!f) return;
  f->changes++;
  world.has_changed = true;
}

static inline void touch_later(void *word, uint64_t number) {
  (void)number;
  touch(word);
}

static inline struct file *file_of(int fd) {
  return fd >= 0 && fd < FILES_MAX ? self()->files[fd] : NULL;
}

static inline struct file *socket_of(int fd, enum kind kind) {
  struct file *f = file_of(fd);
  return f && f->kind == kind ? f : NULL;
}

static inline long add(struct file *f) {
  struct process *p = self();
  int fd = 3;
  while (fd < FILES_MAX && p->files[fd]) fd++;
  if (fd == FILES_MAX) return -EMFILE;
  p->files[fd] = f;
  return fd;
}

static inline struct file *file_new(enum kind kind) {
  struct file *f = new (sizeof *f);
  f->kind = kind;
  f->process = world.current->process;
  f->room_bytes = world.plan.buffer_bytes;
  return f;
}

static inline int host_of(uint32_t ip) {
  return (int)(ntohl(ip) & 0xff) - 1;
}

static inline unsigned eni_of(uint32_t ip) {
  return ntohl(ip) >> 8 & 0xff;
}

static inline bool is_host(uint32_t ip) {
  return ntohl(ip) >> 16 == 0x0a00 && host_of(ip) >= 0 && host_of(ip) < PROCESSES &&
         eni_of(ip) < world.plan.enis;
}

static inline struct name name_of(const struct sockaddr *a) {
  const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
  const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a;
  if (a->sa_family != AF_INET6) return (struct name){in->sin_addr.s_addr, ntohs(in->sin_port)};
  return (struct name){in6->sin6_addr.s6_addr32[3], ntohs(in6->sin6_port)};
}

static inline void put_name(struct name n, struct sockaddr *a, socklen_t *bytes) {
  struct sockaddr_storage full;
  socklen_t size = put_address(n.ip, n.port, &full);
  if (!a) return;
  memcpy(a, &full, HARP_MIN(size, *bytes));
  *bytes = size;
}

static inline bool is_same(struct name a, struct name b) {
  return a.ip == b.ip && a.port == b.port;
}

/* ---- the way between hosts (kernel.c) ---- */

const struct simnet_link *link_of(uint32_t from);
/* Returns when something of TCP arrives that leaves now. */
harp_ns arrival_ns(uint32_t from, harp_ns lost_ns);

/* ---- TCP (tcp.c) ---- */

long connect_tcp(struct file *f, struct name to);
void shut_tcp(struct file *f);
void close_tcp(struct file *f);
void reset_tcp(struct connection *c, unsigned end);
long write_piece(struct file *f, const uint8_t *data, size_t bytes, bool is_reference);
long write_tcp(struct file *f, const struct iovec *iov, size_t count);
long read_tcp(struct file *f, const struct iovec *iov, size_t count);
/* Returns the bytes that an end may write. */
uint32_t room_of(const struct connection *c, unsigned end);
/* Copies what came into the vector, and cuts it off the queue. */
long read_queue(struct queue *q, const struct iovec *iov, size_t count);

/* ---- UDP (udp.c) ---- */

long send_udp(struct file *f, const struct msghdr *m);
long receive_udp(struct file *f, struct msghdr *m);

/* ---- sockets (sockets.c) ---- */

/* Chooses a free port. */
void bind_any(struct file *f);

#endif
