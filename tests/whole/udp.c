/* SPDX-License-Identifier: Apache-2.0 */
/* UDP of a world's kernels: through a simnet, whose paths are the interfaces that datagrams leave by. */
#include "whole/kernel.h"

enum {
  ADDRESS_BYTES = 12, /* before the datagram: from, to, and their ports */
  GRO_MAX_BYTES = 65536,
  HEADERS_V4_BYTES = 28, /* headers of IP and UDP */
  HEADERS_V6_BYTES = 48,
};

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

long send_udp(struct file *f, const struct msghdr *m) {
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
  uint32_t headers = world.plan.is_v6 ? HEADERS_V6_BYTES : HEADERS_V4_BYTES;
  if (HARP_MIN(bytes, (size_t)each) + headers > world.plan.mtu) return -EMSGSIZE;
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

long receive_udp(struct file *f, struct msghdr *m) {
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
