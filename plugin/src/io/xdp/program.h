/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The XDP program of an interface and its maps: which packets it redirects to AF_XDP sockets, passes to the
 * kernel's stack, or drops.
 *
 * A packet matches when it is UDP over IPv4 without options or fragments, or over IPv6 without extension
 * headers, long enough for a token, its destination address and port are in the map of ports, and it was
 * received on a queue that the map lists for the port. If the upper half of its token (wire/packet.h) is the
 * port's prefix, it is redirected to the socket of that queue, if there is one. With another prefix it is
 * dropped and counted, so that a flood of such packets uses neither frames nor engine time. All other packets
 * pass to the kernel's stack, where an ordinary UDP socket on the same port receives what came on other
 * queues.
 *
 * Generic mode has one more rule, because the kernel runs a generic program on superframes: those of a
 * virtual NIC's peer that were never segmented, and those that GRO has merged. Their segment boundaries are
 * not visible to the program; only sockets can split them. So only packets sent by an xdp driver are
 * redirected: over IPv4 they have no UDP checksum, and the kernel neither makes nor merges superframes
 * without one; over IPv6 they have HARP_XDP_FLOW_LABEL. The latter may be merged by a lower device (a VLAN's,
 * a bridge's); an interface with a generic program merges nothing itself (Linux netif_elide_gro).
 *
 * A pure function; filter.c calls it and loads the result. */
#ifndef HARP_IO_XDP_PROGRAM_H
#define HARP_IO_XDP_PROGRAM_H

#include "base/base.h"
#include "io/xdp/abi.h"

enum {
  HARP_XDP_QUEUES_MAX = 64,
  HARP_XDP_PROGRAM_INSNS_MAX = 96,
};

enum harp_xdp_mode { HARP_XDP_NATIVE, HARP_XDP_GENERIC };

/* Key of the map of ports: destination address (IPv4 in the last four bytes) and port, network order. */
struct harp_xdp_port_key {
  uint8_t address[16];
  uint16_t port;
  uint16_t zero;
};
_Static_assert(sizeof(struct harp_xdp_port_key) == 20, "as the program builds it on its stack");

/* Value of the map of ports. */
struct harp_xdp_port_value {
  uint64_t queues;             /* the queues on which packets to the port match, a bit each */
  uint64_t redirected;         /* packets; not atomic, so concurrent queues lose counts: zero or not is all */
  uint64_t dropped;            /* packets with another token prefix; exact */
  uint32_t token_prefix, zero; /* upper half of the port's tokens, network order */
};

struct harp_xdp_program {
  struct harp_bpf_insn code[HARP_XDP_PROGRAM_INSNS_MAX];
  int count;
};

/* Writes the program for a map of ports (hash) and one of sockets (XSK map, by queue). */
void harp_xdp_program_write(struct harp_xdp_program *p, enum harp_xdp_mode mode, int ports_fd,
                            int sockets_fd);

#endif
