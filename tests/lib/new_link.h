/* SPDX-License-Identifier: Apache-2.0 */
/* Peers with one link of stream 0, made as a handshake would: for tests of engines. */
#ifndef HARP_TESTS_NEW_LINK_H
#define HARP_TESTS_NEW_LINK_H

#include <stdlib.h>
#include <sys/socket.h>

#include "engine/engine.h"
#include "engine/link.h"
#include "engine/peer_life.h"

/* Makes one at an engine; returns NULL when there is no peer to be had. */
static inline struct harp_link *new_link(struct harp_engine *e, const struct harp_peer_config *config) {
  const struct harp_endpoint *client = config->is_client ? config->local : config->peer;
  struct harp_link_config stream = {.role = config->is_client ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER,
                                    .first_line = client->first_line,
                                    .first_message = client->first_message};
  struct harp_peer *peer = harp_peer_create(e, config);
  struct harp_link *link = NULL;
  if (peer && harp_link_create(&link, peer, &stream)) abort();
  return link;
}

/* Makes a peer with one link at each of two engines, a as the client. Fills in the tokens of the
 * endpoints. */
static inline void new_link_pair(struct harp_engine *a, struct harp_endpoint *of_a, struct harp_link **link_a,
                                 struct harp_engine *b, struct harp_endpoint *of_b,
                                 struct harp_link **link_b) {
  int slot_a = harp_engine_reserve_slot(a), slot_b = harp_engine_reserve_slot(b);
  if (slot_a < 0 || slot_b < 0) abort();
  of_a->token = 0xabcdef0000ull | (uint64_t)slot_a;
  of_b->token = 0x123456780000ull | (uint64_t)slot_b;
  struct harp_peer_config client = {
      .is_client = true,
      .slot = (uint32_t)slot_a,
      .control_fd = -1,
      .local = of_a,
      .peer = of_b,
      .keys = {.tx_token = of_b->token, .rx_token = of_a->token, .tx_seed = 1, .rx_seed = 2},
      .traffic_class = -1};
  struct harp_peer_config server = {
      .slot = (uint32_t)slot_b,
      .control_fd = -1,
      .local = of_b,
      .peer = of_a,
      .keys = {.tx_token = of_a->token, .rx_token = of_b->token, .tx_seed = 2, .rx_seed = 1},
      .traffic_class = -1};
  client.peer_addr.ss_family = server.peer_addr.ss_family = AF_INET;
  *link_a = new_link(a, &client);
  *link_b = new_link(b, &server);
  if (!*link_a || !*link_b) abort();
}

#endif
