/* SPDX-License-Identifier: Apache-2.0 */
/* The libnccl.so.2 of this process: loaded, its calls of CUDA and NVML redirected to this program's
 * functions. There may be two. Each thread has a current one, as it has a current device: first number 0. */
#ifndef HARP_BOX_LIBRARY_H
#define HARP_BOX_LIBRARY_H

#include "elf.h"

enum { BOX_LIBRARIES_MAX = 2 };

/* Return and set the library of the calling thread: whatever is looked up in a library is of this one. */
extern _Thread_local int box_library_number;
static inline int box_library_current(void) {
  return box_library_number;
}
static inline void box_library_choose(int number) {
  box_library_number = number;
}

/* Has the libraries that are loaded from now on sleep where they would poll without end (nap.h). */
void box_library_let_nap(void);

/* Loads the current library and redirects its calls, once in a process, before the first call of NCCL. `elf`
 * stays in use. Returns 0, or -1 after it has logged why not. */
int box_library_load(const struct box_elf *elf) HARP_MUST_CHECK;

/* Returns an exported function, NULL if the release has none of this name. */
void *box_library_function(const char *name);

/* Returns an object or function, also a local one, and its size; NULL if there is none. */
void *box_library_symbol(const char *name, size_t *bytes);

/* Return the number of the library in which a function begins at this address (0 if in none), and the
 * function's name (NULL if in none). */
int box_library_of(const void *function);
const char *box_library_function_name(const void *function);

/* Returns the release: 22203 for 2.22.3. */
int box_library_version(void);

#endif
