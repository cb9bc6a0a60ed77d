/* SPDX-License-Identifier: Apache-2.0 */
/* The driver for ordinary UDP sockets: works on every host, without privileges.
 *
 * Sockets. Each local port has an unconnected socket, shared by all routes of the engine. Unless
 * is_each_receiving is set, only the first one receives; the others are source ports, which suffices for the
 * network to distinguish flows. The first send of a route opens a second socket on the same port, connected
 * to the peer: the kernel then looks up the route once instead of at every send, and finds the receiving
 * socket faster. All routes from that port to that peer share it. If none can be opened, the unconnected one
 * sends.
 *
 * Offloads, detected by setting the socket option. With UDP_SEGMENT (Linux 4.18) one sendmsg sends a
 * superframe, else one sendmmsg. With UDP_GRO (5.0) one recvmsg receives up to 64 KB of packets, else
 * recvmmsg up to HARP_RX_BATCH_MAX packets. If a GSO send fails with EIO, because the device has no checksum
 * offload, the instance continues without GSO.
 *
 * Frames. Sending copies into the kernel, so a frame is free again when tx_submit returns, and the next
 * superframe reuses the cached memory. Only a superframe that does not fit the socket's send buffer keeps its
 * frame; tx_take then returns false for routes of this socket until tx_flush has sent it. The same holds when
 * the kernel has no memory for it (ENOBUFS), but tx_flush tries only once in RETRY_NS then.
 *
 * Packets have DF set; the protocol probes their size and ignores ICMP. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/shortage.h"
#include "io/ecn.h"
#include "io/nic.h"
#include "io/ready.h"
#include "io/udp.h"
#include "io/udp_socket.h"

enum {
  FRAME_BYTES = 65536,
  TX_FRAMES = 2,
  GRO_SLOTS = 16,          /* superframes of one recvmmsg, with GRO */
  GRO_LARGE_BYTES = 16384, /* superframes of this size are received with one system call each */
  RX_SLOT_BYTES = 9216,    /* one packet, without GRO */
  CONTROL_BYTES = 128,
  RX_EACH_CONTROL_BYTES = 32, /* a traffic class */
  RX_DROPS_MAX = 16,          /* invalid datagrams or errors after which one rx call ends */
  CONNECTED_MAX = 32,         /* connected sockets of an instance */
  CONNECTED_SHARE = 16,       /* connected sockets of all instances: at most RLIMIT_NOFILE divided by this */
  SOCKETS_MAX = HARP_IO_PORTS_MAX + CONNECTED_MAX,
};
#define RETRY_NS HARP_MS(1)

struct udp_socket {
  int fd;          /* -1: none */
  unsigned number; /* in the ready set */
  bool receives;
  bool is_watched; /* it is in the ready set */
  /* The fields of a connected socket: */
  unsigned users; /* the number of its routes */
  unsigned port;
  struct sockaddr_storage peer;
  int traffic_class; /* the traffic class of all that it sends */
};

struct harp_io_route {
  struct sockaddr_storage peer;
  unsigned port;
  unsigned socket;       /* index of the socket that sends: its port's, or a connected one */
  bool is_socket_chosen; /* choose_socket has chosen it, at the first send */
  int traffic_class;
};

/* A superframe that did not fit its socket's send buffer. The route is a copy, because the engine may close
 * its route meanwhile. */
struct deferred {
  struct harp_io_route route;
  struct harp_tx_superframe sf;
};

struct udp {
  struct harp_io io;
  struct harp_counters *counters;
  bool gso;
  struct harp_udp_options options;
  char ifname[IF_NAMESIZE]; /* the interface that it is bound to; "": none */
  unsigned next_socket;     /* where the next rx starts, for fairness */
  unsigned gro_batch;       /* superframes to request by the next call: 1 while they are large */
  uint8_t *tx_frames, *rx_frames;
  uint32_t tx_free;                    /* the free frames, a bit each */
  uint32_t tx_deferred;                /* the frames whose superframe is deferred, a bit each */
  harp_ns retry_ns;                    /* the time to try these again; 0: at each flush */
  struct deferred deferred[TX_FRAMES]; /* the deferred superframes, by frame */
  /* Full sockets, by frame of the superframe that is deferred; -1: none. Read by fds without the lock. */
  _Atomic int full_fds[TX_FRAMES];
  struct udp_socket sockets[SOCKETS_MAX]; /* the sockets of the ports, then connected ones */
  unsigned socket_end;                    /* the sockets from here on were never open */
  struct harp_io_ready *ready;            /* the engine's; own_ready of a driver that is used alone */
  struct harp_io_ready own_ready;
};

static _Atomic unsigned connected_count; /* the number of connected sockets of all instances of the process */

static struct udp *udp_of(struct harp_io *io) {
  return HARP_CONTAINER_OF(io, struct udp, io);
}

static uint8_t *rx_slot(const struct udp *u, unsigned i) {
  return u->rx_frames + (size_t)i * (u->options.gro ? FRAME_BYTES : RX_SLOT_BYTES);
}

static size_t rx_bytes(void) {
  return HARP_MAX((size_t)HARP_RX_BATCH_MAX * RX_SLOT_BYTES, (size_t)GRO_SLOTS * FRAME_BYTES);
}

static size_t udp_frames_bytes(const struct harp_io_config *config) {
  (void)config;
  return (size_t)TX_FRAMES * FRAME_BYTES + rx_bytes();
}

/* ---- open and close ---- */

/* Reads the interface's index again: it changes when the interface is removed and created again, and is
 * unknown until it is created. */
static void follow_interface(struct udp *u) {
  unsigned ifindex = u->ifname[0] ? harp_nic_index(u->ifname) : 0;
  if (!ifindex || ifindex == u->options.ifindex) return;
  u->options.ifindex = ifindex;
  for (unsigned i = 0; i < u->io.info.port_count; i++)
    harp_udp_socket_set_interface(u->sockets[i].fd, &u->options);
}

static int open_port(struct udp *u, const struct harp_io_config *config, uint32_t *port,
                     struct harp_error *error) {
  struct harp_io_info *info = &u->io.info;
  int no_size = 0;
  uint32_t granted;
  int fd = harp_udp_socket_open(u->options.family);
  if (fd < 0) return harp_shortage_set(error, fd, "cannot open a UDP socket");
  int e = harp_udp_socket_bind(fd, config->addr, config->port_low, config->port_high, port);
  if (e) {
    close(fd);
    if (config->port_low)
      return harp_error_set(error, e, "cannot bind %u of the UDP ports %u to %u: %s%s", config->port_count,
                            config->port_low, config->port_high, strerror(-e),
                            e == -EADDRINUSE ? "; widen `ports`, or set fewer `paths`" : "");
    return harp_shortage_set(error, e, "cannot bind a UDP port");
  }
  if (harp_udp_socket_prepare(fd, &u->options, &granted)) u->options.gro = false;
  bool receives = config->is_each_receiving || !info->port_count;
  info->buffer_bytes = info->port_count ? HARP_MIN(info->buffer_bytes, granted) : granted;
  if (!receives) harp_udp_socket_stop_receiving(fd);
  if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &no_size, sizeof no_size)) u->gso = false; /* 0 sets nothing */
  harp_files_own(fd);
  u->sockets[u->socket_end++] = (struct udp_socket){.fd = fd, .receives = receives};
  info->ports[info->port_count] = receives ? harp_udp_socket_port(fd) : info->ports[0];
  info->port_count++;
  return 0;
}

/* Adds the sockets that receive to the ready set. */
static int watch_ports(struct udp *u, struct harp_io_ready *shared, struct harp_error *error) {
  int e = shared ? 0 : harp_io_ready_open(&u->own_ready);
  u->ready = shared ? shared : &u->own_ready;
  for (unsigned i = 0; i < u->socket_end && e >= 0; i++) {
    if (!u->sockets[i].receives) continue;
    e = harp_io_ready_add(u->ready, u->sockets[i].fd);
    u->sockets[i].number = (unsigned)e;
    u->sockets[i].is_watched = e >= 0;
  }
  if (e >= 0) return 0;
  return harp_shortage_set(error, e == -ENOSPC ? -HARP_EWATCHES : e, "cannot watch UDP sockets");
}

static void fill_info(struct udp *u, const struct harp_io_config *config) {
  struct harp_io_info *info = &u->io.info;
  info->mode = u->gso ? (u->options.gro ? "udp gso+gro" : "udp gso+recvmmsg")
                      : (u->options.gro ? "udp sendmmsg+gro" : "udp sendmmsg+recvmmsg");
  const char *no_gso = u->gso                               ? ""
                       : (config->disable & HARP_IO_NO_GSO) ? "GSO is switched off; "
                                                            : "this kernel has no UDP_SEGMENT; ";
  const char *no_gro = u->options.gro                       ? ""
                       : (config->disable & HARP_IO_NO_GRO) ? "GRO is switched off"
                                                            : "this kernel has no UDP_GRO";
  if (!u->gso || !u->options.gro) snprintf(info->why_not, sizeof info->why_not, "%s%s", no_gso, no_gro);
  info->segments_max = HARP_SEGMENTS_MAX;
  info->gather = !(config->disable & HARP_IO_NO_GATHER);
  info->rx_batch = u->options.gro ? GRO_SLOTS : HARP_RX_BATCH_MAX;
}

void harp_io_udp_stop_merging(struct harp_io *io) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(io->ops == &harp_io_udp);
  struct harp_io_config none = {.disable = HARP_IO_NO_GRO};
  if (!u->options.gro) return;
  for (unsigned i = 0; i < io->info.port_count; i++) harp_udp_socket_stop_merging(u->sockets[i].fd);
  u->options.gro = false;
  fill_info(u, &none);
}

static void close_connected(struct udp *u, unsigned socket);

static void udp_close(struct harp_io *io) {
  struct udp *u = udp_of(io);
  for (unsigned i = u->io.info.port_count; i < u->socket_end; i++) close_connected(u, i);
  for (unsigned i = 0; i < u->io.info.port_count; i++) {
    const struct udp_socket *s = &u->sockets[i];
    if (s->is_watched) harp_io_ready_remove(u->ready, s->fd, s->number);
    harp_files_close(s->fd);
  }
  harp_io_ready_close(&u->own_ready);
  free(u);
}

static int udp_open(struct harp_io **io, const struct harp_io_config *config, struct harp_error *error) {
  HARP_ASSERT(config->port_count >= 1 && config->port_count <= HARP_IO_PORTS_MAX);
  HARP_ASSERT(config->frames_bytes >= udp_frames_bytes(config));
  struct udp *u = calloc(1, sizeof *u);
  if (!u) return harp_shortage_set(error, -ENOMEM, "cannot open the UDP driver");
  u->io.ops = &harp_io_udp;
  u->counters = config->counters;
  u->gso = !(config->disable & HARP_IO_NO_GSO);
  u->options.gro = !(config->disable & HARP_IO_NO_GRO);
  u->options.ecn = config->ecn;
  u->tx_frames = config->frames;
  u->rx_frames = config->frames + (size_t)TX_FRAMES * FRAME_BYTES;
  u->tx_free = (1u << TX_FRAMES) - 1;
  u->gro_batch = 1;
  u->own_ready.fd = -1;
  for (unsigned i = 0; i < TX_FRAMES; i++) u->full_fds[i] = -1;
  u->options.family = config->addr->ss_family;
  if (config->is_one_of_many) {
    snprintf(u->ifname, sizeof u->ifname, "%s", config->ifname);
    u->options.ifindex = config->ifindex;
  }
  uint32_t port = config->port_low;
  int e = 0;
  for (unsigned i = 0; i < config->port_count && !e; i++) e = open_port(u, config, &port, error);
  if (!e) e = watch_ports(u, config->ready, error);
  if (e) {
    udp_close(&u->io);
    return e;
  }
  fill_info(u, config);
  *io = &u->io;
  return 0;
}

/* ---- routes ---- */

/* Returns whether one more connected socket leaves the process enough files, and counts it. */
static bool may_connect(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files)) return false;
  if (atomic_fetch_add(&connected_count, 1) < files.rlim_cur / CONNECTED_SHARE) return true;
  atomic_fetch_sub(&connected_count, 1);
  return false;
}

/* Opens a connected socket for a route; returns its index, or that of the port's socket if there can be
 * none. */
static unsigned connect_route(struct udp *u, const struct harp_io_route *r) {
  unsigned place = u->io.info.port_count;
  while (place < u->socket_end && u->sockets[place].fd >= 0) place++;
  /* Before Linux 6.1 connected sockets ignore IP_UNICAST_IF. */
  if (u->ifname[0]) return r->port;
  if (place == u->io.info.port_count + CONNECTED_MAX || !may_connect()) return r->port;
  int fd = harp_udp_socket_connect(u->sockets[r->port].fd, &r->peer, r->traffic_class, &u->options);
  bool receives = u->sockets[r->port].receives;
  int number = fd < 0 ? -1 : receives ? harp_io_ready_add(u->ready, fd) : 0;
  if (number < 0) {
    if (fd >= 0) close(fd);
    atomic_fetch_sub(&connected_count, 1);
    return r->port;
  }
  if (!receives) harp_udp_socket_stop_receiving(fd);
  harp_files_own(fd);
  u->sockets[place] = (struct udp_socket){.fd = fd,
                                          .receives = receives,
                                          .is_watched = receives,
                                          .number = (unsigned)number,
                                          .port = r->port,
                                          .peer = r->peer,
                                          .traffic_class = r->traffic_class};
  u->socket_end = HARP_MAX(u->socket_end, place + 1);
  return place;
}

/* Closes a connected socket; its deferred superframes move to the port's socket. */
static void close_connected(struct udp *u, unsigned socket) {
  struct udp_socket *s = &u->sockets[socket];
  if (s->fd < 0) return;
  for (uint32_t bits = u->tx_deferred; bits; bits &= bits - 1) {
    unsigned frame = (unsigned)__builtin_ctz(bits);
    if (u->deferred[frame].route.socket != socket) continue;
    u->deferred[frame].route.socket = s->port;
    atomic_store_explicit(&u->full_fds[frame], u->sockets[s->port].fd, memory_order_relaxed);
  }
  if (s->is_watched) harp_io_ready_remove(u->ready, s->fd, s->number);
  harp_files_close(s->fd);
  s->fd = -1;
  atomic_fetch_sub(&connected_count, 1);
}

static bool matches_route(const struct udp_socket *s, const struct harp_io_route *r) {
  return s->fd >= 0 && s->port == r->port && s->traffic_class == r->traffic_class &&
         !memcmp(&s->peer, &r->peer, harp_address_bytes(&r->peer));
}

/* Finds or opens the connected socket of a route. Called at its first send: a route that never sends needs
 * none. */
static void choose_socket(struct udp *u, struct harp_io_route *r) {
  unsigned i = u->io.info.port_count;
  r->is_socket_chosen = true;
  while (i < u->socket_end && !matches_route(&u->sockets[i], r)) i++;
  r->socket = i < u->socket_end ? i : connect_route(u, r);
  u->sockets[r->socket].users++;
}

static struct harp_io_route *udp_route_open(struct harp_io *io, unsigned port,
                                            const struct sockaddr_storage *peer, int traffic_class) {
  HARP_ASSERT(port < io->info.port_count);
  struct harp_io_route *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  *r = (struct harp_io_route){.peer = *peer, .port = port, .socket = port, .traffic_class = traffic_class};
  return r;
}

static void udp_route_close(struct harp_io *io, struct harp_io_route *route) {
  struct udp *u = udp_of(io);
  if (route->is_socket_chosen && !--u->sockets[route->socket].users && route->socket != route->port)
    close_connected(u, route->socket);
  free(route);
}

static bool udp_route_has_own_buffer(struct harp_io *io, const struct harp_io_route *route) {
  (void)io;
  return route->socket != route->port;
}

static bool udp_route_doubt(struct harp_io *io, struct harp_io_route *route) {
  (void)io, (void)route;
  return false;
}

/* ---- sending ---- */

static bool is_full(const struct udp *u, unsigned socket) {
  for (uint32_t bits = u->tx_deferred; bits; bits &= bits - 1)
    if (u->deferred[__builtin_ctz(bits)].route.socket == socket) return true;
  return false;
}

static bool udp_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                        struct harp_tx_superframe *sf) {
  struct udp *u = udp_of(io);
  if (harp_unlikely(!route->is_socket_chosen)) choose_socket(u, route);
  if (!u->tx_free || is_full(u, route->socket)) return false;
  uint32_t frame = (uint32_t)__builtin_ctz(u->tx_free); /* the lowest is likely cached */
  u->tx_free &= ~(1u << frame);
  sf->route = route;
  sf->base = u->tx_frames + (size_t)frame * FRAME_BYTES;
  sf->stride = sf->segment_bytes = segment_bytes;
  sf->last_bytes = sf->count = 0;
  sf->count_max = HARP_MIN((uint32_t)HARP_SUPERFRAME_MAX_BYTES / segment_bytes, io->info.segments_max);
  sf->gather = sf->ect = false;
  sf->frame = frame;
  return true;
}

static void udp_tx_give_back(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(!(u->tx_free >> sf->frame & 1));
  u->tx_free |= 1u << sf->frame;
}

/* Adds one control message; returns the new length. */
static size_t put_control(uint8_t *control, size_t at, int level, int type, const void *data, size_t bytes) {
  struct cmsghdr *c = (struct cmsghdr *)(control + at);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(bytes);
  memcpy(CMSG_DATA(c), data, bytes);
  return at + CMSG_SPACE(bytes);
}

static size_t put_traffic_class(uint8_t *control, int family, int traffic_class) {
  return family == AF_INET6
             ? put_control(control, 0, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class)
             : put_control(control, 0, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
}

/* Writes the iovec of segments [from, to); returns its length. */
static unsigned write_pieces(const struct harp_tx_superframe *sf, uint32_t from, uint32_t to,
                             struct iovec *iov) {
  unsigned n = 0;
  if (!sf->gather) {
    size_t end =
        to == sf->count ? (size_t)(sf->count - 1) * sf->stride + sf->last_bytes : (size_t)to * sf->stride;
    iov[n++] = (struct iovec){sf->base + (size_t)from * sf->stride, end - (size_t)from * sf->stride};
    return n;
  }
  for (uint32_t i = from; i < to; i++) {
    iov[n++] = (struct iovec){sf->base + (size_t)i * sf->stride, sf->head_bytes};
    iov[n++] = (struct iovec){(void *)(uintptr_t)sf->payload[i], sf->payload_bytes[i]};
  }
  return n;
}

/* Sets destination and traffic class of a message, which connected sockets have themselves; those of the
 * ports have the class of routes without one. Returns the length of `control`. */
static size_t set_destination(const struct udp *u, const struct harp_tx_superframe *sf, struct msghdr *m,
                              bool is_connected, uint8_t *control) {
  struct harp_io_route *r = sf->route;
  bool has_class = is_connected || r->traffic_class < 0;
  if (!is_connected) {
    m->msg_name = &r->peer;
    m->msg_namelen = harp_address_bytes(&r->peer);
  }
  if (harp_likely(has_class && sf->ect == u->options.ecn)) return 0;
  return put_traffic_class(control, r->peer.ss_family, harp_ecn_traffic_class(r->traffic_class, sf->ect));
}

static int send_gso(const struct udp *u, const struct harp_tx_superframe *sf, int fd, bool is_connected) {
  struct iovec iov[2 * HARP_SEGMENTS_MAX];
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  struct msghdr m = {
      .msg_iov = iov, .msg_iovlen = write_pieces(sf, 0, sf->count, iov), .msg_control = control};
  size_t n = set_destination(u, sf, &m, is_connected, control);
  uint16_t segment = (uint16_t)sf->segment_bytes;
  if (sf->count > 1) n = put_control(control, n, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  m.msg_controllen = n;
  if (!n) m.msg_control = NULL;
  return sendmsg(fd, &m, MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Removes the first segments of a superframe, which are sent. */
static void skip_segments(struct harp_tx_superframe *sf, uint32_t segments) {
  sf->base += (size_t)segments * sf->stride;
  sf->count -= segments;
  memmove(sf->payload, sf->payload + segments, sf->count * sizeof *sf->payload);
  memmove(sf->payload_bytes, sf->payload_bytes + segments, sf->count * sizeof *sf->payload_bytes);
}

/* Sends the segments as single datagrams. -EAGAIN: the superframe now has the unsent ones only. */
static int send_each(const struct udp *u, struct harp_tx_superframe *sf, int fd, bool is_connected) {
  struct iovec iov[2 * HARP_SEGMENTS_MAX];
  struct mmsghdr m[HARP_SEGMENTS_MAX];
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  struct msghdr common = {0};
  common.msg_controllen = set_destination(u, sf, &common, is_connected, control);
  if (common.msg_controllen) common.msg_control = control;
  unsigned at = 0;
  for (uint32_t i = 0; i < sf->count; i++) {
    m[i].msg_hdr = common;
    m[i].msg_hdr.msg_iov = iov + at;
    m[i].msg_hdr.msg_iovlen = write_pieces(sf, i, i + 1, iov + at);
    at += (unsigned)m[i].msg_hdr.msg_iovlen;
  }
  int sent = sendmmsg(fd, m, sf->count, MSG_DONTWAIT);
  if (sent < 0) return -errno;
  if ((uint32_t)sent == sf->count) return 0;
  skip_segments(sf, (uint32_t)sent);
  return -EAGAIN;
}

/* Returns whether a send failed for lack of buffer space. */
static bool is_retryable(int e) {
  return e == -EAGAIN || e == -ENOBUFS;
}

static int send_by(struct udp *u, struct harp_tx_superframe *sf, unsigned socket) {
  int fd = u->sockets[socket].fd;
  bool is_connected = socket >= u->io.info.port_count;
  return u->gso || sf->count == 1 ? send_gso(u, sf, fd, is_connected) : send_each(u, sf, fd, is_connected);
}

static int send_superframe(struct udp *u, struct harp_tx_superframe *sf) {
  struct harp_io_info *info = &u->io.info;
  unsigned socket = sf->route->socket, port = sf->route->port;
  int e = send_by(u, sf, socket);
  /* A connected socket returns ICMP errors of earlier sends; the unconnected one does not. */
  if (harp_unlikely(e && !is_retryable(e) && socket != port)) e = send_by(u, sf, port);
  if (harp_unlikely(e == -EIO || e == -EOPNOTSUPP) && u->gso && sf->count > 1) {
    u->gso = false; /* the device has no checksum offload */
    info->mode = u->options.gro ? "udp sendmmsg+gro" : "udp sendmmsg+recvmmsg";
    snprintf(info->why_not, sizeof info->why_not, "the device refused a GSO send: %s", strerror(-e));
    e = send_by(u, sf, port);
  }
  return e;
}

/* Copies the gathered payload into the frame, because its owner may reuse it after tx_submit. Backwards,
 * because each segment moves to a higher address. */
static void pack_payload(struct harp_tx_superframe *sf) {
  for (uint32_t i = sf->count; i-- > 0;) {
    uint8_t *to = sf->base + (size_t)i * sf->segment_bytes;
    memmove(to, sf->base + (size_t)i * sf->stride, sf->head_bytes);
    memcpy(to + sf->head_bytes, sf->payload[i], sf->payload_bytes[i]);
  }
  sf->stride = sf->segment_bytes;
  sf->gather = false;
}

/* Stores why a deferred superframe was not sent: its socket has no room, for which the engine waits, or the
 * kernel had no memory. Then a timer retries, since the socket may be writable all the time. */
static void record_refusal(struct udp *u, uint32_t frame, int e) {
  int fd = e == -EAGAIN ? u->sockets[u->deferred[frame].route.socket].fd : -1;
  atomic_store_explicit(&u->full_fds[frame], fd, memory_order_relaxed);
  if (harp_unlikely(e == -ENOBUFS)) u->retry_ns = harp_clock_ns() + RETRY_NS;
}

static void defer_superframe(struct udp *u, const struct harp_tx_superframe *sf, int e) {
  struct deferred *d = &u->deferred[sf->frame];
  *d = (struct deferred){.route = *sf->route, .sf = *sf};
  d->sf.route = &d->route;
  if (sf->gather) pack_payload(&d->sf);
  u->tx_deferred |= 1u << sf->frame;
  record_refusal(u, sf->frame, e);
  u->counters->tx_deferred++;
}

/* Frees the frame of a superframe that was sent (e is 0) or dropped. */
static void finish_superframe(struct udp *u, struct harp_tx_superframe *sf, int e) {
  udp_tx_give_back(&u->io, sf);
  if (harp_unlikely(e)) u->counters->tx_busy++;
  if (harp_unlikely(e == -ENODEV || e == -ENETUNREACH)) follow_interface(u);
}

static int udp_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(sf->count >= 1 && sf->count <= sf->count_max && sf->last_bytes <= sf->segment_bytes);
  if (harp_unlikely(u->ifname[0] && !u->options.ifindex)) follow_interface(u);
  int e = send_superframe(u, sf);
  if (harp_unlikely(is_retryable(e))) {
    defer_superframe(u, sf, e);
    return 0;
  }
  finish_superframe(u, sf, e);
  return e;
}

static void udp_tx_flush(struct harp_io *io) {
  struct udp *u = udp_of(io);
  if (harp_likely(!u->tx_deferred)) return;
  if (harp_unlikely(u->retry_ns) && harp_clock_ns() < u->retry_ns) return;
  u->retry_ns = 0;
  for (uint32_t bits = u->tx_deferred; bits; bits &= bits - 1) {
    unsigned frame = (unsigned)__builtin_ctz(bits);
    int e = send_superframe(u, &u->deferred[frame].sf);
    if (is_retryable(e)) {
      record_refusal(u, frame, e);
      continue;
    }
    u->tx_deferred &= ~(1u << frame);
    atomic_store_explicit(&u->full_fds[frame], -1, memory_order_relaxed);
    finish_superframe(u, &u->deferred[frame].sf, e);
  }
}

static unsigned udp_reap(struct harp_io *io) {
  (void)io;
  return 0;
}

/* ---- receiving ---- */

/* Reads the size of segments and the ECN mark of a received message. One mark is that of all its packets,
 * since the kernel merges only packets of equal traffic class. */
static void read_control(struct msghdr *m, struct harp_rx_superframe *sf) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
    int value = 0;
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      memcpy(&value, CMSG_DATA(c), sizeof value);
      if (value > 0) sf->segment_bytes = HARP_MIN((uint32_t)value, sf->bytes);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      sf->ce = harp_ecn_is_ce(*CMSG_DATA(c)); /* one byte */
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      memcpy(&value, CMSG_DATA(c), sizeof value);
      sf->ce = harp_ecn_is_ce(value);
    }
  }
}

/* Makes a superframe of a received message. */
static struct harp_rx_superframe superframe_of(struct msghdr *m, uint32_t bytes, unsigned slot) {
  struct harp_rx_superframe sf = {
      .data = m->msg_iov->iov_base, .bytes = bytes, .segment_bytes = bytes, .frame = slot};
  read_control(m, &sf);
  return sf;
}

/* Receives one superframe by recvmsg. Drops empty and truncated ones. False when the socket is empty, or
 * after RX_DROPS_MAX drops and errors. */
static bool rx_gro_one(struct udp *u, int fd, unsigned slot, struct harp_rx_superframe *out) {
  struct iovec iov = {rx_slot(u, slot), FRAME_BYTES};
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  for (unsigned tries = 0; tries < RX_DROPS_MAX; tries++) {
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) continue; /* an ICMP error, on a connected socket */
    if (!n || m.msg_flags & MSG_TRUNC) {
      u->counters->drops[HARP_DROP_SHORT]++;
      continue;
    }
    *out = superframe_of(&m, (uint32_t)n, slot);
    return true;
  }
  return false;
}

/* Receives up to `want` superframes by one recvmmsg, into the slots from `slot` on. */
static unsigned rx_gro_many(struct udp *u, int fd, unsigned slot, unsigned want,
                            struct harp_rx_superframe *out) {
  struct mmsghdr m[GRO_SLOTS];
  struct iovec iov[GRO_SLOTS];
  _Alignas(struct cmsghdr) uint8_t control[GRO_SLOTS][CONTROL_BYTES];
  unsigned kept = 0;
  for (unsigned i = 0; i < want; i++) {
    iov[i] = (struct iovec){rx_slot(u, slot + i), FRAME_BYTES};
    m[i].msg_hdr = (struct msghdr){
        .msg_iov = &iov[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
  }
  int n = recvmmsg(fd, m, want, MSG_DONTWAIT, NULL);
  for (int i = 0; i < n; i++) {
    uint32_t bytes = m[i].msg_len;
    if (m[i].msg_hdr.msg_flags & MSG_TRUNC || !bytes) {
      u->counters->drops[HARP_DROP_SHORT]++;
      continue;
    }
    out[kept++] = superframe_of(&m[i].msg_hdr, bytes, slot + (unsigned)i);
  }
  return kept;
}

/* Receives with GRO. Large superframes are received one per call, into the same cached memory. While small
 * ones arrive without a pause, the batch doubles up to GRO_SLOTS per call; an empty socket resets it to
 * one. */
static unsigned rx_gro(struct udp *u, int fd, unsigned *slot, struct harp_rx_superframe *out, unsigned max) {
  unsigned want = HARP_MIN(HARP_MIN(u->gro_batch, max), GRO_SLOTS - *slot);
  unsigned kept = want == 1 ? rx_gro_one(u, fd, *slot, out) : rx_gro_many(u, fd, *slot, want, out);
  *slot += want;
  if (!kept || out[kept - 1].bytes >= GRO_LARGE_BYTES)
    u->gro_batch = 1;
  else if (kept == want)
    u->gro_batch = HARP_MIN(2 * want, (unsigned)GRO_SLOTS);
  return kept;
}

/* Receives without GRO, by one recvmmsg into the slots from *slot on; advances *slot. */
static unsigned rx_each(struct udp *u, int fd, unsigned *slot, struct harp_rx_superframe *out) {
  struct mmsghdr m[HARP_RX_BATCH_MAX];
  struct iovec iov[HARP_RX_BATCH_MAX];
  _Alignas(struct cmsghdr) uint8_t control[HARP_RX_BATCH_MAX][RX_EACH_CONTROL_BYTES];
  unsigned kept = 0, free_slots = HARP_RX_BATCH_MAX - *slot;
  for (unsigned i = 0; i < free_slots; i++) {
    iov[i] = (struct iovec){rx_slot(u, *slot + i), RX_SLOT_BYTES};
    m[i].msg_hdr = (struct msghdr){
        .msg_iov = &iov[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
  }
  int n = recvmmsg(fd, m, free_slots, MSG_DONTWAIT, NULL);
  for (int i = 0; i < n; i++) {
    if (m[i].msg_hdr.msg_flags & MSG_TRUNC || !m[i].msg_len) {
      u->counters->drops[HARP_DROP_SHORT]++;
      continue;
    }
    out[kept++] = superframe_of(&m[i].msg_hdr, m[i].msg_len, *slot + (unsigned)i);
  }
  *slot += n > 0 ? (unsigned)n : 0;
  return kept;
}

static unsigned udp_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  struct udp *u = udp_of(io);
  unsigned got = 0, slots = io->info.rx_batch;
  max = HARP_MIN(max, u->options.gro ? u->gro_batch : slots);
  unsigned slot = u->options.gro ? 0 : slots - max;
  struct epoll_event none[HARP_READY_EVENTS];
  if (u->ready == &u->own_ready) (void)harp_io_ready_refresh(u->ready, false, harp_clock_ns(), none);
  if (!harp_io_ready_has_marks(u->ready)) return 0;
  for (unsigned i = 0; i < u->socket_end && got < max && slot < slots; i++) {
    const struct udp_socket *s = &u->sockets[(u->next_socket + i) % u->socket_end];
    if (s->fd < 0 || !s->receives || !harp_io_ready_marked(u->ready, s->number)) continue;
    unsigned n =
        u->options.gro ? rx_gro(u, s->fd, &slot, &out[got], max - got) : rx_each(u, s->fd, &slot, &out[got]);
    if (n)
      harp_io_ready_received(u->ready, harp_io_ready_name(HARP_READY_SOCKET, s->number));
    else
      harp_io_ready_unmark(u->ready, s->number);
    got += n;
  }
  u->next_socket = (u->next_socket + 1) % u->socket_end;
  return got;
}

static void udp_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  (void)io, (void)held, (void)count; /* the next rx reuses the slots */
}

static unsigned udp_fds(struct harp_io *io, struct pollfd *fds) {
  struct udp *u = udp_of(io);
  unsigned n = 0;
  if (u->ready == &u->own_ready) fds[n++] = (struct pollfd){.fd = u->ready->fd, .events = POLLIN};
  for (unsigned i = 0; i < TX_FRAMES; i++) {
    int fd = atomic_load_explicit(&u->full_fds[i], memory_order_relaxed);
    if (fd >= 0) fds[n++] = (struct pollfd){.fd = fd, .events = POLLOUT};
  }
  return n;
}

const struct harp_io_ops harp_io_udp = {
    .name = "udp",
    .frames_bytes = udp_frames_bytes,
    .open = udp_open,
    .close = udp_close,
    .route_open = udp_route_open,
    .route_close = udp_route_close,
    .route_has_own_buffer = udp_route_has_own_buffer,
    .route_doubt = udp_route_doubt,
    .tx_take = udp_tx_take,
    .tx_give_back = udp_tx_give_back,
    .tx_submit = udp_tx_submit,
    .tx_flush = udp_tx_flush,
    .reap = udp_reap,
    .rx = udp_rx,
    .rx_release = udp_rx_release,
    .fds = udp_fds,
};
