/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a session between two endpoints: a pure function of what both have sent each other, so that
 * both sides number the paths alike. docs/reference/wire.md is the normative text.
 *
 * Owns no state, writes only its result. Called once, when the handshake is done. */
#ifndef HARP_PAIRING_H
#define HARP_PAIRING_H

#include "proto/limits.h"
#include "wire/control.h"

/* One path: an ENI of each side, and which of that ENI's ports. Client: the side that connected. */
struct harp_pairing {
  uint8_t client_eni, client_port, server_eni, server_port;
  bool standby; /* it is used only while neither of its ENIs has another path that is up */
  bool is_tcp;  /* a kernel TCP connection; it has no ports of its own */
};

/* Fills `out` with the paths, path i in out[i], and returns how many there are; 0 when no two ENIs have an
 * address family and a kind of path in common.
 *
 * Primary pairs first: each ENI of the side that has more is joined to one of the other side, the least
 * loaded for its speed, and of those the one with the most similar address, since some networks join only
 * ENIs of one subnet (ENIs without an address come last and are joined to others only where these have no
 * better partner); each pair gets as many paths as the smaller `path_count` says, with different ports.
 * Then standby paths, spread over the pairs that are left, as many as fit. Last tcp paths: for each primary
 * pair whose ENIs both accept them up to as many as there are datagram paths, while every standby pair still
 * finds a place; and one for each standby pair of which one ENI has no datagram ports. */
unsigned harp_pairing_make(const struct harp_endpoint *client, const struct harp_endpoint *server,
                           struct harp_pairing out[HARP_PATHS_MAX]);

#endif
