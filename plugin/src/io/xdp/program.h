/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The text of the XDP program of an interface, and its tables: which packets go to AF_XDP sockets, which to
 * the kernel, and which nowhere.
 *
 * A packet is ours when it is UDP over IPv4 without options or fragments, or over IPv6 without extension
 * headers, long enough for a token, its destination address and port are in the table of ports, and it came
 * in on a queue that the table names for the port. Then it goes to the socket of that queue, if there is one,
 * provided that its token begins as those do that the port's owner has handed out (wire/packet.h has the
 * place); if not it is a stranger's: dropped and counted, so that no flood of them takes frames and passes.
 * Everything else passes to the kernel, where an ordinary UDP socket on the same port takes what came in on
 * another queue.
 *
 * In generic mode there is one more rule. The kernel then shows the program what a virtual NIC's peer sent
 * without cutting it up, or what GRO has merged: packets of packets, and nothing tells where they join. Only
 * the sockets can take those apart. So only what an xdp driver sent is handed over: over IPv4 it has no UDP
 * checksum, without which the kernel neither makes nor merges superframes; over IPv6 it has our flow label.
 * The latter may be merged by a device below ours (a VLAN's, a bridge's); our own merges nothing while it has
 * a generic program (Linux netif_elide_gro).
 *
 * A pure function; the filter calls it and loads what it makes. */
#ifndef HARP_IO_XDP_PROGRAM_H
#define HARP_IO_XDP_PROGRAM_H

#include "base/base.h"
#include "io/xdp/abi.h"

enum {
  HARP_XDP_QUEUES_MAX = 64,
  HARP_XDP_PROGRAM_INSNS_MAX = 96,
};

enum harp_xdp_mode { HARP_XDP_NATIVE, HARP_XDP_GENERIC };

/* What the program looks up: destination address (IPv4 in the last four bytes) and port, network order. */
struct harp_xdp_port_key {
  uint8_t address[16];
  uint16_t port;
  uint16_t zero;
};
_Static_assert(sizeof(struct harp_xdp_port_key) == 20, "as the program builds it on its stack");

/* What it finds. `packets` is counted without a lock: queues may lose each other's counts, which is enough to
 * tell some from none. `strangers` is exact. */
struct harp_xdp_port_value {
  uint64_t queues;             /* whose packets of the port go to a socket; a bit each */
  uint64_t packets;            /* that went */
  uint64_t strangers;          /* packets that were dropped for their token */
  uint32_t token_prefix, zero; /* upper half of the port's tokens, network order */
};

struct harp_xdp_program {
  struct harp_bpf_insn code[HARP_XDP_PROGRAM_INSNS_MAX];
  int count;
};

/* Writes the program for a table of ports (hash) and one of sockets (XSK map, by queue). */
void harp_xdp_program_write(struct harp_xdp_program *p, enum harp_xdp_mode mode, int ports_fd,
                            int sockets_fd);

#endif
