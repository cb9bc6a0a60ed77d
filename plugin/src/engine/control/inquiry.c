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
  for (; q->open_count; q->open_count--)
    if (q->fds[q->open_count - 1] >= 0) harp_files_close(q->fds[q->open_count - 1]);
}

static bool is_in_doubt(const struct harp_peer *peer, harp_ns now) {
  harp_ns quiet_ns = now - HARP_MAX(peer->last_received_ns, peer->waits_ns);
  return peer->session.state == HARP_SESSION_OPEN && peer->is_multihomed && peer->outstanding &&
         !peer->monitor.gone && quiet_ns >= HARP_INQUIRY_QUIET_NS &&
         harp_sender_is_silent(peer->session.sender);
}

/* Returns the first of our interfaces from which a path leads to one of the peer's; -1: none does. */
static int local_of(const struct harp_peer *peer, unsigned remote) {
  for (unsigned i = 0; i < peer->path_count; i++)
    if (peer->ends[i].remote_eni == remote && !peer->engine->enis[peer->ends[i].local_eni].is_unnumbered)
      return peer->ends[i].local_eni;
  return -1;
}

/* Begins a connection to one of the peer's interfaces. */
static void ask_at(struct harp_peer *peer, unsigned remote) {
  const struct harp_endpoint_eni *eni = &peer->remote_enis[remote];
  int local = local_of(peer, remote);
  if (local < 0 || !eni->tcp_port || eni->is_unnumbered) return;
  struct harp_tcp_options options = harp_tcp_options_of(peer->engine, (unsigned)local, -1);
  struct sockaddr_storage to = harp_address_make(eni->family, eni->addr, eni->tcp_port,
                                                 harp_address_scope(&peer->engine->enis[local].addr));
  int fd = harp_tcp_socket_connect(&options, &to);
  if (fd == -ECONNREFUSED) peer->inquiry.is_refused = true;
  if (fd >= 0) peer->inquiry.fds[peer->inquiry.open_count++] = fd;
}

static void ask(struct harp_peer *peer, harp_ns now) {
  struct harp_inquiry *q = &peer->inquiry;
  q->is_refused = false;
  q->is_asking = true;
  for (unsigned i = 0; i < peer->remote_eni_count; i++) ask_at(peer, i);
  q->until_ns = now + HARP_INQUIRY_WAIT_NS;
  q->wait_ns = q->wait_ns ? HARP_MIN(2 * q->wait_ns, HARP_INQUIRY_AGAIN_MAX_NS) : HARP_INQUIRY_AGAIN_NS;
  q->next_ns = now + q->wait_ns;
  if (!peer->monitor.ping_ns) harp_monitor_ping(peer, now);
}

/* Takes the answers that have come. Returns whether a connection was accepted. */
static bool look(struct harp_inquiry *q) {
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

bool harp_inquiry_review(struct harp_peer *peer, harp_ns now) {
  struct harp_inquiry *q = &peer->inquiry;
  const struct harp_monitor *m = &peer->monitor;
  if (harp_likely(!is_in_doubt(peer, now))) {
    harp_inquiry_end(q);
    q->wait_ns = 0;
    q->next_ns = 0;
    return false;
  }
  if (!q->is_asking) {
    if (now >= q->next_ns) ask(peer, now);
    return false;
  }
  bool is_accepted = look(q), is_over = now >= q->until_ns;
  if (is_accepted || is_over) harp_inquiry_end(q);
  return !is_accepted && is_over && q->is_refused && (m->lost || harp_monitor_is_unacknowledged(m));
}
