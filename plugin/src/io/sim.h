/* SPDX-License-Identifier: Apache-2.0 */
/* A driver without a network: superframes become datagrams in memory, which the caller carries as it likes.
 *
 * For tests, on a virtual clock: not linked into the plugin. It plays both kinds of real drivers: `packed`
 * lays segments out like a GSO send and completes at once, `framed` gives each segment a frame of its own,
 * sends on tx_flush and returns frames only when the caller says so, as AF_XDP does. Every frame has one
 * owner at any time; harp_io_sim_check asserts that they add up. */
#ifndef HARP_IO_SIM_H
#define HARP_IO_SIM_H

#include "io/io.h"

enum { HARP_SIM_FRAMES = 128, HARP_SIM_FRAME_BYTES = 12288, HARP_SIM_QUEUE = 256 };

/* Receives one datagram sent from local port `port` to `to`. Borrowed for the call. */
typedef void (*harp_sim_send)(void *wire, unsigned port, const struct sockaddr_storage *to,
                              const uint8_t *data, uint32_t bytes);

struct harp_io_sim_config {
  bool framed;
  bool gather; /* takes payload by reference; packed only */
  unsigned port_count;
  uint16_t first_port;
  harp_sim_send send;
  void *wire; /* passed to send */
  struct harp_counters *counters;
};

struct harp_io *harp_io_sim_open(const struct harp_io_sim_config *config);

/* Puts a datagram into the receive queue; false when it is full or no frame is free (the packet is lost). */
bool harp_io_sim_deliver(struct harp_io *io, const uint8_t *data, uint32_t bytes);

/* Makes the next `count` tx_submit calls fail with -EAGAIN. */
void harp_io_sim_refuse(struct harp_io *io, unsigned count);
/* Holds completions back (framed only), or lets them come again. */
void harp_io_sim_hold_completions(struct harp_io *io, bool hold);

/* Asserts that every frame has exactly one owner. */
void harp_io_sim_check(const struct harp_io *io);

#endif
