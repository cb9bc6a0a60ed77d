/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a libnccl.so.2: its sections and the symbol table that NVIDIA's wheels keep. Mapped for the
 * life of the process, so that names stay valid; read before the ranks are forked, which share it. */
#ifndef HARP_BOX_ELF_H
#define HARP_BOX_ELF_H

#include "base/base.h"

struct box_bytes {
  const uint8_t *at;
  size_t count;
};

struct box_symbol {
  const char *name;
  uint64_t address; /* in the file's own address space: add where the library was loaded */
  uint64_t bytes;
  bool is_function;
};

struct box_elf {
  const char *path;
  struct box_bytes file;
  uint64_t text_begin, text_end;
  struct box_symbol *symbols; /* functions and objects, by address */
  size_t symbol_count;
};

/* Maps and reads the file. Returns 0, or -1 after it has logged why not. */
int box_elf_open(struct box_elf *elf, const char *path) HARP_MUST_CHECK;

/* Returns a section's bytes in the file, or none where it is absent or compressed. */
struct box_bytes box_elf_section(const struct box_elf *elf, const char *name);

/* Return the symbol of this name, or the function that begins at this address; NULL if there is none. */
const struct box_symbol *box_elf_find(const struct box_elf *elf, const char *name);
const struct box_symbol *box_elf_function_at(const struct box_elf *elf, uint64_t address);

#endif
