/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a world's hosts: the way between them, and files but sockets (sockets.c, tcp.c, udp.c). What
 * waits for files is in waiting.c. See world.h. */
#include "whole/kernel.h"

uint32_t address_of(int process, unsigned eni) {
  return htonl(0x0a000001u + (eni << 8) + (unsigned)process);
}

socklen_t put_address(uint32_t ip, uint16_t port, struct sockaddr_storage *out) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {ip}};
  struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  in6.sin6_addr.s6_addr[0] = ip ? 0xfd : 0;
  in6.sin6_addr.s6_addr32[3] = ip;
  memset(out, 0, sizeof *out);
  return world.plan.is_v6 ? (memcpy(out, &in6, sizeof in6), (socklen_t)sizeof in6)
                          : (memcpy(out, &in, sizeof in), (socklen_t)sizeof in);
}

const struct simnet_link *link_of(uint32_t from) {
  return &world.net.links[host_of(from)][eni_of(from)];
}

harp_ns arrival_ns(uint32_t from, harp_ns lost_ns) {
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

/* ---- files ---- */

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
  for (unsigned i = 0; i < f->waiting_count; i++) reset_tcp(f->waiting[i], 1);
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

unsigned kernel_count_files(const struct process *p) {
  unsigned count = 0;
  for (int fd = 0; fd < FILES_MAX; fd++) count += p->files[fd] != NULL;
  return count;
}
