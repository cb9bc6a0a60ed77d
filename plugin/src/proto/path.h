/* SPDX-License-Identifier: Apache-2.0 */
/* One path of a sending session: (local ENI, remote ENI, source port), with its own packet numbers, flight,
 * RTT, congestion window, pace and health. Owned by struct harp_sender; loss.c finds what got lost on it.
 *
 * A tcp path is a kernel TCP connection. Its packets are records (wire/record.h) of up to 512 KiB;
 * congestion control, pacing and retransmission are the kernel's. It is blocked, and takes nothing, while it
 * is not connected and while the kernel has not taken all of its last record. Its flight is given up as a
 * whole, with its connection. */
#ifndef HARP_PATH_H
#define HARP_PATH_H

#include "base/linemap.h"
#include "base/trace.h"
#include "proto/cc.h"
#include "proto/flight.h"
#include "proto/rtt.h"
#include "proto/tcp_speed.h"
#include "proto/window.h"
#include "wire/packet.h"

enum harp_path_state {
  HARP_PATH_NEW,     /* nothing has been acknowledged yet: probed */
  HARP_PATH_UP,      /* works in both directions */
  HARP_PATH_DOWN,    /* not acknowledging: drained to the others, probed until it returns */
  HARP_PATH_DORMANT, /* not in use, others between the same ENIs are: nothing is sent on it */
};

/* After so many probe timeouts in a row a path is silent: only probes go out until something is
 * acknowledged. */
enum { HARP_PATH_SILENT_PTOS = 3 };

/* What the caller knows of a path. */
struct harp_path_config {
  uint32_t lines_max;            /* per packet, from the path's MTU */
  uint8_t local_eni, remote_eni; /* paths over the same interface fail together */
  bool standby;                  /* carries data only while neither of its ENIs has another path that is up */
  bool is_tcp;
  uint32_t speed_mbps; /* of the local ENI; 0: unknown */
};

struct harp_path {
  uint8_t index, local_eni, remote_eni;
  uint8_t pair; /* of ENIs: paths of equal number run between the same two */
  bool standby, is_tcp;
  bool blocked; /* a tcp path that takes nothing now */
  enum harp_path_state state;
  uint64_t next_number;
  uint64_t ack_next;         /* one above the highest number of an acknowledgement received */
  uint32_t lines, lines_max; /* per packet: in use, and what the MTU allows */
  uint32_t inflight_bytes;   /* of pending packets, with headers */
  struct harp_window *to;    /* of the peer's interface; shared, owned by the sender */
  /* Sent since the last request for an acknowledgement, and the number of the packet with that request. */
  uint32_t unrequested_bytes, unrequested_bursts;
  uint64_t ack_request_number;

  struct harp_rtt rtt;
  struct harp_cc cc;
  harp_ns pace_next_ns; /* the next superframe leaves no earlier */
  harp_ns travel_ns;    /* half the base RTT */
  uint64_t drain_q16; /* ns that a byte of the flight takes, times 2^16: RTT / window; of a tcp path tcp's */
  struct harp_tcp_speed tcp;
  uint64_t round_end_number;

  /* loss detection */
  uint64_t largest_acked; /* highest number acknowledged; next_number - 1 at most */
  bool any_acked;
  harp_ns rack_sent_ns; /* when the youngest acknowledged packet was sent */
  harp_ns loss_deadline_ns;
  /* Tolerance for reordering: grows when a loss proves spurious, shrinks each round trip. */
  harp_ns reorder_ns;
  harp_ns last_ack_ns;
  harp_ns silent_ns; /* pto_from_ns before the first timeout in a row */
  /* Start of the probe timeout: the latest of first packet in flight, block, acknowledgement, timeout and its
   * probe. */
  harp_ns pto_from_ns;
  uint32_t pto_count; /* consecutive, without an acknowledgement between */
  bool detour;        /* its packets take a slower way at the receiver */
  bool drained;       /* silent while others progress: its flight was given up, only probes are sent */
  bool probe_due;     /* send one packet now, regardless of the window */

  /* while not UP */
  uint64_t proof_number; /* an acknowledgement of this number or a later one shows that the path works */
  harp_ns probed_ns;     /* when the last probe fell due, then when it was sent */
  uint32_t probe_count;  /* since it left UP, or was new */

  /* packet size search */
  bool size_try_max;         /* the path was silent: its next size probe tries lines_max */
  harp_ns size_probe_ns;     /* when to try a larger size; HARP_NEVER while at the maximum */
  uint32_t size_probe_lines; /* size under test, 0 when none */
  uint64_t size_probe_number;
  uint32_t padding_bytes; /* of inflight_bytes: size probes */

  /* statistics */
  uint64_t first_number;
  uint64_t sent_bytes; /* of packets, with headers */
  uint64_t lost_packets, resent_packets, probe_timeouts;

  struct harp_flight flight;
};

/* `to` is the window of the peer's interface, borrowed. `ring` is the memory of the path's flight: `records`
 * of them, a power of two. */
void harp_path_init(struct harp_path *p, unsigned index, uint64_t first_number,
                    const struct harp_path_config *config, const struct harp_cc_ops *cc,
                    struct harp_window *to, struct harp_burst *ring, uint32_t records, harp_ns now);

/* What a tcp path has in flight at most, in bytes: more than the kernel's buffers hold. */
enum { HARP_PATH_TCP_WINDOW_BYTES = 8 << 20 };

/* A superframe or two may leave at once; the pace holds over any longer time. */
#define HARP_PACE_BURST_NS HARP_US(20)

/* Returns whether the windows have room for a full packet. */
static inline bool harp_path_has_room(const struct harp_path *p) {
  return !p->blocked && p->cc.window_bytes >= p->inflight_bytes + p->cc.packet_bytes &&
         harp_window_open(p->to, p->cc.packet_bytes);
}

/* Returns whether windows, pace and flight let a full packet go now, on a path that is not silent. */
static inline bool harp_path_open(const struct harp_path *p, harp_ns now) {
  return harp_path_has_room(p) && now + HARP_PACE_BURST_NS >= p->pace_next_ns &&
         !harp_flight_full(&p->flight);
}

/* Notes travel_ns and drain_q16, after RTT or window have changed. */
void harp_path_note_speed(struct harp_path *p);

/* Resets them: earlier measurements of a tcp path do not apply any more. */
void harp_path_restart_speed(struct harp_path *p);

/* Returns how many full packets may be sent now: windows and pace. 0 means not now. */
uint32_t harp_path_allowance(const struct harp_path *p, harp_ns now);

/* Returns when the path may send a full packet by time alone (pace), HARP_NEVER if only acks help. */
harp_ns harp_path_allowance_ns(const struct harp_path *p, harp_ns now);

/* Records a burst just given out for sending; fills in its number and time. Returns its first packet
 * number. */
uint64_t harp_path_on_sent(struct harp_path *p, struct harp_burst *burst, harp_ns now);

/* Returns whether anything is in flight of which only an answer tells more. Of size probes that later packets
 * have passed time does: they are lost or late, and another probe is of no use. */
static inline bool harp_path_awaits_answer(const struct harp_path *p) {
  return p->inflight_bytes > (p->loss_deadline_ns == HARP_NEVER ? 0 : p->padding_bytes);
}

/* Returns the probe timeout's deadline, HARP_NEVER when the path owes nothing. */
harp_ns harp_path_pto_ns(const struct harp_path *p);

/* Notes that a round trip has passed: forgets a little of the tolerance for reordering. */
void harp_path_on_round(struct harp_path *p);

/* Returns whether something is to come, for which the path is watched: an answer, or room in the kernel. */
static inline bool harp_path_owes(const struct harp_path *p) {
  return p->inflight_bytes || p->blocked;
}

/* Returns whether only probes may be sent now. */
static inline bool harp_path_silent(const struct harp_path *p) {
  return p->state != HARP_PATH_UP || p->drained || p->pto_count >= HARP_PATH_SILENT_PTOS;
}

/* Goes down to the smallest packets, and lets the size search try the largest as soon as something is
 * acknowledged. */
void harp_path_restart_size(struct harp_path *p);

/* Takes the next smaller packet size; returns false at the smallest. */
bool harp_path_shrink(struct harp_path *p, harp_ns now);

/* Returns the size that the next size probe tries, in lines: the next larger than the current, or
 * lines_max. */
uint32_t harp_path_next_size(const struct harp_path *p);

#endif
