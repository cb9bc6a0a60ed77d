/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a world's hosts: files, sockets and the network between them. See world.h.
 *
 * UDP goes through a simnet, whose paths are the interfaces that datagrams leave by. TCP keeps order: what is
 * lost comes later. Payload that was spliced stays a reference to the process's memory until it arrives. */
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "whole/world.h"

enum {
  ADDRESS_BYTES = 12, /* before the datagram: from, to, and their ports */
  GRO_MAX_BYTES = 65536,
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
  uint32_t ip;
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

static void *new (size_t bytes) {
  void *p = calloc(1, bytes);
  if (!p) abort();
  return p;
}

static void put(struct queue *q, struct piece *p) {
  if (!q->first) q->end = &q->first;
  p->next = NULL;
  *q->end = p;
  q->end = &p->next;
  q->bytes += p->bytes;
}

static struct piece *take(struct queue *q) {
  struct piece *p = q->first;
  q->first = p->next;
  q->bytes -= p->bytes;
  return p;
}

static void touch(struct file *f) {
  if (!f) return;
  f->changes++;
  world.has_changed = true;
}

static void touch_later(void *word, uint64_t number) {
  (void)number;
  touch(word);
}

static struct file *file_of(int fd) {
  return fd >= 0 && fd < FILES_MAX ? self()->files[fd] : NULL;
}

static struct file *socket_of(int fd, enum kind kind) {
  struct file *f = file_of(fd);
  return f && f->kind == kind ? f : NULL;
}

static long add(struct file *f) {
  struct process *p = self();
  int fd = 3;
  while (fd < FILES_MAX && p->files[fd]) fd++;
  if (fd == FILES_MAX) return -EMFILE;
  p->files[fd] = f;
  return fd;
}

static struct file *file_new(enum kind kind) {
  struct file *f = new (sizeof *f);
  f->kind = kind;
  f->process = world.current->process;
  f->room_bytes = world.plan.buffer_bytes;
  return f;
}

uint32_t address_of(int process, unsigned eni) {
  return htonl(0x0a000001u + (eni << 8) + (unsigned)process);
}

static int host_of(uint32_t ip) {
  return (int)(ntohl(ip) & 0xff) - 1;
}

static unsigned eni_of(uint32_t ip) {
  return ntohl(ip) >> 8 & 0xff;
}

static bool is_host(uint32_t ip) {
  return ntohl(ip) >> 16 == 0x0a00 && host_of(ip) >= 0 && host_of(ip) < PROCESSES &&
         eni_of(ip) < world.plan.enis;
}

static struct name name_of(const struct sockaddr *a) {
  const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
  return (struct name){in->sin_addr.s_addr, ntohs(in->sin_port)};
}

static void put_name(struct name n, struct sockaddr *a, socklen_t *bytes) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(n.port), .sin_addr = {n.ip}};
  if (!a) return;
  memcpy(a, &in, HARP_MIN(sizeof in, *bytes));
  *bytes = sizeof in;
}

static bool is_same(struct name a, struct name b) {
  return a.ip == b.ip && a.port == b.port;
}

/* ---- the way between hosts ---- */

static const struct simnet_link *link_of(uint32_t from) {
  return &world.net.links[host_of(from)][eni_of(from)];
}

/* Returns when something of TCP arrives that leaves now. */
static harp_ns arrival_ns(uint32_t from, harp_ns lost_ns) {
  const struct simnet_link *l = link_of(from);
  harp_ns at = world.now + l->delay_ns + rng_below(&world.rng, HARP_US(20));
  while (rng_chance(&world.rng, l->loss_ppm)) /* mostly what follows shows it at once */
    at += rng_below(&world.rng, 8) ? 3 * l->delay_ns : lost_ns;
  for (unsigned i = 0; i < l->blackhole_count; i++) {
    if (at < l->blackholes[i].from_ns || at >= l->blackholes[i].to_ns) continue;
    if (l->blackholes[i].to_ns == HARP_NEVER) return HARP_NEVER;
    at = l->blackholes[i].to_ns + rng_below(&world.rng, lost_ns);
  }
  return at;
}

void kernel_break(harp_ns ns) {
  harp_ns from = world.now;
  for (int host = 0; host < PROCESSES; host++)
    for (unsigned eni = 0; eni < world.plan.enis; eni++)
      simnet_blackhole(&world.net.links[host][eni], from, from + ns);
}

/* ---- TCP ---- */

static void end_by(struct connection *c, unsigned end, int error) {
  if (c->is_over[end]) return;
  c->is_over[end] = true;
  c->error[end] = error;
  touch(c->ends[end]);
}

static void on_reset(void *word, uint64_t end) {
  struct connection *c = word;
  end_by(c, (unsigned)end, c->is_up[end] ? ECONNRESET : ECONNREFUSED);
}

static void on_timeout(void *word, uint64_t end) {
  end_by(word, (unsigned)end, ETIMEDOUT);
}

/* Arrives in order behind all that the end sent before. */
static void send_tcp(struct connection *c, unsigned end, void (*call)(void *, uint64_t), void *word,
                     uint64_t number) {
  struct way *w = &c->ways[end];
  harp_ns lost_ns = c->is_up[end] ? LOST_NS : LOST_SYN_NS;
  harp_ns at = arrival_ns(c->names[end].ip, lost_ns);
  at = w->last_ns = HARP_MAX(at, w->last_ns);
  if (at != HARP_NEVER) at_time(at, call, word, number);
}

/* The same; the end gives up if that takes too long. */
static void send_timed(struct connection *c, unsigned end, void (*call)(void *, uint64_t), void *word,
                       uint64_t number) {
  harp_ns limit = c->timeout_ns[end] ? world.now + c->timeout_ns[end] : HARP_NEVER;
  send_tcp(c, end, call, word, number);
  if (c->ways[end].last_ns > limit) at_time(limit, on_timeout, c, end);
}

static void reset(struct connection *c, unsigned end) {
  c->is_over[end] = true;
  send_tcp(c, end, on_reset, c, 1 - end);
}

struct segment {
  struct connection *c;
  struct piece piece;
};

static void on_ack(void *word, uint64_t number) {
  struct connection *c = word;
  unsigned end = number & 1;
  c->heard_ns[end] = world.now;
  c->ways[end].acked = HARP_MAX(c->ways[end].acked, number >> 1);
}

static void on_room(void *word, uint64_t end) {
  struct connection *c = word;
  touch(c->ends[end]);
}

/* From an end of the connection to the other. */
static void on_data(void *word, uint64_t end) {
  struct segment *s = word;
  struct connection *c = s->c;
  struct way *w = &c->ways[end];
  if (c->is_closed[1 - end] && !c->is_over[1 - end]) reset(c, 1 - (unsigned)end);
  if (c->is_over[1 - end]) return;
  if (s->piece.is_reference) { /* read as late as may be */
    s->piece.data = memcpy(new (s->piece.bytes), s->piece.data, s->piece.bytes);
    s->piece.is_reference = false;
  }
  put(&w->arrived, &s->piece);
  c->heard_ns[1 - end] = world.now;
  send_tcp(c, 1 - (unsigned)end, on_ack, c, (w->read + w->arrived.bytes) << 1 | end);
  touch(c->ends[1 - end]);
}

static void on_fin(void *word, uint64_t end) {
  struct connection *c = word;
  c->ways[end].is_ended = true;
  touch(c->ends[1 - end]);
}

static uint32_t room_of(const struct connection *c, unsigned end) {
  const struct way *w = &c->ways[end];
  uint64_t waiting = w->written - w->read;
  return waiting >= world.plan.room_bytes ? 0 : world.plan.room_bytes - (uint32_t)waiting;
}

static long write_piece(struct file *f, const uint8_t *data, size_t bytes, bool is_reference) {
  struct connection *c = f->c;
  if (!c || (!c->is_up[f->end] && !c->is_over[f->end])) return -ENOTCONN;
  struct way *w = &c->ways[f->end];
  if (c->is_over[f->end] || w->is_ending) {
    int error = c->error[f->end];
    c->error[f->end] = 0; /* told once, here or to who reads */
    return -(error ? error : EPIPE);
  }
  uint32_t room = room_of(c, (unsigned)f->end);
  if (room && rng_chance(&world.rng, 20000)) room = 1 + (uint32_t)rng_below(&world.rng, room);
  w->is_room_wanted |= bytes > room;
  if (!room) return -EAGAIN;
  struct segment *s = new (sizeof *s);
  s->c = c;
  s->piece.bytes = (uint32_t)HARP_MIN(bytes, (size_t)room);
  s->piece.is_reference = is_reference;
  s->piece.data = is_reference ? data : memcpy(new (s->piece.bytes), data, s->piece.bytes);
  w->written += s->piece.bytes;
  if (bytes > room && room_of(c, (unsigned)f->end)) { /* only a part was taken: there is room soon */
    w->is_room_wanted = false;
    at_time(world.now + HARP_US(10), on_room, c, (unsigned)f->end);
  }
  send_timed(c, (unsigned)f->end, on_data, s, (unsigned)f->end);
  return s->piece.bytes;
}

static long write_tcp(struct file *f, const struct iovec *iov, size_t count) {
  long sent = 0;
  for (size_t i = 0; i < count; i++) {
    if (!iov[i].iov_len) continue;
    long n = write_piece(f, iov[i].iov_base, iov[i].iov_len, false);
    if (n < 0) return sent ? sent : n;
    sent += n;
    if ((size_t)n < iov[i].iov_len) break;
  }
  return sent;
}

/* Copies what came into the vector, and cuts it off the queue. */
static long read_queue(struct queue *q, const struct iovec *iov, size_t count) {
  long got = 0;
  for (size_t i = 0; i < count; i++) {
    uint8_t *to = iov[i].iov_base;
    for (size_t left = iov[i].iov_len; left && q->first;) {
      struct piece *p = q->first;
      uint32_t n = (uint32_t)HARP_MIN(left, (size_t)p->bytes);
      memcpy(to, p->data, n);
      to += n, left -= n, got += n;
      p->data += n, p->bytes -= n, q->bytes -= n;
      if (!p->bytes) take(q);
    }
  }
  return got;
}

static long read_tcp(struct file *f, const struct iovec *iov, size_t count) {
  struct connection *c = f->c;
  if (!c) return -ENOTCONN;
  struct way *w = &c->ways[1 - f->end];
  if (c->is_over[f->end] && !w->arrived.bytes) { /* what came before a reset is read first */
    int error = c->error[f->end];
    c->error[f->end] = 0; /* told once */
    return -error;
  }
  long n = read_queue(&w->arrived, iov, count);
  w->read += (uint64_t)n;
  if (n && w->is_room_wanted) {
    w->is_room_wanted = false;
    send_tcp(c, (unsigned)f->end, on_room, c, 1 - (unsigned)f->end);
  }
  return n || w->is_ended ? n : -EAGAIN;
}

static struct file *find_listener(struct name at) {
  struct process *p = &world.processes[host_of(at.ip)];
  for (int fd = 0; fd < FILES_MAX && !p->is_dead; fd++) {
    struct file *f = p->files[fd];
    if (f && f->kind == LISTENER && f->name.port == at.port && (f->name.ip == at.ip || !f->name.ip)) return f;
  }
  return NULL;
}

static void on_welcome(void *word, uint64_t end) {
  struct connection *c = word;
  c->is_up[end] = !c->is_over[end];
  c->heard_ns[end] = world.now;
  if (c->ends[end]) touch(c->ends[end]);
}

static void on_hello(void *word, uint64_t number) {
  struct connection *c = word;
  struct file *l = find_listener(c->names[1]);
  (void)number;
  if (!l || l->waiting_count == BACKLOG_MAX || c->is_over[0]) {
    c->is_over[1] = true;
    send_tcp(c, 1, on_reset, c, 0);
    return;
  }
  c->is_up[1] = true;
  c->heard_ns[1] = world.now;
  l->waiting[l->waiting_count++] = c;
  touch(l);
  send_tcp(c, 1, on_welcome, c, 0);
}

static void bind_any(struct file *f);

static long connect_tcp(struct file *f, struct name to) {
  if (f->c) return -EISCONN;
  if (!is_host(to.ip)) return -ENETUNREACH;
  if (!f->name.ip) f->name.ip = address_of(f->process, eni_of(to.ip));
  if (!f->name.port) bind_any(f);
  struct connection *c = new (sizeof *c);
  c->names[0] = f->name;
  c->names[1] = to;
  c->ends[0] = f;
  c->timeout_ns[0] = f->timeout_ns;
  f->c = c;
  send_timed(c, 0, on_hello, c, 0);
  return -EINPROGRESS;
}

static void shut_tcp(struct file *f) {
  struct connection *c = f->c;
  if (!c || c->is_over[f->end] || c->ways[f->end].is_ending) return;
  c->ways[f->end].is_ending = true;
  if (c->is_up[f->end]) send_timed(c, (unsigned)f->end, on_fin, c, (unsigned)f->end);
}

static void close_tcp(struct file *f) {
  struct connection *c = f->c;
  if (!c) return;
  bool is_cut = f->resets || c->ways[1 - f->end].arrived.bytes || !c->is_up[f->end];
  if (is_cut && !c->is_over[f->end])
    reset(c, (unsigned)f->end);
  else
    shut_tcp(f);
  c->ends[f->end] = NULL;
  c->is_closed[f->end] = true;
}

long kernel_accept(int fd, struct sockaddr *from, socklen_t *bytes) {
  struct file *l = socket_of(fd, LISTENER);
  if (!l) return -EBADF;
  if (!l->waiting_count) return -EAGAIN;
  struct file *f = file_new(TCP);
  long got = add(f);
  if (got < 0) return got;
  f->c = l->waiting[0];
  memmove(l->waiting, l->waiting + 1, --l->waiting_count * sizeof *l->waiting);
  f->end = 1;
  f->c->ends[1] = f;
  f->name = f->c->names[1];
  put_name(f->c->names[0], from, bytes);
  return got;
}

/* ---- UDP ---- */

static struct file *find_udp(struct name to, struct name from) {
  struct process *p = &world.processes[host_of(to.ip)];
  struct file *found = NULL;
  for (int fd = 0; fd < FILES_MAX && !p->is_dead; fd++) {
    struct file *f = p->files[fd];
    if (!f || f->kind != UDP || !is_same(f->name, to)) continue;
    if (f->peer.port && is_same(f->peer, from)) return f;
    if (!f->peer.port) found = f;
  }
  return found;
}

static void on_unreachable(void *word, uint64_t number) {
  struct file *f = word;
  (void)number;
  f->error = ECONNREFUSED;
  touch(f);
}

void kernel_deliver(void) {
  struct simnet_datagram d;
  simnet_take(&world.net, &d);
  struct name from, to;
  struct piece *p = new (sizeof *p);
  if (d.bytes <= ADDRESS_BYTES) return;
  memcpy(&from.ip, d.wire, 4);
  memcpy(&to.ip, d.wire + 4, 4);
  memcpy(&from.port, d.wire + 8, 2);
  memcpy(&to.port, d.wire + 10, 2);
  *p = (struct piece){.data = d.wire + ADDRESS_BYTES, .bytes = d.bytes - ADDRESS_BYTES, .from = from};
  struct file *f = is_host(to.ip) ? find_udp(to, from) : NULL;
  struct file *sender = !f && is_host(from.ip) && is_host(to.ip) ? find_udp(from, to) : NULL;
  if (sender && sender->peer.port) at_time(world.now + HARP_US(30), on_unreachable, sender, 0);
  if (!f || f->in.bytes + p->bytes > f->room_bytes) return;
  put(&f->in, p);
  touch(f);
}

static long send_udp(struct file *f, const struct msghdr *m) {
  static uint8_t all[GRO_MAX_BYTES + 1], wire[SIMNET_DATAGRAM_MAX_BYTES];
  struct name to = m->msg_name ? name_of(m->msg_name) : f->peer;
  size_t bytes = 0;
  uint32_t each = UINT32_MAX;
  if (f->error && f->peer.port) {
    int error = f->error;
    f->error = 0;
    return -error;
  }
  if (!is_host(to.ip)) return -ENETUNREACH;
  if (world.now < f->full_until) return -EAGAIN;
  if (rng_chance(&world.rng, 2000)) {
    f->full_until = world.now + rng_below(&world.rng, HARP_US(300));
    at_time(f->full_until, touch_later, f, 0);
    return -EAGAIN;
  }
  for (size_t i = 0; i < m->msg_iovlen; i++) {
    if (bytes + m->msg_iov[i].iov_len > GRO_MAX_BYTES) return -EMSGSIZE;
    memcpy(all + bytes, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
    bytes += m->msg_iov[i].iov_len;
  }
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)m, c)) {
    uint16_t segment;
    if (c->cmsg_level != UDP_LEVEL || c->cmsg_type != OPTION_SEGMENT) continue;
    memcpy(&segment, CMSG_DATA(c), sizeof segment);
    each = segment;
  }
  if (HARP_MIN(bytes, (size_t)each) + 28 > world.plan.mtu) return -EMSGSIZE;
  for (size_t at = 0; at < bytes;) {
    uint32_t n = (uint32_t)HARP_MIN(bytes - at, (size_t)each);
    memcpy(wire, &f->name.ip, 4);
    memcpy(wire + 4, &to.ip, 4);
    memcpy(wire + 8, &f->name.port, 2);
    memcpy(wire + 10, &to.port, 2);
    memcpy(wire + ADDRESS_BYTES, all + at, n);
    simnet_send(&world.net, (enum simnet_way)f->process, eni_of(f->name.ip), wire, n + ADDRESS_BYTES, false,
                world.now);
    at += n;
  }
  return (long)bytes;
}

static long receive_udp(struct file *f, struct msghdr *m) {
  uint8_t *to = m->msg_iov->iov_base;
  if (f->error && f->peer.port) {
    int error = f->error;
    f->error = 0;
    return -error;
  }
  if (!f->in.first) return -EAGAIN;
  struct piece *p = take(&f->in);
  uint32_t each = p->bytes, bytes = (uint32_t)HARP_MIN((size_t)each, m->msg_iov->iov_len);
  struct name from = p->from;
  m->msg_flags = each > bytes ? MSG_TRUNC : 0;
  memcpy(to, p->data, bytes);
  for (; f->merges && (p = f->in.first) && is_same(p->from, from); bytes += p->bytes) {
    if (bytes % each || p->bytes > each || bytes + p->bytes > HARP_MIN(m->msg_iov->iov_len, (size_t)65000))
      break;
    if (rng_chance(&world.rng, 50000)) break;
    memcpy(to + bytes, p->data, p->bytes);
    take(&f->in);
  }
  size_t controls = 0;
  if (bytes > each && m->msg_controllen >= CMSG_SPACE(sizeof(int))) {
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    int value = (int)each;
    *c = (struct cmsghdr){
        .cmsg_level = UDP_LEVEL, .cmsg_type = OPTION_GRO, .cmsg_len = CMSG_LEN(sizeof value)};
    memcpy(CMSG_DATA(c), &value, sizeof value);
    controls = CMSG_SPACE(sizeof value);
  }
  m->msg_controllen = controls;
  return bytes;
}

/* ---- sockets ---- */

long kernel_socket(int family, int type, int protocol) {
  (void)protocol;
  if (family != AF_INET && family != AF_NETLINK && family != AF_UNIX) return -EAFNOSUPPORT;
  bool is_stream = (type & 0xf) == SOCK_STREAM;
  return add(file_new(family == AF_NETLINK ? NETLINK : family == AF_UNIX ? NAME : is_stream ? TCP : UDP));
}

static bool is_taken(const struct file *f, struct name n) {
  const struct process *p = &world.processes[f->process];
  for (int fd = 0; fd < FILES_MAX; fd++) {
    const struct file *g = p->files[fd];
    bool is_udp = g && g->kind == UDP;
    if (!g || g == f || !g->is_bound || g->name.port != n.port || is_udp != (f->kind == UDP)) continue;
    if (g->name.ip && n.ip && g->name.ip != n.ip) continue;
    if (!(g->reuses && f->reuses) && !(g->kind == TCP && g->c)) return true;
  }
  return false;
}

static void bind_any(struct file *f) {
  struct name n = {f->name.ip, 0};
  do n.port = (uint16_t)rng_between(&world.rng, 32768, 60999);
  while (is_taken(f, n));
  f->name.port = n.port;
}

long kernel_bind(int fd, const struct sockaddr *a) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == NAME) return 0;
  struct name n = name_of(a);
  if (n.ip && (!is_host(n.ip) || host_of(n.ip) != f->process)) return -EADDRNOTAVAIL;
  if (n.port && is_taken(f, n)) return -EADDRINUSE;
  f->name = n;
  f->is_bound = true;
  if (!n.port) bind_any(f);
  return 0;
}

long kernel_listen(int fd) {
  struct file *f = socket_of(fd, TCP);
  if (!f) return -EBADF;
  f->kind = LISTENER;
  return 0;
}

long kernel_connect(int fd, const struct sockaddr *a) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == TCP) return connect_tcp(f, name_of(a));
  if (f->kind != UDP) return -EINVAL;
  f->peer = name_of(a);
  return 0;
}

long kernel_name(int fd, struct sockaddr *a, socklen_t *bytes) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  put_name(f->name, a, bytes);
  return 0;
}

long kernel_shutdown(int fd, int how) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == TCP && how != SHUT_RD) shut_tcp(f);
  return 0;
}

void kernel_reset(int fd, int error) {
  struct file *f = socket_of(fd, TCP);
  if (!f || !f->c || f->c->is_over[f->end]) return;
  reset(f->c, (unsigned)f->end);
  f->c->error[f->end] = error;
  touch(f);
}

long kernel_set(int fd, int level, int option, const void *value, socklen_t bytes) {
  struct file *f = file_of(fd);
  int number = 0;
  if (!f) return -EBADF;
  memcpy(&number, value, HARP_MIN(bytes, (socklen_t)sizeof number));
  if (level == SOL_SOCKET && (option == SO_RCVBUFFORCE || option == SO_SNDBUFFORCE)) return -EPERM;
  if (level == SOL_SOCKET && option == SO_RCVBUF)
    f->room_bytes = HARP_MIN((uint32_t)number, world.plan.buffer_bytes);
  if (level == SOL_SOCKET && option == SO_LINGER) f->resets = true;
  if (level == SOL_SOCKET && option == SO_REUSEADDR) f->reuses = number != 0;
  if (level == UDP_LEVEL && option == OPTION_GRO) f->merges = number != 0;
  if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT) {
    f->timeout_ns = HARP_MS((harp_ns)number);
    if (f->c) f->c->timeout_ns[f->end] = f->timeout_ns;
  }
  return 0;
}

/* Keepalives are answered by the host, while something passes. */
static uint32_t silent_ms(const struct connection *c, int end) {
  const struct simnet_link *l = link_of(c->names[1 - end].ip);
  harp_ns heard = c->heard_ns[end];
  bool is_broken = false;
  for (unsigned i = 0; i < l->blackhole_count; i++)
    is_broken |= l->blackholes[i].from_ns <= world.now && world.now < l->blackholes[i].to_ns;
  return (uint32_t)((world.now - heard) / HARP_MS(1) % (is_broken ? UINT32_MAX : 500));
}

long kernel_get(int fd, int level, int option, void *value, socklen_t *bytes) {
  struct file *f = file_of(fd);
  int number = 0;
  if (!f) return -EBADF;
  if (level == IPPROTO_TCP && option == TCP_INFO) {
    struct tcp_info info = {.tcpi_state = TCP_CLOSE, .tcpi_rtt = 100, .tcpi_snd_mss = 1448};
    if (f->c && f->c->is_up[f->end] && !f->c->is_over[f->end]) {
      info.tcpi_state = f->c->ways[1 - f->end].is_ended ? TCP_CLOSE_WAIT : TCP_ESTABLISHED;
      info.tcpi_last_ack_recv = info.tcpi_last_data_recv = silent_ms(f->c, f->end);
    }
    *bytes = HARP_MIN(*bytes, (socklen_t)sizeof info);
    memcpy(value, &info, *bytes);
    return 0;
  }
  if (level == SOL_SOCKET && option == SO_RCVBUF) number = (int)HARP_MAX(2 * f->room_bytes, 2304u);
  if (level == SOL_SOCKET && option == SO_TYPE) number = f->kind == UDP ? SOCK_DGRAM : SOCK_STREAM;
  if (level == SOL_SOCKET && option == OPTION_BIND_INDEX) number = 2;
  if (level == SOL_SOCKET && option == SO_ERROR && f->c) {
    number = f->c->error[f->end];
    f->c->error[f->end] = 0;
  }
  *bytes = HARP_MIN(*bytes, (socklen_t)sizeof number);
  memcpy(value, &number, *bytes);
  return 0;
}

long kernel_ioctl(int fd, unsigned long request, void *word) {
  struct file *f = file_of(fd);
  struct ifreq *interface = word;
  if (!f) return -EBADF;
  if (request == SIOCGIFMTU) return interface->ifr_mtu = (int)world.plan.mtu, 0;
  if (f->kind != TCP || !f->c) return -EOPNOTSUPP;
  const struct way *w = &f->c->ways[f->end];
  if (request == SIOCOUTQ) return *(int *)word = (int)(w->written - w->acked), 0;
  if (request == SIOCOUTQNSD) return *(int *)word = 0, 0;
  return -EOPNOTSUPP;
}

/* The kernel's answer about routes and interfaces: all hosts are on the link of the interface asked about. */
static long ask_kernel(struct file *f, const struct nlmsghdr *request) {
  struct {
    struct nlmsghdr head;
    union {
      struct rtmsg route;
      struct ifinfomsg link;
    };
    struct rtattr attribute;
    uint32_t index;
  } *answer = new (sizeof *answer);
  bool is_route = request->nlmsg_type == RTM_GETROUTE;
  uint32_t from = address_of(f->process, 0);
  const uint8_t *body = NLMSG_DATA((struct nlmsghdr *)(uintptr_t)request);
  const struct rtattr *a = (const void *)(body + NLMSG_ALIGN(sizeof(struct rtmsg)));
  int left = (int)request->nlmsg_len - (int)NLMSG_SPACE(sizeof(struct rtmsg));
  for (; is_route && RTA_OK(a, left); a = RTA_NEXT(a, left))
    if (a->rta_type == RTA_SRC) memcpy(&from, RTA_DATA(a), sizeof from);
  answer->head.nlmsg_type = is_route ? RTM_NEWROUTE : RTM_NEWLINK;
  answer->head.nlmsg_len = NLMSG_LENGTH(is_route ? sizeof(struct rtmsg) : sizeof(struct ifinfomsg));
  if (is_route) {
    answer->route.rtm_type = RTN_UNICAST;
    uint8_t *end = (uint8_t *)answer + NLMSG_ALIGN(answer->head.nlmsg_len);
    struct rtattr out = {.rta_type = RTA_OIF, .rta_len = RTA_LENGTH(4)};
    uint32_t index = 2 + eni_of(from);
    memcpy(end, &out, sizeof out);
    memcpy(end + RTA_LENGTH(0), &index, sizeof index);
    answer->head.nlmsg_len = NLMSG_ALIGN(answer->head.nlmsg_len) + RTA_SPACE(4);
  } else {
    answer->link.ifi_index = 2;
  }
  struct piece *p = new (sizeof *p);
  *p = (struct piece){.data = (uint8_t *)answer, .bytes = answer->head.nlmsg_len};
  put(&f->in, p);
  return (long)request->nlmsg_len;
}

long kernel_send(int fd, const struct msghdr *m) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == UDP) return send_udp(f, m);
  if (f->kind == TCP) return write_tcp(f, m->msg_iov, m->msg_iovlen);
  return f->kind == NETLINK ? ask_kernel(f, m->msg_iov->iov_base) : -ENOTSOCK;
}

long kernel_receive(int fd, struct msghdr *m) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == UDP) return receive_udp(f, m);
  if (f->kind == TCP) return read_tcp(f, m->msg_iov, m->msg_iovlen);
  return f->kind == NETLINK && f->in.first ? read_queue(&f->in, m->msg_iov, 1) : -EAGAIN;
}

/* ---- other files ---- */

long kernel_event(void) {
  return add(file_new(EVENT));
}

long kernel_epoll(void) {
  struct file *f = file_new(EPOLL);
  f->watches = new (WATCHES_MAX * sizeof *f->watches);
  return add(f);
}

long kernel_pipe(int ends[2]) {
  struct file *out = file_new(PIPE_OUT), *in = file_new(PIPE_IN);
  in->pipe = out;
  long a = add(out), b = a < 0 ? a : add(in);
  if (b < 0) return b;
  ends[0] = (int)a;
  ends[1] = (int)b;
  return 0;
}

long kernel_open(const char *path) {
  if (strcmp(path, "/dev/null") == 0) return add(file_new(NULL_FILE));
  if (strcmp(path, "/dev/urandom") == 0) return add(file_new(RANDOM));
  return -ENOENT;
}

long kernel_memory(int real) {
  struct file *f = file_new(MEMORY);
  f->real = real;
  return add(f);
}

int kernel_real(int fd) {
  const struct file *f = socket_of(fd, MEMORY);
  return f ? f->real : -1;
}

long kernel_close(struct process *p, int fd) {
  struct file *f = fd >= 0 && fd < FILES_MAX ? p->files[fd] : NULL;
  if (!f) return -EBADF;
  p->files[fd] = NULL;
  for (int i = 0; i < FILES_MAX; i++) {
    struct file *set = p->files[i];
    for (unsigned k = 0; set && set->kind == EPOLL && k < WATCHES_MAX; k++)
      if (set->watches[k].file == f) set->watches[k].file = NULL;
  }
  if (f->kind == TCP) close_tcp(f);
  for (unsigned i = 0; i < f->waiting_count; i++) reset(f->waiting[i], 1);
  f->waiting_count = 0;
  return f->kind == MEMORY ? f->real : 0;
}

long kernel_read(int fd, void *to, size_t bytes) {
  struct file *f = file_of(fd);
  if (!f) return -EBADF;
  if (f->kind == TCP) return read_tcp(f, &(struct iovec){to, bytes}, 1);
  if (f->kind == RANDOM) {
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = (uint8_t)rng_next(&world.rng);
    return (long)bytes;
  }
  if (f->kind != EVENT) return -EINVAL;
  if (!f->count) return -EAGAIN;
  memcpy(to, &f->count, sizeof f->count);
  f->count = 0;
  return sizeof f->count;
}

long kernel_write(int fd, const void *from, size_t bytes) {
  struct file *f = file_of(fd);
  uint64_t count;
  if (!f) return -EBADF;
  if (f->kind != EVENT) return f->kind == NULL_FILE ? (long)bytes : -EINVAL;
  memcpy(&count, from, sizeof count);
  f->count += count;
  touch(f);
  return sizeof count;
}

long kernel_vmsplice(int fd, const struct iovec *iov) {
  struct file *f = socket_of(fd, PIPE_IN);
  if (!f) return -EBADF;
  struct piece *p = new (sizeof *p);
  uint32_t most = rng_chance(&world.rng, 50000) ? 1 + (uint32_t)rng_below(&world.rng, 65536) : UINT32_MAX;
  *p = (struct piece){.data = iov->iov_base, .bytes = (uint32_t)HARP_MIN(iov->iov_len, (size_t)most)};
  put(&f->pipe->in, p);
  return p->bytes;
}

long kernel_splice(int from, int to, size_t bytes) {
  struct file *f = socket_of(from, PIPE_OUT), *g = file_of(to);
  if (!f || !g) return -EBADF;
  struct piece *p = f->in.first;
  if (!p) return -EAGAIN;
  uint32_t most = (uint32_t)HARP_MIN(bytes, (size_t)p->bytes);
  long n = g->kind == NULL_FILE ? (long)most : g->kind == TCP ? write_piece(g, p->data, most, true) : -EINVAL;
  if (n <= 0) return n;
  p->data += n, p->bytes -= (uint32_t)n, f->in.bytes -= (uint32_t)n;
  if (!p->bytes) take(&f->in);
  return n;
}

/* ---- waiting ---- */

static uint32_t events_of(const struct file *f);

static bool is_due(const struct watch *w) {
  if (!w->file || !(events_of(w->file) & (w->event.events | EPOLLERR | EPOLLHUP))) return false;
  return !(w->event.events & EPOLLET) || w->reported != w->file->changes;
}

static uint32_t events_of_tcp(const struct file *f) {
  const struct connection *c = f->c;
  if (!c) return EPOLLOUT | EPOLLHUP;
  const struct way *in = &c->ways[1 - f->end], *out = &c->ways[f->end];
  if (c->is_over[f->end]) return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP;
  if (!c->is_up[f->end]) return 0;
  return (in->arrived.bytes || in->is_ended ? EPOLLIN : 0u) | (in->is_ended ? EPOLLRDHUP : 0u) |
         (room_of(c, (unsigned)f->end) ? EPOLLOUT : 0u) | (in->is_ended && out->is_ending ? EPOLLHUP : 0u);
}

static uint32_t events_of(const struct file *f) {
  switch (f->kind) {
  case UDP:
    return (f->in.first || f->error ? EPOLLIN : 0u) | (f->error ? EPOLLERR : 0u) |
           (world.now >= f->full_until ? EPOLLOUT : 0u);
  case TCP:
    return events_of_tcp(f);
  case LISTENER:
    return f->waiting_count ? EPOLLIN : 0;
  case EVENT:
    return (f->count ? EPOLLIN : 0u) | EPOLLOUT;
  case EPOLL:
    for (unsigned i = 0; i < WATCHES_MAX; i++)
      if (is_due(&f->watches[i])) return EPOLLIN;
    return 0;
  default:
    return EPOLLIN | EPOLLOUT;
  }
}

short kernel_poll(const struct process *p, int fd, short events) {
  const struct file *f = fd < FILES_MAX ? p->files[fd] : NULL;
  return f ? (short)(events_of(f) & ((uint32_t)events | EPOLLERR | EPOLLHUP)) : POLLNVAL;
}

static struct watch *find_watch(struct file *set, const struct file *f) {
  for (unsigned i = 0; i < WATCHES_MAX; i++)
    if (set->watches[i].file == f) return &set->watches[i];
  return NULL;
}

long kernel_epoll_ctl(int fd, int operation, int of, const struct epoll_event *e) {
  struct file *set = socket_of(fd, EPOLL), *f = file_of(of);
  if (!set || !f) return -EBADF;
  struct watch *w = find_watch(set, f);
  if (operation == EPOLL_CTL_ADD && w) return -EEXIST;
  if (operation != EPOLL_CTL_ADD && !w) return -ENOENT;
  if (!w) w = find_watch(set, NULL);
  if (!w) return -ENOSPC;
  w->file = operation == EPOLL_CTL_DEL ? NULL : f;
  if (operation == EPOLL_CTL_DEL) return 0;
  w->event = *e;
  w->reported = UINT64_MAX;
  touch(set);
  return 0;
}

long kernel_epoll_wait(int fd, struct epoll_event *out, int most) {
  struct file *set = socket_of(fd, EPOLL);
  int n = 0;
  if (!set) return -EBADF;
  unsigned first = set->turn; /* others come first the next time */
  for (unsigned i = 0; i < WATCHES_MAX && n < most; i++) {
    struct watch *w = &set->watches[(first + i) % WATCHES_MAX];
    if (!is_due(w)) continue;
    w->reported = w->file->changes;
    out[n++] = (struct epoll_event){.events = events_of(w->file) & (w->event.events | EPOLLERR | EPOLLHUP),
                                    .data = w->event.data};
    set->turn = (first + i + 1) % WATCHES_MAX;
  }
  return n;
}

unsigned kernel_count_files(const struct process *p) {
  unsigned count = 0;
  for (int fd = 0; fd < FILES_MAX; fd++) count += p->files[fd] != NULL;
  return count;
}
