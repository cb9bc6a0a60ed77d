/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a session's path for statistics, stall reports and summaries: a copy, in plain fields.
 *
 * Read by the engine, from the thread that runs its pass. The layers above proto/ read no field of a path, a
 * sender or a receiver (tests/meta/test_layers.py). */
#ifndef HARP_PATH_REPORT_H
#define HARP_PATH_REPORT_H

#include "proto/session.h"

struct harp_path_report {
  uint8_t local_eni, remote_eni; /* their index in the endpoint */
  bool is_tcp, is_standby;
  enum harp_path_state state;
  bool is_silent;             /* it is not UP, or does not acknowledge: nothing but probes goes out on it */
  uint32_t packet_bytes;      /* the most payload of a packet */
  uint32_t packet_max_bytes;  /* the most payload that the MTUs of its ends allow */
  bool is_size_limited;       /* packets with more than packet_bytes do not arrive, as far as is known */
  harp_ns rtt_ns, rtt_min_ns; /* 0: not measured yet */
  uint32_t window_bytes;      /* the congestion window */
  uint32_t inflight_bytes;    /* the bytes in flight, with headers */
  uint64_t first_number;      /* the number of its first packet */
  uint64_t sent_packets, sent_bytes; /* DATA and PROBE; bytes with headers */
  uint64_t received_bytes;           /* the bytes acknowledged, with headers */
  uint64_t ce_bytes; /* the part of sent_bytes that the receiver has reported as marked (CE) */
  uint64_t lost_packets, resent_packets, probe_timeouts;
};

/* Reports on a path of a session that has a sender and a receiver. */
struct harp_path_report harp_path_report_of(const struct harp_session *c, unsigned path);

#endif
