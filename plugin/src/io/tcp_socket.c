/* SPDX-License-Identifier: Apache-2.0 */
/* See tcp_socket.h. */
#include "io/tcp_socket.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/address.h"
#include "base/files.h"
#include "io/socket.h"

/* From the kernel's interface; not in every C library's headers. */
enum {
  BIND_ADDRESS_NO_PORT = 24, /* IP_BIND_ADDRESS_NO_PORT, Linux 4.2 */
  NOTSENT_LOWAT = 25,        /* TCP_NOTSENT_LOWAT, Linux 3.12 */
};

/* Offsets in the struct tcp_info of <linux/tcp.h>, of the fields tcpi_snd_mss and so on: the C library's
 * struct ends before most of them, and so does an old kernel's. */
enum {
  SND_MSS = 16,
  RTT = 68,
  TOTAL_RETRANS = 100,
  BYTES_ACKED = 120,
  MIN_RTT = 148,
  DATA_SEGS_OUT = 156,
};

/* Sets an option without which the socket can still be used. */
static void set_int(int fd, int level, int option, int value) {
  (void)harp_socket_set(fd, level, option, value);
}

/* An idle connection sends a keepalive after a quarter of the timeout. One that is not answered is repeated
 * each tenth: where a network loses a third of all packets, half of them are not answered, and a few in a row
 * say nothing. */
void harp_tcp_socket_set_timeouts(int fd, harp_ns timeout_ns) {
  int seconds = (int)HARP_MAX(timeout_ns / HARP_SEC(1), 1u);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, HARP_MAX(seconds / 4, 1));
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, HARP_MAX(seconds / 10, 1));
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 8);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

/* The most keepalives that Linux takes, a tenth of the timeout apart: twelve timeouts. */
void harp_tcp_socket_outlive_outages(int fd) {
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 127);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

/* Leaves the buffers to the kernel's autotuning: fixed sizes were slower wherever they were tried. */
void harp_tcp_socket_set_options(int fd, const struct harp_tcp_options *o) {
  int family = o->local->ss_family;
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  harp_tcp_socket_set_timeouts(fd, o->timeout_ns);
  if (o->traffic_class >= 0) (void)harp_socket_set_traffic_class(fd, family, o->traffic_class);
  if (o->ifindex) (void)harp_socket_set_interface(fd, family, o->ifindex);
}

void harp_tcp_socket_bound_unsent(int fd, uint32_t bytes) {
  set_int(fd, IPPROTO_TCP, NOTSENT_LOWAT, (int)bytes);
}

void harp_tcp_socket_set_cork(int fd, bool corked) {
  set_int(fd, IPPROTO_TCP, TCP_CORK, corked);
}

uint32_t harp_tcp_socket_unsent(int fd) {
  int unsent = 0;
  return ioctl(fd, SIOCOUTQNSD, &unsent) || unsent < 0 ? 0 : (uint32_t)unsent;
}

static int open_socket(const struct harp_tcp_options *o) {
  int fd = socket(o->local->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  harp_files_own(fd);
  harp_tcp_socket_set_options(fd, o);
  return fd;
}

static int bind_to(int fd, const struct harp_tcp_options *o, uint16_t port) {
  struct sockaddr_storage a = *o->local;
  harp_address_set_port(&a, port);
  return bind(fd, (struct sockaddr *)&a, harp_address_bytes(&a)) ? -errno : 0;
}

/* Listens on one port; 0: one that the kernel chooses. */
static int listen_on(const struct harp_tcp_options *o, uint16_t port) {
  int fd = open_socket(o);
  if (fd < 0) return fd;
  set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1); /* connections of an earlier job may be in TIME_WAIT */
  (void)harp_socket_set_free_bind(fd);
  int err = bind_to(fd, o, port);
  if (!err && listen(fd, SOMAXCONN)) err = -errno;
  if (!err) return fd;
  harp_files_close(fd);
  return err;
}

int harp_tcp_socket_listen(const struct harp_tcp_options *o, uint16_t low, uint16_t high, uint16_t *port) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  int fd = *port ? listen_on(o, *port) : -EADDRINUSE;
  for (uint32_t i = low; fd == -EADDRINUSE && i <= high; i++) fd = listen_on(o, (uint16_t)i);
  if (fd < 0) return fd;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) {
    int err = -errno;
    harp_files_close(fd);
    return err;
  }
  *port = harp_address_port(&a);
  return fd;
}

int harp_tcp_socket_accept(int listener, const struct harp_tcp_options *o) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return -errno;
  harp_files_own(fd);
  harp_tcp_socket_set_options(fd, o);
  return fd;
}

int harp_tcp_socket_connect(const struct harp_tcp_options *o, const struct sockaddr_storage *peer) {
  int fd = open_socket(o);
  if (fd < 0) return fd;
  if (o->spares_files && harp_files_are_scarce(fd)) {
    harp_files_close(fd);
    return -HARP_EFEWFILES;
  }
  /* The kernel chooses the port at connect, so connections to different peers may share one. */
  set_int(fd, IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1);
  int err = bind_to(fd, o, 0);
  if (!err && connect(fd, (const struct sockaddr *)peer, harp_address_bytes(peer)) && errno != EINPROGRESS)
    err = -errno;
  if (!err) return fd;
  harp_files_close(fd);
  return err;
}

int harp_tcp_socket_error(int fd) {
  int error = 0;
  socklen_t n = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) ? -errno : -error;
}

void harp_tcp_socket_reset_at_close(int fd) {
  const struct linger at_once = {.l_onoff = 1};
  (void)!setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Reads a field at an offset; false when the kernel's struct ends before it. */
static bool read_at(const uint8_t *info, socklen_t bytes, size_t offset, void *out, size_t out_bytes) {
  if (offset + out_bytes > bytes) return false;
  memcpy(out, info + offset, out_bytes);
  return true;
}

uint64_t harp_tcp_socket_acked(int fd, uint64_t sent_bytes) {
  int queued = 0;
  if (ioctl(fd, SIOCOUTQ, &queued) || queued < 0 || (uint64_t)queued > sent_bytes) return 0;
  return sent_bytes - (uint64_t)queued;
}

void harp_tcp_socket_read_stats(int fd, uint64_t sent_bytes, struct harp_tcp_stats *f) {
  uint8_t info[256];
  socklen_t n = sizeof info;
  uint32_t mss = 0, rtt_us = 0, rtt_min_us = 0;
  *f = (struct harp_tcp_stats){0};
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &n)) return;
  if (read_at(info, n, RTT, &rtt_us, sizeof rtt_us)) f->rtt_ns = HARP_US((harp_ns)rtt_us);
  if (read_at(info, n, MIN_RTT, &rtt_min_us, sizeof rtt_min_us) && rtt_min_us != UINT32_MAX) /* none yet */
    f->rtt_min_ns = HARP_US((harp_ns)rtt_min_us);
  (void)read_at(info, n, TOTAL_RETRANS, &f->retransmitted, sizeof f->retransmitted);
  if (!read_at(info, n, BYTES_ACKED, &f->acked_bytes, sizeof f->acked_bytes))
    f->acked_bytes = harp_tcp_socket_acked(fd, sent_bytes);
  if (!read_at(info, n, DATA_SEGS_OUT, &f->segments, sizeof f->segments) &&
      read_at(info, n, SND_MSS, &mss, sizeof mss) && mss)
    f->segments = (uint32_t)(f->acked_bytes / mss) + f->retransmitted;
}
