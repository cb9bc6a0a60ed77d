/* The driver for ordinary UDP sockets: works on every host, without any privilege.
 *
 * One unconnected socket per local port, shared by all connections of the engine. Where the kernel has
 * UDP_SEGMENT (4.18) a superframe leaves in one sendmsg, else in one sendmmsg; where it has UDP_GRO (5.0) one
 * recvmsg brings up to 64 KB of packets, else recvmmsg brings up to HARP_RX_BATCH_MAX. Both are probed on the
 * socket itself. A device that cannot checksum makes a GSO send fail with EIO; the instance then goes on
 * without GSO.
 *
 * Sending copies into the kernel, so a frame is free again as soon as tx_submit returns, and the same
 * cache-hot frame is used over and over. Path MTU discovery by ICMP is not trusted: packets carry DF and
 * their size is probed by the protocol. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/files.h"
#include "io/io.h"
#include "io/ready.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

enum {
  FRAME_BYTES = 65536,
  TX_FRAMES = 2,
  GRO_SLOTS = 16,                /* most that one recvmmsg brings, where there is GRO */
  GRO_LARGE_BYTES = 16384,       /* a superframe of this size is worth a system call of its own */
  RX_SLOT_BYTES = 9216,          /* one packet, where there is no GRO */
  SOCKET_BUFFER_BYTES = 8 << 20, /* asked for; the kernel may give less */
  CONTROL_BYTES = 128,
  RX_WORTHLESS_MAX = 16, /* datagrams that a stranger may make one rx call drop */
};

struct harp_io_route {
  struct sockaddr_storage peer;
  socklen_t peer_bytes;
  int fd;
  int traffic_class;
};

struct udp {
  struct harp_io io;
  struct harp_counters *counters;
  bool gso, gro;
  int family;
  unsigned ifindex;         /* of the only interface that it sends by; 0: as the kernel's tables say */
  char ifname[IF_NAMESIZE]; /* its name */
  unsigned next_port;       /* where rx starts, so that no port starves another */
  unsigned gro_batch;       /* superframes to ask for in the next call: 1 while they are large */
  uint8_t *tx_frames, *rx_frames;
  uint32_t tx_free; /* bit mask */
  int fds[HARP_IO_PORTS_MAX];
  struct harp_io_ready *ready; /* ours, the bundle's, or NULL: the only port is always worth a try */
  struct harp_io_ready own_ready;
  unsigned ready_numbers[HARP_IO_PORTS_MAX];
};

static struct udp *udp_of(struct harp_io *io) {
  return HARP_CONTAINER_OF(io, struct udp, io);
}

static uint8_t *rx_slot(const struct udp *u, unsigned i) {
  return u->rx_frames + (size_t)i * (u->gro ? FRAME_BYTES : RX_SLOT_BYTES);
}

static size_t rx_bytes(void) {
  return HARP_MAX((size_t)HARP_RX_BATCH_MAX * RX_SLOT_BYTES, (size_t)GRO_SLOTS * FRAME_BYTES);
}

static size_t udp_frames_bytes(const struct harp_io_config *config) {
  (void)config;
  return (size_t)TX_FRAMES * FRAME_BYTES + rx_bytes();
}

/* ---- open and close ---- */

static void set_int(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

/* Makes datagrams leave by one interface; they may still arrive by any. */
static void set_interface(int fd, int family, unsigned ifindex) {
  uint32_t index = htonl(ifindex);
  if (family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, 76 /* IPV6_UNICAST_IF */, &index, sizeof index);
  else
    setsockopt(fd, IPPROTO_IP, 50 /* IP_UNICAST_IF */, &index, sizeof index);
}

/* An interface that was removed and is there again has another index. */
static void follow_interface(struct udp *u) {
  unsigned ifindex = u->ifindex ? if_nametoindex(u->ifname) : 0;
  if (!ifindex || ifindex == u->ifindex) return;
  u->ifindex = ifindex;
  for (unsigned i = 0; i < u->io.info.port_count; i++) set_interface(u->fds[i], u->family, ifindex);
}

static uint32_t set_buffers(int fd) {
  int want = SOCKET_BUFFER_BYTES, got = 0;
  socklen_t n = sizeof got;
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &want, sizeof want))
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &want, sizeof want);
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &want, sizeof want))
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &want, sizeof want);
  /* The kernel reports twice what it grants, the other half being for its own bookkeeping. */
  return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &n) ? 65536 : (uint32_t)got / 2;
}

static void set_port(struct sockaddr_storage *a, uint16_t port) {
  if (a->ss_family == AF_INET6)
    ((struct sockaddr_in6 *)a)->sin6_port = htons(port);
  else
    ((struct sockaddr_in *)a)->sin_port = htons(port);
}

static uint16_t bound_port(int fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
  return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                       : ((struct sockaddr_in *)&a)->sin_port);
}

/* Binds to the next free port of the range, from *port on. */
static int bind_port(int fd, const struct harp_io_config *config, uint32_t *port) {
  struct sockaddr_storage a = *config->addr;
  socklen_t n = a.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  if (!config->port_low) {
    set_port(&a, 0);
    return bind(fd, (struct sockaddr *)&a, n) ? -errno : 0;
  }
  for (; *port <= config->port_high; ++*port) {
    set_port(&a, (uint16_t)*port);
    if (!bind(fd, (struct sockaddr *)&a, n)) return ++*port, 0;
    if (errno != EADDRINUSE) return -errno;
  }
  return -EADDRINUSE;
}

static int open_socket(struct udp *u, const struct harp_io_config *config, uint32_t *port, char *error,
                       size_t error_bytes) {
  int family = config->addr->ss_family, probe = 0, one = 1;
  int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);
  if (fd < 0) {
    int e = errno;
    snprintf(error, error_bytes, "cannot open a UDP socket: %s%s", strerror(e),
             e == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
    return -e;
  }
  u->fds[u->io.info.port_count] = fd;
  int e = bind_port(fd, config, port);
  if (e) {
    close(fd);
    if (config->port_low)
      snprintf(error, error_bytes, "cannot bind %u of the UDP ports %u to %u: %s%s", config->port_count,
               config->port_low, config->port_high, strerror(-e),
               e == -EADDRINUSE ? "; widen `ports`, or set fewer `paths`" : "");
    else
      snprintf(error, error_bytes, "cannot bind a UDP port: %s", strerror(-e));
    return e;
  }
  if (u->ifindex) set_interface(fd, family, u->ifindex);
  uint32_t granted = set_buffers(fd);
  u->io.info.buffer_bytes = u->io.info.port_count ? HARP_MIN(u->io.info.buffer_bytes, granted) : granted;
  if (family == AF_INET6) {
    set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set_int(fd, IPPROTO_IPV6, 62 /* IPV6_DONTFRAG */, 1);
  } else {
    set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  }
  if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &probe, sizeof probe))
    u->gso = false; /* 0: no size, just asking */
  if (u->gro && setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one)) u->gro = false;
  harp_files_own(fd);
  u->io.info.ports[u->io.info.port_count++] = bound_port(fd);
  return 0;
}

/* Several ports are asked about together. */
static int watch_ports(struct udp *u, struct harp_io_ready *shared, char *error, size_t error_bytes) {
  int e = 0;
  u->ready = shared;
  if (!shared && u->io.info.port_count > 1) {
    e = harp_io_ready_open(&u->own_ready);
    u->ready = &u->own_ready;
  }
  for (unsigned i = 0; u->ready && i < u->io.info.port_count && e >= 0; i++) {
    e = harp_io_ready_add(u->ready, u->fds[i]);
    u->ready_numbers[i] = (unsigned)e;
  }
  if (e < 0) snprintf(error, error_bytes, "cannot watch UDP sockets: %s", strerror(-e));
  return HARP_MIN(e, 0);
}

static void name_rung(struct udp *u, const struct harp_io_config *config) {
  struct harp_io_info *info = &u->io.info;
  info->rung = u->gso ? (u->gro ? "udp gso+gro" : "udp gso+recvmmsg")
                      : (u->gro ? "udp sendmmsg+gro" : "udp sendmmsg+recvmmsg");
  if (!u->gso || !u->gro)
    snprintf(info->why_not, sizeof info->why_not, "%s%s%s",
             u->gso ? ""
                    : (config->disable & HARP_IO_NO_GSO ? "GSO is switched off; "
                                                        : "this kernel has no UDP_SEGMENT; "),
             u->gro
                 ? ""
                 : (config->disable & HARP_IO_NO_GRO ? "GRO is switched off" : "this kernel has no UDP_GRO"),
             "");
  info->segments_max = HARP_SEGMENTS_MAX;
  info->gather = !(config->disable & HARP_IO_NO_GATHER);
  info->rx_batch = u->gro ? GRO_SLOTS : HARP_RX_BATCH_MAX;
}

void harp_io_udp_stop_merging(struct harp_io *io) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(io->ops == &harp_io_udp);
  struct harp_io_config none = {.disable = HARP_IO_NO_GRO};
  if (!u->gro) return;
  for (unsigned i = 0; i < io->info.port_count; i++) set_int(u->fds[i], SOL_UDP, UDP_GRO, 0);
  u->gro = false;
  name_rung(u, &none);
}

static void udp_close(struct harp_io *io) {
  struct udp *u = udp_of(io);
  for (unsigned i = 0; i < u->io.info.port_count; i++) harp_files_close(u->fds[i]);
  harp_io_ready_close(&u->own_ready);
  free(u);
}

static int udp_open(struct harp_io **io, const struct harp_io_config *config, char *error,
                    size_t error_bytes) {
  HARP_ASSERT(config->port_count >= 1 && config->port_count <= HARP_IO_PORTS_MAX);
  HARP_ASSERT(config->frames_bytes >= udp_frames_bytes(config));
  struct udp *u = calloc(1, sizeof *u);
  if (!u) {
    snprintf(error, error_bytes, "no memory for the UDP driver");
    return -ENOMEM;
  }
  u->io.ops = &harp_io_udp;
  u->counters = config->counters;
  u->gso = !(config->disable & HARP_IO_NO_GSO);
  u->gro = !(config->disable & HARP_IO_NO_GRO);
  u->tx_frames = config->frames;
  u->rx_frames = config->frames + (size_t)TX_FRAMES * FRAME_BYTES;
  u->tx_free = (1u << TX_FRAMES) - 1;
  u->gro_batch = 1;
  u->own_ready.fd = -1;
  u->family = config->addr->ss_family;
  if (config->is_one_of_many && if_indextoname(config->ifindex, u->ifname)) u->ifindex = config->ifindex;
  uint32_t port = config->port_low;
  int e = 0;
  for (unsigned i = 0; i < config->port_count && !e; i++)
    e = open_socket(u, config, &port, error, error_bytes);
  if (!e) e = watch_ports(u, config->ready, error, error_bytes);
  if (e) {
    udp_close(&u->io);
    return e;
  }
  name_rung(u, config);
  *io = &u->io;
  return 0;
}

/* ---- routes ---- */

static struct harp_io_route *udp_route_open(struct harp_io *io, unsigned port,
                                            const struct sockaddr_storage *peer, int traffic_class) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(port < io->info.port_count);
  struct harp_io_route *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->peer = *peer;
  r->peer_bytes = peer->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  r->fd = u->fds[port];
  r->traffic_class = traffic_class;
  return r;
}

static void udp_route_close(struct harp_io *io, struct harp_io_route *route) {
  (void)io;
  free(route);
}

/* ---- sending ---- */

static bool udp_tx_take(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                        struct harp_tx_superframe *sf) {
  struct udp *u = udp_of(io);
  if (!u->tx_free) return false;
  uint32_t frame = (uint32_t)__builtin_ctz(u->tx_free); /* the lowest: the one used last */
  u->tx_free &= ~(1u << frame);
  sf->route = route;
  sf->base = u->tx_frames + (size_t)frame * FRAME_BYTES;
  sf->stride = sf->segment_bytes = segment_bytes;
  sf->last_bytes = sf->count = 0;
  sf->count_max = HARP_MIN((uint32_t)HARP_SUPERFRAME_MAX_BYTES / segment_bytes, io->info.segments_max);
  sf->gather = false;
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

static size_t put_traffic_class(uint8_t *control, const struct harp_io_route *r) {
  if (r->traffic_class < 0) return 0;
  return r->peer.ss_family == AF_INET6
             ? put_control(control, 0, IPPROTO_IPV6, IPV6_TCLASS, &r->traffic_class, sizeof(int))
             : put_control(control, 0, IPPROTO_IP, IP_TOS, &r->traffic_class, sizeof(int));
}

/* Lists the pieces of segments [from, to); returns how many. */
static unsigned pieces(const struct harp_tx_superframe *sf, uint32_t from, uint32_t to, struct iovec *iov) {
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

static int send_gso(const struct harp_tx_superframe *sf) {
  struct harp_io_route *r = sf->route;
  struct iovec iov[2 * HARP_SEGMENTS_MAX];
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  struct msghdr m = {.msg_name = &r->peer,
                     .msg_namelen = r->peer_bytes,
                     .msg_iov = iov,
                     .msg_iovlen = pieces(sf, 0, sf->count, iov),
                     .msg_control = control};
  size_t n = put_traffic_class(control, r);
  uint16_t segment = (uint16_t)sf->segment_bytes;
  if (sf->count > 1) n = put_control(control, n, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  m.msg_controllen = n;
  if (!n) m.msg_control = NULL;
  return sendmsg(r->fd, &m, MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int send_each(const struct harp_tx_superframe *sf) {
  struct harp_io_route *r = sf->route;
  struct iovec iov[2 * HARP_SEGMENTS_MAX];
  struct mmsghdr m[HARP_SEGMENTS_MAX];
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  size_t control_bytes = put_traffic_class(control, r);
  unsigned at = 0;
  for (uint32_t i = 0; i < sf->count; i++) {
    unsigned n = pieces(sf, i, i + 1, iov + at);
    m[i].msg_hdr = (struct msghdr){.msg_name = &r->peer,
                                   .msg_namelen = r->peer_bytes,
                                   .msg_iov = iov + at,
                                   .msg_iovlen = n,
                                   .msg_control = control_bytes ? control : NULL,
                                   .msg_controllen = control_bytes};
    at += n;
  }
  int sent = sendmmsg(r->fd, m, sf->count, MSG_DONTWAIT);
  return sent < 0 ? -errno : (uint32_t)sent < sf->count ? -EAGAIN : 0;
}

static int udp_tx_submit(struct harp_io *io, struct harp_tx_superframe *sf) {
  struct udp *u = udp_of(io);
  HARP_ASSERT(sf->count >= 1 && sf->count <= sf->count_max && sf->last_bytes <= sf->segment_bytes);
  int e = u->gso || sf->count == 1 ? send_gso(sf) : send_each(sf);
  if (harp_unlikely(e == -EIO || e == -EOPNOTSUPP) && u->gso && sf->count > 1) {
    u->gso = false; /* the device cannot checksum what it would have to segment */
    io->info.rung = u->gro ? "udp sendmmsg+gro" : "udp sendmmsg+recvmmsg";
    snprintf(io->info.why_not, sizeof io->info.why_not, "the device refused a GSO send: %s", strerror(-e));
    e = send_each(sf);
  }
  udp_tx_give_back(io, sf);
  if (harp_unlikely(e)) u->counters->tx_busy++;
  if (harp_unlikely(e == -ENODEV || e == -ENETUNREACH)) follow_interface(u);
  return e;
}

static void udp_tx_flush(struct harp_io *io) {
  (void)io;
}

static unsigned udp_reap(struct harp_io *io) {
  (void)io;
  return 0;
}

/* ---- receiving ---- */

static uint32_t segment_of(struct msghdr *m, uint32_t bytes) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
    int segment;
    if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
    memcpy(&segment, CMSG_DATA(c), sizeof segment);
    if (segment > 0) return HARP_MIN((uint32_t)segment, bytes);
  }
  return bytes;
}

/* One superframe by recvmsg; false when the port is empty, or held only worthless datagrams for long enough.
 * An empty or truncated one is dropped. */
static bool rx_gro_one(struct udp *u, int fd, unsigned slot, struct harp_rx_superframe *out) {
  struct iovec iov = {rx_slot(u, slot), FRAME_BYTES};
  _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
  for (unsigned tries = 0; tries < RX_WORTHLESS_MAX; tries++) {
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0 || m.msg_flags & MSG_TRUNC) {
      if (n < 0 && errno != EINTR && errno != ECONNREFUSED) return false;
      u->counters->drops[HARP_DROP_SHORT]++;
      continue;
    }
    *out = (struct harp_rx_superframe){iov.iov_base, (uint32_t)n, segment_of(&m, (uint32_t)n), slot, false};
    return true;
  }
  return false;
}

/* Up to `want` superframes by one recvmmsg, into the slots from `slot` on. */
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
    out[kept++] = (struct harp_rx_superframe){iov[i].iov_base, bytes, segment_of(&m[i].msg_hdr, bytes),
                                              slot + (unsigned)i, false};
  }
  return kept;
}

/* What waits on the port, where the kernel merges packets. Large superframes come one a call, always into the
 * same hot memory. Where the device delivers single packets, or small superframes, and they come without a
 * pause, a call brings up to GRO_SLOTS of them; a port found empty begins with one again. */
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

/* What waits on the port, by recvmmsg, into the slots from *slot on, which moves past those used. */
static unsigned rx_each(struct udp *u, int fd, unsigned *slot, struct harp_rx_superframe *out) {
  struct mmsghdr m[HARP_RX_BATCH_MAX];
  struct iovec iov[HARP_RX_BATCH_MAX];
  unsigned kept = 0, free_slots = HARP_RX_BATCH_MAX - *slot;
  for (unsigned i = 0; i < free_slots; i++) {
    iov[i] = (struct iovec){rx_slot(u, *slot + i), RX_SLOT_BYTES};
    m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
  }
  int n = recvmmsg(fd, m, free_slots, MSG_DONTWAIT, NULL);
  for (int i = 0; i < n; i++) {
    if (m[i].msg_hdr.msg_flags & MSG_TRUNC || !m[i].msg_len) {
      u->counters->drops[HARP_DROP_SHORT]++;
      continue;
    }
    out[kept++] =
        (struct harp_rx_superframe){iov[i].iov_base, m[i].msg_len, m[i].msg_len, *slot + (unsigned)i, false};
  }
  *slot += n > 0 ? (unsigned)n : 0;
  return kept;
}

static unsigned udp_rx(struct harp_io *io, struct harp_rx_superframe *out, unsigned max) {
  struct udp *u = udp_of(io);
  unsigned got = 0, ports = io->info.port_count, slots = io->info.rx_batch;
  max = HARP_MIN(max, u->gro ? u->gro_batch : slots);
  unsigned slot = u->gro ? 0 : slots - max;
  if (u->ready == &u->own_ready) harp_io_ready_refresh(u->ready);
  for (unsigned i = 0; i < ports && got < max && slot < slots; i++) {
    unsigned port = (u->next_port + i) % ports, number = u->ready_numbers[port];
    if (u->ready && !harp_io_ready_marked(u->ready, number)) continue;
    unsigned n = u->gro ? rx_gro(u, u->fds[port], &slot, &out[got], max - got)
                        : rx_each(u, u->fds[port], &slot, &out[got]);
    if (!n && u->ready) harp_io_ready_unmark(u->ready, number);
    got += n;
  }
  u->next_port = (u->next_port + 1) % ports;
  return got;
}

static void udp_rx_release(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count) {
  (void)io, (void)held, (void)count; /* the slots are ours again with the next rx */
}

static unsigned udp_fds(struct harp_io *io, struct pollfd *fds) {
  struct udp *u = udp_of(io);
  int fd = !u->ready ? u->fds[0] : u->ready->fd;
  if (u->ready && u->ready != &u->own_ready) return 0; /* its owner lists it */
  HARP_ASSERT(u->ready || io->info.port_count == 1);
  fds[0] = (struct pollfd){.fd = fd, .events = POLLIN};
  return 1;
}

const struct harp_io_ops harp_io_udp = {
    .name = "udp",
    .frames_bytes = udp_frames_bytes,
    .open = udp_open,
    .close = udp_close,
    .route_open = udp_route_open,
    .route_close = udp_route_close,
    .tx_take = udp_tx_take,
    .tx_give_back = udp_tx_give_back,
    .tx_submit = udp_tx_submit,
    .tx_flush = udp_tx_flush,
    .reap = udp_reap,
    .rx = udp_rx,
    .rx_release = udp_rx_release,
    .fds = udp_fds,
};
