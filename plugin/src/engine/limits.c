/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/limits.h"

#include <stdio.h>

#include "proto/limits.h"

bool harp_limit_is(int error) {
  return error == HARP_ELINKS || error == HARP_EPEERS || error == HARP_ESTREAMS || error == HARP_EPEERFILES ||
         harp_limit_is_hosts(error);
}

bool harp_limit_is_hosts(int error) {
  return error == HARP_EPORTS || error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

const char *harp_limit_text(int error, char text[HARP_LIMIT_TEXT_BYTES]) {
  size_t bytes = HARP_LIMIT_TEXT_BYTES;
  switch (error) {
  case HARP_ELINKS:
    snprintf(text, bytes, "it has all %d connections that an engine can have: set NCCL_MAX_NCHANNELS lower",
             HARP_ENGINE_LINKS_MAX);
    break;
  case HARP_ESTREAMS:
    snprintf(text, bytes,
             "it has all %d connections to that peer that it can have: set NCCL_MAX_NCHANNELS lower",
             HARP_STREAMS_MAX);
    break;
  case HARP_EPEERS:
    snprintf(
        text, bytes,
        "it has all %d peers that an engine can have, handshakes included: let fewer ranks connect to it",
        HARP_ENGINE_PEERS_MAX);
    break;
  case HARP_EPEERFILES:
    snprintf(text, bytes, "its process has all files open that it may: raise the limit there (ulimit -n)");
    break;
  default:
    harp_shortage_text(error, text);
  }
  return text;
}
