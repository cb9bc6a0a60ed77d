/* SPDX-License-Identifier: Apache-2.0 */
/* A network that a scenario describes: its wires, the flows under test, TCP beside, and what changes in time.
 */
#ifndef HARP_TESTS_NETWORK_H
#define HARP_TESTS_NETWORK_H

#include "models/cubic.h"
#include "models/flow.h"
#include "networks/scenario.h"

enum { NETWORK_FLOWS_MAX = 256, NETWORK_CUBICS_MAX = 16 };

struct network {
  struct scenario scenario;
  struct agenda agenda;
  /* The wires of each interface and, with `own`, of each path of each flow; there and back. */
  struct wire *wires[2];
  unsigned wire_count;
  struct wire *caps; /* the caps of each path of each flow; NULL: none are capped */
  struct wire *tcp_wires;
  unsigned flow_count, cubic_count;
  struct flow *flows;
  struct cubic cubics[NETWORK_CUBICS_MAX];
  struct source changes, clocks;
  struct rng rng;

  /* what the scenario comes to */
  harp_ns start_ns, warm_ns, end_ns;
  uint32_t packet_lines; /* payload of a full packet */
  uint32_t message_bytes, depth;
  double capacity_bytes_ns; /* the payload of all flows together that the bottlenecks let through */
};

void network_init(struct network *n, const struct scenario *s);
void network_fini(struct network *n);

/* Returns how long a network runs, from its start. */
harp_ns network_end_ns(const struct scenario *s);

/* Runs the network up to a time after its start. */
void network_run(struct network *n, harp_ns since_start_ns);

#endif
