/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a sender: what it may have in flight towards each of the peer's interfaces.
 *
 * Owns and alone writes struct harp_send_windows, a part of struct harp_sender, but for the bytes in flight
 * of a window, which path.h counts. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. The peer announces one window for each of its interfaces, in the handshake and in acknowledgements.
 *      One that is out of range is bounded and counted.
 *   2. It bounds the congestion window of each path; one above a lower bound is cut when it changes next.
 *   3. A message that is posted when the last announcement is stale begins with the least window towards
 *      each interface to which nothing is in flight, whatever else waits.
 *   4. The kernel bounds what tcp paths send. */
#ifndef HARP_SEND_WINDOW_H
#define HARP_SEND_WINDOW_H

#include "base/counters.h"
#include "proto/limits.h"
#include "proto/receive_window.h"

struct harp_sender;

/* A window announced longer ago than this is stale: the receiver may have shared it out to others. It counts
 * the sender among its senders for longer. */
#define HARP_WINDOW_STALE_NS HARP_MS(50)

struct harp_send_windows {
  uint32_t announced_bytes; /* the window of each of its interfaces that the peer announced last */
  harp_ns announced_ns;     /* the time when it did */
  bool is_cut;              /* some windows are less than announced, since the announcement was stale */
  struct harp_receive_window by_eni[HARP_WINDOWS_MAX]; /* the windows by remote_eni */
  struct harp_receive_window tcp;                      /* the window of all tcp paths */
};

/* Begins with the window that the peer announced in the handshake. */
void harp_send_windows_init(struct harp_send_windows *w, uint32_t bytes, struct harp_counters *counters,
                            harp_ns now);

/* Returns the window of one of the peer's interfaces. */
static inline struct harp_receive_window *harp_send_windows_to(struct harp_send_windows *w,
                                                               unsigned remote_eni) {
  return &w->by_eni[remote_eni % HARP_WINDOWS_MAX];
}

/* Takes the window that an acknowledgement announces. */
void harp_send_windows_on_announced(struct harp_sender *s, uint32_t bytes, harp_ns now);

/* Begins anew with the least windows (rule 3); harp_send_windows_on_posted alone calls it. */
void harp_send_windows_cut_stale(struct harp_send_windows *w);

/* Learns that a message is posted: others may have waited, for credit. */
static inline void harp_send_windows_on_posted(struct harp_send_windows *w, harp_ns now) {
  if (harp_unlikely(now - w->announced_ns >= HARP_WINDOW_STALE_NS)) harp_send_windows_cut_stale(w);
}

#endif
