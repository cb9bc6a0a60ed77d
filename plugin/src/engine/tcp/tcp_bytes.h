/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a tcp path: records are encoded and written to its connection, what is read goes to the
 * session as records. Called by tcp_path.c, which ends the connection where these report that it is of no
 * use. Under the engine's lock. */
#ifndef HARP_TCP_BYTES_H
#define HARP_TCP_BYTES_H

#include "engine/tcp/tcp.h"

/* Begins with a connection that stands: nothing waits, nothing was read. */
void harp_tcp_bytes_begin(struct harp_tcp_path *p);

/* Forgets what waits for the kernel. */
void harp_tcp_bytes_drop(struct harp_tcp_path *p);

/* Returns whether something waits for the kernel. */
bool harp_tcp_bytes_wait(const struct harp_tcp_path *p);

/* Encode a record behind what waits: the JOIN with which a connection begins, an acknowledgement, or what was
 * chosen of a stream. There is room for an acknowledgement and a record. */
void harp_tcp_bytes_put_join(struct harp_tcp_path *p, uint32_t attempt);
void harp_tcp_bytes_put_ack(struct harp_tcp_path *p, const struct harp_packet *ack, uint64_t number);
void harp_tcp_bytes_put_record(struct harp_tcp_path *p, const struct harp_tx_run *run,
                               const struct harp_tx_stream *stream, harp_ns now);

/* Writes what waits; blocks the path while the kernel takes no more, and unblocks it when all is written.
 * Returns why the connection is of no use any more; NULL: it is. */
const char *harp_tcp_bytes_write(struct harp_tcp_path *p, harp_ns now);

/* Reads once and takes the records that are complete. READ_END: *why has the reason. Sets *now to when
 * something had come, if it did: a time from before the read would make round trips look shorter. */
enum harp_tcp_read harp_tcp_bytes_read(struct harp_tcp_path *p, const char **why, harp_ns *now);

#endif
