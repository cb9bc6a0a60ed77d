/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a tcp path, from connect or accept to its end: when it is opened and given up, and what
 * it sends and reads. Encoding and system calls are tcp_bytes.h's. What the engine calls of it is declared in
 * tcp.h; this is for the other files of tcp paths. Under the engine's lock. */
#ifndef HARP_TCP_PATH_H
#define HARP_TCP_PATH_H

#include "engine/tcp/tcp.h"
#include "engine/tcp/tcp_bytes.h"

/* Returns the peer's tcp path of this number; NULL: it is none. */
struct harp_tcp_path *harp_tcp_path_of(struct harp_peer *peer, unsigned path);

/* Returns how sockets of an interface are to be opened. traffic_class -1: none. */
struct harp_tcp_options harp_tcp_options_of(const struct harp_engine *e, unsigned eni, int traffic_class);

/* Returns the name of the path's connection among the engine's sources. */
static inline uint64_t harp_tcp_path_name(const struct harp_tcp_path *p) {
  return harp_io_ready_address_name(HARP_READY_TCP_PATH, p);
}

/* Appends a path to the list of those that may have something to read; or takes it out. */
void harp_tcp_list_readable(struct harp_tcp_path *p);
void harp_tcp_unlist_readable(struct harp_tcp_path *p);

/* Logs once why connections are not opened or accepted. */
void harp_tcp_log_shortage(struct harp_engine *e, int error);

/* The connect has succeeded or failed: sends the JOIN, or ends it. */
void harp_tcp_path_on_connected(struct harp_tcp_path *p, harp_ns now);

/* Makes an accepted connection that of the path, in place of an older one. Takes the fd over. */
void harp_tcp_path_adopt(struct harp_tcp_path *p, int fd, harp_ns now);

/* Writes what waits for the kernel; ends the connection where that fails. */
void harp_tcp_path_flush(struct harp_tcp_path *p, harp_ns now);

/* Closes the connection: other paths get what was in flight, and it is opened again later. `why` is
 * logged. */
void harp_tcp_path_end(struct harp_tcp_path *p, harp_ns now, const char *why);

#endif
