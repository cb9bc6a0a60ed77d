/* SPDX-License-Identifier: Apache-2.0 */
#include "models/host.h"

#include <math.h>

void host_init(struct host *h, harp_ns every_ns, harp_ns least_ns, harp_ns most_ns, uint64_t seed) {
  *h = (struct host){.every_ns = every_ns, .least_ns = least_ns, .most_ns = most_ns, .rng.state = seed};
}

harp_ns host_draw_ns(struct rng *rng, harp_ns mean_ns) {
  double share = (double)((rng_next(rng) >> 11) + 1) * 0x1p-53; /* in (0, 1] */
  return (harp_ns)((double)mean_ns * -log(share));
}

static void draw_pause(struct host *h) {
  h->from_ns = h->to_ns + host_draw_ns(&h->rng, h->every_ns);
  h->to_ns = h->from_ns + rng_between(&h->rng, h->least_ns, h->most_ns);
}

void host_stop(struct host *h, harp_ns from_ns, harp_ns to_ns) {
  h->stop_from_ns = from_ns;
  h->stop_to_ns = to_ns;
}

harp_ns host_wakes_ns(struct host *h, harp_ns now) {
  if (now >= h->stop_from_ns && now < h->stop_to_ns) return h->stop_to_ns;
  if (!h->every_ns) return 0;
  while (now >= h->to_ns) draw_pause(h);
  return now >= h->from_ns ? h->to_ns : 0;
}
