/* A connection as NCCL's threads and an engine share it: the requests, the ring through which they reach the
 * engine, and the protocol's connection with its routes.
 *
 * Threads: the fields of "NCCL's thread" belong to the one thread that uses the comm at a time (NCCL hands it
 * over with a happens-before edge). The fields of "the engine" belong to whoever holds the engine's lock.
 * Between them stand the submit ring, each request's state, and `status`. */
#ifndef HARP_LINK_H
#define HARP_LINK_H

#include <stdatomic.h>

#include "base/spsc.h"
#include "base/status.h"
#include "engine/monitor.h"
#include "io/io.h"
#include "proto/conn.h"

enum {
  HARP_REQUESTS_MAX = HARP_MESSAGES_MAX,
  HARP_PEER_TEXT_BYTES = 160,
  HARP_ERROR_TEXT_BYTES = 640,
};

enum harp_request_state { HARP_REQUEST_FREE, HARP_REQUEST_POSTED, HARP_REQUEST_DONE };

struct harp_request {
  struct harp_link *link;
  /* (E) the engine's release of DONE pairs with (F) the acquire in harp_net_test: the thread sees data and
   * `bytes`. */
  _Atomic uint32_t state;
  uint32_t capacity; /* bytes posted */
  uint32_t bytes;    /* bytes moved; valid when DONE */
  void *data;        /* NCCL's buffer, borrowed until DONE */
};

struct harp_link {
  struct harp_engine *engine;
  enum harp_role role;

  /* NCCL's thread */
  uint64_t requests_free; /* one bit a request */
  bool warned;            /* the error was logged */

  /* shared */
  struct harp_request requests[HARP_REQUESTS_MAX];
  struct harp_spsc submit; /* of struct harp_request */
  /* (G) the engine's release of a status pairs with (H) the acquire in NCCL's thread, which then reads
   * `error`. */
  _Atomic uint32_t status; /* enum harp_status; set once */
  char error[HARP_ERROR_TEXT_BYTES];
  char peer[HARP_PEER_TEXT_BYTES]; /* "host (address) process 123", fixed before the link is attached */

  /* the engine */
  uint32_t slot; /* in the engine's table; also the low bits of our token */
  struct harp_link *next_active;
  struct harp_link *next_ready; /* met, and waiting for its accept */
  bool active;
  bool is_multihomed; /* one of its ends has several interfaces */
  harp_ns deadline_ns;
  harp_ns heard_ns;     /* when something of the peer's came last */
  uint32_t outstanding; /* requests taken from the ring and not done */
  struct harp_conn conn;
  struct harp_monitor monitor; /* the control connection, which tells whether the peer lives */
  unsigned route_count;
  struct harp_io_route *routes[HARP_PATHS_MAX];
  uint8_t route_enis[HARP_PATHS_MAX];                        /* which of the engine's interfaces each is of */
  struct sockaddr_storage peer_enis[HARP_ENDPOINT_ENIS_MAX]; /* their addresses */
  uint8_t *staging;                                          /* receiver only; from the engine's pool */
};

/* What a new link is made of; everything is copied. */
struct harp_link_config {
  enum harp_role role;
  uint32_t slot;
  struct harp_conn_keys keys;
  struct harp_control_keys control;
  int control_fd; /* owned by the link from here on, also on failure */
  const struct harp_endpoint *local, *peer;
  struct sockaddr_storage peer_addr; /* of the control connection, for messages */
  int traffic_class;
};

/* Makes a link for the slot that was reserved in the engine, and attaches it; under the engine's lock. NULL:
 * no memory. */
struct harp_link *harp_link_create(struct harp_engine *e, const struct harp_link_config *config);

/* Detaches and frees; tells the peer that we leave. Pending requests are forgotten. Takes the engine's lock,
 * so after it the engine touches neither link nor buffers. */
void harp_link_destroy(struct harp_link *link);

/* Makes the engine forget every request whose buffer overlaps [data, data + bytes): after this nothing writes
 * or reads there. A link that had such a request fails. Takes the engine's lock. */
void harp_link_quiesce(struct harp_link *link, const void *data, size_t bytes);

/* The engine's side; all under its lock. */

/* Takes what NCCL's thread submitted, into the protocol. */
void harp_link_take_submissions(struct harp_link *link, harp_ns now);
/* Marks delivered and received messages as done. Returns how many. */
unsigned harp_link_complete(struct harp_link *link);
/* Fails the link, with the one sentence that the user will see. Later calls change nothing. */
void harp_link_fail(struct harp_link *link, enum harp_status status, harp_ns now, const char *fmt, ...)
    HARP_PRINTF(4, 5);
/* Fails the link if the protocol found that it must. */
void harp_link_check(struct harp_link *link, harp_ns now);

#endif
