/* SPDX-License-Identifier: Apache-2.0 */
/* The receive window of one interface of the peer: what a sender may have in flight towards it, so that its
 * receive buffer holds all of it.
 *
 * Owns struct harp_receive_window, a part of struct harp_send_windows; send_window.c writes its bytes, path.h
 * what is in flight. Rules:
 *
 *   1. Paths to the same interface share one.
 *   2. A packet takes more of a buffer than its bytes: each counts as HARP_WINDOW_PACKET_BYTES more.
 *   3. Probes of paths that are not UP take nothing of it: each such path has one in flight nearly always,
 *      and few of them arrive. */
#ifndef HARP_RECEIVE_WINDOW_H
#define HARP_RECEIVE_WINDOW_H

#include "wire/packet.h"

struct harp_receive_window {
  uint32_t bytes;          /* as announced: HARP_WINDOW_MIN_BYTES to HARP_WINDOW_MAX_BYTES */
  uint32_t inflight_bytes; /* the bytes of pending packets in a buffer; probes may exceed it */
};

/* Returns what so many packets of one size take of the window. */
static inline uint32_t harp_receive_window_cost_bytes(uint32_t packets, uint32_t packet_bytes) {
  return packets * (packet_bytes + HARP_WINDOW_PACKET_BYTES);
}

/* Returns whether one more packet of this size fits. */
static inline bool harp_receive_window_is_open(const struct harp_receive_window *w, uint32_t packet_bytes) {
  return w->bytes >= w->inflight_bytes + harp_receive_window_cost_bytes(1, packet_bytes);
}

/* Returns how many packets of this size fit. */
static inline uint32_t harp_receive_window_packets(const struct harp_receive_window *w,
                                                   uint32_t packet_bytes) {
  uint32_t room = w->bytes > w->inflight_bytes ? w->bytes - w->inflight_bytes : 0;
  return room / harp_receive_window_cost_bytes(1, packet_bytes);
}

/* Returns the window that an announcement of so many bytes stands for: one that would stall the sender, or
 * that no buffer has, is bounded. */
static inline uint32_t harp_receive_window_bounded(uint32_t bytes) {
  return HARP_MIN(HARP_MAX(bytes, (uint32_t)HARP_WINDOW_MIN_BYTES), (uint32_t)HARP_WINDOW_MAX_BYTES);
}

#endif
