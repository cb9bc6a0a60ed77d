/* SPDX-License-Identifier: Apache-2.0 */
/* An engine over the sim driver on a virtual clock, with one link whose peer is the other end of a socket
 * pair, played by hand: for tests of the control connection. The network loses all packets. */
#ifndef HARP_TESTS_CONTROL_SCENE_H
#define HARP_TESTS_CONTROL_SCENE_H

#include "engine/engine.h"
#include "engine/link.h"

#define SCENE_PEER_TIMEOUT_NS HARP_SEC(8)
#define SCENE_STALL_NS        HARP_SEC(10)

enum {
  SCENE_MTU = 1500,
  SCENE_IN_BYTES = 65536, /* more than the link sends in a test */
  SCENE_PAYLOAD_BYTES = 64,
};

struct scene {
  struct harp_engine *engine;
  struct harp_link *link;
  int peer;                      /* the other end of the control connection; -1 when closed */
  struct harp_control_keys keys; /* ours; the peer's are the other way round */
  struct harp_counters wire_counters;
  uint32_t pongs;
};

extern harp_ns scene_now_ns;

extern uint8_t scene_payload[SCENE_PAYLOAD_BYTES]; /* the payload of all requests */

/* The ports where the peer's interfaces accept tcp paths, or only answer; 0: there are none. */
extern uint16_t scene_peer_tcp_port, scene_peer_answer_port;

/* Whether epoll takes no control connection. */
extern bool scene_epoll_is_full;

/* Opens a scene whose peer has so many interfaces, or one. */
void scene_open_with(struct scene *s, enum harp_role role, uint16_t peer_enis);
void scene_open(struct scene *s, enum harp_role role);

void scene_close(struct scene *s);

/* Submits a request of the link. */
void scene_submit(struct harp_link *link);

/* Lets passes run at intervals of `step_ns`; stops early when the link fails. */
void scene_run_for(struct scene *s, harp_ns ns, harp_ns step_ns);

/* Reads what the link has sent to the peer; returns the number of PINGs in it; `answer`: answers each. */
unsigned scene_receive_pings(struct scene *s, bool answer);

/* Listens at a port, which becomes scene_peer_tcp_port; returns the socket. Nobody accepts. */
int scene_listen(void);

#endif
