/* SPDX-License-Identifier: Apache-2.0 */
/* See reference_choice.h. */
#include "engine/tcp/reference_choice.h"

#include "base/assert.h"

unsigned harp_reference_choice_class(uint32_t payload_bytes) {
  unsigned k = 0;
  HARP_ASSERT(payload_bytes >= HARP_REFERENCE_MIN_BYTES);
  while (k + 1 < HARP_REFERENCE_CLASSES && payload_bytes >= harp_reference_class_min_bytes(k + 1)) k++;
  return k;
}

bool harp_reference_choice_method(const struct harp_reference_choice *c, uint32_t payload_bytes) {
  return c->classes[harp_reference_choice_class(payload_bytes)].by_reference;
}

static bool is_cheaper_by_reference(const struct harp_reference_class *k) {
  return k->cost[1] + k->cost[1] / HARP_REFERENCE_MARGIN < k->cost[0];
}

static uint32_t add_turn_to_cost(const struct harp_reference_class *k, uint32_t turn_cost) {
  uint32_t cost = k->cost[k->by_reference];
  if (!cost) return turn_cost;
  if (k->turns < HARP_REFERENCE_FIRST_TURNS) return HARP_MIN(cost, turn_cost);
  turn_cost = HARP_MIN(turn_cost, 2 * cost);
  return cost - cost / 4 + turn_cost / 4;
}

static bool choose_next_method(const struct harp_reference_class *k) {
  if (k->turns < HARP_REFERENCE_FIRST_TURNS) return !k->by_reference;
  bool cheaper = is_cheaper_by_reference(k);
  return k->turns % HARP_REFERENCE_TRIAL_TURNS ? cheaper : !cheaper;
}

static void end_turn(struct harp_reference_class *k) {
  uint64_t cost = (k->counted_ns << 20) / k->counted_bytes;
  k->cost[k->by_reference] = add_turn_to_cost(k, (uint32_t)HARP_MAX(HARP_MIN(cost, UINT32_MAX / 4), 1u));
  k->turns++;
  k->by_reference = choose_next_method(k);
  k->bytes = k->counted_bytes = 0;
  k->counted_ns = 0;
}

bool harp_reference_choice_on_sent(struct harp_reference_choice *c, uint32_t payload_bytes, bool by_reference,
                                   uint32_t sent_bytes, harp_ns took_ns) {
  struct harp_reference_class *k = &c->classes[harp_reference_choice_class(payload_bytes)];
  if (k->by_reference != by_reference) return false; /* a record of the turn before */
  if (k->bytes >= HARP_REFERENCE_UNCOUNTED_BYTES) {
    k->counted_bytes += sent_bytes;
    k->counted_ns += took_ns;
  }
  k->bytes += sent_bytes;
  if (k->bytes < HARP_REFERENCE_TURN_BYTES || !k->counted_bytes) return false;
  end_turn(k);
  return k->turns == HARP_REFERENCE_FIRST_TURNS;
}
