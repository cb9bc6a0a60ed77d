/* SPDX-License-Identifier: Apache-2.0 */
/* An AF_XDP socket bound to one queue: UMEM registered, rings mapped, the kernel's answer read back.
 *
 * Opens what struct harp_xdp_queue then works on. Called at open and close. Source: Linux
 * Documentation/networking/af_xdp.rst. */
#ifndef HARP_IO_XDP_SOCKET_H
#define HARP_IO_XDP_SOCKET_H

#include "base/error.h"
#include "io/xdp/queue.h"

struct harp_xdp_socket_config {
  unsigned ifindex;
  uint32_t queue;
  bool zero_copy; /* ask for it, and take nothing less */
  bool sg;        /* packets may fill several frames */
  uint32_t headroom;
  uint8_t *umem; /* borrowed until close */
  uint32_t rx_frames, tx_runs;
};

struct harp_xdp_socket {
  struct harp_xdp_queue queue;
  uint32_t number; /* of the NIC's queue */
  bool zero_copy;  /* what the kernel says it is */
  struct {
    void *at;
    size_t bytes;
  } maps[4];
};

/* Opens and binds. Returns 0, or -errno with a sentence in `error`; then nothing is left open. */
HARP_MUST_CHECK int harp_xdp_socket_open(struct harp_xdp_socket *s,
                                         const struct harp_xdp_socket_config *config,
                                         struct harp_error *error);

/* Closes it. Frames that the engine still holds stay readable as long as the UMEM's memory does. */
void harp_xdp_socket_close(struct harp_xdp_socket *s);

#endif
