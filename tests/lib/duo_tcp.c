/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_tcp.h"

#include <stdlib.h>
#include <string.h>

#include "lib/duo_attack.h"
#include "lib/duo_stream.h"
#include "lib/duo_tcp_read.h"
#include "wire/crc32c.h"

/* As the engine's. */
#define WAIT_NS     HARP_MS(10)
#define WAIT_MAX_NS HARP_SEC(10)
#define PROOF_NS    HARP_SEC(2)
#define LOOK_NS     HARP_MS(4)
#define REPEAT_NS   HARP_MS(1)
#define ACK_WAIT_NS HARP_US(100)
enum { COPY_MAX_BYTES = 4096, KEEPALIVES = 6 };

static const uint8_t KEY[HARP_MAC_KEY_BYTES] = {7, 1, 8, 2};

static struct duo_tcp_end *ends_of(const struct duo *d, const struct duo_end *e) {
  return d->tcp->ends[e->index];
}

static struct duo_tcp_end *path_of(const struct duo *d, const struct duo_end *e, unsigned path) {
  return &ends_of(d, e)[path - d->tcp->first];
}

static bool has_waiting(const struct duo_tcp_end *p) {
  return p->out_sent < p->out_bytes || p->payload_bytes;
}

/* Returns whether the path's connection takes a record. */
static bool is_ready(const struct duo_tcp_end *p) {
  return p->conn && !p->is_connecting && !has_waiting(p);
}

/* ---- connections ---- */

void duo_tcp_start(struct duo *d) {
  struct duo_tcp *t = d->tcp;
  unsigned first = 0;
  while (first < d->config.path_count && !duo_tcp_is(d, first)) first++;
  if (!t && first == d->config.path_count) return;
  if (!t) t = d->tcp = duo_must(calloc(1, sizeof *t));
  t->first = first;
  t->count = d->config.path_count - first;
  t->told = 0;
  t->tally = (struct duo_tcp_tally){0};
  t->rng.state = d->config.seed ^ 0x7C9;
  if (t->count > DUO_TCP_MAX) abort();
  for (unsigned i = 0; i < t->count; i++) {
    for (unsigned k = 0; k < DUO_TCP_CONNS; k++) t->conns[i][k].users = 0;
    for (unsigned end = 0; end < DUO_ENDS; end++) {
      struct duo_tcp_end *p = &t->ends[end][i];
      p->path = first + i;
      p->conn = NULL;
      p->is_connecting = p->was_up = p->is_waiting = false;
      p->attempts = 0;
      p->retry_ns = end ? HARP_NEVER : d->now;
      p->want_ns = HARP_NEVER;
      p->wait_ns = WAIT_NS;
      p->out_sent = p->out_bytes = p->payload_bytes = 0;
    }
  }
  t->keepalive_ns[0] = t->keepalive_ns[1] = d->now;
}

struct duo_tcp_tally duo_tcp_tally(const struct duo *d) {
  return duo_tcp_count(d) ? d->tcp->tally : (struct duo_tcp_tally){0};
}

unsigned duo_tcp_count(const struct duo *d) {
  return d->tcp ? d->tcp->count : 0;
}

void duo_tcp_fini(struct duo *d) {
  if (!d->tcp) return;
  for (unsigned i = 0; i < DUO_TCP_MAX; i++)
    for (unsigned k = 0; k < DUO_TCP_CONNS; k++) tcpnet_fini(&d->tcp->conns[i][k].net);
  free(d->tcp);
  d->tcp = NULL;
}

static void drop_user(struct duo *d, struct duo_tcp_conn *c, unsigned end) {
  if (!(c->users >> end & 1)) return;
  c->users &= ~(1u << end);
  if (tcpnet_holds_references(&c->net, end, d->now))
    tcpnet_reset(&c->net, end, d->now);
  else
    tcpnet_close(&c->net, end, d->now);
}

/* Takes the place of a connection that nobody has, or of the oldest one that waits for its JOIN. */
static struct duo_tcp_conn *free_conn(struct duo *d, struct duo_tcp_end *p) {
  struct duo_tcp_conn *conns = d->tcp->conns[p->path - d->tcp->first], *oldest = NULL;
  for (unsigned k = 0; k < DUO_TCP_CONNS; k++) {
    struct duo_tcp_conn *c = &conns[k];
    if (!c->users) return c;
    if (c->is_unjoined && (!oldest || c->net.accepted_ns < oldest->net.accepted_ns)) oldest = c;
  }
  if (!oldest) duo_fail(d, "no connection of path %u is free", p->path);
  return oldest;
}

static void retry_later(struct duo *d, struct duo_tcp_end *p) {
  p->retry_ns = d->now + p->wait_ns;
  p->wait_ns = HARP_MIN(2 * p->wait_ns, WAIT_MAX_NS);
}

static void connect_path(struct duo *d, struct duo_tcp_end *p) {
  struct duo_tcp *t = d->tcp;
  struct duo_tcp_conn *c = free_conn(d, p);
  retry_later(d, p);
  tcpnet_open(&c->net, &d->config.tcp, &d->net.links[SIMNET_THERE][p->path],
              &d->net.links[SIMNET_BACK][p->path], &t->rng, d->faults, d->now);
  c->users = 3;
  c->is_unjoined = true;
  c->join_bytes = 0;
  p->conn = c;
  p->is_connecting = true;
  p->opened_ns = d->now;
}

static void begin_path(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  p->is_connecting = p->was_up = p->is_waiting = false;
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  p->acked = p->came = 0;
  p->look_ns = p->opened_ns = d->now;
  p->read_ns = 0;
  harp_records_init(&p->in, &e->session, p->path, p->ahead);
  harp_sender_unblock(e->sender, p->path, d->now);
  d->tcp->tally.connections++;
}

void duo_tcp_end_path(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  bool was_open = !p->is_connecting;
  if (!p->conn) return;
  drop_user(d, p->conn, e->index);
  p->conn = NULL;
  p->is_connecting = false;
  p->out_sent = p->out_bytes = p->payload_bytes = 0;
  if (!e->index)
    retry_later(d, p);
  else
    d->tcp->told &= ~(1ull << p->path);
  if (!was_open) return;
  for (unsigned i = 0; i < DUO_IDS_MAX; i++)
    if (e->receives[i]) duo_stream_check_watched(d, e->receives[i]);
  harp_records_end(&p->in);
  d->tcp->tally.ended++;
  harp_sender_block(e->sender, p->path, d->now);
  harp_sender_path_down(e->sender, p->path, d->now);
}

/* ---- sending ---- */

/* Checks that the payload that is about to leave is still the sender's to read. */
static void check_payload(struct duo *d, const struct duo_end *e, const struct duo_tcp_end *p) {
  const struct duo_stream *s = p->payload_of;
  if (e->sends[s->config.id] != s || p->payload_message < s->sent_count)
    duo_fail(d, "%s: path %u sends from a buffer that was given back", e->name, p->path);
}

static void advance(const struct duo_end *e, struct duo_tcp_end *p, uint32_t bytes) {
  uint32_t head = HARP_MIN(bytes, p->out_bytes - p->out_sent);
  p->out_sent += head;
  if (bytes > head) tcpnet_refer(&p->conn->net, e->index, p->payload_of, p->payload_message, bytes - head);
  p->payload += bytes - head;
  p->payload_bytes -= bytes - head;
}

static void flush(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  if (p->payload_bytes &&
      !harp_tx_stream_holds(p->payload_of->tx, p->payload_of->config.first_message + p->payload_message)) {
    duo_tcp_end_path(d, e, p); /* other paths have delivered it */
    return;
  }
  while (has_waiting(p)) {
    struct iovec iov[2] = {{p->out + p->out_sent, p->out_bytes - p->out_sent},
                           {(void *)(uintptr_t)p->payload, p->payload_bytes}};
    if (p->payload_bytes) check_payload(d, e, p);
    long n = tcpnet_write(&p->conn->net, e->index, iov, p->payload_bytes ? 2 : 1, d->faults, d->now);
    if (n == TCPNET_AGAIN) {
      p->is_waiting = true;
      harp_sender_block(e->sender, p->path, d->now);
      return;
    }
    if (n < 0) {
      duo_tcp_end_path(d, e, p);
      return;
    }
    advance(e, p, (uint32_t)n);
  }
  p->out_sent = p->out_bytes = 0;
  if (!p->is_waiting) return;
  p->is_waiting = false;
  harp_sender_unblock(e->sender, p->path, d->now);
}

/* Writes the MACs of the record whose head was encoded last, and has it attacked. */
static void seal(struct duo *d, const struct duo_end *e, struct duo_tcp_end *p, const uint8_t *payload,
                 uint32_t length, uint64_t number) {
  const struct harp_session *session = &e->session;
  uint8_t *head = p->out + p->out_bytes;
  struct harp_mac_state state = {0};
  if (!session->has_macs) return;
  if (length) harp_mac_add(&session->tx_mac, &state, payload, length);
  uint64_t mac = harp_mac_end(&session->tx_mac, &state,
                              (struct harp_mac_nonce){number, (uint8_t)p->path, HARP_PACKET_DATA});
  harp_record_seal(head, &session->tx_mac, mac, number, session->keys.tx_seed);
  struct tcpnet_way *way = &p->conn->net.ways[e->index];
  int at = way->spoiled_at == UINT64_MAX ? duo_attack_head(d, head) : -1;
  if (at >= 0) way->spoiled_at = way->written + p->out_bytes - p->out_sent + (uint32_t)at;
}

static void put_ack(struct duo *d, struct duo_end *e, struct duo_tcp_end *p, const struct harp_packet *ack,
                    uint64_t number) {
  uint8_t *head = p->out + p->out_bytes, *body = head + HARP_RECORD_HEAD_BYTES;
  uint32_t bytes = (uint32_t)harp_packet_encode_ack(body, ack, number, e->session.keys.tx_seed);
  bytes = harp_session_seal(&e->session, body, bytes, number);
  struct harp_packet fields = {
      .type = HARP_PACKET_ACK, .path = (uint8_t)p->path, .token = e->session.keys.tx_token};
  harp_record_encode(head, &fields, bytes, harp_crc32c(0, body, bytes), (uint32_t)number,
                     e->session.keys.tx_seed);
  seal(d, e, p, NULL, 0, (uint32_t)number);
  p->out_bytes += HARP_RECORD_HEAD_BYTES + bytes;
  d->ack_packets++;
  d->path_packets[p->path]++;
}

void duo_tcp_send_ack(struct duo *d, struct duo_end *e, unsigned over, const struct harp_packet *ack,
                      uint64_t number) {
  struct duo_tcp_end *p = path_of(d, e, over);
  put_ack(d, e, p, ack, number);
  flush(d, e, p);
}

/* Returns whether an acknowledgement behind so many unsent bytes would come too late. */
static bool unsent_delays_ack(const struct duo_end *e, const struct duo_tcp_end *p, uint32_t unsent) {
  if (e->sender->path_count != 2) return unsent; /* but for a path of datagrams, and this one */
  return unsent > harp_sender_bytes_in(e->sender, p->path, ACK_WAIT_NS);
}

/* Returns whether it takes an acknowledgement, which then waits for little. */
static bool is_clear(const struct duo *d, const struct duo_end *e, const struct duo_tcp_end *p) {
  return is_ready(p) && !unsent_delays_ack(e, p, tcpnet_unsent(&p->conn->net, e->index, d->now));
}

harp_ns duo_tcp_repeat_acks(struct duo *d, struct duo_end *e) {
  harp_ns at = HARP_NEVER;
  HARP_EACH_BIT (i, harp_receiver_elsewhere(e->receiver)) {
    const struct duo_tcp_end *p = path_of(d, e, (unsigned)i);
    if (is_clear(d, e, p))
      harp_receiver_repeat_ack(e->receiver, (unsigned)i, d->now);
    else if (is_ready(p))
      at = d->now + REPEAT_NS;
  }
  return at;
}

/* The first path that is UP and takes an acknowledgement, of tcp paths or of the others; -1: none. */
static int first_up(const struct duo *d, const struct duo_end *e, bool is_tcp) {
  for (unsigned i = 0; i < d->config.path_count; i++) {
    if (duo_tcp_is(d, i) != is_tcp || !harp_sender_is_up(e->sender, i)) continue;
    if (!is_tcp || is_ready(path_of(d, e, i))) return (int)i;
  }
  return -1;
}

int duo_tcp_path_of_ack(const struct duo *d, const struct duo_end *e, unsigned path) {
  if (!duo_tcp_is(d, path) || is_clear(d, e, path_of(d, e, path))) return (int)path;
  for (unsigned i = 0; i < d->config.path_count; i++) {
    const struct harp_path *q = &e->sender->paths[i], *p = &e->sender->paths[path];
    bool beside = q->local_eni == p->local_eni && q->remote_eni == p->remote_eni;
    if (!q->is_tcp && beside && harp_sender_is_up(e->sender, i)) return (int)i;
  }
  int datagrams = first_up(d, e, false);
  if (datagrams >= 0) return datagrams;
  return is_ready(path_of(d, e, path)) ? (int)path : first_up(d, e, true);
}

/* Tells the sender how many bytes the connection has not sent yet, before it gets more. Returns whether an
 * acknowledgement behind them would come too late. */
static bool report_unsent_bytes(struct duo *d, struct duo_end *e, const struct duo_tcp_end *p) {
  uint32_t unsent = tcpnet_unsent(&p->conn->net, e->index, d->now);
  harp_sender_on_queue(e->sender, p->path, p->conn->net.ways[e->index].written - unsent, unsent, d->now);
  return unsent_delays_ack(e, p, unsent);
}

/* Puts an acknowledgement of the path before a record, if one is due or nearly so, or if it repeats one. As
 * in the engine it does so whether acknowledgements ride on datagrams or not: behind records that fill the
 * connection it would never go. */
static void let_ride(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  struct harp_packet ack;
  uint64_t number;
  bool is_behind = report_unsent_bytes(d, e, p) && first_up(d, e, false) >= 0;
  if (is_behind && !harp_receiver_is_repeat(e->receiver, p->path)) return;
  if (!harp_receiver_ride_ack(e->receiver, p->path, HARP_ACK_MAX_BYTES + HARP_MAC_BYTES, &ack, &number,
                              d->now))
    return;
  ack.token = e->session.keys.tx_token;
  put_ack(d, e, p, &ack, number);
  e->rides++;
}

/* Returns whether large payload has no checksum: then nothing but the comparison of a whole message finds
 * wrong bytes. */
static bool is_unchecked(const struct duo *d) {
  return !d->config.macs && !d->config.tcp.spoil_ppm && d->config.seed % 2;
}

static void put_record(struct duo *d, struct duo_end *e, struct duo_tcp_end *p,
                       const struct harp_tx_run *run) {
  struct duo_stream *s = run->type == HARP_PACKET_DATA ? e->sends[run->stream] : NULL;
  uint32_t length = s ? run->last_bytes : 0;
  struct harp_packet f = {.type = run->type,
                          .flags = run->flags,
                          .path = run->path,
                          .token = e->session.keys.tx_token,
                          .data = {.time = harp_ticks_from_ns(d->now),
                                   .message = run->message,
                                   .line = run->line,
                                   .offset = run->offset,
                                   .size = run->size,
                                   .stream = run->stream}};
  if (s && rng_chance(&d->rng, s->config.forge_ppm)) duo_stream_forge(d, s, &f);
  if (length > COPY_MAX_BYTES && is_unchecked(d)) f.flags |= HARP_FLAG_UNCHECKED;
  harp_record_encode(p->out + p->out_bytes, &f, length,
                     f.flags & HARP_FLAG_UNCHECKED ? 0 : harp_crc32c(0, run->data, length), run->number,
                     e->session.keys.tx_seed);
  seal(d, e, p, run->data, length, run->number);
  p->out_bytes += HARP_RECORD_HEAD_BYTES;
  if (length <= COPY_MAX_BYTES) {
    if (length) memcpy(p->out + p->out_bytes, run->data, length);
    p->out_bytes += length;
    return;
  }
  p->payload = run->data;
  p->payload_bytes = length;
  p->payload_of = s;
  p->payload_message = run->message - s->config.first_message;
}

void duo_tcp_send(struct duo *d, struct duo_end *e, const struct harp_tx_choice *choice) {
  struct duo_tcp_end *p = path_of(d, e, choice->path);
  struct harp_tx_run run;
  if (!is_ready(p)) duo_fail(d, "%s: a record for path %u, which takes nothing", e->name, p->path);
  let_ride(d, e, p);
  harp_sender_take(e->sender, choice, 1, &run, d->now);
  if (run.count != 1 || run.path != p->path) duo_fail(d, "%u records for path %u", run.count, run.path);
  if (run.type == HARP_PACKET_DATA) {
    const struct duo_stream *s = run.stream < DUO_IDS_MAX ? e->sends[run.stream] : NULL;
    if (!s) duo_fail(d, "a record of stream %u, which is not open", run.stream);
    if (choice->bytes != run.last_bytes)
      duo_fail(d, "%u bytes chosen, %u taken", choice->bytes, run.last_bytes);
    duo_stream_check_run(d, s, &run);
    d->data_packets++;
  } else {
    d->probe_packets++;
  }
  d->tcp->tally.records++;
  d->path_packets[p->path]++;
  put_record(d, e, p, &run);
  flush(d, e, p);
}

void duo_tcp_forget(struct duo *d, struct duo_end *e, const struct duo_stream *s) {
  for (unsigned i = 0; d->tcp && i < d->tcp->count; i++) {
    struct duo_tcp_end *p = &ends_of(d, e)[i];
    bool is_owed = p->conn && harp_tx_stream_is_owed(s->tx) && !p->is_connecting &&
                   tcpnet_holds_references(&p->conn->net, e->index, d->now);
    if (p->conn && (is_owed || (p->payload_bytes && p->payload_of == s))) duo_tcp_end_path(d, e, p);
  }
}

void duo_tcp_overwrite(struct duo *d, const struct duo_end *e, const struct duo_stream *s, uint32_t before) {
  for (unsigned i = 0; d->tcp && i < d->tcp->count; i++)
    for (unsigned k = 0; k < DUO_TCP_CONNS; k++) {
      struct duo_tcp_conn *c = &d->tcp->conns[i][k];
      if (c->users) tcpnet_overwrite(&c->net, e->index, s, before, d->now);
    }
}

/* ---- what keeps connections going ---- */

/* Returns whether the connection is watched: for an answer, or until the kernel takes more. */
static bool owes(const struct duo_end *e, const struct duo_tcp_end *p) {
  return p->is_waiting || harp_sender_inflight_bytes(e->sender, p->path);
}

void duo_tcp_note_progress(struct duo *d, struct duo_end *e) {
  for (unsigned i = 0; i < d->tcp->count; i++) {
    struct duo_tcp_end *p = &ends_of(d, e)[i];
    bool is_watched = harp_sender_is_up(e->sender, p->path) || harp_sender_is_dormant(e->sender, p->path);
    if (!p->conn || p->is_connecting || !is_watched || !owes(e, p)) continue;
    if (p->look_ns <= d->now) {
      uint64_t acked = tcpnet_acked(&p->conn->net, e->index, d->now);
      if (acked != p->acked) harp_sender_on_progress(e->sender, p->path, d->now);
      p->acked = acked;
      p->look_ns = d->now + LOOK_NS;
    }
    if (tcpnet_readable_ns(&p->conn->net, e->index) <= d->now)
      harp_sender_on_progress(e->sender, p->path, d->now); /* it may be an answer */
  }
}

/* Returns when to look at an open connection again; HARP_NEVER: when something comes. */
static harp_ns review_open(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  bool is_up = harp_sender_is_up(e->sender, p->path);
  if (harp_sender_is_dormant(e->sender, p->path)) {
    p->opened_ns = d->now;
    return owes(e, p) ? HARP_MAX(p->look_ns, d->now + 1) : HARP_NEVER;
  }
  if (is_up && !p->was_up) {
    p->was_up = true;
    p->wait_ns = WAIT_NS;
  }
  if ((p->was_up && harp_sender_is_down(e->sender, p->path)) ||
      (!is_up && d->now - p->opened_ns > PROOF_NS)) {
    duo_tcp_end_path(d, e, p);
    return p->retry_ns;
  }
  if (!is_up) return p->opened_ns + PROOF_NS + 1;
  return owes(e, p) ? HARP_MAX(p->look_ns, d->now + 1) : HARP_NEVER;
}

/* In place of the engine: reports signs of trouble as the kernel's statistics would, and requests keepalives.
 */
static harp_ns keep(struct duo *d, struct duo_end *e) {
  struct duo_tcp *t = d->tcp;
  harp_ns quiet_ns = d->config.tcp.timeout_ns / KEEPALIVES;
  if (rng_chance(&t->rng, d->config.trouble_ppm)) (void)harp_sender_on_trouble(e->sender, d->now);
  if (duo_complete(d)) return HARP_NEVER;
  if (t->keepalive_ns[e->index] <= d->now) {
    harp_sender_keepalive(e->sender, quiet_ns, d->now);
    t->keepalive_ns[e->index] = d->now + quiet_ns / 2;
  }
  return t->keepalive_ns[e->index];
}

/* As the server's WANT does, which takes as long as the control connection may. */
static void tell_client(struct duo *d, const struct duo_end *server) {
  struct duo_tcp *t = d->tcp;
  for (unsigned i = 0; i < t->count; i++) {
    struct duo_tcp_end *client = &t->ends[0][i];
    uint64_t bit = 1ull << client->path;
    bool is_told = t->told & bit, is_used = !harp_sender_is_dormant(server->sender, client->path);
    t->told = is_used ? t->told | bit : t->told & ~bit;
    if (is_told || !is_used) continue;
    client->want_ns = d->now + d->config.control_ns[0];
    d->ends[0].deadline_ns = HARP_MIN(d->ends[0].deadline_ns, client->want_ns);
  }
}

static void hear_want(struct duo *d, struct duo_end *client, struct duo_tcp_end *p) {
  p->want_ns = HARP_NEVER;
  if (p->conn && !p->is_connecting) harp_sender_test_connection(client->sender, p->path, d->now);
}

harp_ns duo_tcp_review(struct duo *d, struct duo_end *e) {
  harp_ns at = keep(d, e);
  if (e->index) tell_client(d, e);
  for (unsigned i = 0; i < d->tcp->count; i++) {
    struct duo_tcp_end *p = &ends_of(d, e)[i];
    if (p->want_ns <= d->now) hear_want(d, e, p);
    at = HARP_MIN(at, p->want_ns);
    if (!p->conn && p->retry_ns <= d->now) connect_path(d, p);
    if (p->is_connecting && d->now - p->opened_ns > PROOF_NS) duo_tcp_end_path(d, e, p);
    if (!p->conn)
      at = HARP_MIN(at, p->retry_ns);
    else
      at = HARP_MIN(at, p->is_connecting ? p->opened_ns + PROOF_NS + 1 : review_open(d, e, p));
  }
  return at;
}

/* ---- what comes ---- */

static void on_connected(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  if (p->conn->net.is_refused) {
    duo_tcp_end_path(d, e, p);
    return;
  }
  begin_path(d, e, p);
  harp_record_encode_join(p->out, e->session.keys.tx_token, p->path, p->attempts++, e->session.keys.tx_seed,
                          KEY);
  p->out_bytes = HARP_RECORD_HEAD_BYTES;
  flush(d, e, p);
}

/* Reads the JOIN of a connection, no more, and makes it that of its path. */
static void run_unjoined(struct duo *d, struct duo_end *e, struct duo_tcp_end *p, struct duo_tcp_conn *c) {
  struct harp_record record;
  struct iovec room = {c->join + c->join_bytes, sizeof c->join - c->join_bytes};
  long n = tcpnet_read(&c->net, e->index, &room, 1, d->now);
  if (n > 0) c->join_bytes += (uint32_t)n;
  if (n > 0 && c->join_bytes < sizeof c->join) return;
  bool is_join = n > 0 && !harp_record_decode(c->join, &record) && record.packet.type == HARP_PACKET_JOIN &&
                 harp_record_join_ok(c->join, e->session.keys.rx_seed, KEY);
  if (n > 0 && !is_join && c->net.ways[0].spoiled_at >= sizeof c->join)
    duo_fail(d, "%s: a good JOIN is refused", e->name);
  c->is_unjoined = false;
  if (!is_join || record.packet.number < p->attempts) {
    drop_user(d, c, e->index);
    return;
  }
  p->attempts = record.packet.number + 1;
  duo_tcp_end_path(d, e, p);
  p->conn = c;
  begin_path(d, e, p);
  p->came = sizeof c->join;
}

/* When something happens on a connection that the end has for its path. */
static harp_ns path_ns(const struct duo_end *e, const struct duo_tcp_end *p) {
  if (!p->conn) return HARP_NEVER;
  if (p->is_connecting) return p->conn->net.connected_ns;
  harp_ns at = HARP_MAX(tcpnet_readable_ns(&p->conn->net, e->index), p->read_ns);
  return has_waiting(p) ? HARP_MIN(at, tcpnet_writable_ns(&p->conn->net, e->index)) : at;
}

static harp_ns unjoined_ns(const struct duo_end *e, const struct duo_tcp_conn *c) {
  bool is_mine = e->index && c->users >> 1 & 1 && c->is_unjoined;
  return is_mine ? tcpnet_readable_ns(&c->net, e->index) : HARP_NEVER;
}

harp_ns duo_tcp_next_ns(const struct duo *d, const struct duo_end *e) {
  harp_ns at = HARP_NEVER;
  for (unsigned i = 0; d->tcp && i < d->tcp->count; i++) {
    at = HARP_MIN(at, path_ns(e, &ends_of(d, e)[i]));
    for (unsigned k = 0; e->index && k < DUO_TCP_CONNS; k++)
      at = HARP_MIN(at, unjoined_ns(e, &d->tcp->conns[i][k]));
  }
  return at == HARP_NEVER ? at : HARP_MAX(at, e->asleep_until_ns);
}

static void act_path(struct duo *d, struct duo_end *e, struct duo_tcp_end *p) {
  if (p->is_connecting)
    on_connected(d, e, p);
  else if (has_waiting(p) && tcpnet_writable_ns(&p->conn->net, e->index) <= d->now)
    flush(d, e, p);
  else
    duo_tcp_read(d, e, p);
}

void duo_tcp_act(struct duo *d, struct duo_end *e) {
  for (unsigned i = 0; i < d->tcp->count; i++) {
    struct duo_tcp_end *p = &ends_of(d, e)[i];
    if (path_ns(e, p) <= d->now) {
      act_path(d, e, p);
      return;
    }
    for (unsigned k = 0; e->index && k < DUO_TCP_CONNS; k++) {
      struct duo_tcp_conn *c = &d->tcp->conns[i][k];
      if (unjoined_ns(e, c) > d->now) continue;
      run_unjoined(d, e, p, c);
      return;
    }
  }
}

static bool is_settled(const struct duo *d, unsigned i) {
  const struct duo_tcp *t = d->tcp;
  const struct duo_tcp_end *a = &t->ends[0][i], *b = &t->ends[1][i];
  if (!a->conn || a->conn != b->conn || a->is_connecting) return false;
  for (unsigned end = 0; end < DUO_ENDS; end++) {
    const struct harp_sender *s = d->ends[end].sender;
    if (!harp_sender_is_up(s, a->path) && !harp_sender_is_dormant(s, a->path)) return false;
  }
  return true;
}

unsigned duo_tcp_unsettled(const struct duo *d) {
  unsigned n = 0;
  for (unsigned i = 0; i < duo_tcp_count(d); i++) n += !is_settled(d, i);
  return n;
}

void duo_tcp_heal(struct duo *d) {
  for (unsigned i = 0; d->tcp && i < d->tcp->count; i++)
    for (unsigned k = 0; k < DUO_TCP_CONNS; k++)
      if (d->tcp->conns[i][k].users) tcpnet_heal(&d->tcp->conns[i][k].net);
}
