/* SPDX-License-Identifier: Apache-2.0 */
/* A request: one isend or irecv of NCCL, from its submission until it is tested as done. Each link has
 * HARP_REQUESTS_MAX of them.
 *
 * NCCL's thread takes a free request, fills it in, and pushes it into the link's submit ring; the engine
 * takes it from there (link.h) and marks it DONE; NCCL's thread frees it. All calls here are by the one
 * thread that uses the link, without the engine's lock, and none blocks. In inline mode they do passes of the
 * engine. */
#ifndef HARP_REQUEST_H
#define HARP_REQUEST_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/status.h"
#include "proto/limits.h"

struct harp_link;

enum { HARP_REQUESTS_MAX = HARP_MESSAGES_MAX };

enum harp_request_state { HARP_REQUEST_FREE, HARP_REQUEST_POSTED, HARP_REQUEST_DONE };

struct harp_request {
  struct harp_link *link;
  /* (E) the engine's release of DONE pairs with (F) the acquire in NCCL's thread, which then sees the data
   * and `bytes`. */
  _Atomic uint32_t state;
  uint32_t capacity;    /* the bytes posted */
  uint32_t bytes;       /* the bytes moved; valid when DONE */
  bool is_copy;         /* it is a send whose data is a copy: done for NCCL at once, DONE when delivered */
  bool is_watched;      /* it is a receive whose buffer is read while it fills */
  bool is_tested;       /* NCCL has tested the copy as done */
  void *data;           /* NCCL's buffer, borrowed until DONE; or the copy */
  void *profiler_event; /* the event of NCCL's profiler, NULL at first; NCCL's thread reads and writes it */
};

/* Submits a send, copied if it is small, and transmits what is due. Returns NULL when all requests are in
 * use. */
struct harp_request *harp_request_send(struct harp_link *link, void *data, uint32_t bytes);

/* Submits a receive. Returns NULL when all requests are in use. `is_watched`: the buffer is read while it
 * fills. */
struct harp_request *harp_request_receive(struct harp_link *link, void *data, uint32_t capacity,
                                          bool is_watched);

/* Sets *done and *bytes, the bytes moved, and frees a request that is done; else does a pass in inline mode.
 * Returns the link's error if the request is not done and the link has failed. */
enum harp_status harp_request_test(struct harp_request *r, bool *done, size_t *bytes);

#endif
