/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_window.h"

#include <inttypes.h>
#include <string.h>

#include "base/seq.h"

static const uint32_t absurd[] = {0, HARP_WINDOW_UNIT_BYTES, HARP_WINDOW_MIN_BYTES - HARP_WINDOW_UNIT_BYTES,
                                  HARP_WINDOW_UNIT_BYTES * 65535u};

void duo_window_start(struct duo *d, struct duo_end *e) {
  e->window_bytes = harp_receive_window_bounded(d->config.window_bytes);
  for (unsigned i = 0; i < d->config.path_count; i++) e->ack_next[i] = d->config.first_number;
  e->overflows = 0;
  e->exceeds = false;
  duo_window_on_sleep(e);
}

void duo_window_maybe_change(struct duo *d, struct duo_end *e) {
  if (!d->faults || !e->receiver || !rng_chance(&d->rng, d->config.window_ppm)) return;
  uint32_t most = d->config.window_bytes;
  if (!d->config.has_buffer && !rng_below(&d->rng, 4)) most *= 2;
  harp_receiver_set_window(e->receiver, (uint32_t)rng_below(&d->rng, most + 1));
}

void duo_window_maybe_spoil(struct duo *d, struct harp_packet *ack) {
  if (d->faults && rng_chance(&d->rng, d->config.absurd_ppm))
    ack->ack.window_bytes = absurd[rng_below(&d->rng, HARP_ARRAY_COUNT(absurd))];
}

void duo_window_on_ack(struct duo_end *e, const struct harp_packet *ack) {
  uint64_t number = harp_seq_widen(ack->number, e->ack_next[ack->path]);
  if (number < e->ack_next[ack->path]) return;
  e->ack_next[ack->path] = number + 1;
  e->window_bytes = harp_receive_window_bounded(ack->ack.window_bytes);
}

static unsigned eni_of(const struct duo *d, unsigned end, unsigned path) {
  const struct harp_path_config *p = &d->config.paths[path];
  return (end ? p->remote_eni : p->local_eni) % HARP_WINDOWS_MAX;
}

void duo_window_check(const struct duo *d, const struct duo_end *e, const struct harp_path *p) {
  uint64_t bytes = 0;
  unsigned eni = eni_of(d, 1 - e->index, p->index);
  for (unsigned i = 0; i < d->config.path_count; i++) {
    if (d->config.paths[i].is_tcp) continue;
    const struct harp_flight *f = &e->sender->paths[i].flight;
    if (eni_of(d, 1 - e->index, i) != eni) continue;
    for (uint32_t k = f->head; k != f->tail; k++) {
      const struct harp_burst *b = harp_flight_at(f, k);
      if (b->is_outside_window && !b->lines_per_packet) continue; /* a probe of a path that is not UP */
      bytes += (uint64_t)harp_popcount(harp_burst_pending(b)) * (b->packet_bytes + HARP_WINDOW_PACKET_BYTES);
    }
  }
  if (bytes > e->window_bytes)
    duo_fail(d, "%s: %" PRIu64 " bytes in flight to interface %u, window %u", e->name, bytes, eni,
             e->window_bytes);
}

void duo_window_on_sleep(struct duo_end *e) {
  memset(e->buffered_bytes, 0, sizeof e->buffered_bytes);
}

bool duo_window_holds(struct duo *d, struct duo_end *e) {
  const struct simnet_datagram *g = simnet_next(&d->net);
  uint32_t *buffered = &e->buffered_bytes[eni_of(d, e->index, g->path)];
  struct harp_packet p;
  if (!d->config.has_buffer || g->touched || harp_packet_decode(g->wire, g->bytes, &p)) return true;
  if (p.type != HARP_PACKET_DATA) return true; /* no window bounds them: they are few */
  /* Padding behind it is left out, as in the window: in the engine it is little. */
  *buffered += HARP_CRC_FROM_BYTE + (uint32_t)harp_packet_crc_bytes(&p) + HARP_WINDOW_PACKET_BYTES;
  if (*buffered <= harp_receive_window_bounded(d->config.window_bytes)) return true;
  e->overflows++;
  /* What was taken for lost is in no window, nor is what a timeout sends. */
  const struct duo_end *from = &d->ends[1 - e->index];
  const struct harp_counters *c = &from->counters;
  if (!from->exceeds && !c->lost_packets && !c->probe_timeouts && !c->tail_duplicates)
    duo_fail(d, "%s: a packet is lost in its own buffer: %u bytes", e->name, *buffered);
  return false;
}
