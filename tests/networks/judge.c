/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a row's measurement with its bounds. */
#include <stdio.h>
#include <string.h>

#include "networks/rows.h"

struct verdict {
  char *text;
  size_t bytes;
};

static void check(struct verdict *v, const char *what, double is, double bound, bool is_minimum) {
  if (is_minimum ? is >= bound : is <= bound) return;
  size_t used = strlen(v->text);
  snprintf(v->text + used, v->bytes - used, "%s%s %.3g %s %.3g", used ? ", " : "", what, is,
           is_minimum ? "<" : ">", bound);
}

void row_judge(const struct row *r, const struct measured *m, const struct measured *reference, char *text,
               size_t bytes) {
  const struct bounds *b = &r->bounds;
  struct verdict v = {text, bytes};
  text[0] = 0;
  if (b->rate_min) check(&v, "rate", m->rate, b->rate_min, true);
  if (b->lost_max) check(&v, "lost", m->lost, b->lost_max, false);
  if (b->jain_min) check(&v, "jain", m->jain, b->jain_min, true);
  if (b->queue_max_us) check(&v, "queue_us", m->queue_us, b->queue_max_us, false);
  if (b->p99_max) check(&v, "p99", m->p99, b->p99_max, false);
  if (b->tcp_min) check(&v, "tcp", m->tcp, b->tcp_min, true);
  if (b->honest_min) check(&v, "others", m->honest, b->honest_min, true);
  if (b->first_max) check(&v, "first", m->first, b->first_max, false);
  if (b->paths_max) check(&v, "paths", m->paths, b->paths_max, false);
  if (b->step_max) {
    check(&v, "steps", m->steps, 1, true);
    check(&v, "step", m->step_share, b->step_max, false);
  }
  if (!b->of_rate_min) return;
  check(&v, "rate", m->rate, b->of_rate_min * reference->rate, true);
  check(&v, "lost", m->lost, reference->lost + b->more_lost_max, false);
}
