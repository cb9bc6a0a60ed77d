/* SPDX-License-Identifier: Apache-2.0 */
/* TCP of a world's kernels: keeps order, so that what is lost comes later. Payload that was spliced stays a
 * reference to the process's memory until it arrives. */
#include "whole/kernel.h"

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

void reset_tcp(struct connection *c, unsigned end) {
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
  if (c->is_closed[1 - end] && !c->is_over[1 - end]) reset_tcp(c, 1 - (unsigned)end);
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

uint32_t room_of(const struct connection *c, unsigned end) {
  const struct way *w = &c->ways[end];
  uint64_t waiting = w->written - w->read;
  return waiting >= world.plan.room_bytes ? 0 : world.plan.room_bytes - (uint32_t)waiting;
}

long write_piece(struct file *f, const uint8_t *data, size_t bytes, bool is_reference) {
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

long write_tcp(struct file *f, const struct iovec *iov, size_t count) {
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

long read_queue(struct queue *q, const struct iovec *iov, size_t count) {
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

long read_tcp(struct file *f, const struct iovec *iov, size_t count) {
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

long connect_tcp(struct file *f, struct name to) {
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

void shut_tcp(struct file *f) {
  struct connection *c = f->c;
  if (!c || c->is_over[f->end] || c->ways[f->end].is_ending) return;
  c->ways[f->end].is_ending = true;
  if (c->is_up[f->end]) send_timed(c, (unsigned)f->end, on_fin, c, (unsigned)f->end);
}

void close_tcp(struct file *f) {
  struct connection *c = f->c;
  if (!c) return;
  bool is_cut = f->resets || c->ways[1 - f->end].arrived.bytes || !c->is_up[f->end];
  if (is_cut && !c->is_over[f->end])
    reset_tcp(c, (unsigned)f->end);
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
