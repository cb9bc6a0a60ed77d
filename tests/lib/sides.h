/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines over the sim driver on a virtual clock, joined by a wire that may lose: for tests of what is
 * around the protocol. */
#ifndef HARP_TESTS_SIDES_H
#define HARP_TESTS_SIDES_H

#include "engine/engine.h"
#include "engine/link.h"

struct side {
  struct harp_engine *engine;
  struct harp_link *link;
  struct harp_link *back; /* the link of the other direction; NULL: none */
  struct side *other;
  struct harp_counters wire_counters;
  uint32_t random;
  uint32_t loss_permille;
  bool marks; /* its network marks ECN-capable packets as CE */
};

/* The time of all engines. */
extern harp_ns sides_now_ns;
harp_ns sides_clock(void);

/* These hold for engines that are opened from now on. */
extern uint32_t sides_mtu;
extern unsigned sides_paths; /* the paths of each connection */
extern bool sides_gather;    /* their drivers take payload from where it lies */

/* The sim driver's sending function: hands a superframe to the other side, or loses it. */
void side_carry(void *wire, unsigned port, const struct sockaddr_storage *to, const uint8_t *data,
                uint32_t bytes, bool ect);

/* Opens an engine; its driver packs as GSO does, or frames as AF_XDP. */
void side_open(struct side *s, struct side *other, bool framed, uint16_t port, uint32_t loss);

/* Adds a peer to each side, without a control connection, with one link: a sends. */
void sides_connect(struct side *a, struct side *b, uint32_t first);

/* Submits request `slot` of a link, as NCCL's thread does. */
void side_submit(struct harp_link *link, unsigned slot, void *data, uint32_t bytes);

/* Closes link and engine. */
void side_close(struct side *s);

#endif
