/* SPDX-License-Identifier: Apache-2.0 */
/* The libnccl.so.2 of this process: loaded, its calls of CUDA and NVML redirected to
 * this program's functions. */
#ifndef HARP_BOX_LIBRARY_H
#define HARP_BOX_LIBRARY_H

#include "elf.h"

/* Loads the library and redirects its calls, once in a process, before the first call of NCCL. `elf` stays in
 * use. Returns 0, or -1 after it has logged why not. */
int box_library_load(const struct box_elf *elf) HARP_MUST_CHECK;

/* Returns an exported function, NULL if the release has none of this name. */
void *box_library_function(const char *name);

/* Returns an object or function, also a local one, and its size; NULL if there is none. */
void *box_library_symbol(const char *name, size_t *bytes);

/* Returns the name of the function that begins at this address; NULL if it is none of the library's. */
const char *box_library_function_name(const void *function);

/* Returns the release: 22203 for 2.22.3. */
int box_library_version(void);

#endif
