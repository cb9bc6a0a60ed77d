/* The XDP program of an interface: hands the packets of our UDP ports to AF_XDP sockets, passes all others.
 *
 * A packet is ours when it is UDP over IPv4 without options or fragments, or over IPv6 without extension
 * headers, its destination address and port are in the table of ports, and it came in on a queue that the
 * table names for the port. Then it goes to the socket of that queue, if there is one. Everything else passes
 * to the kernel, where an ordinary UDP socket on the same port takes what came in on another queue.
 *
 * In generic mode there is one more rule. The kernel then shows the program what a virtual NIC's peer sent
 * without cutting it up, or what GRO has merged: packets of packets, and nothing tells where they join. Only
 * the sockets can take those apart. So only what an xdp driver sent is handed over: over IPv4 it has no UDP
 * checksum, without which the kernel neither makes nor merges superframes; over IPv6 it has our flow label.
 * The latter may be merged by a device below ours (a VLAN's, a bridge's); our own merges nothing while it has
 * a generic program (Linux netif_elide_gro).
 *
 * One program serves all HARP processes of a host: the first attaches it, later ones join it. It is held by
 * file descriptors of a bpf link, so it goes when the last of them is closed, also by kill -9. A program of
 * somebody else is never replaced. Called at open and close, by the thread that opens the driver. */
#ifndef HARP_IO_XDP_FILTER_H
#define HARP_IO_XDP_FILTER_H

#include <sys/socket.h>

#include "base/base.h"

enum { HARP_XDP_QUEUES_MAX = 64, HARP_XDP_PORTS_MAX = 16384 /* of one interface, all processes together */ };

enum harp_xdp_mode { HARP_XDP_NATIVE, HARP_XDP_GENERIC };

struct harp_xdp_filter {
  int link_fd, ports_fd, sockets_fd;
  bool joined; /* an earlier process had attached it */
};

/* Attaches the program in the given mode, or joins the one that another HARP process attached in that mode.
 * `frags`: take packets of several buffers (jumbo MTU). Returns 0 or -errno with a sentence in `error`:
 * -EBUSY: a program of somebody else is there; -EPERM: a capability is missing, and which. */
HARP_MUST_CHECK int harp_xdp_filter_open(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode,
                                         bool frags, char *error, size_t error_bytes);
void harp_xdp_filter_close(struct harp_xdp_filter *f);

/* Makes `socket_fd` the receiver of a queue. Returns 0, -EBUSY when another process has it, or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_queue(struct harp_xdp_filter *f, uint32_t queue, int socket_fd);

/* Directs packets to this address and port (of `local`) that come in on one of `queues`, a bit each, to the
 * queue's socket. Returns 0 or -errno. */
HARP_MUST_CHECK int harp_xdp_filter_add_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                             uint16_t port, uint64_t queues);
void harp_xdp_filter_remove_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port);

/* Returns the queues, a bit each, that processes of HARP have ports on; and those that were killed had. */
uint64_t harp_xdp_filter_used_queues(const struct harp_xdp_filter *f);

/* Returns about how many packets of the port were handed to sockets. */
uint64_t harp_xdp_filter_packets(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port);

#endif
