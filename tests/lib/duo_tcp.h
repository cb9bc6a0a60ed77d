/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp paths of a duo: what the engine does with kernel TCP connections (engine/tcp/tcp.h), over simulated
 * ones (lib/tcpnet.h). End 0 connects and proves each connection with a JOIN; a connection that ends, or
 * whose path goes DOWN, is closed and opened again.
 *
 * Checks what concerns the caller of the protocol: records go out only from buffers of open sends, payload is
 * read only into buffers of open receives and never over lines that have arrived, what a middlebox changed is
 * never taken, and a connection breaks for no other reason. Buffers of sends are overwritten as soon as they
 * are given back, which shows in what a connection repeats from them. Called by the other files of duo alone.
 */
#ifndef HARP_TESTS_DUO_TCP_H
#define HARP_TESTS_DUO_TCP_H

#include "lib/duo.h"

/* Makes the tcp paths of a duo whose ends are started; nothing is connected yet. */
void duo_tcp_start(struct duo *d);
void duo_tcp_fini(struct duo *d);

static inline bool duo_tcp_is(const struct duo *d, unsigned path) {
  return d->config.paths[path].is_tcp;
}

/* What happened on them. */
struct duo_tcp_tally {
  uint64_t records, in_place, scrapped, connections, ended, broken;
};
struct duo_tcp_tally duo_tcp_tally(const struct duo *d);

/* Returns how many of them there are. */
unsigned duo_tcp_count(const struct duo *d);

/* Returns how many of them are not connected, or one end believes so, or have not answered. */
unsigned duo_tcp_unsettled(const struct duo *d);

/* Returns when a connection of the end brings or takes something. */
harp_ns duo_tcp_next_ns(const struct duo *d, const struct duo_end *e);

/* Does what is due: one read, write, connect or accept. */
void duo_tcp_act(struct duo *d, struct duo_end *e);

/* Reports to the end's sender which paths go on, before it judges them by their silence. */
void duo_tcp_note_progress(struct duo *d, struct duo_end *e);

/* Opens connections and gives them up; returns when to do so again. */
harp_ns duo_tcp_review(struct duo *d, struct duo_end *e);

/* Sends the record that was chosen. */
void duo_tcp_send(struct duo *d, struct duo_end *e, const struct harp_tx_choice *choice);

/* Has the acknowledgements repeated that went elsewhere, by tcp paths on which they wait for nothing. Returns
 * when to do so again for others. */
harp_ns duo_tcp_repeat_acks(struct duo *d, struct duo_end *e);

/* Returns the path over which the acknowledgement of a path goes; -1: none takes it now. */
int duo_tcp_path_of_ack(const struct duo *d, const struct duo_end *e, unsigned path);

/* Sends an acknowledgement over a tcp path that duo_tcp_path_of_ack named. */
void duo_tcp_send_ack(struct duo *d, struct duo_end *e, unsigned over, const struct harp_packet *ack,
                      uint64_t number);

/* A sending stream is about to be closed: ends the connections that still take from its buffers. */
void duo_tcp_forget(struct duo *d, struct duo_end *e, const struct duo_stream *s);

/* The buffers of a stream's messages before `before` are the sender's again, who writes to them at once. */
void duo_tcp_overwrite(struct duo *d, const struct duo_end *e, const struct duo_stream *s, uint32_t before);

/* Ends every fault that has not happened yet. */
void duo_tcp_heal(struct duo *d);

#endif
