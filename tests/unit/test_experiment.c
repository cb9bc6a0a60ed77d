/* SPDX-License-Identifier: Apache-2.0 */
/* One experiment, and what evidence makes of several: networks of which what is in use and what is tried each
 * have a rate and a price. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/experiment.h"

enum { ACK_BYTES = 16 << 10 };

/* The values are times for a byte. */
struct price {
  double ns, cpu_ns;
};

static struct harp_experiment e;
static struct harp_evidence evidence;
static struct price used, tried;
static harp_ns now;

static int init(void **state) {
  (void)state;
  e = (struct harp_experiment){0};
  evidence = (struct harp_evidence){0};
  used = (struct price){0.8, 0.2}; /* 10 Gbit/s */
  tried = used;
  now = HARP_SEC(1);
  return 0;
}

static void begin(enum harp_question question) {
  struct harp_experiment plan = {.question = question,
                                 .from = 2,
                                 .to = 4,
                                 .flows_ns = HARP_EXPERIMENT_FLOWS_NS,
                                 .adapt_ns = HARP_EXPERIMENT_FLOWS_NS,
                                 .hurry = 1};
  harp_experiment_begin(&e, &plan);
}

/* Moves an acknowledgement's bytes; the job makes each take `pace` times as long. Returns whether the phase
 * has changed. */
static bool move(double pace, enum harp_lesson lesson) {
  const struct price *p = harp_experiment_tries(&e) ? &tried : &used;
  struct harp_slice more = {ACK_BYTES, (harp_ns)(p->ns * pace * ACK_BYTES), (harp_ns)(p->cpu_ns * ACK_BYTES)};
  now += more.busy_ns;
  return harp_experiment_feed(&e, &more, lesson);
}

/* Runs an experiment to its end; returns its verdict. */
static enum harp_verdict run(enum harp_question question) {
  begin(question);
  while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_NONE);
  return e.verdict;
}

static void test_phases_come_in_order(void **state) {
  (void)state;
  tried.ns = used.ns / 2;
  begin(HARP_QUESTION_CARRIER);
  for (enum harp_experiment_phase phase = HARP_EXPERIMENT_BEFORE; phase <= HARP_EXPERIMENT_AFTER; phase++) {
    assert_int_equal(e.phase, phase);
    assert_int_equal(harp_experiment_tries(&e),
                     phase == HARP_EXPERIMENT_ADAPT || phase == HARP_EXPERIMENT_WITH);
    while (!move(1, HARP_LESSON_NONE)) assert_int_equal(e.phase, phase);
  }
  assert_false(harp_experiment_is_under_way(&e));
  assert_int_equal(e.verdict, HARP_VERDICT_QUICKER);
  assert_in_range(e.time_percent, 49, 50);
}

/* Where little is moved a slice of a search lasts longer, within its bound. */
static void test_a_slow_slice_of_flows_lasts_longer(void **state) {
  (void)state;
  static const struct {
    double ns; /* the time for a byte */
    harp_ns slice_ns;
  } cases[] = {
      {0.8, HARP_EXPERIMENT_FLOWS_NS},                              /* 10 MB in it */
      {4, 4 * HARP_EXPERIMENT_FLOWS_BYTES},                         /* 2 MB */
      {16, HARP_EXPERIMENT_FLOWS_TIMES * HARP_EXPERIMENT_FLOWS_NS}, /* 0.5 MB */
  };
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    init(NULL);
    used.ns = cases[i].ns;
    begin(HARP_QUESTION_FLOWS);
    while (e.phase == HARP_EXPERIMENT_BEFORE) (void)!move(1, HARP_LESSON_NONE);
    assert_in_range(e.before.busy_ns, cases[i].slice_ns, cases[i].slice_ns + 2 * HARP_MS(1));
  }
}

static void test_what_a_win_is(void **state) {
  (void)state;
  static const struct {
    enum harp_question question;
    double time, cpu;
    enum harp_verdict verdict;
  } cases[] = {
      {HARP_QUESTION_CARRIER, 0.94, 1, HARP_VERDICT_QUICKER},
      {HARP_QUESTION_CARRIER, 0.97, 1, HARP_VERDICT_LOST},
      {HARP_QUESTION_CARRIER, 1.01, 0.7, HARP_VERDICT_CHEAPER},
      {HARP_QUESTION_CARRIER, 1.01, 0.8, HARP_VERDICT_LOST},
      {HARP_QUESTION_CARRIER, 1.1, 0.1, HARP_VERDICT_LOST},
      {HARP_QUESTION_FLOWS, 1 / 1.3, 1, HARP_VERDICT_QUICKER}, /* 1.25: a quarter of what two more bring */
      {HARP_QUESTION_FLOWS, 1 / 1.2, 1, HARP_VERDICT_LOST},
      {HARP_QUESTION_FLOWS, 1, 0.1, HARP_VERDICT_LOST},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    init(NULL);
    tried = (struct price){used.ns * cases[i].time, used.cpu_ns * cases[i].cpu};
    assert_int_equal(run(cases[i].question), cases[i].verdict);
  }
}

/* What wins against the slice before alone is the job's pace. */
static void test_it_must_win_before_and_after(void **state) {
  (void)state;
  for (unsigned q = 0; q < HARP_QUESTIONS; q++) {
    init(NULL);
    begin((enum harp_question)q);
    while (e.phase == HARP_EXPERIMENT_BEFORE) (void)!move(2, HARP_LESSON_NONE);
    while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_NONE);
    assert_int_equal(e.verdict, HARP_VERDICT_LOST);
    init(NULL);
    begin((enum harp_question)q);
    while (e.phase != HARP_EXPERIMENT_AFTER && harp_experiment_is_under_way(&e))
      (void)!move(1, HARP_LESSON_NONE);
    while (harp_experiment_is_under_way(&e)) (void)!move(2, HARP_LESSON_NONE);
    assert_int_equal(e.verdict, HARP_VERDICT_LOST);
  }
}

/* However slow what is tried is. */
static void test_what_it_may_cost(void **state) {
  (void)state;
  static const double slower[] = {1.5, 3, 10, 1000};
  for (unsigned i = 0; i < sizeof slower / sizeof slower[0]; i++) {
    init(NULL);
    tried.ns = slower[i] * used.ns;
    assert_int_equal(run(HARP_QUESTION_CARRIER), HARP_VERDICT_LOST);
    harp_ns most_ns = HARP_MAX(6 * e.before.busy_ns, HARP_EXPERIMENT_HOPELESS_NS);
    assert_true(e.tried.busy_ns <= most_ns + (harp_ns)(2 * tried.ns * ACK_BYTES));
    harp_ns worth_ns = (harp_ns)(used.ns * (double)e.tried.bytes);
    assert_in_range(e.cost_ns, (e.tried.busy_ns - worth_ns) * 99 / 100,
                    (e.tried.busy_ns - worth_ns) * 101 / 100);
  }
}

static void test_nothing_comes_through_at_all(void **state) {
  (void)state;
  begin(HARP_QUESTION_CARRIER);
  while (e.phase != HARP_EXPERIMENT_ADAPT) (void)!move(1, HARP_LESSON_NONE);
  harp_ns span_ns = 0;
  while (harp_experiment_is_under_way(&e)) {
    struct harp_slice more = {.busy_ns = HARP_US(100)};
    (void)!harp_experiment_feed(&e, &more, HARP_LESSON_NONE);
    span_ns += more.busy_ns;
  }
  assert_int_equal(e.verdict, HARP_VERDICT_LOST);
  assert_true(span_ns <= HARP_EXPERIMENT_HOPELESS_NS + HARP_US(100));
  assert_in_range(e.cost_ns, span_ns, span_ns);
}

/* A network so slow that slices end by time. */
static void test_a_slow_network(void **state) {
  (void)state;
  used.ns = 80;
  tried.ns = 30;
  begin(HARP_QUESTION_CARRIER);
  while (e.phase == HARP_EXPERIMENT_BEFORE) (void)!move(1, HARP_LESSON_NONE);
  assert_in_range(e.before.busy_ns, HARP_EXPERIMENT_SLICE_NS, HARP_EXPERIMENT_SLICE_NS + HARP_MS(2));
  while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_NONE);
  assert_int_equal(e.verdict, HARP_VERDICT_QUICKER);
}

static void test_it_settles_as_long_as_flows_are_searched_for(void **state) {
  (void)state;
  begin(HARP_QUESTION_CARRIER);
  while (e.phase != HARP_EXPERIMENT_ADAPT) (void)!move(1, HARP_LESSON_NONE);
  uint64_t settled = 40 * e.before.bytes;
  while (e.phase == HARP_EXPERIMENT_ADAPT)
    (void)!move(1, e.now.bytes >= settled ? HARP_LESSON_NONE : HARP_LESSON_FLOWS);
  assert_in_range(e.tried.bytes, settled, settled + 2 * ACK_BYTES);
  harp_experiment_stop(&e);
  begin(HARP_QUESTION_CARRIER); /* one that does not end is bounded */
  while (e.phase != HARP_EXPERIMENT_WITH) (void)!move(1, HARP_LESSON_FLOWS);
  assert_in_range(e.tried.bytes, HARP_EXPERIMENT_ADAPT_MAX * e.before.bytes,
                  HARP_EXPERIMENT_ADAPT_MAX * e.before.bytes + ACK_BYTES);
}

/* ---- what loses may still have to learn ---- */

enum { SLOW = 10 };

static void begin_with_patience(harp_ns patience_ns) {
  struct harp_experiment plan = {.question = HARP_QUESTION_CARRIER, .hurry = 1, .patience_ns = patience_ns};
  harp_experiment_begin(&e, &plan);
  while (e.phase == HARP_EXPERIMENT_BEFORE) (void)!move(1, HARP_LESSON_NONE);
}

/* What learns for so long is slow meanwhile, and twice as quick as what is in use from then on. */
static enum harp_verdict learn_for(harp_ns learn_ns) {
  while (harp_experiment_is_under_way(&e)) {
    bool learns = e.tried.busy_ns < learn_ns;
    tried.ns = learns ? used.ns * SLOW : used.ns / 2;
    (void)!move(1, learns ? HARP_LESSON_PATHS : HARP_LESSON_NONE);
  }
  return e.verdict;
}

/* Wherever the end of the lesson falls: into ADAPT, or into a slice that is measured. */
static void test_what_has_learned_may_win(void **state) {
  (void)state;
  for (harp_ns learn_ns = HARP_MS(1); learn_ns < HARP_MS(400); learn_ns += HARP_MS(3)) {
    init(NULL);
    begin_with_patience(HARP_MS(500));
    assert_int_equal(learn_for(learn_ns), HARP_VERDICT_QUICKER);
    assert_in_range(e.time_percent, 49, 95); /* the lesson may end in the slice that wins */
  }
}

static void test_what_learns_nothing_more_has_lost(void **state) {
  (void)state;
  tried.ns = used.ns * SLOW;
  begin_with_patience(HARP_SEC(10));
  while (e.tried.busy_ns < HARP_MS(200)) (void)!move(1, HARP_LESSON_PATHS);
  while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_NONE);
  assert_int_equal(e.verdict, HARP_VERDICT_LOST);
  assert_true(e.tried.busy_ns < HARP_MS(200) + 12 * e.before.busy_ns + HARP_EXPERIMENT_HOPELESS_NS);
}

static void test_patience_bounds_the_cost(void **state) {
  (void)state;
  tried.ns = used.ns * SLOW;
  for (harp_ns patience_ns = 0; patience_ns <= HARP_MS(300); patience_ns += HARP_MS(100)) {
    begin_with_patience(patience_ns);
    while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_PATHS);
    assert_int_equal(e.verdict, HARP_VERDICT_LOST);
    assert_true(e.cost_ns >= patience_ns && e.cost_ns < patience_ns + 7 * e.before.busy_ns);
  }
}

/* What is as quick costs nothing by learning; time bounds it. */
static void test_a_lesson_ends(void **state) {
  (void)state;
  begin_with_patience(HARP_SEC(10));
  while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_PATHS);
  assert_int_equal(e.verdict, HARP_VERDICT_LOST);
  assert_in_range(e.tried.busy_ns, HARP_EXPERIMENT_LEARN_NS, HARP_EXPERIMENT_LEARN_NS + 7 * e.before.busy_ns);
}

/* At the speed of the interface more flows cannot bring anything. */
static void test_a_full_interface_needs_no_flows(void **state) {
  (void)state;
  struct harp_experiment plan = {.question = HARP_QUESTION_FLOWS,
                                 .from = 1,
                                 .to = 2,
                                 .flows_ns = HARP_EXPERIMENT_FLOWS_NS,
                                 .adapt_ns = HARP_EXPERIMENT_FLOWS_NS,
                                 .hurry = 1,
                                 .full_bytes = 1200000000};
  harp_experiment_begin(&e, &plan);
  while (harp_experiment_is_under_way(&e)) {
    assert_false(harp_experiment_tries(&e));
    (void)!move(1, HARP_LESSON_NONE);
  }
  assert_int_equal(e.verdict, HARP_VERDICT_LOST);
}

static void test_one_that_is_stopped_says_nothing(void **state) {
  (void)state;
  begin(HARP_QUESTION_CARRIER);
  while (e.phase != HARP_EXPERIMENT_WITH) (void)!move(1, HARP_LESSON_NONE);
  harp_experiment_stop(&e);
  assert_int_equal(e.verdict, HARP_VERDICT_NONE);
  assert_false(harp_experiment_tries(&e));
}

/* ---- evidence ---- */

/* Makes experiments one after the other until one changes something; returns how many, at most `most`. */
static unsigned count_until_change(enum harp_question question, unsigned most) {
  for (unsigned i = 1; i <= most; i++) {
    now = HARP_MAX(now, evidence.next_ns);
    (void)run(question);
    if (harp_evidence_add(&evidence, &e, now)) return i;
  }
  return most + 1;
}

static void test_wins_in_a_row_make_a_change(void **state) {
  (void)state;
  tried.ns = used.ns * 0.7;
  assert_int_equal(count_until_change(HARP_QUESTION_CARRIER, 10), 4);
  tried.ns = used.ns * 0.4;
  assert_int_equal(count_until_change(HARP_QUESTION_CARRIER, 10), 2);
  assert_int_equal(count_until_change(HARP_QUESTION_FLOWS, 10), 2);
  assert_int_equal(count_until_change(HARP_QUESTION_FLOWS, 10),
                   1);      /* a cap was found: it is likely the next */
  tried.ns = used.ns * 0.7; /* flows that bring less than they could */
  evidence.points = 0;
  assert_int_equal(count_until_change(HARP_QUESTION_FLOWS, 10), 4);
}

static void test_one_clear_win_is_enough_where_it_is_urgent(void **state) {
  (void)state;
  tried.ns = used.ns * 0.4;
  struct harp_experiment plan = {.question = HARP_QUESTION_CARRIER, .is_urgent = true, .hurry = 1};
  harp_experiment_begin(&e, &plan);
  while (harp_experiment_is_under_way(&e)) (void)!move(1, HARP_LESSON_NONE);
  assert_true(harp_evidence_add(&evidence, &e, now));
}

static void test_losses_make_it_rarer_and_harder(void **state) {
  (void)state;
  harp_ns waited_ns = 0;
  for (unsigned i = 0; i < 12; i++) {
    assert_int_equal(run(HARP_QUESTION_FLOWS), HARP_VERDICT_LOST);
    assert_false(harp_evidence_add(&evidence, &e, now));
    harp_ns wait_ns = evidence.next_ns - now;
    assert_in_range(wait_ns, HARP_MAX(waited_ns, HARP_MS(100)), HARP_SEC(30));
    assert_true(!waited_ns || wait_ns == 2 * waited_ns || wait_ns == waited_ns);
    waited_ns = wait_ns;
  }
  assert_true(waited_ns >= HARP_SEC(20));
  tried.ns = used.ns * 0.7;
  assert_int_equal(count_until_change(HARP_QUESTION_FLOWS, 20), 8);
  assert_int_equal(count_until_change(HARP_QUESTION_FLOWS, 20), 2); /* a change is a new beginning */
}

static void test_a_loss_between_wins_takes_their_points(void **state) {
  (void)state;
  for (unsigned i = 0; i < 20; i++) {
    tried.ns = used.ns * (i % 3 == 2 ? 1 : 0.7);
    (void)run(HARP_QUESTION_CARRIER);
    assert_false(harp_evidence_add(&evidence, &e, now));
  }
}

int main(void) {
#define T(test) cmocka_unit_test_setup(test, init)
  const struct CMUnitTest tests[] = {
      T(test_phases_come_in_order),
      T(test_a_slow_slice_of_flows_lasts_longer),
      T(test_what_a_win_is),
      T(test_it_must_win_before_and_after),
      T(test_what_it_may_cost),
      T(test_nothing_comes_through_at_all),
      T(test_a_slow_network),
      T(test_it_settles_as_long_as_flows_are_searched_for),
      T(test_what_has_learned_may_win),
      T(test_what_learns_nothing_more_has_lost),
      T(test_patience_bounds_the_cost),
      T(test_a_lesson_ends),
      T(test_a_full_interface_needs_no_flows),
      T(test_one_that_is_stopped_says_nothing),
      T(test_wins_in_a_row_make_a_change),
      T(test_one_clear_win_is_enough_where_it_is_urgent),
      T(test_losses_make_it_rarer_and_harder),
      T(test_a_loss_between_wins_takes_their_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
