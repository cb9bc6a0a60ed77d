/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed transfer without loss, straight from the sender's calls to the receiver's, to count
 * instructions. */
#ifndef HARP_TESTS_TRANSFER_H
#define HARP_TESTS_TRANSFER_H

#include "base/base.h"

/* Sends 64 MiB in packets of `lines` lines over so many paths between so many pairs of ENIs; returns how many
 * data packets that took, 0 after a failure. */
uint64_t transfer_run(uint32_t lines, unsigned paths, unsigned enis);

#endif
