/* SPDX-License-Identifier: Apache-2.0 */
/* A link: an NCCL connection as NCCL's threads and an engine share it: the requests, the ring through which
 * they reach the engine, and the stream of a peer that carries it.
 *
 * Threads: the fields of "NCCL's thread" belong to the one thread that uses the comm at a time (NCCL passes
 * it on with a happens-before edge). The fields of "the engine" belong to whoever holds the engine's lock.
 * The two communicate through the submit ring, each request's state, and `status`. */
#ifndef HARP_LINK_H
#define HARP_LINK_H

#include <stdatomic.h>

#include "base/spsc.h"
#include "base/status.h"
#include "engine/copies.h"
#include "engine/peer.h"
#include "engine/request.h"

/* An NCCL connection carries data in one direction: the side that called connect sends, the side that
 * accepted receives. */
enum harp_role { HARP_ROLE_SENDER, HARP_ROLE_RECEIVER };

struct harp_link {
  struct harp_engine *engine;
  struct harp_peer *peer;
  enum harp_role role;

  /* NCCL's thread */
  uint64_t requests_free; /* the free requests, a bit each */
  uint32_t submitted;     /* the number of sends submitted; wraps */
  uint32_t test_count;    /* the number of tests that found nothing; wraps */
  bool warned;            /* the error was logged */
  struct harp_copies copies;

  /* shared */
  struct harp_request requests[HARP_REQUESTS_MAX];
  struct harp_spsc submit; /* the ring of submitted struct harp_request */
  /* (G) the engine's release of a status pairs with (H) the acquire in NCCL's thread, which then reads
   * `error`. */
  _Atomic uint32_t status; /* enum harp_status; the engine sets it once */
  bool failed_with_peer;   /* the peer has failed: one link logs the error for all */
  char error[HARP_ERROR_TEXT_BYTES];
  _Atomic uint32_t credit; /* the peer has room for small sends before this one; the engine writes it */

  /* the engine: its place in lists */
  uint32_t slot; /* its slot in the engine's table: its doorbell */
  struct harp_link *next_of_peer;
  struct harp_link *next_ready;   /* the next link that is connected and waits for its accept */
  struct harp_link *next_arrived; /* the next link of the peer that something came for */
  bool has_arrived;               /* it is in that list */
  struct harp_link *next_closing; /* the next link that is closing */

  /* the engine: its stream */
  bool is_open;                /* its stream is open */
  struct harp_tx_stream *tx;   /* the stream of role SENDER, else NULL */
  struct harp_rx_stream *rx;   /* the stream of role RECEIVER, else NULL */
  uint8_t *staging;            /* the staging of a receiver, from the engine's pool */
  uint32_t first_message;      /* the stream's first message */
  uint32_t outstanding;        /* the requests taken from the ring and not done */
  uint32_t copies_outstanding; /* the copies among them */
  uint64_t messages, bytes;    /* what was done since the link was made */

  /* the engine: how the link ends */
  struct harp_answer *answer; /* the answer that its sender may not have yet; else NULL (control/answers.h) */
  bool close_sent;            /* CLOSE was sent to the peer */
  bool is_ended;              /* the peer has closed its end */
  bool is_closing;            /* NCCL has closed it, and copies are under way (link_close.h) */
  harp_ns closing_until_ns;   /* the copies under way are given up then */

  /* the engine: watch/ */
  int stats_entry; /* its entry in the statistics; -1: none */
  struct harp_link_stall stall;
};

/* The stream of its peer that a new link is. */
struct harp_link_config {
  enum harp_role role;
  uint16_t stream;
  uint32_t first_line, first_message;
};

/* Makes a link on a peer; under the engine's lock. Returns 0; -ENOMEM; -HARP_ELINKS: the engine has all the
 * links that it can have; -EEXIST: the stream is open. */
int harp_link_create(struct harp_link **out, struct harp_peer *peer,
                     const struct harp_link_config *config) HARP_MUST_CHECK;

/* Returns whether a link can be moved to another peer: it has not failed, and nothing has come over it. */
bool harp_link_is_untouched(const struct harp_link *link);
/* Moves an untouched link that receives to another peer of the engine, as a stream of that. Its sender asks
 * for it there. Returns 0; -EEXIST: the stream is open. Under the lock. */
int harp_link_move(struct harp_link *link, struct harp_peer *peer,
                   const struct harp_link_config *config) HARP_MUST_CHECK;

/* Returns the id of a free stream for a link that sends; -1: none is free. Under the lock. */
int harp_link_free_stream(const struct harp_peer *peer);

/* Tells the peer that the stream is closed, and frees. Pending requests are forgotten. Keeps the peer. Under
 * the lock. */
void harp_link_end(struct harp_link *link);

/* Gives memory back that a link has touched and does not use now. */
void harp_link_rest(struct harp_link *link);

/* Returns the link's error, and logs it the first time: one WARN for a link that failed alone, one for all
 * links that failed with their peer. NCCL's thread. */
enum harp_status harp_link_error(struct harp_link *link);

/* The engine's side; all under its lock. */

/* Posts what NCCL's thread submitted on the stream. Returns whether requests wait for a peer that is gone:
 * the caller lets it fail (harp_peer_take_submissions). */
bool harp_link_take_submissions(struct harp_link *link, harp_ns now) HARP_MUST_CHECK;
/* Marks delivered and received messages as done, and publishes the credit. Returns how many are done. */
unsigned harp_link_complete(struct harp_link *link);
/* Fails the link alone, with the one sentence that the user will see, closes its stream and sends CLOSE.
 * Later calls change nothing. */
void harp_link_fail(struct harp_link *link, enum harp_status status, const char *fmt, ...) HARP_PRINTF(3, 4);
/* Fails the link with its peer, which has failed. */
void harp_link_fail_with_peer(struct harp_link *link);
/* Fails the link if the protocol found that it must. */
void harp_link_fail_if_misused(struct harp_link *link);
/* Takes the peer's CLOSE of this stream. */
void harp_link_on_close(struct harp_link *link, const struct harp_close *close, harp_ns now);

/* Has the next harp_peer_complete_news complete the link's messages: something of it came. Under the lock. */
static inline void harp_link_on_arrival(struct harp_link *link) {
  if (link->has_arrived) return;
  link->has_arrived = true;
  link->next_arrived = link->peer->arrived;
  link->peer->arrived = link;
}

/* NCCL's thread: makes a request free again. */
static inline void harp_request_free(struct harp_request *r) {
  atomic_store_explicit(&r->state, HARP_REQUEST_FREE, memory_order_relaxed);
  r->link->requests_free |= 1ull << (r - r->link->requests);
}

#endif
