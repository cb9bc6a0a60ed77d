/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/dials.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "engine/engine.h"
#include "io/tcp_socket.h"

void harp_dials_init(struct harp_dials *d) {
  memset(d, 0, sizeof *d);
}

void harp_dials_keep_answered(struct harp_dials *d) {
  HARP_ASSERT(d->answered < d->candidate_count);
  d->next = d->answered;
}

static void record_error(struct harp_dials *d, unsigned candidate, int error) {
  if (candidate == 0) d->error = error;
}

static void remove_open(struct harp_dials *d, unsigned i) {
  HARP_ASSERT(i < d->open_count);
  d->open_count--;
  for (; i < d->open_count; i++) d->open[i] = d->open[i + 1];
}

void harp_dials_end(struct harp_dials *d) {
  while (d->open_count) harp_files_close(d->open[--d->open_count].fd);
}

/* Begins the next candidate. Returns 0; or -errno, if it has failed at once or is none. */
static int dial_next(struct harp_dials *d, const struct harp_engine *e, const struct harp_contact *contact) {
  unsigned at = d->next++;
  if (d->is_kept && at == d->answered) return -EALREADY;
  const struct harp_candidate *c = &d->candidates[at];
  const struct sockaddr_storage to = harp_candidate_to(&e->enis[c->from], &contact->at[c->to]);
  const struct harp_tcp_options options = {
      .local = &e->enis[c->from].addr, .traffic_class = -1, .timeout_ns = e->instance.peer_timeout_ns};
  int fd = harp_tcp_socket_connect(&options, &to);
  record_error(d, at, fd < 0 ? -fd : 0);
  if (fd < 0) return fd;
  if (d->open_count == HARP_DIALS_MAX) {
    harp_files_close(d->open[0].fd);
    remove_open(d, 0);
  }
  d->open[d->open_count++] = (struct harp_dial){.fd = fd, .candidate = (uint8_t)at};
  return 0;
}

/* Begins the next candidates up to one that does not fail at once. */
static void dial_on(struct harp_dials *d, const struct harp_engine *e, const struct harp_contact *contact,
                    harp_ns now) {
  while (d->next < d->candidate_count && dial_next(d, e, contact)) {
  }
  d->next_ns = now + (d->next < d->candidate_count ? HARP_DIAL_NEXT_NS : HARP_DIAL_ROUND_NS);
}

/* Reports once that an interface is of no use for what this host sends, whatever its address is. */
static void log_diverted(const struct harp_dials *d, struct harp_engine *e,
                         const struct harp_instance *enis) {
  char ip[HARP_ADDRESS_TEXT_BYTES];
  int eni = harp_candidates_diverted(d->candidates, d->candidate_count);
  if (eni < 0 || atomic_exchange(&e->is_diverted_logged, true)) return;
  HARP_INFO(
      "%s: packets from its address, %s, leave by another interface, as this host's routing tables say: "
      "see `harpctl doctor`, or docs/how-to/operations.md for rules and tables",
      enis[eni].ifname, harp_address_ip_text(&enis[eni].addr, ip));
}

void harp_dials_begin(struct harp_dials *d, struct harp_engine *e, const struct harp_contact *contact,
                      harp_ns now) {
  struct harp_instance enis[HARP_ENGINE_ENIS_MAX];
  HARP_ASSERT(!d->open_count);
  d->is_kept = false;
  if (d->next == d->candidate_count) {
    d->candidate_count =
        harp_candidates_make(enis, harp_engine_copy_enis(e, enis), contact, harp_route_find, d->candidates);
    d->next = 0;
    log_diverted(d, e, enis);
  }
  dial_on(d, e, contact, now);
}

/* Closes all but one, and returns that one's socket. */
static int keep_only(struct harp_dials *d, unsigned i) {
  int fd = d->open[i].fd;
  d->answered = d->open[i].candidate;
  d->is_kept = false;
  remove_open(d, i);
  harp_dials_end(d);
  return fd;
}

/* Closes those that have failed. Returns the socket of one that is up; -EAGAIN: none is. */
static int poll_open_dials(struct harp_dials *d) {
  int up = -1;
  struct pollfd polled[HARP_DIALS_MAX];
  for (unsigned i = 0; i < d->open_count; i++)
    polled[i] = (struct pollfd){.fd = d->open[i].fd, .events = POLLOUT};
  if (!d->open_count || poll(polled, d->open_count, 0) <= 0) return -EAGAIN;
  for (unsigned i = d->open_count; i--;) {
    int err = polled[i].revents ? harp_tcp_socket_error(d->open[i].fd) : 0;
    if (polled[i].revents && !err) up = (int)i; /* the best candidate, where there are several */
    if (!err) continue;
    record_error(d, d->open[i].candidate, -err);
    harp_files_close(d->open[i].fd);
    remove_open(d, i);
    up -= up >= 0;
  }
  return up < 0 ? -EAGAIN : keep_only(d, (unsigned)up);
}

int harp_dials_poll(struct harp_dials *d, const struct harp_engine *e, const struct harp_contact *contact,
                    harp_ns now) {
  unsigned before = d->open_count;
  int fd = poll_open_dials(d);
  if (fd >= 0) return fd;
  bool has_failed = d->open_count < before, is_due = now >= d->next_ns;
  if (d->next < d->candidate_count && (has_failed || is_due || !d->open_count)) dial_on(d, e, contact, now);
  if (d->open_count && (d->next < d->candidate_count || now < d->next_ns)) return -EAGAIN;
  harp_dials_end(d);
  return -EHOSTUNREACH;
}

int harp_dials_poll_others(struct harp_dials *d, const struct harp_engine *e,
                           const struct harp_contact *contact, harp_ns now) {
  if (d->candidate_count < 2) return -EAGAIN;
  if (!d->open_count) {
    if (now < d->next_ns) return -EAGAIN;
    if (d->next == d->candidate_count) d->next = 0;
    d->is_kept = true;
    dial_on(d, e, contact, now);
    return -EAGAIN;
  }
  int fd = harp_dials_poll(d, e, contact, now);
  return fd == -EHOSTUNREACH ? -EAGAIN : fd;
}
