/* SPDX-License-Identifier: Apache-2.0 */
/* The XDP program on an interface (program.h): attached or joined, and its tables filled. It hands the
 * packets of our UDP ports to AF_XDP sockets, drops strangers' packets to them, passes all others.
 *
 * One program serves all HARP processes of a host: the first attaches it, later ones join it. It is held by
 * file descriptors of a bpf link, so it goes when the last of them is closed, also by kill -9. A program of
 * somebody else is never replaced. Called at open and close, by the thread that opens the driver. */
#ifndef HARP_IO_XDP_FILTER_H
#define HARP_IO_XDP_FILTER_H

#include <sys/socket.h>

#include "base/base.h"
#include "base/error.h"
#include "io/xdp/program.h"

enum { HARP_XDP_PORTS_MAX = 16384 /* of one interface, all processes together */ };

struct harp_xdp_filter {
  int link_fd, ports_fd, sockets_fd;
  unsigned queue_count; /* of the NIC, that may have a socket: those it had before the program came */
  bool joined;          /* an earlier process had attached it */
};

/* Attaches the program in the given mode, or joins the one that another HARP process attached in that mode.
 * `frags`: take packets of several buffers (jumbo MTU). Returns 0 or -errno with a sentence in `error`:
 * -EBUSY: a program of somebody else is there; -EPERM: a capability is missing, and which. */
HARP_MUST_CHECK int harp_xdp_filter_open(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode,
                                         bool frags, struct harp_error *error);
void harp_xdp_filter_close(struct harp_xdp_filter *f);

/* Makes `socket_fd` the receiver of a queue. Returns 0, -EBUSY when another process has it, or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_queue(struct harp_xdp_filter *f, uint32_t queue, int socket_fd);

/* Directs packets to this address and port (of `local`) that come in on one of `queues`, a bit each, to the
 * queue's socket, if the upper half of their token is token_prefix; drops the others. Counts from zero.
 * Returns 0 or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                             uint16_t port, uint64_t queues, uint32_t token_prefix);
void harp_xdp_filter_remove_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port);

/* Returns the queues, a bit each, that processes of HARP have ports on: not what killed ones left there. */
uint64_t harp_xdp_filter_used_queues(const struct harp_xdp_filter *f);

struct harp_xdp_filter_counts {
  uint64_t handed;    /* packets given to sockets; about */
  uint64_t strangers; /* packets dropped for their token; exact */
};

/* Adds what was counted on a port since it was added. */
void harp_xdp_filter_count(const struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                           uint16_t port, struct harp_xdp_filter_counts *counts);

#endif
