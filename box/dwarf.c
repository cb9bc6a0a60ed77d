/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the top-level entries of every unit. Numbers of tags, attributes and forms are those of the
 * DWARF standard (version 5, section 7.5). */
#include "dwarf.h"

#include "log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 6, TYPE_HOPS_MAX = 16, PATH_BYTES = 256 };

enum {
  TAG_ARRAY = 0x01,
  TAG_CLASS = 0x02,
  TAG_MEMBER = 0x0d,
  TAG_POINTER = 0x0f,
  TAG_STRUCT = 0x13,
  TAG_TYPEDEF = 0x16,
  TAG_UNION = 0x17,
  TAG_CONST = 0x26,
  TAG_VOLATILE = 0x35
};
enum {
  AT_SIBLING = 0x01,
  AT_NAME = 0x03,
  AT_BYTE_SIZE = 0x0b,
  AT_BIT_OFFSET = 0x0c,
  AT_BIT_SIZE = 0x0d,
  AT_MEMBER_LOCATION = 0x38,
  AT_DECLARATION = 0x3c,
  AT_TYPE = 0x49,
  AT_DATA_BIT_OFFSET = 0x6b
};
enum { FORM_INDIRECT = 0x16, FORM_IMPLICIT_CONST = 0x21, OP_PLUS_UCONST = 0x23 };

struct cursor {
  const uint8_t *at, *end;
};

struct attribute {
  uint32_t name, form;
  int64_t implicit;
};
struct abbreviation {
  uint32_t tag;
  bool has_children;
  size_t first, count; /* the place and the number of its attributes */
};

struct unit {
  const uint8_t *begin, *end;
  uint32_t version, address_bytes, offset_bytes;
};

struct reader {
  struct box_bytes info, abbrev, str, line_str;
  struct unit unit;
  struct abbreviation *abbreviations; /* the abbreviations of the unit, by code */
  size_t abbreviation_count, abbreviation_room;
  struct attribute *attributes;
  size_t attribute_count, attribute_room;
  box_on_member *on_member;
  void *context;
  size_t index; /* the index of the structure whose members are reported */
};

/* An entry, with the attributes that matter here. */
struct entry {
  uint32_t tag;
  bool has_children, is_declaration;
  const char *name;
  const uint8_t *sibling, *type, *next; /* next: the first byte after its attributes */
  int64_t bytes, location, bit_size, bit_offset, data_bit;
};

/* What an attribute holds, whatever its form. */
struct value {
  uint64_t number;
  const char *text;
  const uint8_t *reference, *block;
};

static uint64_t take(struct cursor *c, uint32_t bytes) {
  uint64_t value = 0;
  if (c->at + bytes <= c->end) memcpy(&value, c->at, bytes);
  c->at += bytes;
  return value;
}

static uint64_t take_uleb(struct cursor *c) {
  uint64_t value = 0;
  for (uint32_t shift = 0; c->at < c->end; shift += 7) {
    uint8_t byte = *c->at++;
    if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) break;
  }
  return value;
}

static int64_t take_sleb(struct cursor *c) {
  const uint8_t *begin = c->at;
  uint64_t value = take_uleb(c);
  size_t bits = (size_t)(c->at - begin) * 7;
  bool negative = c->at > begin && (c->at[-1] & 0x40);
  if (negative && bits < 64) value |= ~UINT64_C(0) << bits;
  return (int64_t)value;
}

static const char *take_text(struct cursor *c) {
  const char *text = (const char *)c->at;
  while (c->at < c->end && *c->at) c->at++;
  c->at++;
  return text;
}

/* ---- abbreviations ---- */

static void add_attribute(struct reader *r, struct attribute attribute) {
  if (r->attribute_count == r->attribute_room) {
    r->attribute_room = r->attribute_room ? r->attribute_room * 2 : 1024;
    r->attributes = box_grow(r->attributes, r->attribute_room * sizeof *r->attributes);
  }
  r->attributes[r->attribute_count++] = attribute;
}

static struct abbreviation *abbreviation_slot(struct reader *r, uint64_t code) {
  if (code > 1u << 20) return NULL;
  while (code >= r->abbreviation_room) {
    size_t room = r->abbreviation_room ? r->abbreviation_room * 2 : 256;
    r->abbreviations = box_grow(r->abbreviations, room * sizeof *r->abbreviations);
    r->abbreviation_room = room;
  }
  while (r->abbreviation_count <= code)
    r->abbreviations[r->abbreviation_count++] = (struct abbreviation){.tag = 0};
  return &r->abbreviations[code];
}

static void read_abbreviations(struct reader *r, uint64_t offset) {
  r->attribute_count = r->abbreviation_count = 0;
  if (offset >= r->abbrev.count) return;
  struct cursor c = {r->abbrev.at + offset, r->abbrev.at + r->abbrev.count};
  for (uint64_t code; (code = take_uleb(&c)) != 0;) {
    struct abbreviation *a = abbreviation_slot(r, code);
    if (!a) return;
    a->tag = (uint32_t)take_uleb(&c);
    a->has_children = take(&c, 1);
    a->first = r->attribute_count;
    for (;;) {
      struct attribute one = {.name = (uint32_t)take_uleb(&c), .form = (uint32_t)take_uleb(&c)};
      if (one.form == FORM_IMPLICIT_CONST) one.implicit = take_sleb(&c);
      if ((!one.name && !one.form) || c.at >= c.end) break;
      add_attribute(r, one);
    }
    r->abbreviations[code].count = r->attribute_count - r->abbreviations[code].first;
  }
}

/* ---- entries ---- */

static const char *text_at(struct box_bytes section, uint64_t offset) {
  return offset < section.count ? (const char *)section.at + offset : NULL;
}

static void take_block(struct cursor *c, struct value *v, uint64_t bytes) {
  v->number = bytes;
  v->block = c->at;
  c->at += HARP_MIN(bytes, (uint64_t)(c->end - HARP_MIN(c->at, c->end)));
}

static const uint8_t *reference_in_unit(const struct unit *unit, uint64_t offset) {
  return offset < (uint64_t)(unit->end - unit->begin) ? unit->begin + offset : NULL;
}

static struct value take_value(struct reader *r, struct cursor *c, const struct attribute *a, uint32_t form) {
  const struct unit *unit = &r->unit;
  struct value v = {.number = 0};
  switch (form) {
  case 0x01:
    v.number = take(c, unit->address_bytes);
    break; /* addr */
  case 0x03:
    take_block(c, &v, take(c, 2));
    break; /* block2 */
  case 0x04:
    take_block(c, &v, take(c, 4));
    break; /* block4 */
  case 0x0a:
    take_block(c, &v, take(c, 1));
    break;   /* block1 */
  case 0x09: /* block */
  case 0x18:
    take_block(c, &v, take_uleb(c));
    break;   /* exprloc */
  case 0x0b: /* data1 */
  case 0x0c: /* flag */
  case 0x25: /* strx1 */
  case 0x29:
    v.number = take(c, 1);
    break;   /* addrx1 */
  case 0x05: /* data2 */
  case 0x26: /* strx2 */
  case 0x2a:
    v.number = take(c, 2);
    break;   /* addrx2 */
  case 0x27: /* strx3 */
  case 0x2b:
    v.number = take(c, 3);
    break;   /* addrx3 */
  case 0x06: /* data4 */
  case 0x1c: /* ref_sup4 */
  case 0x28: /* strx4 */
  case 0x2c:
    v.number = take(c, 4);
    break;   /* addrx4 */
  case 0x07: /* data8 */
  case 0x20: /* ref_sig8 */
  case 0x24:
    v.number = take(c, 8);
    break; /* ref_sup8 */
  case 0x0d:
    v.number = (uint64_t)take_sleb(c);
    break;   /* sdata */
  case 0x0f: /* udata */
  case 0x1a: /* strx */
  case 0x1b: /* addrx */
  case 0x22: /* loclistx */
  case 0x23:
    v.number = take_uleb(c);
    break; /* rnglistx */
  case 0x08:
    v.text = take_text(c);
    break; /* string */
  case 0x0e:
    v.text = text_at(r->str, take(c, unit->offset_bytes));
    break; /* strp */
  case 0x1f:
    v.text = text_at(r->line_str, take(c, unit->offset_bytes));
    break;   /* line_strp */
  case 0x10: /* ref_addr */
    take(c, unit->version <= 2 ? unit->address_bytes : unit->offset_bytes);
    break; /* in another unit: not followed */
  case 0x11:
    v.reference = reference_in_unit(unit, take(c, 1));
    break; /* ref1 */
  case 0x12:
    v.reference = reference_in_unit(unit, take(c, 2));
    break; /* ref2 */
  case 0x13:
    v.reference = reference_in_unit(unit, take(c, 4));
    break; /* ref4 */
  case 0x14:
    v.reference = reference_in_unit(unit, take(c, 8));
    break; /* ref8 */
  case 0x15:
    v.reference = reference_in_unit(unit, take_uleb(c));
    break;   /* ref_udata */
  case 0x17: /* sec_offset */
  case 0x1d:
    v.number = take(c, unit->offset_bytes);
    break; /* strp_sup */
  case 0x19:
    v.number = 1;
    break; /* flag_present */
  case 0x1e:
    c->at += 16;
    break; /* data16 */
  case FORM_IMPLICIT_CONST:
    v.number = (uint64_t)a->implicit;
    break;
  case FORM_INDIRECT:
    return take_value(r, c, a, (uint32_t)take_uleb(c));
  default:
    c->at = unit->end;
    break; /* unknown, so its length is too: the rest of the unit is left out */
  }
  return v;
}

static int64_t member_location(const struct value *v) {
  if (!v->block) return (int64_t)v->number;
  struct cursor c = {v->block, v->block + v->number};
  return take(&c, 1) == OP_PLUS_UCONST ? (int64_t)take_uleb(&c) : 0;
}

static void keep(struct entry *e, uint32_t name, const struct value *v) {
  switch (name) {
  case AT_SIBLING:
    e->sibling = v->reference;
    break;
  case AT_NAME:
    e->name = v->text;
    break;
  case AT_BYTE_SIZE:
    e->bytes = (int64_t)v->number;
    break;
  case AT_BIT_OFFSET:
    e->bit_offset = (int64_t)v->number;
    break;
  case AT_BIT_SIZE:
    e->bit_size = (int64_t)v->number;
    break;
  case AT_MEMBER_LOCATION:
    e->location = member_location(v);
    break;
  case AT_DECLARATION:
    e->is_declaration = v->number;
    break;
  case AT_TYPE:
    e->type = v->reference;
    break;
  case AT_DATA_BIT_OFFSET:
    e->data_bit = (int64_t)v->number;
    break;
  default:
    break;
  }
}

/* Reads the entry at `at`; false at the end of a list of children, with `next` behind it. */
static bool read_entry(struct reader *r, const uint8_t *at, struct entry *e) {
  struct cursor c = {at, r->unit.end};
  *e = (struct entry){.bytes = -1, .bit_offset = -1, .data_bit = -1};
  uint64_t code = take_uleb(&c);
  if (!code || code >= r->abbreviation_count) {
    e->next = code ? r->unit.end : c.at;
    return false;
  }
  struct abbreviation a = r->abbreviations[code];
  e->tag = a.tag;
  e->has_children = a.has_children;
  for (size_t i = a.first; i < a.first + a.count; i++) {
    struct value v = take_value(r, &c, &r->attributes[i], r->attributes[i].form);
    keep(e, r->attributes[i].name, &v);
  }
  e->next = c.at;
  return true;
}

/* Returns where the entry behind this one and its children begins. */
static const uint8_t *after(struct reader *r, const struct entry *e) {
  if (!e->has_children) return e->next;
  if (e->sibling && e->sibling > e->next) return e->sibling;
  struct entry child;
  const uint8_t *at = e->next;
  while (at < r->unit.end && read_entry(r, at, &child)) at = after(r, &child);
  return at < r->unit.end ? child.next : at;
}

/* ---- members ---- */

/* Returns the entry of a type, behind its names (typedef) and qualifiers; no bytes: there is none. */
static struct entry type_of(struct reader *r, const uint8_t *at) {
  struct entry e = {.bytes = -1};
  for (int hop = 0; at && hop < TYPE_HOPS_MAX; hop++) {
    if (!read_entry(r, at, &e)) break;
    if (e.tag != TAG_TYPEDEF && e.tag != TAG_CONST && e.tag != TAG_VOLATILE) break;
    at = e.type;
  }
  return e;
}

static bool has_members(uint32_t tag) {
  return tag == TAG_STRUCT || tag == TAG_UNION || tag == TAG_CLASS;
}

static struct box_place place_of(struct reader *r, const struct entry *member, struct entry type,
                                 int64_t base_bit) {
  int64_t bit = base_bit + member->location * 8;
  int64_t storage = member->bytes >= 0 ? member->bytes : type.bytes;
  if (member->data_bit >= 0)
    bit = base_bit + member->data_bit;
  else if (member->bit_size && member->bit_offset >= 0) /* counted from the storage's highest bit */
    bit += storage * 8 - member->bit_offset - member->bit_size;
  struct box_place place = {.known = true, .bit = (uint32_t)bit, .width = (uint32_t)member->bit_size};
  if (type.tag == TAG_POINTER)
    place.bytes = sizeof(void *);
  else if (type.tag != TAG_ARRAY && type.bytes > 0)
    place.bytes = (uint32_t)type.bytes;
  for (; type.tag == TAG_POINTER && place.stars < TYPE_HOPS_MAX; place.stars++) type = type_of(r, type.type);
  return place;
}

static void visit_members(struct reader *r, const struct entry *of, int64_t base_bit, const char *prefix,
                          int depth) {
  if (!of->has_children || depth > DEPTH_MAX) return;
  struct entry member;
  for (const uint8_t *at = of->next; at < r->unit.end && read_entry(r, at, &member); at = after(r, &member)) {
    if (member.tag != TAG_MEMBER) continue;
    struct entry type = type_of(r, member.type);
    struct box_place place = place_of(r, &member, type, base_bit);
    char path[PATH_BYTES];
    const char *dot = *prefix && member.name ? "." : "";
    snprintf(path, sizeof path, "%s%s%s", prefix, dot, member.name ? member.name : "");
    if (member.name) r->on_member(r->index, path, &place, r->context);
    if (has_members(type.tag)) visit_members(r, &type, place.bit, path, depth + 1);
  }
}

/* ---- units ---- */

/* Reads the head of the unit at the cursor and moves to its first entry; false at the end. */
static bool open_unit(struct reader *r, struct cursor *c) {
  struct unit *unit = &r->unit;
  *unit = (struct unit){.begin = c->at, .offset_bytes = 4};
  uint64_t length = take(c, 4);
  if (length == UINT32_MAX) {
    length = take(c, 8);
    unit->offset_bytes = 8;
  }
  if (!length || length > (uint64_t)(c->end - HARP_MIN(c->at, c->end))) return false;
  unit->end = c->at + length;
  unit->version = (uint32_t)take(c, 2);
  uint64_t abbreviations;
  if (unit->version >= 5) {
    take(c, 1); /* the kind of unit */
    unit->address_bytes = (uint32_t)take(c, 1);
    abbreviations = take(c, unit->offset_bytes);
  } else {
    abbreviations = take(c, unit->offset_bytes);
    unit->address_bytes = (uint32_t)take(c, 1);
  }
  read_abbreviations(r, abbreviations);
  return true;
}

static size_t wanted(const char *const *names, const bool *found, size_t count, const struct entry *e) {
  if (!has_members(e->tag) || e->is_declaration || !e->name) return count;
  size_t index = 0;
  while (index < count && (found[index] || strcmp(names[index], e->name))) index++;
  return index;
}

void box_dwarf_read(const struct box_elf *elf, const char *const *names, size_t count,
                    box_on_struct *on_struct, box_on_member *on_member, void *context) {
  struct reader r = {
      .info = box_elf_section(elf, ".debug_info"),
      .abbrev = box_elf_section(elf, ".debug_abbrev"),
      .str = box_elf_section(elf, ".debug_str"),
      .line_str = box_elf_section(elf, ".debug_line_str"),
      .on_member = on_member,
      .context = context,
  };
  bool *found = box_new(count * sizeof *found);
  size_t left = count;
  struct cursor c = {r.info.at, r.info.at + r.info.count};
  while (r.info.at && r.abbrev.at && left && c.at < c.end && open_unit(&r, &c)) {
    struct entry top, e;
    if (read_entry(&r, c.at, &top) && top.has_children)
      for (const uint8_t *at = top.next; at < r.unit.end && read_entry(&r, at, &e); at = after(&r, &e)) {
        r.index = wanted(names, found, count, &e);
        if (r.index == count) continue;
        found[r.index] = true;
        left--;
        on_struct(r.index, (uint64_t)e.bytes, context);
        visit_members(&r, &e, 0, "", 0);
      }
    c.at = r.unit.end;
  }
  free(found);
  free(r.abbreviations);
  free(r.attributes);
}
