/* SPDX-License-Identifier: Apache-2.0 */
/* A driver without a network, for tests on a virtual clock: sends datagrams to a callback and receives what
 * the test delivers. Not linked into the plugin.
 *
 * It emulates both kinds of real drivers: packed places segments like a GSO send and completes at once;
 * framed gives each segment a frame of its own, sends on tx_flush and delays completions on request, as
 * AF_XDP does. Every frame has one owner at any time; harp_io_sim_check asserts it. */
#ifndef HARP_IO_SIM_H
#define HARP_IO_SIM_H

#include "io/io.h"

enum { HARP_SIM_FRAMES = 128, HARP_SIM_FRAME_BYTES = 12288, HARP_SIM_QUEUE = 256 };

/* Receives one datagram sent from local port `port` to `to`, ECN-capable or not. Borrowed for the call. */
typedef void (*harp_sim_send)(void *wire, unsigned port, const struct sockaddr_storage *to,
                              const uint8_t *data, uint32_t bytes, bool ect);

struct harp_io_sim_config {
  bool framed;
  bool gather; /* as in harp_io_info; packed only */
  unsigned port_count;
  uint16_t first_port;
  harp_sim_send send;
  void *wire; /* argument of send */
  struct harp_counters *counters;
};

/* Opens an instance; closed like any driver. */
struct harp_io *harp_io_sim_open(const struct harp_io_sim_config *config);

/* Puts a datagram, marked as CE or not, into the receive queue; false when it is dropped because the queue is
 * full or no frame is free. */
bool harp_io_sim_deliver(struct harp_io *io, const uint8_t *data, uint32_t bytes, bool ce);

/* Makes the next `count` tx_submit calls fail with -EAGAIN. */
void harp_io_sim_refuse(struct harp_io *io, unsigned count);
/* Holds completions back (framed only) until called with false. */
void harp_io_sim_hold_completions(struct harp_io *io, bool hold);

/* Asserts that every frame has exactly one owner. */
void harp_io_sim_check(const struct harp_io *io);

#endif
