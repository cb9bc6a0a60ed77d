/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP flow that always has data, beside the flows under test: CUBIC (RFC 9438) or Reno (RFC 5681), as a
 * model.
 *
 * Each segment is acknowledged. A lost one is known after a smoothed RTT, as by ideal selective
 * acknowledgements, and sent again in effect, since the model counts bytes only. One decrease for each
 * window. No HyStart, no pacing, no timeouts: cwnd is at least two segments. */
#ifndef HARP_MODELS_CUBIC_H
#define HARP_MODELS_CUBIC_H

#include "models/lane.h"
#include "models/wire.h"

enum { CUBIC_HEADERS_BYTES = 52 }; /* the headers of a segment: IPv4, TCP with time stamps */

/* The congestion window, in segments. */
struct cubic_window {
  bool is_reno;
  double cwnd, ssthresh, w_max;
  double epoch_cwnd;    /* at the start of the epoch */
  double k_s;           /* seconds from then until w_max is reached */
  harp_ns epoch_ns;     /* 0: the next acknowledgement starts one */
  harp_ns decreased_ns; /* losses of what was sent before do not count */
  harp_ns srtt_ns;
};

void cubic_window_init(struct cubic_window *w, bool is_reno);

/* Counts one segment that was acknowledged after `rtt_ns`. A window that is not in use does not grow. */
void cubic_window_on_ack(struct cubic_window *w, harp_ns rtt_ns, bool is_in_use, harp_ns now);

/* Counts one segment that was sent at `sent_ns` and is lost. */
void cubic_window_on_loss(struct cubic_window *w, harp_ns sent_ns, harp_ns now);

struct cubic {
  struct lane acks, losses;
  struct source start;
  struct wire *wire;
  harp_ns delay_ns; /* one way */
  uint32_t segment_bytes;
  struct cubic_window window;
  uint64_t inflight;
  uint64_t acked_bytes; /* payload */
  uint64_t sent_segments, lost_segments;
};

void cubic_init(struct cubic *c, struct agenda *a, struct wire *w, harp_ns delay_ns, uint32_t segment_bytes,
                bool is_reno, harp_ns start_ns);
void cubic_fini(struct cubic *c);

#endif
