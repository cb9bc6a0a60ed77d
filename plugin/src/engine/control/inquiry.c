/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/inquiry.h"

#include <errno.h>
#include <poll.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "engine/engine.h"
#include "engine/tcp/tcp_path.h"

void harp_inquiry_end(struct harp_inquiry *q) {
  q->is_asking = false;
  for (; q->open_count; q->open_count--) {
    int fd = q->fds[q->open_count - 1];
    if (fd < 0) continue;
    harp_tcp_socket_reset_at_close(fd);
    harp_files_close(fd);
  }
}

/* Returns whether NCCL waits for the peer, and nothing has come from it for a while. */
static bool is_quiet(const struct harp_peer *peer, harp_ns now) {
  harp_ns quiet_ns = now - HARP_MAX(peer->last_received_ns, peer->waits_ns);
  return peer->session.state == HARP_SESSION_OPEN && peer->is_multihomed && !peer->monitor.gone &&
         (peer->outstanding || peer->connects) && quiet_ns >= HARP_INQUIRY_QUIET_NS;
}

/* Returns whether nothing shows that the process runs: the control connection is lost, or a PING waits for
 * its PONG. Sends the PING that is due. */
static bool is_in_doubt(struct harp_peer *peer, harp_ns now) {
  const struct harp_monitor *m = &peer->monitor;
  if (m->lost) return true;
  if (m->ping_ns) return now - m->ping_ns >= HARP_INQUIRY_PONG_NS;
  if (now - m->pong_ns >= HARP_INQUIRY_PING_NS) harp_monitor_ping(peer, now);
  return false;
}

/* Returns whether an earlier path is between the same interfaces. */
static bool is_repeated(const struct harp_peer *peer, unsigned path) {
  const struct harp_path_ends *p = &peer->ends[path];
  for (unsigned i = 0; i < path; i++)
    if (peer->ends[i].local_eni == p->local_eni && peer->ends[i].remote_eni == p->remote_eni) return true;
  return false;
}

/* Begins a connection between the interfaces of a path. */
static void ask_along(struct harp_peer *peer, unsigned path) {
  unsigned local = peer->ends[path].local_eni;
  const struct harp_endpoint_eni *eni = &peer->remote_enis[peer->ends[path].remote_eni];
  uint16_t port = eni->tcp_port ? eni->tcp_port : eni->answer_port;
  if (!port || eni->is_unnumbered || peer->engine->enis[local].is_unnumbered) return;
  if (is_repeated(peer, path)) return;
  struct harp_tcp_options options = harp_tcp_options_of(peer->engine, local, -1);
  struct sockaddr_storage to =
      harp_address_make(eni->family, eni->addr, port, harp_address_scope(&peer->engine->enis[local].addr));
  int fd = harp_tcp_socket_connect(&options, &to);
  peer->inquiry.is_refused |= fd == -ECONNREFUSED;
  if (fd >= 0) peer->inquiry.fds[peer->inquiry.open_count++] = fd;
}

/* Begins connections until there are so many. */
static void ask_along_paths(struct harp_peer *peer, unsigned count) {
  struct harp_inquiry *q = &peer->inquiry;
  for (unsigned i = 0; i < peer->path_count && q->open_count < count; i++) {
    ask_along(peer, q->next_path);
    q->next_path = (q->next_path + 1) % peer->path_count;
  }
}

static void begin_inquiry(struct harp_peer *peer, harp_ns now) {
  struct harp_inquiry *q = &peer->inquiry;
  q->is_asking = true;
  q->is_refused = q->is_wide = false;
  q->refused_ns = 0;
  q->end_ns = now + HARP_INQUIRY_ANSWER_NS;
  ask_along_paths(peer, 1);
}

/* Takes the answers that have come. Returns whether a connection was accepted. */
static bool take_answers(struct harp_inquiry *q) {
  for (unsigned i = 0; i < q->open_count; i++) {
    struct pollfd polled = {.fd = q->fds[i], .events = POLLOUT}; /* -1 is ignored */
    if (poll(&polled, 1, 0) <= 0) continue;
    int err = harp_tcp_socket_error(q->fds[i]);
    if (!err) return true;
    q->is_refused |= err == -ECONNREFUSED;
    harp_files_close(q->fds[i]);
    q->fds[i] = -1;
  }
  return false;
}

/* Begins to wait for what would contradict the refusal: packets, which answer these probes, the
 * acknowledgement of this PING (that of an earlier one may have been sent before the process ended), or
 * another interface that accepts. */
static void wait_for_contradiction(struct harp_peer *peer, harp_ns now) {
  peer->inquiry.refused_ns = now;
  harp_monitor_ping(peer, now);
  harp_sender_keepalive(peer->session.sender, HARP_INQUIRY_QUIET_NS, now);
  harp_peer_touch(peer);
}

/* Ends an inquiry that proved nothing. The next one is due ever later, unless the process was seen to run. */
static void end_unproved(struct harp_inquiry *q, bool is_accepted, harp_ns now) {
  harp_inquiry_end(q);
  if (is_accepted) q->wait_ns = HARP_INQUIRY_AGAIN_NS;
  q->next_ns = now + q->wait_ns;
  if (!is_accepted) q->wait_ns = HARP_MIN(2 * q->wait_ns, HARP_INQUIRY_AGAIN_MAX_NS);
}

/* Takes the answers. Returns whether they, and what came since, say that the process has ended. */
static bool process_has_ended(struct harp_peer *peer, harp_ns now) {
  struct harp_inquiry *q = &peer->inquiry;
  bool is_accepted = take_answers(q);
  if (!is_accepted && !q->is_wide) {
    q->is_wide = true;
    ask_along_paths(peer, HARP_ENDPOINT_ENIS_MAX);
  }
  if (q->is_refused && !q->refused_ns) wait_for_contradiction(peer, now);
  if (!is_accepted && now < (q->refused_ns ? q->refused_ns + HARP_INQUIRY_REFUSED_NS : q->end_ns))
    return false;
  if (!is_accepted && q->refused_ns &&
      (peer->monitor.lost || harp_monitor_is_unacknowledged(&peer->monitor))) {
    harp_inquiry_end(q);
    return true;
  }
  end_unproved(q, is_accepted, now);
  return false;
}

bool harp_inquiry_on_time(struct harp_peer *peer, harp_ns now) {
  struct harp_inquiry *q = &peer->inquiry;
  if (harp_likely(!is_quiet(peer, now)) || !is_in_doubt(peer, now)) {
    harp_inquiry_end(q);
    q->wait_ns = HARP_INQUIRY_AGAIN_NS;
    return false;
  }
  if (q->is_asking) return process_has_ended(peer, now);
  if (now >= q->next_ns) begin_inquiry(peer, now);
  return false;
}
