/* SPDX-License-Identifier: Apache-2.0 */
/* One path of a sending session: (local ENI, remote ENI, source port), with its own packet numbers, flight,
 * RTT, congestion window, pace and health.
 *
 * Owns struct harp_path, a part of struct harp_sender. path.c makes a path and writes its numbers, its flight
 * and the bytes in flight, of the path and of the receive window; every other field has a file that writes
 * it, which stands beside it. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. A packet is in flight from its sending until it is settled (loss.h).
 *   2. A full packet may be sent when the congestion window, the receive window and the flight have room, and
 *      the pace is open; none while the path is silent, but for probes.
 *   3. A congestion window of few packets is rounded up to one: the pace enforces it.
 *   4. A tcp path is a kernel TCP connection. Its packets are records (wire/record.h) of up to 512 KiB;
 *      congestion control, pacing and retransmission are the kernel's. It is blocked, and takes nothing,
 *      while it is not connected and while the kernel has not taken all of its last record. Its flight is
 *      given up as a whole, with its connection. */
#ifndef HARP_PATH_H
#define HARP_PATH_H

#include "base/linemap.h"
#include "base/trace.h"
#include "proto/ack_request.h"
#include "proto/cc.h"
#include "proto/flight.h"
#include "proto/path_ecn.h"
#include "proto/path_loss.h"
#include "proto/path_pace.h"
#include "proto/path_probe.h"
#include "proto/path_size.h"
#include "proto/path_skip.h"
#include "proto/path_speed.h"
#include "proto/path_stats.h"
#include "proto/receive_window.h"
#include "proto/rtt.h"
#include "wire/packet.h"

enum harp_path_state {
  HARP_PATH_NEW,     /* nothing has been acknowledged yet: it is probed */
  HARP_PATH_UP,      /* it works in both directions */
  HARP_PATH_DOWN,    /* it does not acknowledge: its flight moves to the others, and it is probed */
  HARP_PATH_DORMANT, /* others between the same ENIs are in use: nothing is sent on it */
};

/* The configuration of a path. */
struct harp_path_config {
  uint32_t lines_max;            /* the lines of a packet, from the path's MTU */
  uint8_t local_eni, remote_eni; /* paths over the same interface fail together */
  bool standby; /* it carries data only while neither of its ENIs has another path that is up */
  bool is_tcp;
  bool ecn;            /* datagrams leave as ECN-capable where the network lets them pass */
  uint32_t speed_mbps; /* the speed of the local ENI; 0: unknown */
  uint64_t skip_seed;  /* the seed of the packet numbers that are skipped (path_skip.h); 0: none is */
};

struct harp_path {
  /* path_init sets these once */
  uint8_t index, local_eni, remote_eni;
  bool standby, is_tcp;
  struct harp_receive_window *to; /* the receive window of the peer's interface, which send_window.c owns */

  /* each written by one file of the sender */
  uint8_t pair;               /* path_pairs.c: the pair of ENIs; paths of one pair run between the same two */
  enum harp_path_state state; /* path_set.c */
  bool detour;                /* path_set.c: its packets take a slower way at the receiver */
  bool blocked;               /* send_tcp.c: a tcp path that takes nothing now */
  uint64_t ack_next;          /* send.c: one above the highest number of an acknowledgement */

  /* path.c: what was sent and is not settled; loss.c and tail_duplication.c mark the packets in the flight */
  uint64_t next_number;
  struct harp_path_skip skip;
  uint32_t inflight_bytes; /* the bytes of pending packets, with headers */
  uint32_t padding_bytes;  /* the part of inflight_bytes that size probes have */
  struct harp_flight flight;

  /* each written by the file of its name */
  struct harp_path_size size;
  struct harp_ack_request ack_request;
  struct harp_rtt rtt;
  struct harp_cc cc;
  struct harp_path_pace pace;
  struct harp_path_speed speed;
  struct harp_path_loss loss; /* loss.c */
  struct harp_path_probe probe;
  struct harp_path_ecn ecn;
  struct harp_path_stats stats;
};

/* `to` is the window of the peer's interface, borrowed. `ring` is the memory of the path's flight: `records`
 * of them, a power of two. */
void harp_path_init(struct harp_path *p, unsigned index, uint64_t first_number,
                    const struct harp_path_config *config, const struct harp_cc_ops *cc,
                    struct harp_receive_window *to, struct harp_burst *ring, uint32_t records, harp_ns now);

/* The most bytes that a tcp path has in flight: more than the kernel's buffers hold. */
enum { HARP_PATH_TCP_WINDOW_BYTES = 8 << 20 };

/* Returns how many full packets the congestion window has room for. A window of few packets is rounded up, so
 * that one of less than a packet lets one go: the pace keeps to it. */
static inline uint32_t harp_path_room(const struct harp_path *p) {
  if (p->inflight_bytes >= p->cc.window_bytes) return !p->inflight_bytes;
  uint32_t room = p->cc.window_bytes - p->inflight_bytes;
  if (p->cc.window_bytes < HARP_PACE_EXACT_PACKETS * p->cc.packet_bytes) room += p->cc.packet_bytes - 1;
  return room / p->cc.packet_bytes;
}

/* Returns whether the windows have room for a full packet. */
static inline bool harp_path_has_room(const struct harp_path *p) {
  return !p->blocked && harp_path_room(p) && harp_receive_window_is_open(p->to, p->cc.packet_bytes);
}

/* Returns whether windows, pace and flight let a full packet go now, on a path that is not silent. */
static inline bool harp_path_is_open(const struct harp_path *p, harp_ns now) {
  return harp_path_has_room(p) && harp_path_pace_is_open(&p->pace, now) && !harp_flight_is_full(&p->flight);
}

/* Returns how many full packets may be sent now: windows and pace. 0 means not now. */
uint32_t harp_path_allowance(const struct harp_path *p, harp_ns now);

/* Returns when the path may send a full packet by time alone (pace), HARP_NEVER if only acks help. */
harp_ns harp_path_allowance_ns(const struct harp_path *p, harp_ns now);

/* Skips packet numbers now and then, before something is sent. */
static inline void harp_path_skip_numbers(struct harp_path *p) {
  p->next_number = harp_path_skip_next(&p->skip, p->next_number);
}

/* Records a burst just given out for sending; fills in its number and time. Returns its first packet
 * number. */
uint64_t harp_path_on_sent(struct harp_path *p, struct harp_burst *burst, harp_ns now);

/* Settles so many packets of a burst: they are not in flight any more. Returns their bytes. */
static inline uint32_t harp_path_on_settled(struct harp_path *p, const struct harp_burst *b,
                                            uint32_t packets) {
  uint32_t bytes = packets * b->packet_bytes, cost = harp_burst_cost_bytes(b, packets);
  HARP_ASSERT(p->inflight_bytes >= bytes && p->to->inflight_bytes >= cost);
  p->inflight_bytes -= bytes;
  if (b->is_padding) p->padding_bytes -= bytes;
  p->to->inflight_bytes -= cost;
  return bytes;
}

/* Returns whether anything is in flight of which only an answer tells more. Of size probes that later packets
 * have passed time does: they are lost or late, and another probe is of no use. */
static inline bool harp_path_awaits_answer(const struct harp_path *p) {
  return p->inflight_bytes > (p->loss.deadline_ns == HARP_NEVER ? 0 : p->padding_bytes);
}

/* Returns whether something is to come, for which the path is watched: an answer, or room in the kernel. */
static inline bool harp_path_owes(const struct harp_path *p) {
  return p->inflight_bytes || p->blocked;
}

/* Returns whether only probes may be sent now. */
static inline bool harp_path_is_silent(const struct harp_path *p) {
  return p->state != HARP_PATH_UP || p->probe.has_moved_flight || p->probe.pto_count >= HARP_PATH_SILENT_PTOS;
}

#endif
