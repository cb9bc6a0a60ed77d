/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include "dwarf.h"

#include <string.h>

struct box_layout box_layouts[BOX_LIBRARIES_MAX];

static const char *const struct_names[BOX_STRUCT_COUNT] = {
#define X(word, name) [BOX_##word] = name,
    BOX_STRUCTS(X)
#undef X
};
static const struct {
  enum box_struct of;
  const char *path;
} field_paths[BOX_FIELD_COUNT] = {
#define X(word, of, path) [BOX_##word] = {BOX_##of, path},
    BOX_FIELDS(X)
#undef X
};

/* What is being read. */
struct reading {
  struct box_layout *layout;
  struct box_place old_places[BOX_FIELD_COUNT]; /* the former places of the fields of ncclDevComm */
};

static void on_struct(size_t index, uint64_t bytes, void *word) {
  struct reading *reading = word;
  reading->layout->struct_bytes[index] = bytes;
}

/* The communicator of the kernels was called ncclDevComm until another structure took that name. */
static void on_member(size_t index, const char *path, const struct box_place *place, void *word) {
  struct reading *reading = word;
  struct box_place *places = index == BOX_COMM_OLD ? reading->old_places : reading->layout->places;
  enum box_struct of = index == BOX_COMM_OLD ? BOX_COMM : (enum box_struct)index;
  for (int field = 0; field < BOX_FIELD_COUNT; field++)
    if (field_paths[field].of == of && !strcmp(field_paths[field].path, path)) places[field] = *place;
}

static void take_old_communicator(struct reading *reading) {
  if (box_has(BOX_COMM_ABORT)) return;
  for (int field = 0; field < BOX_FIELD_COUNT; field++)
    if (field_paths[field].of == BOX_COMM) reading->layout->places[field] = reading->old_places[field];
}

void box_layout_load(const struct box_elf *elf) {
  struct reading reading = {.layout = &box_layouts[box_library_current()]};
  box_dwarf_read(elf, struct_names, BOX_STRUCT_COUNT, on_struct, on_member, &reading);
  take_old_communicator(&reading);
}

bool box_layout_is_known(void) {
  bool works = box_has(BOX_BATCH_FUNC) || box_has(BOX_WORK_FUNC);
  return works && box_has(BOX_CHANNEL_PEERS) && box_has(BOX_CONN_BUFFERS) && box_has(BOX_COMM_ABORT);
}

uint64_t box_get(const void *object, enum box_field field) {
  const struct box_place *place = box_place(field);
  if (!place->known) return 0;
  uint64_t value = 0;
  const char *at = (const char *)object + place->bit / 8;
  if (!place->width) {
    memcpy(&value, at, HARP_MIN(place->bytes, sizeof value));
    return value;
  }
  uint32_t skipped = place->bit % 8;
  memcpy(&value, at, HARP_MIN((skipped + place->width + 7) / 8, sizeof value));
  value >>= skipped;
  return place->width < 64 ? value & ((UINT64_C(1) << place->width) - 1) : value;
}

int64_t box_get_signed(const void *object, enum box_field field) {
  const struct box_place *place = box_place(field);
  uint32_t width = place->width ? place->width : place->bytes * 8;
  if (!width || width >= 64) return (int64_t)box_get(object, field);
  return (int64_t)(box_get(object, field) << (64 - width)) >> (64 - width);
}
