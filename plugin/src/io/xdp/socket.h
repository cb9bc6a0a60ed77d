/* SPDX-License-Identifier: Apache-2.0 */
/* An AF_XDP socket: registers the UMEM, maps the rings, binds to one NIC queue.
 *
 * The data path is queue.h. Called at open and close, by the thread that opens the driver. Source: Linux
 * Documentation/networking/af_xdp.rst. */
#ifndef HARP_IO_XDP_SOCKET_H
#define HARP_IO_XDP_SOCKET_H

#include "base/error.h"
#include "io/xdp/queue.h"

struct harp_xdp_socket_config {
  unsigned ifindex;
  uint32_t queue;
  bool zero_copy;    /* it fails if the driver has no zero-copy; else it binds in copy mode */
  bool sg;           /* packets may take several frames */
  uint32_t headroom; /* bytes before each received packet, beyond HARP_XDP_PACKET_HEADROOM */
  uint8_t *umem;     /* the UMEM, borrowed until close */
  uint32_t rx_frames, tx_runs;
};

struct harp_xdp_socket {
  struct harp_xdp_queue queue;
  uint32_t number; /* the number of the NIC queue */
  bool zero_copy;  /* as the kernel reports it after bind */
  struct {
    void *at;
    size_t bytes;
  } maps[4];
};

/* Opens and binds. Returns 0, or -errno with a sentence in `error`; then nothing is left open. */
HARP_MUST_CHECK int harp_xdp_socket_open(struct harp_xdp_socket *s,
                                         const struct harp_xdp_socket_config *config,
                                         struct harp_error *error);

/* Closes it. The caller's UMEM memory stays mapped, so frames that the engine still holds stay readable. */
void harp_xdp_socket_close(struct harp_xdp_socket *s);

#endif
