/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines over the kernel's loopback that connect to each other; the test does their passes and polls
 * itself, in the order that it likes. */
#ifndef HARP_TESTS_LOOPBACK_H
#define HARP_TESTS_LOOPBACK_H

#include <time.h>

#include "engine/control/connect.h"
#include "engine/control/listener.h"

enum {
  LOOPBACK_LIMIT_S = 20,  /* a test that waits for longer has failed */
  LOOPBACK_LINKS_MAX = 4, /* the links of a side */
};
#define LOOPBACK_STEP_NS HARP_US(1)

/* An engine that listens and connects to the other one. */
struct loopback_side {
  struct harp_engine *e;
  struct harp_listener *l;
  struct harp_handle handle;
  struct harp_connect *connects[LOOPBACK_LINKS_MAX];
  struct harp_link *links[LOOPBACK_LINKS_MAX], *accepted[LOOPBACK_LINKS_MAX];
  unsigned link_count, accepted_count;
};

time_t loopback_seconds(void);

/* Returns the configuration of the loopback interface. */
struct harp_instance loopback_instance(void);

/* Opens an engine, with another configuration; not more than two at a time. */
struct harp_engine *loopback_open_engine(void);
struct harp_engine *loopback_open_engine_with(const struct harp_instance *instance);

/* Does a pass that looks at control connections and listeners as well. */
void loopback_pass(struct harp_engine *e);

/* Opens both engines and a listener on each; the first engine has the lower id. */
void loopback_open(struct loopback_side s[2]);

/* Lets both sides' time stand still from here on, except when the test moves it. */
void loopback_stop_clock(struct loopback_side s[2]);
extern harp_ns loopback_now_ns;

/* Begins the n-th connect of a side to the other one. */
void loopback_connect(struct loopback_side s[2], unsigned i, unsigned n);

/* Polls the n-th connect, if it is under way. */
void loopback_poll(struct loopback_side *s, unsigned n);

/* Does a pass, and accepts what has connected. */
void loopback_pass_side(struct loopback_side *s);

/* Lets both go on for some rounds, those who are named alone; of connects, polls the first. */
void loopback_run(struct loopback_side s[2], const bool polls[2], const bool passes[2], unsigned rounds);

/* Sends a message over every link of both sides at once, and checks what arrives. */
void loopback_transfer(struct loopback_side s[2]);

/* Returns the first peer of an engine; NULL: it has none. */
struct harp_peer *loopback_only_peer(const struct harp_engine *e);

void loopback_close(struct loopback_side s[2]);

#endif
