/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is reserved large and used in part: a page becomes resident when it is first touched, and no
 * huge page is put under it, which would make 2 MiB of it resident at once. Called by engine/ when something
 * is made, freed, or idle; never on the data path. No state; any thread. */
#ifndef HARP_HOST_SPARSE_H
#define HARP_HOST_SPARSE_H

#include "base/base.h"

/* Maps at least `bytes` zeroed bytes, in whole pages. Returns NULL with errno set where that fails. */
HARP_MUST_CHECK void *harp_sparse_map(size_t bytes);

/* Gives the whole pages within a range back to the kernel: they are zero when they are next touched. The
 * range may be any anonymous memory of 4 KiB pages. */
void harp_sparse_give_back(void *from, size_t bytes);

/* Unmaps what was mapped with the same number of bytes. Ignores NULL. */
void harp_sparse_unmap(void *base, size_t bytes);

#endif
