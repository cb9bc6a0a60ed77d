/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "log.h"
#include "shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const verbs[BOX_VERB_COUNT] = {
    "init", "split",  "shrink",  "grow",   "run",      "start",   "kill",
    "lose", "revoke", "suspend", "resume", "finalize", "destroy", "abort",
};

struct reader {
  struct box_plan *plan;
  const struct box_options *options;
  struct box_step *step;
  struct box_group *made; /* by this step; NULL if it makes none */
};

static int wrong(const struct reader *r, const char *what, const char *word) {
  box_log("plan, \"%s\": %s %s", r->step->text, what, word);
  return -1;
}

int box_group_size(const struct box_group *g, int rank) {
  int size = 0;
  for (int other = 0; g->sets[rank] != BOX_ABSENT && other < BOX_RANKS_MAX; other++)
    size += g->sets[other] == g->sets[rank];
  return size;
}

/* ---- words ---- */

static int read_int(const struct reader *r, const char *text, int least, int most, int *out) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < least || value > most) return wrong(r, "not in range:", text);
  *out = (int)value;
  return 0;
}

static int find_group(const struct reader *r, const char *name, int *out) {
  for (int i = 0; i < r->plan->group_count; i++) {
    if (strcmp(r->plan->groups[i].name, name)) continue;
    *out = i;
    return r->plan->groups[i].is_open ? 0 : wrong(r, "is destroyed:", name);
  }
  return wrong(r, "unknown name:", name);
}

/* Reads 0,2,5 into the step's list. */
static int read_ranks(struct reader *r, char *text) {
  struct box_step *s = r->step;
  for (char *rest, *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    int rank;
    if (read_int(r, word, 0, r->options->ranks - 1, &rank)) return -1;
    if (s->listed[rank]) return wrong(r, "listed twice:", word);
    s->listed[rank] = true;
    s->order[s->listed_count++] = rank;
  }
  return s->listed_count ? 0 : wrong(r, "an empty list:", "ranks");
}

/* Reads a number for each rank of the job; "-" is absent. */
static int read_numbers(const struct reader *r, char *text, int *out) {
  int count = 0;
  for (char *rest, *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    if (count == r->options->ranks) return wrong(r, "too many numbers:", word);
    out[count] = BOX_ABSENT;
    if (strcmp(word, "-") && read_int(r, word, 0, BOX_RANKS_MAX - 1, &out[count])) return -1;
    count++;
  }
  return count == r->options->ranks ? 0
                                    : wrong(r, "a number for each rank of the job is needed in", "the list");
}

static int read_op(struct reader *r, const char *text) {
  for (int op = 0; op < BOX_OP_COUNT; op++) {
    if (strcmp(box_op_names[op], text)) continue;
    r->step->op = (enum box_op)op;
    return 0;
  }
  return wrong(r, "unknown operation:", text);
}

static bool makes(enum box_verb verb) {
  return verb <= BOX_GROW;
}
static bool kills(enum box_verb verb) {
  return verb == BOX_KILL || verb == BOX_LOSE;
}
static bool derives(enum box_verb verb) {
  return verb == BOX_SPLIT || verb == BOX_SHRINK || verb == BOX_GROW;
}

/* Reads one word after the name: key=value, or a flag. What does not belong to the verb is an error. */
static int read_word(struct reader *r, char *word) {
  struct box_step *s = r->step;
  const enum box_verb v = s->verb;
  char *value = strchr(word, '=');
  if (value) *value++ = 0;
  if (!value && !strcmp(word, "share") && (v == BOX_SPLIT || v == BOX_SHRINK)) {
    s->shares = true;
    return 0;
  }
  if (!value && !strcmp(word, "abort") && v == BOX_SHRINK) {
    s->aborts = true;
    return 0;
  }
  if (!value && v == BOX_RUN)
    return s->group_count == BOX_GROUPS_MAX ? wrong(r, "too many names:", word)
                                            : find_group(r, word, &s->groups[s->group_count++]);
  if (!value) return wrong(r, "unknown word:", word);
  if (!strcmp(word, "from") && derives(v)) return find_group(r, value, &s->from);
  if (!strcmp(word, "colours") && v == BOX_SPLIT) return read_numbers(r, value, s->colours);
  if (!strcmp(word, "keys") && v == BOX_SPLIT) return read_numbers(r, value, s->keys);
  if (!strcmp(word, "without") && v == BOX_SHRINK) return read_ranks(r, value);
  if (!strcmp(word, "with") && v == BOX_GROW) return read_ranks(r, value);
  if (!strcmp(word, "ranks") && (v == BOX_INIT || v == BOX_START || kills(v))) return read_ranks(r, value);
  if (!strcmp(word, "op") && (v == BOX_RUN || v == BOX_START || v == BOX_LOSE)) return read_op(r, value);
  if (!strcmp(word, "count") && v == BOX_INIT) return read_int(r, value, 1, BOX_COUNT_MAX, &r->made->count);
  if (!strcmp(word, "lib") && v == BOX_INIT)
    return read_int(r, value, 0, r->options->library_count - 1, &r->made->library);
  return wrong(r, "unknown word:", word);
}

/* ---- who is in what ---- */

static void place(struct box_group *g, int rank, int set, int at) {
  g->sets[rank] = set;
  g->places[rank] = at;
}

/* Returns whether `a` comes before `b` in the new communicator: by key, then by the rank in the old one. */
static bool precedes(const struct box_step *s, const struct box_group *from, int a, int b) {
  if (s->keys[a] != s->keys[b]) return s->keys[a] < s->keys[b];
  return from->places[a] < from->places[b];
}

static void split(const struct box_step *s, const struct box_group *from, struct box_group *g) {
  for (int rank = 0; rank < BOX_RANKS_MAX; rank++) {
    if (from->sets[rank] == BOX_ABSENT || s->colours[rank] == BOX_ABSENT) continue;
    int before = 0, first = BOX_ABSENT;
    for (int other = 0; other < BOX_RANKS_MAX; other++) {
      if (from->sets[other] != from->sets[rank] || s->colours[other] != s->colours[rank]) continue;
      before += precedes(s, from, other, rank);
      if (first == BOX_ABSENT) first = other;
    }
    place(g, rank, first, before);
  }
}

static bool is_changed(const struct box_step *s, const struct box_group *from, int set) {
  for (int i = 0; i < s->listed_count; i++)
    if (from->sets[s->order[i]] == set) return true;
  return false;
}

static int shrink(const struct reader *r, const struct box_group *from, struct box_group *g) {
  const struct box_step *s = r->step;
  for (int i = 0; i < s->listed_count; i++)
    if (from->sets[s->order[i]] == BOX_ABSENT) return wrong(r, "an excluded rank is not in", from->name);
  for (int rank = 0; rank < BOX_RANKS_MAX; rank++) {
    int set = from->sets[rank], before = 0;
    if (set == BOX_ABSENT || s->listed[rank] || !is_changed(s, from, set)) continue;
    for (int other = 0; other < BOX_RANKS_MAX; other++)
      before += from->sets[other] == set && !s->listed[other] && from->places[other] < from->places[rank];
    place(g, rank, set, before);
  }
  return 0;
}

static int grow(const struct reader *r, const struct box_group *from, struct box_group *g) {
  const struct box_step *s = r->step;
  int members = 0, set = BOX_ABSENT;
  for (int rank = 0; rank < BOX_RANKS_MAX; rank++) {
    if (from->sets[rank] == BOX_ABSENT) continue;
    if (set == BOX_ABSENT) set = from->sets[rank];
    if (from->sets[rank] != set) return wrong(r, "can't grow several sets:", from->name);
    if (s->listed[rank]) return wrong(r, "a new rank is in it already:", from->name);
    place(g, rank, set, from->places[rank]);
    members++;
  }
  for (int i = 0; i < s->listed_count; i++) place(g, s->order[i], set, members + i);
  return 0;
}

static int make(struct reader *r) {
  struct box_step *s = r->step;
  struct box_group *g = r->made;
  if (derives(s->verb) && s->from == BOX_ABSENT) return wrong(r, "missing:", "from=NAME");
  const struct box_group *from = derives(s->verb) ? &r->plan->groups[s->from] : NULL;
  if (from) g->library = from->library, g->count = from->count;
  int ranks = s->listed_count ? s->listed_count : r->options->ranks;
  for (int i = 0; s->verb == BOX_INIT && i < ranks; i++) place(g, s->listed_count ? s->order[i] : i, 0, i);
  if (s->verb == BOX_SPLIT) split(s, from, g);
  if (s->verb == BOX_SHRINK && shrink(r, from, g)) return -1;
  if (s->verb == BOX_GROW && grow(r, from, g)) return -1;
  if ((s->verb == BOX_SHRINK || s->verb == BOX_GROW) && !s->listed_count)
    return wrong(r, "missing:", s->verb == BOX_GROW ? "with=RANKS" : "without=RANKS");
  if (s->verb == BOX_INIT || s->verb == BOX_GROW) {
    s->first_id = r->plan->id_count;
    r->plan->id_count += g->count;
    if (r->plan->id_count > BOX_IDS_MAX) return wrong(r, "too many communicators:", g->name);
  }
  g->is_open = true;
  return 0;
}

/* ---- steps ---- */

static int begin_group(struct reader *r, const char *name) {
  struct box_plan *p = r->plan;
  for (int i = 0; i < p->group_count; i++)
    if (!strcmp(p->groups[i].name, name)) return wrong(r, "the name is in use:", name);
  if (p->group_count == BOX_GROUPS_MAX) return wrong(r, "too many names:", name);
  r->made = &p->groups[p->group_count];
  *r->made = (struct box_group){.name = name, .count = 1};
  for (int rank = 0; rank < BOX_RANKS_MAX; rank++) r->made->sets[rank] = BOX_ABSENT;
  r->step->groups[r->step->group_count++] = p->group_count++;
  return 0;
}

static int read_step(struct reader *r, char *text) {
  struct box_step *s = r->step;
  char *rest, *verb = strtok_r(text, " \n", &rest), *name = strtok_r(NULL, " \n", &rest);
  s->op = r->options->op;
  s->from = BOX_ABSENT;
  int number = 0;
  while (number < BOX_VERB_COUNT && strcmp(verbs[number], verb)) number++;
  if (number == BOX_VERB_COUNT) return wrong(r, "unknown step:", verb);
  if (!name) return wrong(r, "a name is missing after", verb);
  s->verb = (enum box_verb)number;
  if (makes(s->verb)) {
    if (begin_group(r, name)) return -1;
  } else if (find_group(r, name, &s->groups[s->group_count++])) {
    return -1;
  }
  for (char *word; (word = strtok_r(NULL, " \n", &rest));)
    if (read_word(r, word)) return -1;
  if (makes(s->verb)) return make(r);
  if (kills(s->verb)) {
    if (s->listed_count != 1) return wrong(r, "missing:", "ranks=RANK");
    r->plan->loses = true;
  }
  if (s->verb == BOX_DESTROY || s->verb == BOX_ABORT) r->plan->groups[s->groups[0]].is_open = false;
  return 0;
}

int box_plan_read(struct box_plan *plan, const struct box_options *o) {
  struct reader r = {.plan = plan, .options = o};
  for (char *rest, *text = strtok_r(o->plan, ";", &rest); text; text = strtok_r(NULL, ";", &rest)) {
    text += strspn(text, " \n");
    if (!*text) continue;
    r.step = &plan->steps[HARP_MIN(plan->step_count, BOX_STEPS_MAX - 1)];
    r.made = NULL;
    snprintf(r.step->text, sizeof r.step->text, "%s", text);
    if (plan->step_count++ == BOX_STEPS_MAX) return wrong(&r, "too many", "steps");
    if (read_step(&r, text)) return -1;
  }
  if (!plan->step_count) {
    box_log("plan: no steps");
    return -1;
  }
  for (int i = 0; i < plan->group_count; i++)
    if (plan->groups[i].is_open) return wrong(&r, "is never destroyed:", plan->groups[i].name);
  if (plan->loses && o->cycles > 1) return wrong(&r, "after a loss there is no second", "cycle");
  return 0;
}
