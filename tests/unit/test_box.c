/* SPDX-License-Identifier: Apache-2.0 */
/* harp-nccl without an NCCL: small numbers, reductions, debug information, memory, streams, fibers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "box/device.h"
#include "box/dwarf.h"
#include "box/elf.h"
#include "box/fiber.h"
#include "box/memory.h"
#include "box/number.h"
#include "box/plan.h"
#include "box/reduce.h"
#include "box/stream.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* ---- numbers ---- */

static void test_every_half_is_itself(void **state) {
  (void)state;
  for (unsigned bits = 0; bits <= UINT16_MAX; bits++) {
    float value = box_half_widen((uint16_t)bits);
    if (isnan(value))
      assert_true(isnan(box_half_widen(box_half_narrow(value))));
    else
      assert_int_equal(box_half_narrow(value), bits);
  }
}

static void test_every_bfloat16_is_itself(void **state) {
  (void)state;
  for (unsigned bits = 0; bits <= UINT16_MAX; bits++) {
    float value = box_bfloat16_widen((uint16_t)bits);
    if (isnan(value))
      assert_true(isnan(box_bfloat16_widen(box_bfloat16_narrow(value))));
    else
      assert_int_equal(box_bfloat16_narrow(value), bits);
  }
}

static void test_every_fp8_is_itself(void **state) {
  (void)state;
  for (unsigned bits = 0; bits <= UINT8_MAX; bits++) {
    float a = box_e4m3_widen((uint8_t)bits), b = box_e5m2_widen((uint8_t)bits);
    if (!isnan(a)) assert_int_equal(box_e4m3_narrow(a), bits);
    if (!isnan(b)) assert_int_equal(box_e5m2_narrow(b), bits);
  }
}

static void test_numbers_are_rounded_to_the_nearest(void **state) {
  (void)state;
  assert_int_equal(box_half_narrow(1.0f), 0x3c00);
  assert_int_equal(box_half_narrow(-2.0f), 0xc000);
  assert_int_equal(box_half_narrow(65504.0f), 0x7bff);
  assert_int_equal(box_half_narrow(65520.0f), 0x7c00);       /* infinity */
  assert_int_equal(box_half_narrow(ldexpf(1, -24)), 0x0001); /* the least */
  assert_int_equal(box_half_narrow(ldexpf(1, -25)), 0x0000); /* ties to even */
  assert_int_equal(box_half_narrow(1 + ldexpf(1, -11)), 0x3c00);
  assert_int_equal(box_half_narrow(1 + 3 * ldexpf(1, -11)), 0x3c02);
  assert_int_equal(box_half_narrow(2 - ldexpf(1, -12)), 0x4000); /* a carry into the exponent */
  assert_int_equal(box_e4m3_narrow(448.0f), 0x7e);
  assert_int_equal(box_e4m3_narrow(1e6f), 0x7e); /* no infinity: the greatest */
  assert_int_equal(box_e5m2_narrow(57344.0f), 0x7b);
  assert_int_equal(box_e5m2_narrow(1e6f), 0x7c);
  assert_int_equal(box_bfloat16_narrow(1 + ldexpf(1, -8)), 0x3f80);
  assert_int_equal(box_bfloat16_narrow(1 + 3 * ldexpf(1, -8)), 0x3f82);
}

static void test_numbers_are_read_as_written(void **state) {
  (void)state;
  for (int type = 0; type < BOX_TYPE_COUNT; type++) {
    uint64_t memory[4] = {0};
    box_number_write((enum box_type)type, memory, 1, 5);
    assert_true(box_number_read((enum box_type)type, memory, 1) == 5);
    assert_true(box_number_read((enum box_type)type, memory, 0) == 0);
    assert_int_equal(box_type_by_name(box_types[type].name), type);
    assert_int_equal(box_type_by_kernel(box_types[type].kernel, strlen(box_types[type].kernel)), type);
  }
  assert_int_equal(box_type_by_name("int4"), BOX_TYPE_COUNT);
}

/* ---- reductions ---- */

enum { COUNT = 5 };

static double combined(enum box_type type, enum box_reduction reduction, double a, double b,
                       uint64_t argument) {
  uint64_t x[COUNT] = {0}, y[COUNT] = {0}, out[COUNT] = {0};
  for (size_t i = 0; i < COUNT; i++) {
    box_number_write(type, x, i, a);
    box_number_write(type, y, i, b);
  }
  box_reducer_of(type)->combine[reduction](out, x, y, COUNT, argument);
  for (size_t i = 1; i < COUNT; i++)
    assert_true(box_number_read(type, out, i) == box_number_read(type, out, 0));
  return box_number_read(type, out, 0);
}

static void test_every_type_reduces(void **state) {
  (void)state;
  for (int t = 0; t < BOX_TYPE_COUNT; t++) {
    enum box_type type = (enum box_type)t;
    assert_true(combined(type, BOX_SUM, 3, 4, 0) == 7);
    assert_true(combined(type, BOX_PROD, 3, 4, 0) == 12);
    assert_true(combined(type, BOX_SUM_POST_DIV, 3, 4, 0) == 7);
  }
}

static void test_min_and_max_follow_the_argument(void **state) {
  (void)state;
  for (int t = 0; t < BOX_TYPE_COUNT; t++) {
    enum box_type type = (enum box_type)t;
    const struct box_type_info *info = &box_types[type];
    double low = info->is_signed ? -3 : 1, high = 5;
    uint64_t sign = info->is_integer && info->is_signed ? UINT64_C(1) << (8 * info->bytes - 1) : 0;
    uint64_t max = info->is_integer ? ~UINT64_C(0) ^ sign : 1;
    assert_true(combined(type, BOX_MIN_MAX, low, high, sign) == low);
    assert_true(combined(type, BOX_MIN_MAX, high, low, sign) == low);
    assert_true(combined(type, BOX_MIN_MAX, low, high, max) == high);
    assert_true(combined(type, BOX_MIN_MAX, high, low, max) == high);
  }
}

static void test_integers_are_divided_towards_zero(void **state) {
  (void)state;
  int32_t in[2] = {-7, 7}, out[2];
  box_reducer_of(BOX_INT32)->after(out, in, 2, 2 << 1 | 1);
  assert_int_equal(out[0], -3);
  assert_int_equal(out[1], 3);
  uint8_t large = 250, half;
  box_reducer_of(BOX_UINT8)->after(&half, &large, 1, 2 << 1);
  assert_int_equal(half, 125);
}

static void test_inputs_are_scaled(void **state) {
  (void)state;
  float in[2] = {3, -8}, out[2], scale = 0.5f;
  uint64_t argument = 0;
  memcpy(&argument, &scale, sizeof scale);
  box_reducer_of(BOX_FLOAT)->before(out, in, 2, argument);
  assert_true(out[0] == 1.5f && out[1] == -4.0f);
}

/* ---- debug information: this program's own ---- */

struct box_test_inner {
  uint16_t first, second;
};
struct box_test_outer {
  uint8_t lead;
  uint32_t low : 3, middle : 7, high : 22;
  struct box_test_inner inner;
  union {
    uint64_t wide;
    struct {
      int32_t left, right;
    };
  };
  const char **names;
  int list[3];
};
struct box_test_outer box_test_example; /* so that the structures are described */

struct layout {
  uint64_t bytes;
  struct box_place places[16];
  const char *paths[16];
  size_t count;
};

static void on_struct(size_t index, uint64_t bytes, void *context) {
  if (index == 1) ((struct layout *)context)->bytes = bytes;
}
static void on_member(size_t index, const char *path, const struct box_place *place, void *context) {
  struct layout *layout = context;
  if (index != 1 || layout->count == HARP_ARRAY_COUNT(layout->paths)) return;
  layout->places[layout->count] = *place;
  layout->paths[layout->count++] = strdup(path);
}
static struct box_place place_of(const struct layout *layout, const char *path) {
  for (size_t i = 0; i < layout->count; i++)
    if (!strcmp(layout->paths[i], path)) return layout->places[i];
  fail_msg("%s was not found", path);
  return (struct box_place){0};
}

static void test_structures_are_read_from_debug_information(void **state) {
  (void)state;
  static const char *const names[] = {"no_such_struct", "box_test_outer"};
  static struct box_elf elf;
  struct layout layout = {0};
  assert_int_equal(box_elf_open(&elf, "/proc/self/exe"), 0);
  box_dwarf_read(&elf, names, 2, on_struct, on_member, &layout);
  assert_int_equal(layout.bytes, sizeof(struct box_test_outer));
  assert_int_equal(place_of(&layout, "lead").bytes, 1);
  struct box_place middle = place_of(&layout, "middle");
  struct box_test_outer filled = {.low = 7, .middle = 0x35, .high = 0x3fffff};
  uint64_t word;
  memcpy(&word, (const char *)&filled + middle.bit / 8, sizeof word);
  assert_int_equal(word >> middle.bit % 8 & 0x7f, 0x35);
  assert_int_equal(middle.width, 7);
  assert_int_equal(place_of(&layout, "inner.second").bit, offsetof(struct box_test_outer, inner.second) * 8);
  assert_int_equal(place_of(&layout, "inner.second").bytes, 2);
  assert_int_equal(place_of(&layout, "wide").bit, offsetof(struct box_test_outer, wide) * 8);
  assert_int_equal(place_of(&layout, "right").bit, offsetof(struct box_test_outer, right) * 8);
  assert_int_equal(place_of(&layout, "names").stars, 2);
  assert_int_equal(place_of(&layout, "names").bytes, sizeof(void *));
  assert_int_equal(place_of(&layout, "list").bytes, 0);
  for (size_t i = 0; i < layout.count; i++) free((char *)(uintptr_t)layout.paths[i]);
}

static void test_symbols_are_found(void **state) {
  (void)state;
  static struct box_elf elf;
  assert_int_equal(box_elf_open(&elf, "/proc/self/exe"), 0);
  const struct box_symbol *symbol = box_elf_find(&elf, "box_test_example");
  assert_non_null(symbol);
  assert_int_equal(symbol->bytes, sizeof box_test_example);
  assert_false(symbol->is_function);
  symbol = box_elf_find(&elf, "main");
  assert_non_null(symbol);
  assert_string_equal(box_elf_function_at(&elf, symbol->address)->name, "main");
  assert_null(box_elf_function_at(&elf, symbol->address + 1));
  assert_null(box_elf_find(&elf, "no_such_symbol"));
}

/* ---- memory ---- */

static void test_memory_is_known_by_every_address(void **state) {
  (void)state;
  struct box_block block;
  size_t before = box_memory_taken();
  char *at = box_memory_take(10000, true, 3);
  assert_true(box_memory_find(at + 9999, &block));
  assert_int_equal(block.begin, at);
  assert_true(block.is_host);
  assert_int_equal(block.device, 3);
  assert_false(box_memory_find(at + 10000, &block));
  assert_false(box_memory_give(at + 1));
  assert_true(box_memory_give(at));
  assert_false(box_memory_find(at, &block));
  assert_int_equal(box_memory_taken(), before);
}

static void test_large_memory_is_cleared(void **state) {
  (void)state;
  enum { BYTES = 1 << 20, FROM = 100, TO = BYTES - 50 };
  char *at = box_memory_take(BYTES, false, 0);
  memset(at, 7, BYTES);
  box_memory_set(at + FROM, 0, TO - FROM);
  for (int i = 0; i < BYTES; i++) assert_int_equal(at[i], i >= FROM && i < TO ? 0 : 7);
  box_memory_give(at);
}

static void test_devices_are_found_by_their_address(void **state) {
  (void)state;
  char bus_id[BOX_BUS_ID_BYTES], longer[BOX_BUS_ID_BYTES + 8];
  box_device_bus_id(2, bus_id);
  assert_int_equal(box_device_by_bus_id(bus_id), 2);
  snprintf(longer, sizeof longer, "0000%s", bus_id);
  assert_int_equal(box_device_by_bus_id(longer), 2);
  assert_int_equal(box_device_by_bus_id("ffff:ff:ff.f"), -1);
}

/* ---- streams ---- */

static atomic_int turn;
static int order[4];

static void note(void *word) {
  order[*(int *)word] = atomic_fetch_add(&turn, 1);
}
static void wait_for_turn(void *word) {
  while (atomic_load(&turn) < *(int *)word) usleep(100);
}

static void test_a_stream_keeps_its_order(void **state) {
  (void)state;
  struct box_stream *stream = box_stream_create(5);
  int numbers[] = {0, 1, 2}, none = 0;
  atomic_store(&turn, 0);
  box_stream_push(stream, (struct box_task){wait_for_turn, &none, true});
  for (int i = 0; i < 3; i++) box_stream_push(stream, (struct box_task){note, &numbers[i], i == 1});
  box_stream_wait(stream);
  assert_true(box_stream_is_idle(stream));
  for (int i = 0; i < 3; i++) assert_int_equal(order[i], i);
  assert_int_equal(box_stream_device(stream), 5);
  box_stream_destroy(stream);
}

static void test_a_stream_waits_for_anothers_event(void **state) {
  (void)state;
  struct box_stream *first = box_stream_create(0), *second = box_stream_create(0);
  struct box_event *event = box_event_create(), *later = box_event_create();
  int awaited = 1, zero = 0, three = 3;
  atomic_store(&turn, 0);
  assert_true(box_event_has_happened(event)); /* nothing is recorded */
  box_stream_push(first, (struct box_task){wait_for_turn, &awaited, true});
  box_event_record(event, first);
  box_event_hold(event, second);
  box_stream_push(second, (struct box_task){note, &three, false});
  assert_false(box_event_has_happened(event));
  assert_false(box_stream_is_idle(second));
  note(&zero); /* the first stream goes on */
  box_event_record(later, second);
  box_event_wait(later);
  box_stream_wait_all();
  assert_int_equal(order[3], 1);
  assert_true(box_event_elapsed_ms(event, later) >= 0);
  box_event_destroy(event);
  box_event_destroy(later);
  box_stream_destroy(first);
  box_stream_destroy(second);
}

/* ---- fibers ---- */

struct ball {
  struct box_fibers fibers;
  uint64_t thrown[2];
  int left;
  uint32_t abort_flag;
};

/* Two fibers throw a ball to and fro, with local state on their stacks. */
static void throw_ball(struct ball *b, int side) {
  double kept[64];
  for (uint64_t n = 1; n <= 1000; n++) {
    for (int i = 0; i < 64; i++) kept[i] = (double)n + i;
    if (side) box_fibers_wait_at_least(&b->fibers, &b->thrown[0], n);
    b->thrown[side] = n;
    if (!side) box_fibers_wait_at_least(&b->fibers, &b->thrown[1], n);
    for (int i = 0; i < 64; i++) assert_true(kept[i] == (double)n + i);
  }
  b->left--;
}
static void throw_first(void *word) {
  throw_ball(word, 0);
}
static void throw_back(void *word) {
  throw_ball(word, 1);
}
static void throw_both(void *word) {
  struct ball *b = word;
  b->left = 2;
  box_fibers_add(&b->fibers, throw_first, b);
  box_fibers_add(&b->fibers, throw_back, b);
  box_fibers_wait_zero(&b->fibers, &b->left);
  b->thrown[0]++;
}

static void skip_where_stacks_are_watched(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  skip(); /* the sanitizers know no stacks but the threads' */
#endif
}

static void test_fibers_take_turns(void **state) {
  (void)state;
  skip_where_stacks_are_watched();
  struct ball b = {.left = 0};
  for (int again = 0; again < 3; again++) { /* the second time on stacks that were used */
    b.thrown[0] = b.thrown[1] = 0;
    box_fibers_init(&b.fibers, &b.abort_flag);
    box_fibers_add(&b.fibers, throw_both, &b);
    assert_true(box_fibers_run(&b.fibers));
    assert_int_equal(b.left, 0);
    assert_int_equal(b.thrown[0], 1001);
  }
}

static void wait_for_ever(void *word) {
  struct ball *b = word;
  b->abort_flag = 1;
  box_fibers_wait_at_least(&b->fibers, &b->thrown[0], 1);
  b->left = 7;
}

static void test_an_abort_ends_what_waits(void **state) {
  (void)state;
  skip_where_stacks_are_watched();
  struct ball b = {.left = 0};
  box_fibers_init(&b.fibers, &b.abort_flag);
  box_fibers_add(&b.fibers, wait_for_ever, &b);
  assert_false(box_fibers_run(&b.fibers));
  assert_int_equal(b.left, 0);
}

/* ---- plans ---- */

static int read_plan(struct box_plan *plan, const char *text) {
  static char kept[512];
  snprintf(kept, sizeof kept, "%s", text);
  *plan = (struct box_plan){0};
  const struct box_options options = {.ranks = 4, .cycles = 1, .library_count = 1, .plan = kept};
  return box_plan_read(plan, &options);
}

/* Compares the members of a rank's communicator with a list, in their order. */
static void assert_members(const struct box_plan *plan, int group, int rank, const char *expected) {
  char found[64] = "";
  const struct box_group *g = &plan->groups[group];
  for (int place = 0; place < box_group_size(g, rank); place++)
    for (int other = 0; other < BOX_RANKS_MAX; other++)
      if (g->sets[other] == g->sets[rank] && g->places[other] == place)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%d", other);
  assert_string_equal(found, expected);
}

static void test_a_plan_knows_who_is_in_what(void **state) {
  (void)state;
  static struct box_plan plan;
  assert_int_equal(read_plan(&plan, "init a count=3; split b from=a colours=1,0,1,- keys=2,0,1,0 share;"
                                    "shrink c from=a without=1,0 abort; grow d from=c with=1;"
                                    "split e from=b colours=0,0,1,0; shrink f from=b without=1; run a b c;"
                                    "destroy f; destroy e; destroy d; destroy c; abort a; destroy b"),
                   0);
  assert_int_equal(plan.step_count, 13);
  assert_int_equal(plan.group_count, 6);
  assert_members(&plan, 0, 3, "0123");
  assert_members(&plan, 1, 0, "20"); /* by their keys */
  assert_members(&plan, 1, 1, "1");
  assert_members(&plan, 1, 3, "");
  assert_members(&plan, 2, 2, "23");
  assert_members(&plan, 2, 1, "");
  assert_members(&plan, 3, 1, "231");
  assert_members(&plan, 4, 0, "0"); /* 0 and 1 have one colour, but their parents differ */
  assert_members(&plan, 4, 1, "1");
  assert_members(&plan, 4, 2, "2");
  assert_members(&plan, 5, 0, ""); /* nobody of its parent is excluded */
  assert_members(&plan, 5, 1, "");
  assert_int_equal(plan.groups[3].count, 3);
  assert_int_equal(plan.id_count, 6); /* init and grow have three each */
  assert_true(plan.steps[1].shares && plan.steps[2].aborts);
}

static void test_a_wrong_plan_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"",
                                      "init",
                                      "make a",
                                      "init a",
                                      "destroy a",
                                      "init a; init a; destroy a",
                                      "init a; destroy a; run a",
                                      "init a ranks=0,4; destroy a",
                                      "init a ranks=0,0; destroy a",
                                      "init a count=0; destroy a",
                                      "init a lib=1; destroy a",
                                      "init a share; destroy a",
                                      "init a; split b; destroy a; destroy b",
                                      "init a; split b from=a colours=0,0,0; destroy a; destroy b",
                                      "init a; split b from=a colours=0,0,x,0; destroy a; destroy b",
                                      "init a; shrink b from=a; destroy a; destroy b",
                                      "init a ranks=0; shrink b from=a without=1; destroy a; destroy b",
                                      "init a; grow b from=a with=1; destroy a; destroy b",
                                      "init a; kill a; destroy a",
                                      "init a; run a op=none; destroy a"};
  static struct box_plan plan;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(wrong); i++) assert_int_equal(read_plan(&plan, wrong[i]), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_half_is_itself),
      cmocka_unit_test(test_every_bfloat16_is_itself),
      cmocka_unit_test(test_every_fp8_is_itself),
      cmocka_unit_test(test_numbers_are_rounded_to_the_nearest),
      cmocka_unit_test(test_numbers_are_read_as_written),
      cmocka_unit_test(test_every_type_reduces),
      cmocka_unit_test(test_min_and_max_follow_the_argument),
      cmocka_unit_test(test_integers_are_divided_towards_zero),
      cmocka_unit_test(test_inputs_are_scaled),
      cmocka_unit_test(test_structures_are_read_from_debug_information),
      cmocka_unit_test(test_symbols_are_found),
      cmocka_unit_test(test_memory_is_known_by_every_address),
      cmocka_unit_test(test_large_memory_is_cleared),
      cmocka_unit_test(test_devices_are_found_by_their_address),
      cmocka_unit_test(test_a_stream_keeps_its_order),
      cmocka_unit_test(test_a_stream_waits_for_anothers_event),
      cmocka_unit_test(test_fibers_take_turns),
      cmocka_unit_test(test_an_abort_ends_what_waits),
      cmocka_unit_test(test_a_plan_knows_who_is_in_what),
      cmocka_unit_test(test_a_wrong_plan_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
