/* SPDX-License-Identifier: Apache-2.0 */
#include "base/identity.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Identifies the build in the file, for what(1), strings(1) and harpctl status. */
#define MARK "@(#)HARP "
static const char mark[] = MARK HARP_VERSION;

const char *harp_version(void) {
  return mark + sizeof MARK - 1;
}

static size_t padded_bytes(size_t bytes) {
  return (bytes + 3) & ~(size_t)3;
}

bool harp_build_id_read(const uint8_t *notes, size_t bytes, char text[HARP_BUILD_ID_TEXT_BYTES]) {
  ElfW(Nhdr) note;
  while (bytes >= sizeof note) {
    memcpy(&note, notes, sizeof note);
    const uint8_t *name = notes + sizeof note, *id = name + padded_bytes(note.n_namesz);
    size_t whole = sizeof note + padded_bytes(note.n_namesz) + padded_bytes(note.n_descsz);
    if (whole > bytes) return false;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
        !memcmp(name, "GNU", sizeof "GNU")) {
      size_t count = HARP_MIN(note.n_descsz, (HARP_BUILD_ID_TEXT_BYTES - 1) / 2);
      for (size_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", id[i]);
      return count > 0;
    }
    notes += whole;
    bytes -= whole;
  }
  return false;
}

static bool object_holds(const struct dl_phdr_info *object, uintptr_t address) {
  for (unsigned i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &object->dlpi_phdr[i];
    if (p->p_type == PT_LOAD && address - (object->dlpi_addr + p->p_vaddr) < p->p_memsz) return true;
  }
  return false;
}

/* Reads the build id of the loaded object that holds the mark; returns 1 there, which ends the search. */
static int read_own_build_id(struct dl_phdr_info *object, size_t bytes, void *arg) {
  char *text = arg;
  bool is_own = object_holds(object, (uintptr_t)mark);
  (void)bytes;
  for (unsigned i = 0; is_own && i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &object->dlpi_phdr[i];
    const uint8_t *notes = (const uint8_t *)(uintptr_t)(object->dlpi_addr + p->p_vaddr);
    if (p->p_type == PT_NOTE && harp_build_id_read(notes, p->p_memsz, text)) break;
  }
  return is_own;
}

static int find_object(struct dl_phdr_info *object, size_t bytes, void *arg) {
  (void)bytes;
  return object_holds(object, *(const uintptr_t *)arg);
}

bool harp_is_in_library(uintptr_t address) {
  return dl_iterate_phdr(find_object, &address);
}

static _Atomic bool is_rccl;

const char *harp_user_name(void) {
  return atomic_load_explicit(&is_rccl, memory_order_relaxed) ? "RCCL" : "NCCL";
}

const char *harp_plugin_name(void) {
  return atomic_load_explicit(&is_rccl, memory_order_relaxed) ? "librccl-net.so" : "libnccl-net.so";
}

/* Looks at one loaded object; returns 1, which ends the search, for the one that holds the address. */
static int look_for_rccl(struct dl_phdr_info *object, size_t bytes, void *arg) {
  const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
  (void)bytes;
  if (!object_holds(object, *(const uintptr_t *)arg)) return 0;
  if (!strncmp(name, "librccl.", sizeof "librccl." - 1))
    atomic_store_explicit(&is_rccl, true, memory_order_relaxed);
  return 1;
}

void harp_user_learn(uintptr_t address) {
  dl_iterate_phdr(look_for_rccl, &address);
}

void harp_build_id(char text[HARP_BUILD_ID_TEXT_BYTES]) {
  snprintf(text, HARP_BUILD_ID_TEXT_BYTES, "unknown");
  dl_iterate_phdr(read_own_build_id, text);
}
