/* SPDX-License-Identifier: Apache-2.0 */
/* Reads structures out of an ELF file's debug information: DWARF 2 to 5, uncompressed, of x86-64. */
#ifndef HARP_BOX_DWARF_H
#define HARP_BOX_DWARF_H

#include "elf.h"
#include "layout.h"

typedef void box_on_struct(size_t index, uint64_t bytes, void *context);
typedef void box_on_member(size_t index, const char *path, const struct box_place *place, void *context);

/* Finds the first complete definition of each named structure at file scope and reports its size, then every
 * member. A member of a member has the path "outer.inner"; an unnamed structure or union adds nothing to the
 * path. A structure that is not found is not reported. */
void box_dwarf_read(const struct box_elf *elf, const char *const *names, size_t count,
                    box_on_struct *on_struct, box_on_member *on_member, void *context);

#endif
