/* SPDX-License-Identifier: Apache-2.0 */
/* Included by the product's files in the proof of references: their system calls, and their calls of other
 * files, are those of prove_references.c, or do nothing. */
#ifndef HARP_PROVE_REFERENCES_H
#define HARP_PROVE_REFERENCES_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log_limit.h"
#include "engine/engine.h"
#include "engine/tcp/tcp.h"
#include "engine/tcp/tcp_bytes.h"
#include "engine/tcp/tcp_path.h"
#include "io/nic.h"
#include "io/page_pipe.h"
#include "proto/experiment_report.h"
#include "wire/crc32c.h"

/* The kernel: what a connection takes, what a pipe takes and gives, what was acknowledged. */
ssize_t kernel_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t kernel_vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags);
ssize_t kernel_splice(int in, loff_t *in_at, int out, loff_t *out_at, size_t bytes, unsigned flags);
uint64_t kernel_acked(int fd, uint64_t sent_bytes);
void kernel_reset_at_close(int fd);
void kernel_close(int fd);
int kernel_pipe(int ends[2], int flags);

bool stream_holds(const struct harp_tx_stream *st, uint32_t message);
bool stream_is_owed(const struct harp_tx_stream *st);

#define sendmsg                        kernel_sendmsg
#define vmsplice                       kernel_vmsplice
#define splice                         kernel_splice
#define pipe2                          kernel_pipe
#define open(...)                      3
#define close                          kernel_close
#define fcntl(...)                     0
#define sigaction(...)                 -1 /* it is not known that SIGPIPE is ignored */
#define harp_tcp_socket_acked          kernel_acked
#define harp_tcp_socket_reset_at_close kernel_reset_at_close
#define harp_files_close               kernel_close
#define harp_files_own(fd)             ((void)(fd))
#define harp_tx_stream_holds           stream_holds
#define harp_tx_stream_is_owed         stream_is_owed

#define harp_tcp_socket_set_cork(fd, corked)             ((void)(fd), (void)(corked))
#define harp_tcp_socket_unsent(fd)                       ((void)(fd), 0u)
#define harp_io_ready_forget(ready, name)                ((void)(ready))
#define harp_io_ready_unwatch(ready, fd)                 ((void)(ready))
#define harp_sender_block(sender, path, now)             ((void)(sender), (void)(now))
#define harp_sender_unblock(sender, path, now)           ((void)(sender))
#define harp_sender_path_down(sender, path, now)         ((void)(sender))
#define harp_sender_is_dormant(sender, path)             ((void)(sender), false)
#define harp_sender_inflight_bytes(sender, path)         ((void)(sender), 1u)
#define harp_sender_on_queue(sender, path, a, b, now)    ((void)(sender))
#define harp_recorder_trace_peer(peer, now, ...)         ((void)(peer))
#define harp_peer_touch(peer)                            ((void)(peer))
#define harp_sender_bytes_in(sender, path, ns)           ((void)(sender), 0u)
#define harp_tcp_socket_bound_unsent(fd, bytes)          ((void)(fd))
#define harp_records_init(records, session, path, ahead) ((void)(records))
#define harp_records_end(records)                        ((void)(records))

#endif
