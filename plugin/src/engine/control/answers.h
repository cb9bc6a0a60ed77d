/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of a listener: an entry for each connect that became a link, until the other side is known
 * to have the answer. The control connection may break with the answer in it; the other side then asks again
 * over another one, and gets the link that was made for it (listener.h).
 *
 * The other side has the answer when its kernel has acknowledged it: what a connection has received can be
 * read after it broke, too. After a break an entry is kept for as long as the other side may ask. Of more
 * than HARP_ANSWERS_MAX the oldest is forgotten.
 *
 * All calls under the engine's lock. */
#ifndef HARP_ANSWERS_H
#define HARP_ANSWERS_H

#include "base/base.h"

struct harp_engine;
struct harp_link;
struct harp_peer;

enum { HARP_ANSWERS_MAX = 64 };

/* Peer timeouts after a control connection broke in which the other side may ask again: its own kernel may
 * take one more to find out, its connect tries for another one, and its timeout may differ from ours. */
enum { HARP_ANSWER_TIMEOUTS = 3 };

/* The name of a connect: the fields that all its attempts have, and the number of one attempt. */
struct harp_connect_name {
  uint32_t engine_id; /* the engine of the side that connects */
  uint32_t first_line, first_message;
  uint32_t attempt;
};

struct harp_answer {
  struct harp_answer *next;
  struct harp_connect_name name; /* the connect, with the attempt that was answered last */
  struct harp_link *link;        /* NULL: NCCL has closed it */
  uint32_t reason;               /* enum harp_status of a link that was closed */
  uint64_t token;                /* the token of the peer over which the answer went */
  bool awaits_ping;              /* the answer is that to the first PING */
  harp_ns until_ns;              /* the time when it is forgotten; HARP_NEVER: the peer stands */
};

struct harp_answers {
  struct harp_answer *first;
  unsigned count;
};

/* Returns whether both name the same connect, whatever the attempts. */
bool harp_answers_is_same(const struct harp_connect_name *a, const struct harp_connect_name *b);
/* Finds the entry of a connect, whatever the attempt; NULL: there is none. */
struct harp_answer *harp_answers_find(const struct harp_answers *as, const struct harp_connect_name *name);
/* Adds an entry, which is not there, without a link. NULL: there is no memory. */
struct harp_answer *harp_answers_add(struct harp_answers *as, const struct harp_connect_name *name);
/* Sets the link and the peer of an answer. link NULL: the answer is that it was closed. */
void harp_answer_set(struct harp_answer *a, const struct harp_connect_name *name, struct harp_link *link,
                     const struct harp_peer *peer, bool awaits_ping);
void harp_answers_remove(struct harp_answers *as, struct harp_answer *a);
/* Removes the entries that nobody will ask for. */
void harp_answers_on_time(struct harp_answers *as, const struct harp_engine *e, harp_ns now);
void harp_answers_clear(struct harp_answers *as);

#endif
