/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of all packet drivers, which send and receive superframes.
 *
 * A superframe is up to HARP_SEGMENTS_MAX packets to one destination; all but the last are segment_bytes
 * long. With UDP sockets it is one GSO send or one GRO receive (up to 64 KB in a system call); with AF_XDP
 * each segment is a frame. The engine writes packets into the driver's frame and reads them from it.
 *
 * Frames: the driver owns them all. tx_take lends one (TX_BUILD) until tx_submit or tx_give_back; after
 * tx_submit it is the driver's (TX_RING) until its completion, which reap collects. rx lends frames (RX_HELD)
 * until rx_release.
 *
 * One instance belongs to one engine; every function is called by the thread that runs the engine's pass, or
 * under the engine's lock. Only `open` waits long: with AF_XDP up to 10 s, while the kernel still releases an
 * earlier socket; no other function waits for the kernel's rtnl lock. */
#ifndef HARP_IO_H
#define HARP_IO_H

#include <poll.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/counters.h"
#include "base/error.h"

enum {
  HARP_SEGMENTS_MAX = 64,
  HARP_SUPERFRAME_MAX_BYTES = 65000, /* UDP payload of one GSO send, which with headers must fit 65535 */
  HARP_IO_PORTS_MAX = 16,
  HARP_RX_BATCH_MAX = 32,
  HARP_IO_FDS_MAX = 160, /* the most files of one driver (fds): NIC queues, full sockets, an epoll set */
};

struct harp_io;
struct harp_io_ready;
struct harp_io_xdp_config;
struct harp_io_route; /* one destination, reached from one local port; defined by the driver */

struct harp_tx_superframe {
  struct harp_io_route *route;
  uint8_t *base; /* segment i is built at base + i * stride */
  uint32_t stride;
  uint32_t segment_bytes; /* the bytes of every segment but the last */
  uint32_t last_bytes;    /* the bytes of the last one, set before tx_submit */
  uint32_t count;         /* the number of segments built, at most count_max */
  uint32_t count_max;
  /* With gather the caller builds only the headers, of head_bytes each; the driver reads the payload of
   * segment i, payload_bytes[i] at payload[i], during tx_submit. */
  bool gather;
  uint32_t head_bytes;
  const void *payload[HARP_SEGMENTS_MAX];
  uint32_t payload_bytes[HARP_SEGMENTS_MAX];
  bool ect; /* the packets are to leave as ECN-capable (ecn.h); false after tx_take, set before tx_submit */
  uint32_t frame; /* the driver's own */
};

struct harp_rx_superframe {
  const uint8_t *data;
  uint32_t bytes;         /* the bytes of all segments together */
  uint32_t segment_bytes; /* the bytes of every segment but the last, which may be shorter; contiguous */
  uint32_t frame;         /* the driver's own */
  /* Received through a socket though the driver has AF_XDP queues: another port may lead to one of these. */
  bool detour;
  bool ce; /* all of its packets were marked as CE (ecn.h) */
};

/* The properties of an open instance; valid after open. */
struct harp_io_info {
  const char *mode;      /* "udp gso+gro", "udp sendmmsg", ...: for logs and statistics */
  char queues[64];       /* NIC queues with AF_XDP sockets, "queues 0-3,6"; "" without any */
  char why_not[480];     /* the reasons why better modes failed; "" if none did */
  uint32_t segments_max; /* the most segments of one superframe */
  bool gather;           /* the driver supports harp_tx_superframe.gather */
  uint32_t rx_batch;     /* superframes to request in one rx call */
  uint32_t buffer_bytes; /* received bytes that one port can hold until rx */
  unsigned port_count;
  uint16_t ports[HARP_IO_PORTS_MAX]; /* the UDP port that peers send to, by local port, host byte order */
};

struct harp_io_config {
  const struct sockaddr_storage *addr; /* local address of the ENI; its port is ignored */
  uint16_t port_low, port_high;        /* range of local ports, inclusive; 0 and 0: the kernel chooses */
  unsigned port_count;
  /* Every port receives; else only the first one does, and the others are source ports. */
  bool is_each_receiving;
  uint8_t *frames; /* memory for frames, borrowed until close */
  size_t frames_bytes;
  struct harp_counters *counters;
  uint32_t disable; /* the flags HARP_IO_NO_*, for tests and for hosts with a faulty offload */
  bool ecn;         /* most superframes will have `ect` set */
  /* The set to which the driver adds its sockets, refreshed by its owner before rx; NULL: the driver has its
   * own.
   */
  struct harp_io_ready *ready;

  /* Packets must leave by this interface, even if the routing tables prefer another one. */
  bool is_one_of_many;
  const char *ifname; /* the interface's name, copied */
  unsigned ifindex;   /* 0: the interface does not exist yet */

  const struct harp_io_xdp_config *xdp; /* what the xdp driver needs (xdp/config.h); others ignore it */
};

enum { HARP_IO_NO_GSO = 1, HARP_IO_NO_GRO = 2, HARP_IO_NO_GATHER = 4 };

struct harp_io_ops {
  const char *name;
  /* Returns the bytes of frame memory that open needs; ignores the config's frames. */
  size_t (*frames_bytes)(const struct harp_io_config *config);
  /* Opens an instance; returns 0 or -errno, with a sentence in `error`. */
  int (*open)(struct harp_io **io, const struct harp_io_config *config, struct harp_error *error);
  void (*close)(struct harp_io *io);

  /* Creates a route from local port `port` (an index) to `peer`, until route_close. traffic_class: DSCP << 2,
   * or -1 for the system's default. NULL: no memory. */
  struct harp_io_route *(*route_open)(struct harp_io *io, unsigned port, const struct sockaddr_storage *peer,
                                      int traffic_class);
  void (*route_close)(struct harp_io *io, struct harp_io_route *route);
  /* Returns whether packets from this peer have a receive buffer of their own. */
  bool (*route_has_own_buffer)(struct harp_io *io, const struct harp_io_route *route);
  /* Reports that packets sent on this route reach nobody. Returns whether the driver sends in another way
   * from now on.
   */
  bool (*route_doubt)(struct harp_io *io, struct harp_io_route *route);

  /* Lends a frame for a superframe to `route` of segments up to segment_bytes; false when none is free, or
   * when the route's port has a superframe that the kernel does not take yet. */
  bool (*tx_take)(struct harp_io *io, struct harp_io_route *route, uint32_t segment_bytes,
                  struct harp_tx_superframe *sf);
  void (*tx_give_back)(struct harp_io *io, struct harp_tx_superframe *sf);
  /* Sends, or queues until tx_flush. Returns 0, or -errno when the packets were dropped. In both cases the
   * frame is the driver's again, and gathered payload is no longer read. */
  int (*tx_submit)(struct harp_io *io, struct harp_tx_superframe *sf);
  /* Sends what is queued; what the kernel does not accept yet stays queued. */
  void (*tx_flush)(struct harp_io *io);
  /* Collects completions; returns the number of frames that are free again. */
  unsigned (*reap)(struct harp_io *io);

  /* Receives up to `max` superframes, borrowed until rx_release; returns how many. */
  unsigned (*rx)(struct harp_io *io, struct harp_rx_superframe *out, unsigned max);
  void (*rx_release)(struct harp_io *io, const struct harp_rx_superframe *held, unsigned count);

  /* Writes what to poll for while asleep (at most HARP_IO_FDS_MAX); returns how many. May be called by any
   * thread, without the lock. */
  unsigned (*fds)(struct harp_io *io, struct pollfd *fds);
};

/* First member of every driver's instance. */
struct harp_io {
  const struct harp_io_ops *ops;
  struct harp_io_info info;
};

extern const struct harp_io_ops harp_io_udp, harp_io_xdp, harp_io_none;

#endif
