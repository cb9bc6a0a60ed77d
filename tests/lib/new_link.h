/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a peer with one link, of stream 0, as a handshake would: for tests of engines. */
#ifndef HARP_TESTS_NEW_LINK_H
#define HARP_TESTS_NEW_LINK_H

#include <stdlib.h>

#include "engine/engine.h"
#include "engine/link.h"

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

#endif
