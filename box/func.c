/* SPDX-License-Identifier: Apache-2.0 */
/* From 2.19 on the library has a table of its device functions, whose symbols name them, as in
 * ncclDevFunc_AllReduce_Sum_f32_RING_LL. Functions for newer GPUs have a number and no symbol; a second
 * table, by which the host code finds numbers, has them in the order of collective, reduction, type,
 * algorithm, protocol. Up to 2.18 numbers are computed in such an order. How many types and algorithms a
 * release knows is found by trying: the size has to fit, and all functions that do have a name. */
#include "func.h"

#include "library.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

enum { FUNCS_MAX = 16384, PROTOCOLS = 3 };

static struct table {
  struct box_func at[FUNCS_MAX];
  size_t count;
} tables[BOX_LIBRARIES_MAX];

/* Returns the current library's. */
static struct table *table_in_use(void) {
  return &tables[box_library_current()];
}

struct word {
  const char *text;
  int value;
};

/* Takes a word of the list off the front of the name; -1 if none is there. */
static int take_word(const char **name, const struct word *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(words[i].text);
    if (strncmp(*name, words[i].text, length)) continue;
    *name += length;
    return words[i].value;
  }
  return -1;
}

/* Longer words first where one begins another. */
static const struct word collectives[] = {
    {"SendRecv", BOX_SEND_RECV},    {"AllGatherV_", BOX_ALL_GATHER_V},
    {"AllGather_", BOX_ALL_GATHER}, {"Broadcast_", BOX_BROADCAST},
    {"AllReduce_", BOX_ALL_REDUCE}, {"ReduceScatter_", BOX_REDUCE_SCATTER},
    {"Reduce_", BOX_REDUCE},        {"Nop", BOX_NOP},
};
static const struct word reductions[] = {
    {"SumPostDiv_", BOX_SUM_POST_DIV}, {"Sum_", BOX_SUM}, {"Prod_", BOX_PROD}, {"MinMax_", BOX_MIN_MAX},
    {"PreMulSum_", BOX_PRE_MUL_SUM},
};
static const struct word protocols[] = {{"_SIMPLE", BOX_SIMPLE}, {"_LL128", BOX_LL128}, {"_LL", BOX_LL}};

static bool parse(const char *symbol, struct box_func *func) {
  const char *name = strstr(symbol, "ncclDevFunc_");
  if (!name) return false;
  name += strlen("ncclDevFunc_");
  int word = take_word(&name, collectives, HARP_ARRAY_COUNT(collectives));
  if (word < 0) return false;
  *func = (struct box_func){.collective = (enum box_collective)word, .type = BOX_TYPE_COUNT};
  func->protocol = BOX_SIMPLE;
  func->algorithm = BOX_OTHER;
  if (word == BOX_SEND_RECV || word == BOX_NOP) return true;
  if (box_func_reduces(func)) {
    word = take_word(&name, reductions, HARP_ARRAY_COUNT(reductions));
    const char *end = strchr(name, '_');
    if (word < 0 || !end) return false;
    func->reduction = (enum box_reduction)word;
    func->type = box_type_by_kernel(name, (size_t)(end - name));
    if (func->type == BOX_TYPE_COUNT) return false;
    name = end + 1;
  }
  size_t length = strcspn(name, "_"); /* the algorithm's name, unless that has a bar */
  if (length == 4 && !strncmp(name, "RING", 4)) func->algorithm = BOX_RING;
  if (length == 4 && !strncmp(name, "TREE", 4)) func->algorithm = BOX_TREE;
  for (; *name; name++) {
    const char *rest = name;
    word = take_word(&rest, protocols, HARP_ARRAY_COUNT(protocols));
    if (word < 0 || (*rest && strcmp(rest, "v"))) continue; /* v: what a mangled name ends with */
    func->protocol = (enum box_protocol)word;
    return true;
  }
  return false;
}

/* ---- tables without names ---- */

static const enum box_reduction row_reductions[] = {BOX_SUM, BOX_PROD, BOX_MIN_MAX, BOX_PRE_MUL_SUM,
                                                    BOX_SUM_POST_DIV};

/* What the host's table may look like in a release. */
struct shape {
  int types, algorithms, all_reduce_algorithms;
  bool has_gather_v;
};

struct rows {
  struct box_func *at;
  size_t count, room;
};

static void add_row(struct rows *rows, struct box_func func) {
  if (rows->count < rows->room) rows->at[rows->count] = func;
  rows->count++;
}

static void add_rows(struct rows *rows, enum box_collective collective, int types, int algorithms) {
  bool tree_first = collective == BOX_ALL_REDUCE;
  struct box_func func = {.collective = collective};
  int reductions_here = types ? (int)HARP_ARRAY_COUNT(row_reductions) : 1;
  for (int r = 0; r < reductions_here; r++)
    for (int t = 0; t < HARP_MAX(types, 1); t++)
      for (int a = 0; a < algorithms; a++)
        for (int p = 0; p < PROTOCOLS; p++) {
          func.reduction = types ? row_reductions[r] : BOX_COPY;
          func.type = types ? (enum box_type)t : BOX_TYPE_COUNT;
          func.algorithm = a > tree_first ? BOX_OTHER : tree_first && a == 0 ? BOX_TREE : BOX_RING;
          func.protocol = (enum box_protocol)p;
          add_row(rows, func);
        }
}

static void make_rows(struct rows *rows, struct shape shape) {
  rows->count = 0;
  add_row(rows, (struct box_func){.collective = BOX_SEND_RECV, .type = BOX_TYPE_COUNT});
  add_rows(rows, BOX_ALL_GATHER, 0, shape.algorithms);
  add_rows(rows, BOX_BROADCAST, 0, 1);
  if (shape.has_gather_v) add_rows(rows, BOX_ALL_GATHER_V, 0, 1);
  add_rows(rows, BOX_ALL_REDUCE, shape.types, shape.all_reduce_algorithms);
  add_rows(rows, BOX_REDUCE, shape.types, 1);
  add_rows(rows, BOX_REDUCE_SCATTER, shape.types, shape.algorithms);
}

/* The named function may stand for the row's: kernels of signed and unsigned integers are shared. */
static bool agree(const struct box_func *named, const struct box_func *row) {
  if (named->collective != row->collective) return false;
  if (named->collective == BOX_SEND_RECV) return true;
  if (named->algorithm != row->algorithm || named->protocol != row->protocol) return false;
  return !box_func_reduces(named) ||
         (named->reduction == row->reduction && box_func_element_bytes(named) == box_func_element_bytes(row));
}

static struct box_func *func_of_row(const int *numbers, size_t row) {
  struct table *funcs = table_in_use();
  int number = numbers[row];
  return number >= 0 && (size_t)number < funcs->count ? &funcs->at[number] : NULL;
}

static bool rows_fit(const struct rows *rows, const int *numbers, size_t count) {
  if (rows->count != count && rows->count + 1 != count) return false;
  for (size_t row = 0; row < rows->count; row++) {
    const struct box_func *named = func_of_row(numbers, row);
    if (named && named->collective != BOX_NONE && !agree(named, &rows->at[row])) return false;
  }
  return true;
}

static void name_by_rows(void) {
  size_t bytes;
  const int *numbers = box_library_symbol("ncclDevFuncRowToId", &bytes);
  static struct box_func row_memory[FUNCS_MAX];
  struct rows rows = {row_memory, 0, FUNCS_MAX};
  size_t count = numbers ? bytes / sizeof *numbers : 0;
  for (int variant = 0; count && variant < 4 * 2 * 2 * 2; variant++) {
    struct shape shape = {9 + variant % 4, 3 + variant / 4 % 2, 6 + variant / 8 % 2, variant / 16};
    make_rows(&rows, shape);
    if (!rows_fit(&rows, numbers, count)) continue;
    for (size_t row = 0; row < rows.count; row++) {
      struct box_func *func = func_of_row(numbers, row);
      if (func && func->collective == BOX_NONE) *func = rows.at[row];
    }
    return;
  }
}

/* ---- up to 2.18 ---- */

/* What the order of unsigned integers makes that of the type, and the lesser or greater chosen; see
 * reduce.h. */
static uint64_t order_argument(enum box_type type, bool greater) {
  const struct box_type_info *info = &box_types[type];
  if (!info->is_integer) return greater;
  uint64_t sign = info->is_signed ? UINT64_C(1) << (8 * info->bytes - 1) : 0;
  return (greater ? ~UINT64_C(0) : 0) ^ sign;
}

static struct box_func computed(enum box_collective collective, int operation, enum box_type type,
                                int algorithm, int protocol) {
  enum { MAX = 2, MIN = 3 };
  static const enum box_reduction by_operation[] = {BOX_SUM,     BOX_PROD,        BOX_MIN_MAX,
                                                    BOX_MIN_MAX, BOX_PRE_MUL_SUM, BOX_SUM_POST_DIV};
  struct box_func func = {.collective = collective,
                          .algorithm = (enum box_algorithm)HARP_MIN(algorithm, BOX_OTHER),
                          .protocol = (enum box_protocol)protocol,
                          .type = BOX_TYPE_COUNT};
  if (!box_func_reduces(&func)) return func;
  func.type = type;
  func.reduction = by_operation[operation];
  func.has_argument = operation == MAX || operation == MIN;
  if (func.has_argument) func.argument = order_argument(type, operation == MAX);
  return func;
}

static void compute_all(struct table *funcs, int types, int algorithms) {
  enum { OPERATIONS = 6 };
  static const enum box_collective order[] = {BOX_BROADCAST, BOX_REDUCE, BOX_ALL_GATHER, BOX_REDUCE_SCATTER,
                                              BOX_ALL_REDUCE};
  funcs->at[0] = (struct box_func){.collective = BOX_SEND_RECV, .type = BOX_TYPE_COUNT};
  funcs->count = 1 + (size_t)types; /* those between are of communicators of one rank */
  for (size_t c = 0; c < HARP_ARRAY_COUNT(order); c++)
    for (int o = 0; o < OPERATIONS; o++)
      for (int t = 0; t < types; t++)
        for (int a = 0; a < algorithms; a++)
          for (int p = 0; p < PROTOCOLS; p++)
            funcs->at[funcs->count++] = computed(order[c], o, (enum box_type)t, a, p);
}

/* Fills the table in use for the number of types and algorithms by which a table of `count` functions comes
 * out even: one for send and receive, one for each type, and those of 5 collectives with 6 reductions. */
static void compute_by_size(size_t count) {
  for (int types = 9; types <= 10; types++)
    for (int algorithms = 2; algorithms <= 7; algorithms++)
      if (count == 1u + (size_t)types + 5u * 6 * PROTOCOLS * (size_t)(types * algorithms)) {
        compute_all(table_in_use(), types, algorithms);
        return;
      }
}

/* ---- */

int box_funcs_load(void) {
  struct table *funcs = table_in_use();
  size_t bytes;
  void *const *table = box_library_symbol("ncclDevFuncTable", &bytes);
  if (table) {
    funcs->count = HARP_MIN(bytes / sizeof *table, FUNCS_MAX);
    for (size_t i = 0; i < funcs->count; i++) {
      const char *symbol = table[i] ? box_library_function_name(table[i]) : NULL;
      if (!symbol || !parse(symbol, &funcs->at[i])) funcs->at[i] = (struct box_func){.collective = BOX_NONE};
    }
    name_by_rows();
  } else if (box_library_symbol("ncclFuncs", &bytes)) {
    compute_by_size(bytes / sizeof *table);
  }
  if (funcs->count) return 0;
  box_log("the device functions of NCCL %d are not understood", box_library_version());
  return -1;
}

const struct box_func *box_func_at(uint64_t number) {
  const struct table *funcs = table_in_use();
  if (number >= funcs->count || funcs->at[number].collective == BOX_NONE)
    box_die("device function %llu of NCCL %d is not known", (unsigned long long)number,
            box_library_version());
  return &funcs->at[number];
}

const char *box_func_text(const struct box_func *func, char *out, size_t room) {
  static const char *const protocol_names[] = {"LL", "LL128", "Simple"};
  const char *collective = "?";
  for (size_t i = 0; i < HARP_ARRAY_COUNT(collectives); i++)
    if (collectives[i].value == (int)func->collective) collective = collectives[i].text;
  snprintf(out, room, "%.*s by %s with %s", (int)strcspn(collective, "_"), collective,
           func->algorithm == BOX_RING   ? "Ring"
           : func->algorithm == BOX_TREE ? "Tree"
                                         : "another algorithm",
           protocol_names[func->protocol]);
  return out;
}
