/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_control.h"

#include <stdlib.h>

#include "lib/duo_stream.h"
#include "lib/duo_tcp.h"

enum { REQUEST, OPENED, CLOSED };

static void send_control(struct duo *d, struct duo_end *to, uint8_t kind, struct duo_stream *s) {
  if (to->control_tail - to->control_head == DUO_CONTROLS_MAX) abort();
  harp_ns at = d->now + 1 + rng_below(&d->rng, d->config.control_ns[to->index] + 1);
  if (to->control_tail != to->control_head)
    at = HARP_MAX(at, to->controls[(to->control_tail - 1) % DUO_CONTROLS_MAX].at);
  to->controls[to->control_tail++ % DUO_CONTROLS_MAX] =
      (struct duo_control){at, kind, s, s->rx_state == DUO_STREAM_CLOSED ? s->last_rx_delivered : 0};
}

static struct duo_end *sending_end(struct duo *d, const struct duo_stream *s) {
  return &d->ends[s->config.way];
}
static struct duo_end *receiving_end(struct duo *d, const struct duo_stream *s) {
  return &d->ends[1 - s->config.way];
}

static void open_tx(struct duo *d, struct duo_stream *s) {
  struct duo_end *e = sending_end(d, s);
  const struct duo_stream_config *c = &s->config;
  struct harp_tx_stream_config config = {
      .id = c->id, .first_line = c->first_line, .first_message = c->first_message};
  harp_sender_open(e->sender, s->tx, &config);
  s->tx_state = DUO_STREAM_OPEN;
  e->sends[c->id] = s;
}

static void open_rx(struct duo *d, struct duo_stream *s) {
  struct duo_end *e = receiving_end(d, s);
  const struct duo_stream_config *c = &s->config;
  struct harp_rx_stream_config config = {
      .id = c->id, .first_line = c->first_line, .first_message = c->first_message, .staging = s->staging};
  harp_receiver_open(e->receiver, s->rx, &config);
  s->rx_state = DUO_STREAM_OPEN;
  e->receives[c->id] = s;
}

void duo_control_open(struct duo *d, struct duo_stream *s) {
  sending_end(d, s)->owners[s->config.id] = s;
  open_rx(d, s);
  open_tx(d, s);
}

static void note_free(struct duo *d, struct duo_stream *s) {
  if (s->tx_state == DUO_STREAM_CLOSED && s->tx_knows) sending_end(d, s)->owners[s->config.id] = NULL;
}

static void close_tx(struct duo *d, struct duo_stream *s) {
  struct duo_end *e = sending_end(d, s);
  s->failed |= s->sent_count != s->count;
  if (s->tx_state == DUO_STREAM_OPEN) {
    duo_tcp_forget(d, e, s);
    harp_sender_close(e->sender, s->tx);
    e->sends[s->config.id] = NULL;
    duo_tcp_overwrite(d, e, s, UINT32_MAX);
  }
  s->tx_state = DUO_STREAM_CLOSED;
  send_control(d, receiving_end(d, s), CLOSED, s);
  note_free(d, s);
}

static void close_rx(struct duo *d, struct duo_stream *s) {
  struct duo_end *e = receiving_end(d, s);
  s->failed |= s->received_count != s->count;
  s->last_rx_delivered = s->rx->delivered;
  harp_receiver_close(e->receiver, s->rx);
  duo_stream_give_back(d, s);
  e->receives[s->config.id] = NULL;
  s->rx_state = DUO_STREAM_CLOSED;
  send_control(d, sending_end(d, s), CLOSED, s);
}

harp_ns duo_control_ns(const struct duo *d, const struct duo_end *e, const struct duo_stream *s) {
  const struct duo_stream_config *c = &s->config;
  bool sends = c->way == e->index;
  (void)d;
  if (sends && s->tx_state == DUO_STREAM_NEW) return e->owners[c->id] ? HARP_NEVER : c->open_at;
  if (!c->abort_at || sends == c->is_aborted_by_receiver) return HARP_NEVER;
  return (sends ? s->tx_state : s->rx_state) == DUO_STREAM_OPEN ? c->abort_at : HARP_NEVER;
}

void duo_control_act(struct duo *d, struct duo_end *e, struct duo_stream *s) {
  if (s->tx_state == DUO_STREAM_NEW) {
    e->owners[s->config.id] = s;
    s->tx_state = DUO_STREAM_REQUESTED;
    send_control(d, receiving_end(d, s), REQUEST, s);
  } else if (s->config.way == e->index) {
    close_tx(d, s);
  } else {
    close_rx(d, s);
  }
}

void duo_control_review(struct duo *d, struct duo_end *e, struct duo_stream *s) {
  if (s->config.way == e->index) {
    bool done = s->config.is_on_demand && s->sent_count == s->count && !s->config.forge_ppm;
    if (s->tx_state == DUO_STREAM_OPEN && done) close_tx(d, s);
  } else {
    bool done = s->config.is_on_demand && s->received_count == s->count && !s->config.forge_ppm;
    if (s->rx_state == DUO_STREAM_OPEN && (done || s->rx->too_large)) close_rx(d, s);
  }
}

harp_ns duo_control_arrival_ns(const struct duo_end *e) {
  if (e->control_head == e->control_tail) return HARP_NEVER;
  return HARP_MAX(e->controls[e->control_head % DUO_CONTROLS_MAX].at, e->asleep_until_ns);
}

/* The receiving end has closed: what arrived until then is done, and nothing else will be. */
static void on_receiver_closed(struct duo *d, struct duo_stream *s, uint32_t delivered) {
  s->tx_knows = true;
  if (s->tx_state == DUO_STREAM_OPEN) {
    harp_tx_stream_on_delivered(s->tx, delivered, d->now);
    void *cookie;
    while (harp_tx_stream_poll_done(s->tx, &cookie)) s->sent_count++;
    duo_tcp_overwrite(d, sending_end(d, s), s, s->sent_count);
  }
  if (s->tx_state != DUO_STREAM_CLOSED) close_tx(d, s);
  note_free(d, s);
}

/* A sending end that has closed with all messages done leaves the rest to the receiving end: some may wait
 * for their receives. */
static void on_sender_closed(struct duo *d, struct duo_stream *s) {
  s->rx_knows = true;
  if (s->rx_state == DUO_STREAM_OPEN && (s->sent_count != s->count || s->config.forge_ppm)) close_rx(d, s);
}

void duo_control_on_message(struct duo *d, struct duo_end *e) {
  struct duo_control m = e->controls[e->control_head++ % DUO_CONTROLS_MAX];
  switch (m.kind) {
  case REQUEST:
    open_rx(d, m.stream);
    send_control(d, sending_end(d, m.stream), OPENED, m.stream);
    break;
  case OPENED:
    if (m.stream->tx_state == DUO_STREAM_REQUESTED) open_tx(d, m.stream);
    break;
  default:
    if (m.stream->config.way == e->index)
      on_receiver_closed(d, m.stream, m.delivered);
    else
      on_sender_closed(d, m.stream);
  }
}
