/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: communicators that come and go, as steps that all ranks take in the same order, each if its rank is
 * concerned. Read and checked before the ranks are forked.
 *
 * Communicators have names. A name stands for disjoint sets of ranks, as a split makes them, and in each set
 * for `count` communicators. */
#ifndef HARP_BOX_PLAN_H
#define HARP_BOX_PLAN_H

#include "options.h"

enum { BOX_STEPS_MAX = 256, BOX_GROUPS_MAX = 64, BOX_COUNT_MAX = 512, BOX_TEXT_BYTES = 96, BOX_ABSENT = -1 };

enum box_verb {
  BOX_INIT,
  BOX_SPLIT,
  BOX_SHRINK,
  BOX_GROW,
  BOX_RUN,
  BOX_START,
  BOX_KILL,
  BOX_LOSE,
  BOX_REVOKE,
  BOX_SUSPEND,
  BOX_RESUME,
  BOX_FINALIZE,
  BOX_DESTROY,
  BOX_ABORT,
  BOX_VERB_COUNT
};

/* The communicators of one name. */
struct box_group {
  const char *name;
  int library, count;
  bool is_open;              /* while the plan is read */
  int sets[BOX_RANKS_MAX];   /* the set of each rank of the job, or BOX_ABSENT */
  int places[BOX_RANKS_MAX]; /* its rank in that set */
};

struct box_step {
  enum box_verb verb;
  char text[BOX_TEXT_BYTES]; /* the text, for errors */
  enum box_op op;
  int groups[BOX_GROUPS_MAX], group_count; /* one, but for run */
  int from;                                /* split, shrink, grow */
  bool shares, aborts;
  int colours[BOX_RANKS_MAX], keys[BOX_RANKS_MAX]; /* split, by rank of the job */
  bool listed[BOX_RANKS_MAX];                      /* init, shrink, grow, start, lose */
  int order[BOX_RANKS_MAX], listed_count;          /* the same as a list */
  int first_id;                                    /* init, grow: in the shared memory */
};

struct box_plan {
  struct box_step steps[BOX_STEPS_MAX];
  struct box_group groups[BOX_GROUPS_MAX];
  int step_count, group_count, id_count;
  bool loses; /* a rank is killed */
};

/* Reads the options' plan; its text is changed. Returns 0, or -1 after it has logged what is wrong. */
int box_plan_read(struct box_plan *plan, const struct box_options *options) HARP_MUST_CHECK;

/* Returns how many ranks are in a rank's set; 0: it is in none. */
int box_group_size(const struct box_group *group, int rank);

#endif
