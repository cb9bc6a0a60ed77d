/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tcp/tcp_path.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/log_limit.h"
#include "engine/engine.h"
#include "io/nic.h"
#include "proto/experiment_report.h"

/* Between two attempts to connect: first, and at most. */
#define WAIT_NS     HARP_MS(10)
#define WAIT_MAX_NS HARP_SEC(10)
/* A connection over which nothing was acknowledged for so long, since it was begun, is of no use. */
#define PROOF_NS HARP_SEC(2)
/* The time from the end of a connection to its report. */
#define REPORT_NS HARP_MS(10)
/* Between two looks at the kernel's progress. */
#define LOOK_NS HARP_MS(4)
/* The unsent bytes that the kernel may hold for one of several paths: what the path moves in UNSENT_NS. So
 * the kernel does not run out between two passes, and the last records go to the path that is free first. A
 * change of less than half is not worth the system call. */
#define UNSENT_NS HARP_MS(1)
enum { UNSENT_MIN_BYTES = 128 << 10, UNSENT_MAX_BYTES = 4 << 20 };

struct harp_tcp_path *harp_tcp_path_of(struct harp_peer *peer, unsigned path) {
  for (unsigned i = 0; i < peer->tcp_count; i++)
    if (peer->tcp[i].path == path) return &peer->tcp[i];
  return NULL;
}

unsigned harp_tcp_beside(const struct harp_peer *peer, unsigned path) {
  for (unsigned i = 0; i < peer->tcp_count; i++)
    if (peer->tcp[i].path == path) return peer->tcp[i].beside;
  return path;
}

/* ---- readiness ---- */

/* Registers a connection for edge-triggered events of both directions: one that was read empty or written
 * full is reported again at the next change. Returns 0 or -errno. */
static int watch_path(struct harp_tcp_path *p) {
  return harp_io_ready_watch(&p->peer->engine->ready, p->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             harp_tcp_path_name(p));
}

void harp_tcp_list_readable(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  if (p->readable) return;
  HARP_ASSERT(p->fd >= 0 && !p->connecting);
  p->readable = true;
  p->next_readable = NULL;
  if (t->readable_last)
    t->readable_last->next_readable = p;
  else
    t->readable_first = p;
  t->readable_last = p;
}

void harp_tcp_unlist_readable(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  struct harp_tcp_path **at = &t->readable_first, *before = NULL;
  if (!p->readable) return;
  while (*at != p) {
    HARP_ASSERT(*at); /* one that is readable is in the list */
    before = *at;
    at = &before->next_readable;
  }
  *at = p->next_readable;
  if (t->readable_last == p) t->readable_last = before;
  p->readable = false;
}

/* ---- beginning and ending ---- */

/* The interface that packets leave by; 0: as the routing tables say. */
static unsigned interface_of(const struct harp_engine *e, unsigned eni) {
  const struct harp_instance *instance = &e->enis[eni];
  if (e->eni_count == 1) return 0;
  return instance->index ? (unsigned)instance->index : harp_nic_index(instance->ifname);
}

struct harp_tcp_options harp_tcp_options_of(const struct harp_engine *e, unsigned eni, int traffic_class) {
  return (struct harp_tcp_options){
      .local = &e->enis[eni].addr,
      .ifindex = interface_of(e, eni),
      .traffic_class = traffic_class,
      .timeout_ns = e->instance.peer_timeout_ns,
      .spares_files = e->tcp && !e->tcp->is_alone,
  };
}

void harp_tcp_log_shortage(struct harp_engine *e, int error) {
  char text[HARP_LIMIT_TEXT_BYTES];
  if (e->tcp->is_short_logged || !e->tcp->has_paths) return;
  e->tcp->is_short_logged = true;
  HARP_INFO("%s: no further TCP connections for data for now, data goes over UDP: %s", e->name,
            harp_limit_text(error, text));
}

void harp_tcp_path_init(struct harp_tcp_path *p, struct harp_peer *peer, unsigned path, unsigned beside) {
  p->peer = peer;
  p->path = path;
  p->beside = beside;
  p->fd = -1;
  p->connecting = p->readable = p->was_up = p->is_waiting = false;
  p->attempts = 0;
  harp_tcp_trouble_init(&p->trouble, peer->engine->clock());
  p->wait_ns = WAIT_NS;
  p->retry_ns = peer->is_client ? 0 : HARP_NEVER;
  p->report_ns = p->unused_ns = HARP_NEVER;
  harp_tcp_bytes_drop(p);
}

void harp_tcp_path_set_remote(struct harp_tcp_path *p, const struct sockaddr_storage *remote) {
  HARP_ASSERT(p->peer->is_client && p->fd < 0);
  p->remote = *remote;
}

static void retry_later(struct harp_tcp_path *p, harp_ns now) {
  p->retry_ns = now + p->wait_ns;
  p->wait_ns = HARP_MIN(2 * p->wait_ns, WAIT_MAX_NS);
}

static void connect_path(struct harp_tcp_path *p, harp_ns now) {
  struct harp_engine *e = p->peer->engine;
  unsigned eni = p->peer->ends[p->path].local_eni;
  struct harp_tcp_options options = harp_tcp_options_of(e, eni, p->peer->traffic_class);
  HARP_ASSERT(p->fd < 0 && p->peer->is_client);
  retry_later(p, now);
  int fd = harp_tcp_socket_connect(&options, &p->remote);
  if (fd == -HARP_EFEWFILES || harp_limit_is_hosts(-fd)) harp_tcp_log_shortage(e, -fd);
  if (fd < 0) return; /* tried again */
  p->fd = fd;
  p->connecting = true;
  p->opened_ns = now;
  e->tcp->open_count++;
  if (watch_path(p)) harp_tcp_path_end(p, now, "cannot be watched");
}

/* Returns whether the kernel's queue is kept short. It is where records have a choice of paths, and where
 * acknowledgements have no other way than this queue. */
static bool is_bounded(const struct harp_tcp_path *p) {
  return p->peer->is_multihomed || p->beside == p->path;
}

static void bound_unsent(struct harp_tcp_path *p) {
  uint64_t bytes = harp_sender_bytes_in(p->peer->session.sender, p->path, UNSENT_NS);
  bytes = HARP_MIN(HARP_MAX(bytes, (uint64_t)UNSENT_MIN_BYTES), (uint64_t)UNSENT_MAX_BYTES);
  if (bytes <= 2ull * p->unsent_max && 2 * bytes >= p->unsent_max) return;
  p->unsent_max = (uint32_t)bytes;
  harp_tcp_socket_bound_unsent(p->fd, p->unsent_max);
}

/* Returns whether an acknowledgement would wait too long behind so many unsent bytes. On one of several paths
 * any are too many: while no queue stands, the path counts as fast as the fastest, which bounds nothing. */
static bool is_queue_long(const struct harp_tcp_path *p, uint32_t unsent) {
  if (is_bounded(p)) return unsent;
  return unsent > harp_sender_bytes_in(p->peer->session.sender, p->path, HARP_TCP_ACK_WAIT_NS);
}

/* Tells the sender how much the kernel has not sent yet, before the kernel gets more. Returns whether an
 * acknowledgement would wait too long behind it. */
static bool measure_queue(struct harp_tcp_path *p, harp_ns now) {
  uint32_t unsent = harp_tcp_socket_unsent(p->fd);
  harp_sender_on_queue(p->peer->session.sender, p->path, p->sent_bytes - unsent, unsent, now);
  if (is_bounded(p)) bound_unsent(p);
  return is_queue_long(p, unsent);
}

/* The connection stands: from here on records go. */
static void begin_path(struct harp_tcp_path *p, harp_ns now) {
  p->connecting = p->was_up = false;
  p->look_ns = p->opened_ns = now;
  harp_tcp_trouble_init(&p->trouble, now);
  harp_tcp_bytes_begin(p);
  p->unsent_max = 0;
  if (is_bounded(p)) bound_unsent(p);
  harp_sender_unblock(p->peer->session.sender, p->path, now);
  harp_peer_touch(p->peer);
}

void harp_tcp_path_on_connected(struct harp_tcp_path *p, harp_ns now) {
  HARP_ASSERT(p->connecting);
  int err = harp_tcp_socket_error(p->fd);
  if (err) {
    harp_tcp_path_end(p, now, strerror(-err));
    return;
  }
  begin_path(p, now);
  harp_tcp_bytes_put_join(p, p->attempts++);
  harp_tcp_path_flush(p, now);
}

void harp_tcp_path_adopt(struct harp_tcp_path *p, int fd, harp_ns now) {
  struct harp_engine *e = p->peer->engine;
  struct harp_tcp_options options =
      harp_tcp_options_of(e, p->peer->ends[p->path].local_eni, p->peer->traffic_class);
  harp_tcp_path_end(p, now, "the other side has opened it anew");
  HARP_ASSERT(!p->peer->is_client && p->fd < 0);
  p->fd = fd;
  e->tcp->open_count++;
  harp_tcp_socket_set_options(fd, &options);
  begin_path(p, now);
  if (watch_path(p)) harp_tcp_path_end(p, now, "cannot be watched");
}

/* Returns whether the connection is watched: for an answer, or until the kernel takes more. */
static bool owes_something(const struct harp_tcp_path *p) {
  return p->is_waiting || harp_sender_inflight_bytes(p->peer->session.sender, p->path);
}

/* Returns whether the kernel may still read from buffers that are, or will be, NCCL's again. */
static bool holds_references(const struct harp_tcp_path *p) {
  return p->referenced_to && harp_tcp_socket_acked(p->fd, p->sent_bytes) < p->referenced_to;
}

/* A connection that is closed goes on to send what its kernel holds, while what it carried goes another way:
 * one that holds references is reset. */
static void close_path(struct harp_tcp_path *p) {
  struct harp_tcp *t = p->peer->engine->tcp;
  harp_tcp_unlist_readable(p);
  harp_io_ready_forget(&p->peer->engine->ready, harp_tcp_path_name(p));
  if (p->fd < 0) return;
  if (!p->connecting) harp_records_end(&p->in);
  if (!p->connecting && holds_references(p)) harp_tcp_socket_reset_at_close(p->fd);
  harp_io_ready_unwatch(&p->peer->engine->ready, p->fd);
  harp_files_close(p->fd);
  p->fd = -1;
  harp_tcp_bytes_drop(p);
  HARP_ASSERT(t->open_count);
  t->open_count--;
}

void harp_tcp_path_end(struct harp_tcp_path *p, harp_ns now, const char *why) {
  struct harp_peer *peer = p->peer;
  bool was_open = !p->connecting,
       is_retired = !owes_something(p) && harp_sender_is_dormant(peer->session.sender, p->path);
  if (p->fd < 0) return;
  close_path(p);
  p->connecting = false;
  if (peer->is_client)
    retry_later(p, now);
  else
    peer->tcp_wanted &= ~(1ull << p->path);
  if (was_open && is_retired) {
    harp_sender_block(peer->session.sender, p->path, now);
  } else if (was_open) {
    peer->engine->counters.tcp_ends++;
    harp_recorder_trace_peer(
        peer, now, (struct harp_trace_entry){.event = HARP_EVENT_TCP_CLOSED, .path = (uint8_t)p->path});
    (void)snprintf(p->why, sizeof p->why, "%s", why);
    p->report_ns = now + REPORT_NS;
    harp_sender_block(peer->session.sender, p->path, now);
    harp_sender_path_down(peer->session.sender, p->path, now);
  }
  harp_peer_touch(peer);
}

/* Closes the connection of a path that is DORMANT on both sides. */
static void retire_path(struct harp_tcp_path *p, harp_ns now) {
  struct harp_peer *peer = p->peer;
  HARP_ASSERT(peer->is_client && !owes_something(p) && !harp_tcp_bytes_wait(p));
  close_path(p);
  p->connecting = false;
  p->retry_ns = 0;
  harp_sender_block(peer->session.sender, p->path, now);
}

void harp_tcp_leave(struct harp_peer *peer) {
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    close_path(&peer->tcp[i]);
    peer->tcp[i].retry_ns = peer->tcp[i].report_ns = HARP_NEVER;
  }
}

void harp_tcp_forget(struct harp_peer *peer, const struct harp_tx_stream *stream, harp_ns now) {
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    struct harp_tcp_path *p = &peer->tcp[i];
    bool waits = p->payload_bytes && p->payload_of == stream;
    bool is_owed = harp_tx_stream_is_owed(stream) && !p->connecting && p->fd >= 0 && holds_references(p);
    if (p->fd >= 0 && (waits || is_owed)) harp_tcp_path_end(p, now, "a transfer on it was given up");
  }
}

/* ---- sending and receiving ---- */

void harp_tcp_path_flush(struct harp_tcp_path *p, harp_ns now) {
  if (p->is_waiting) (void)measure_queue(p, now);
  const char *why = harp_tcp_bytes_write(p, now);
  if (why) harp_tcp_path_end(p, now, why);
}

struct harp_tcp_path *harp_tcp_ready(struct harp_peer *peer, unsigned path) {
  struct harp_tcp_path *p = harp_tcp_path_of(peer, path);
  return p && p->fd >= 0 && !p->connecting && !harp_tcp_bytes_wait(p) ? p : NULL;
}

bool harp_tcp_is_clear(struct harp_peer *peer, unsigned path) {
  const struct harp_tcp_path *p = harp_tcp_ready(peer, path);
  return p && (!harp_sender_inflight_bytes(peer->session.sender, path) ||
               !is_queue_long(p, harp_tcp_socket_unsent(p->fd)));
}

/* Returns whether acknowledgements that would wait behind records can go by datagrams. */
static bool has_datagrams(const struct harp_peer *peer) {
  for (unsigned i = 0; i < peer->route_count; i++)
    if (harp_sender_is_up(peer->session.sender, i)) return true;
  return false;
}

/* Puts the acknowledgement of the path before a record, if one is due or nearly so. Where it would wait
 * behind other records, and can go elsewhere, only one that has gone there rides, as its repetition. Without
 * another way it has to ride: the kernel has room for a record before it has none left to send, so that the
 * path would never be free for an acknowledgement alone. Looks at the queue only where the answer matters: an
 * acknowledgement is due, there is a choice of tcp paths, or the queue is bounded. */
static void put_riding_ack(struct harp_tcp_path *p, harp_ns now) {
  struct harp_receiver *receiver = p->peer->session.receiver;
  bool is_due = harp_receiver_ride_bytes(receiver, p->path, now);
  bool is_behind = (is_due || p->peer->tcp_count > 1 || is_bounded(p)) && measure_queue(p, now);
  struct harp_packet ack;
  uint64_t number;
  if (!is_due || (is_behind && has_datagrams(p->peer) && !harp_receiver_is_repeat(receiver, p->path))) return;
  if (!harp_receiver_ride_ack(receiver, p->path, HARP_ACK_MAX_BYTES + HARP_MAC_BYTES, &ack, &number, now))
    return;
  ack.token = p->peer->session.keys.tx_token;
  harp_tcp_bytes_put_ack(p, &ack, number);
  p->peer->engine->counters.acks_riding++;
}

void harp_tcp_send(struct harp_peer *peer, const struct harp_tx_choice *choice, harp_ns now) {
  struct harp_tcp_path *p = harp_tcp_path_of(peer, choice->path);
  struct harp_tx_run run;
  HARP_ASSERT(p && !harp_tcp_bytes_wait(p));
  put_riding_ack(p, now);
  harp_sender_take(peer->session.sender, choice, 1, &run, now);
  HARP_ASSERT(run.count == 1);
  harp_tcp_bytes_put_record(p, &run, choice->stream, now);
  peer->engine->counters.tx_records++;
  harp_tcp_path_flush(p, now);
}

void harp_tcp_send_ack(struct harp_peer *peer, unsigned over, unsigned path, harp_ns now) {
  struct harp_tcp_path *p = harp_tcp_ready(peer, over);
  struct harp_packet ack;
  uint64_t number;
  HARP_ASSERT(p);
  harp_receiver_take_ack(peer->session.receiver, path, &ack, &number, now);
  ack.token = peer->session.keys.tx_token;
  harp_tcp_bytes_put_ack(p, &ack, number);
  harp_tcp_path_flush(p, now);
}

enum harp_tcp_read harp_tcp_read_once(struct harp_tcp_path *p, harp_ns *now) {
  const char *why;
  enum harp_tcp_read what = harp_tcp_bytes_read(p, &why, now);
  if (what != HARP_TCP_READ_NOTHING && p->unused_ns != HARP_NEVER) p->unused_ns = *now;
  if (what == HARP_TCP_READ_END) harp_tcp_path_end(p, *now, why);
  return what;
}

/* ---- whether it is of use ---- */

/* Reports the first sign of loss or of a queue for a while. */
static void report_trouble(const struct harp_tcp_path *p, enum harp_tcp_sign sign,
                           const struct harp_tcp_sample *s, harp_ns now) {
  struct harp_peer *peer = p->peer;
  const char *ifname = peer->engine->enis[peer->ends[p->path].local_eni].ifname;
  peer->engine->counters.tcp_troubles++;
  harp_recorder_trace_peer(peer, now,
                           (struct harp_trace_entry){.event = HARP_EVENT_TCP_TROUBLE,
                                                     .path = (uint8_t)p->path,
                                                     .a = sign - HARP_TCP_SIGN_LOSS});
  if (sign == HARP_TCP_SIGN_LOSS)
    HARP_INFO_LIMITED(&peer->log, now,
                      "%s: large messages to %s try datagrams: the kernel repeated %u of %u TCP segments",
                      ifname, peer->name, p->trouble.sign_retransmitted, p->trouble.sign_segments);
  else
    HARP_INFO_LIMITED(
        &peer->log, now,
        "%s: large messages to %s try datagrams: a round trip of TCP takes %.1f ms, at best %.1f", ifname,
        peer->name, (double)s->rtt_ns / 1e6, (double)s->rtt_min_ns / 1e6);
}

/* Logs the first experiment with the carrier of large messages, and those that change it. */
static void log_carrier(struct harp_peer *peer, const struct harp_experiment_report *r, harp_ns now) {
  const struct harp_trial_report *t = &r->carrier;
  bool is_first = !peer->carrier_trials, is_change = r->prefers_datagrams != peer->prefers_datagrams;
  peer->carrier_trials = t->count;
  peer->prefers_datagrams = r->prefers_datagrams;
  if (is_change)
    HARP_INFO_LIMITED(
        &peer->log, now,
        "large messages to %s take %s from now on, by experiments: a byte took %u %% of the time "
        "and %u %% of the CPU of this host that it took over %s",
        peer->name, r->prefers_datagrams ? "datagrams" : "TCP", t->time_percent, t->cpu_percent,
        r->prefers_datagrams ? "TCP" : "datagrams");
  else if (is_first)
    HARP_INFO_LIMITED(
        &peer->log, now,
        "large messages to %s stay with TCP: in an experiment with datagrams a byte took %u %% of "
        "the time and %u %% of the CPU of this host%s",
        peer->name, t->time_percent, t->cpu_percent,
        t->verdict == HARP_VERDICT_LOST ? "" : "; more such experiments would change that");
}

static void log_experiments(struct harp_peer *peer, harp_ns now) {
  struct harp_experiment_report r = harp_experiment_report_of(&peer->session);
  if (harp_unlikely(r.carrier.count != peer->carrier_trials)) log_carrier(peer, &r, now);
}

/* The kernel's progress is the path's: a record takes long where the network is slow. */
static void read_kernel_counts(struct harp_tcp_path *p, harp_ns now) {
  struct harp_tcp_stats f;
  p->look_ns = now + LOOK_NS;
  harp_tcp_socket_read_stats(p->fd, p->sent_bytes, &f);
  if (f.acked_bytes != p->acked_bytes) harp_sender_on_progress(p->peer->session.sender, p->path, now);
  p->acked_bytes = f.acked_bytes;
  struct harp_tcp_sample sample = {f.segments, f.retransmitted, f.rtt_ns, f.rtt_min_ns};
  enum harp_tcp_sign sign = harp_tcp_trouble_on_look(&p->trouble, &sample, now);
  if (harp_unlikely(sign) && harp_sender_on_trouble(p->peer->session.sender, now))
    report_trouble(p, sign, &sample, now);
}

static harp_ns update_open(struct harp_tcp_path *p, harp_ns now) {
  const struct harp_sender *s = p->peer->session.sender;
  bool is_up = harp_sender_is_up(s, p->path);
  if (harp_sender_is_dormant(s, p->path)) {
    p->opened_ns = now; /* it proves itself when it is put to use */
    return owes_something(p) ? p->look_ns : HARP_NEVER;
  }
  if (is_up && !p->was_up) {
    p->was_up = true;
    p->wait_ns = WAIT_NS;
  }
  bool is_late = !is_up && now - p->opened_ns > PROOF_NS;
  if ((p->was_up && harp_sender_is_down(s, p->path)) || is_late) {
    harp_tcp_path_end(p, now, "nothing gets through");
    return now;
  }
  if (!is_up) return p->opened_ns + PROOF_NS;
  return owes_something(p) ? p->look_ns : HARP_NEVER;
}

void harp_tcp_report_progress(struct harp_peer *peer, harp_ns now) {
  const struct harp_sender *s = peer->session.sender;
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    struct harp_tcp_path *p = &peer->tcp[i];
    bool is_watched = harp_sender_is_up(s, p->path) || harp_sender_is_dormant(s, p->path);
    if (p->fd < 0 || !is_watched || !owes_something(p)) continue;
    if (p->look_ns <= now) read_kernel_counts(p, now);
    if (p->readable) harp_sender_on_progress(peer->session.sender, p->path, now); /* it may be an answer */
  }
}

/* Logs a connection's end, unless the peer has ended all of them since. */
static void report_end(struct harp_tcp_path *p, harp_ns now) {
  struct harp_peer *peer = p->peer;
  p->report_ns = HARP_NEVER;
  if (peer->links && !peer->monitor.final_received)
    HARP_INFO_LIMITED(&peer->log, now,
                      "%s: a TCP connection with %s has ended (%s); its data takes other paths",
                      peer->engine->enis[peer->ends[p->path].local_eni].ifname, peer->name, p->why);
}

const char *harp_tcp_why_large(const struct harp_peer *peer) {
  struct harp_experiment_report r = harp_experiment_report_of(&peer->session);
  if (!r.has_choice) return "no other carrier";
  return r.carrier.count ? "experiments" : "no experiment yet";
}

uint64_t harp_tcp_paths_in_use(const struct harp_peer *peer) {
  uint64_t paths = 0;
  for (unsigned i = peer->route_count; i < peer->path_count; i++)
    if (!harp_sender_is_dormant(peer->session.sender, i)) paths |= 1ull << i;
  return paths;
}

/* Has the client connect what our sender uses; it is told again when a connection has ended, which it may not
 * have noticed. Where that cannot be said, because the control connection is lost, the client connects
 * everything. */
static void tell_client(struct harp_peer *peer) {
  struct harp_want want = {.paths = harp_tcp_paths_in_use(peer)};
  if (want.paths == peer->tcp_wanted || !harp_monitor_takes_messages(&peer->monitor)) return;
  if (harp_monitor_send_want(peer, &want)) peer->tcp_wanted = want.paths;
}

void harp_tcp_on_want(struct harp_peer *peer, uint64_t paths, harp_ns now) {
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    const struct harp_tcp_path *p = &peer->tcp[i];
    bool is_repeated = paths & peer->tcp_wanted & 1ull << p->path;
    if (is_repeated && p->fd >= 0 && !p->connecting)
      harp_sender_test_connection(peer->session.sender, p->path, now);
  }
  peer->tcp_wanted = paths;
  harp_peer_touch(peer);
}

/* The client's side of a path without a connection. */
static harp_ns update_closed(struct harp_tcp_path *p, bool is_wanted, harp_ns now) {
  if (!harp_tcp_path_has_remote(p)) return HARP_NEVER;
  if (is_wanted && p->retry_ns <= now) connect_path(p, now);
  if (p->fd >= 0) return p->opened_ns + PROOF_NS;
  return is_wanted ? p->retry_ns : HARP_NEVER;
}

/* The client closes a connection that neither side wants. */
static harp_ns update_unwanted(struct harp_tcp_path *p, harp_ns now) {
  if (p->unused_ns == HARP_NEVER) p->unused_ns = now;
  harp_ns keep_ns = p->unused_ns + HARP_TCP_KEEP_NS;
  if (owes_something(p) || harp_tcp_bytes_wait(p)) return HARP_NEVER; /* visited again with the answer */
  if (keep_ns > now) return keep_ns;
  retire_path(p, now);
  return HARP_NEVER;
}

static harp_ns update_path(struct harp_tcp_path *p, bool is_wanted, harp_ns now) {
  if (is_wanted) p->unused_ns = HARP_NEVER;
  if (p->report_ns <= now) report_end(p, now);
  if (p->fd >= 0 && p->connecting && now - p->opened_ns > PROOF_NS) harp_tcp_path_end(p, now, "no answer");
  if (p->fd < 0) return HARP_MIN(p->report_ns, update_closed(p, is_wanted, now));
  harp_ns at = p->connecting ? p->opened_ns + PROOF_NS : update_open(p, now);
  if (p->fd >= 0 && !is_wanted && p->peer->is_client) at = HARP_MIN(at, update_unwanted(p, now));
  return HARP_MIN(at, p->report_ns);
}

harp_ns harp_tcp_on_time(struct harp_peer *peer, harp_ns now) {
  harp_ns at = HARP_NEVER;
  uint64_t wanted = harp_tcp_paths_in_use(peer) | peer->tcp_wanted;
  log_experiments(peer, now);
  if (!peer->is_client) tell_client(peer);
  if (peer->monitor.lost) wanted = ~0ull;
  for (unsigned i = 0; i < peer->tcp_count; i++)
    at = HARP_MIN(at, update_path(&peer->tcp[i], wanted >> peer->tcp[i].path & 1, now));
  return at;
}
