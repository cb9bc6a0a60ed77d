/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections that a connect tries until one is up (connect.h).
 *
 * They are begun in the order of candidates.h, in rounds: the next one when one has failed, or when there was
 * no answer for HARP_DIAL_NEXT_NS (the idea of RFC 8305). So several may be under way; the first that is up
 * wins, and the others are closed before they have said anything, which costs the listener nothing. The next
 * round asks the kernel for the routes again.
 *
 * A connection that is up may lead to something that never answers. While the caller keeps it, it can go on
 * with the other candidates.
 *
 * Belongs to the thread that polls the connect; needs no lock. */
#ifndef HARP_DIALS_H
#define HARP_DIALS_H

#include "engine/control/candidates.h"

struct harp_engine;

enum { HARP_DIALS_MAX = 8 /* the most dials under way; the oldest makes room */ };
#define HARP_DIAL_NEXT_NS HARP_MS(200)
/* After the last one of a round: longer than TCP takes to send a lost SYN again (1 s). */
#define HARP_DIAL_ROUND_NS HARP_SEC(2)

struct harp_dial {
  int fd;
  uint8_t candidate;
};

struct harp_dials {
  unsigned candidate_count, next; /* the candidates of this round, and the one to try next */
  struct harp_candidate candidates[HARP_CANDIDATES_MAX];
  unsigned open_count;
  struct harp_dial open[HARP_DIALS_MAX]; /* the oldest first */
  harp_ns next_ns;                       /* the time when the next one is due, or the round is over */
  int error;         /* the error of the best candidate in this round, else the one before; 0: no answer */
  unsigned answered; /* the candidate that was up last */
  bool is_kept;      /* its connection is kept, so that it is no candidate */
};

/* Sets it to nothing under way. */
void harp_dials_init(struct harp_dials *d);
/* Begins to connect: with the candidates of the round that are left, else with a new round. */
void harp_dials_begin(struct harp_dials *d, struct harp_engine *e, const struct harp_contact *contact,
                      harp_ns now);
/* Begins the next candidates that are due. Returns the socket of the connection that is up, and ends all
 * others; -EAGAIN: none is up yet; -EHOSTUNREACH: the round is over and nobody has answered. */
int harp_dials_poll(struct harp_dials *d, const struct harp_engine *e, const struct harp_contact *contact,
                    harp_ns now);
/* Tries the others while the caller keeps the connection that was up last: without end, with the same
 * candidates, round by round. Returns the socket of one that is up, or -EAGAIN. */
int harp_dials_poll_others(struct harp_dials *d, const struct harp_engine *e,
                           const struct harp_contact *contact, harp_ns now);
/* The connection that was up last was to the right peer, which refused for now: the next round begins with
 * it. */
void harp_dials_keep_answered(struct harp_dials *d);
/* Closes what is under way. */
void harp_dials_end(struct harp_dials *d);

#endif
