/* SPDX-License-Identifier: Apache-2.0 */
/* One interface for all packet drivers: superframes of equal segments go out, superframes come in.
 *
 * A superframe is up to HARP_SEGMENTS_MAX packets to one destination; all but the last are segment_bytes
 * long. With UDP sockets it is one GSO send or one GRO receive (up to 64 KB in a system call); with AF_XDP
 * each segment is a frame. The engine builds packets straight into the driver's frame and reads them straight
 * from it.
 *
 * Frames: the driver owns them all. tx_take lends one (TX_BUILD) until tx_submit or tx_give_back; after
 * tx_submit it is the driver's (TX_RING) until its completion, which reap collects. rx lends frames (RX_HELD)
 * until rx_release.
 *
 * One instance belongs to one engine; every function is called by the thread that runs the engine's pass, or
 * under the engine's lock. Only `open` may wait: for what the kernel still releases of an earlier socket, up
 * to 10 s with AF_XDP. */
#ifndef HARP_IO_H
#define HARP_IO_H

#include <poll.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/counters.h"
#include "base/error.h"

enum {
  HARP_SEGMENTS_MAX = 64,
  HARP_SUPERFRAME_MAX_BYTES = 65000, /* UDP payload of one GSO send, headers of IPv6 left out */
  HARP_IO_PORTS_MAX = 16,
  HARP_RX_BATCH_MAX = 32,
  HARP_IO_FDS_MAX = 160, /* of one driver: NIC queues, sockets or the set that they are in, full sockets */
};

struct harp_io;
struct harp_io_ready;
struct harp_io_route; /* one destination, reached from one of our ports; the driver's own */

struct harp_tx_superframe {
  struct harp_io_route *route;
  uint8_t *base; /* segment i is built at base + i * stride */
  uint32_t stride;
  uint32_t segment_bytes; /* of every segment but the last */
  uint32_t last_bytes;    /* of the last one, set before tx_submit */
  uint32_t count;         /* segments built; never more than count_max */
  uint32_t count_max;
  /* When gather is set only a header of head_bytes is built at `base`; the payload stays where it is and the
   * driver fetches it during tx_submit: payload[i] of payload_bytes[i]. */
  bool gather;
  uint32_t head_bytes;
  const void *payload[HARP_SEGMENTS_MAX];
  uint32_t payload_bytes[HARP_SEGMENTS_MAX];
  uint32_t frame; /* the driver's own */
};

struct harp_rx_superframe {
  const uint8_t *data;
  uint32_t bytes;         /* all segments together */
  uint32_t segment_bytes; /* of every segment but the last, which may be shorter; packed without gaps */
  uint32_t frame;         /* the driver's own */
  /* It came in on another queue than ours, and so through the kernel: other ports may be better. */
  bool detour;
};

/* What a driver got and can do; valid after open. */
struct harp_io_info {
  const char *mode;      /* "udp gso+gro", "udp sendmmsg", ...: for logs and statistics */
  char queues[64];       /* the NIC queues that it polls itself, "queues 0-3,6"; "" where the kernel does */
  char why_not[480];     /* why a better mode was refused; "" if none was */
  uint32_t segments_max; /* of one superframe */
  bool gather;           /* takes payload by reference */
  uint32_t rx_batch;     /* superframes to ask for in one rx call */
  uint32_t buffer_bytes; /* what may arrive on one port before rx is called */
  unsigned port_count;
  uint16_t ports[HARP_IO_PORTS_MAX]; /* where peers are to send to, by local port; host byte order */
};

/* What the xdp driver may use: AUTO takes zero-copy or leaves it to the udp driver, ANY takes any mode. */
enum harp_io_xdp_mode { HARP_IO_XDP_AUTO, HARP_IO_XDP_ANY, HARP_IO_XDP_ZERO_COPY, HARP_IO_XDP_COPY };

struct harp_io_config {
  const struct sockaddr_storage *addr; /* local address of the ENI; its port is ignored */
  uint16_t port_low, port_high;        /* where to bind, both included; 0 and 0: the kernel chooses */
  unsigned port_count;
  /* Each port receives; else the first does for all, and the others are only sources. */
  bool is_each_receiving;
  uint8_t *frames; /* memory for frames, borrowed until close */
  size_t frames_bytes;
  struct harp_counters *counters;
  uint32_t disable; /* HARP_IO_NO_*, for tests and for hosts where an offload misbehaves */
  /* Where sockets are to be added, refreshed by its owner; NULL: the driver has a set of its own. */
  struct harp_io_ready *ready;

  /* Other interfaces share the routes: what is sent must leave by this one, whatever the kernel's tables
   * prefer. */
  bool is_one_of_many;

  /* for drivers below IP, but for ifindex */
  enum harp_io_xdp_mode xdp_mode;
  unsigned ifindex;
  uint8_t mac[6];
  int mtu;                    /* bytes, IP packet */
  int speed_mbps;             /* 0: unknown */
  unsigned queues;            /* NIC queues to use, of those that are free; 0: all */
  unsigned sharer;            /* which of the engines of this process that share them, from 0 */
  unsigned sharer_count;      /* 0 or 1: it is alone */
  unsigned shared_port_count; /* ports where it has only a share of the queues: some lead to the others' */
  size_t memory_bytes;        /* what the conf allows for frames and all else; 0: the driver's default */
  uint32_t token_prefix;      /* upper half of the engine's tokens; packets with another one are dropped */
};

enum { HARP_IO_NO_GSO = 1, HARP_IO_NO_GRO = 2, HARP_IO_NO_GATHER = 4 };

struct harp_io_ops {
  const char *name;
  /* How many bytes of frame memory open wants; the config's own frames are not looked at. */
  size_t (*frames_bytes)(const struct harp_io_config *config);
  /* Opens an instance; returns 0 or -errno, with a sentence in `error`. */
  int (*open)(struct harp_io **io, const struct harp_io_config *config, struct harp_error *error);
  void (*close)(struct harp_io *io);

  /* A destination reached from local port `port` (an index). traffic_class: DSCP << 2, or -1. NULL: no
   * memory. */
  struct harp_io_route *(*route_open)(struct harp_io *io, unsigned port, const struct sockaddr_storage *peer,
                                      int traffic_class);
  void (*route_close)(struct harp_io *io, struct harp_io_route *route);
  /* Says whether what the peer sends back on this route waits in a buffer that no other peer's packets use.
   */
  bool (*route_has_own_buffer)(struct harp_io *io, const struct harp_io_route *route);

  /* Lends a frame for a superframe to `route` of segments up to segment_bytes; false when none is free, or
   * when the route's port has a superframe that the kernel does not take yet. */
  bool (*tx_take)(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                  struct harp_tx_superframe *sf);
  void (*tx_give_back)(struct harp_io *io, struct harp_tx_superframe *sf);
  /* Sends, or queues until a tx_flush. Returns 0; or -errno: the packets did not leave (and are as good as
   * lost). The frame is the driver's in every case; payload that it gathers is not needed any more. */
  int (*tx_submit)(struct harp_io *io, struct harp_tx_superframe *sf);
  /* Sends what is queued; of that, what the kernel does not take yet stays queued. */
  void (*tx_flush)(struct harp_io *io);
  /* Collects completions; returns how many frames came back. */
  unsigned (*reap)(struct harp_io *io);

  /* Takes up to `max` received superframes; returns how many. */
  unsigned (*rx)(struct harp_io *io, struct harp_rx_superframe *out, unsigned max);
  void (*rx_release)(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count);

  /* Lists what to poll for while asleep (at most HARP_IO_FDS_MAX); returns how many. Called without the lock,
   * too. */
  unsigned (*fds)(struct harp_io *io, struct pollfd *fds);
};

/* First member of every driver's instance. */
struct harp_io {
  const struct harp_io_ops *ops;
  struct harp_io_info info;
};

/* Says whether the interface's kernel driver is known for zero-copy AF_XDP, so that trying it may pay. */
bool harp_io_xdp_has_zero_copy_driver(unsigned ifindex);

/* Has the kernel merge no more packets for the ports of a udp driver, from which nothing was received yet. */
void harp_io_udp_stop_merging(struct harp_io *io);

extern const struct harp_io_ops harp_io_udp, harp_io_xdp, harp_io_none, harp_io_bundle, harp_io_sim;

#endif
