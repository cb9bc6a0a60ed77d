/* SPDX-License-Identifier: Apache-2.0 */
/* Attaches the XDP program of an interface (program.h), or joins the one that is attached, and fills its
 * maps.
 *
 * One program serves all HARP processes of a host: the first attaches it, later ones join it. A bpf link
 * holds it, so the kernel detaches it when the last file descriptor of the link is closed, also by kill -9. A
 * program of another owner is never replaced. Called at open and close by the thread that opens the driver;
 * counters are read by the driver's thread. */
#ifndef HARP_IO_XDP_FILTER_H
#define HARP_IO_XDP_FILTER_H

#include <sys/socket.h>

#include "base/base.h"
#include "base/error.h"
#include "io/xdp/program.h"

enum { HARP_XDP_PORTS_MAX = 16384 /* the most ports of one interface, of all processes together */ };

struct harp_xdp_filter {
  int link_fd, ports_fd, sockets_fd; /* owned; -1: closed */
  unsigned queue_count; /* NIC queues that may have a socket: those in use before the program was attached */
  bool joined;          /* another driver or process had attached the program */
};

/* Attaches the program in the given mode, or joins the one that a HARP process has attached in that mode.
 * `frags`: accept packets of several buffers (jumbo MTU). Retries for up to 20 ms while other processes
 * attach or detach it. Returns 0, or -errno with a sentence in `error`: -EBUSY when the interface has another
 * XDP program, -EPERM when a capability is missing, which the sentence names. */
HARP_MUST_CHECK int harp_xdp_filter_open(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode,
                                         bool frags, struct harp_error *error);
void harp_xdp_filter_close(struct harp_xdp_filter *f);

/* Makes `socket_fd` the socket of a queue. Returns 0, -EBUSY when the queue has one already, or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_queue(struct harp_xdp_filter *f, uint32_t queue, int socket_fd);

/* Adds a port of the address `local` (whose own port is ignored) to the map: packets to it that are received
 * on one of `queues`, a bit each, are redirected if the upper half of their token is token_prefix, else
 * dropped. The port's counters start at 0. Returns 0 or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                             uint16_t port, uint64_t queues, uint32_t token_prefix);
void harp_xdp_filter_remove_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port);

/* Returns the queues, a bit each, of all ports in the map that a live process has bound. */
uint64_t harp_xdp_filter_used_queues(const struct harp_xdp_filter *f);

struct harp_xdp_filter_counts {
  uint64_t redirected; /* packets to sockets; approximate */
  uint64_t dropped;    /* packets with another token prefix; exact */
};

/* Adds the counts of a port since it was added to *counts. */
void harp_xdp_filter_count(const struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                           uint16_t port, struct harp_xdp_filter_counts *counts);

#endif
