/* SPDX-License-Identifier: Apache-2.0 */
/* From HARP's status to NCCL's result code: the one place that knows both. Pure; any thread. */
#ifndef HARP_NCCL_RESULT_H
#define HARP_NCCL_RESULT_H

#include "base/status.h"
#include "nccl/abi.h"

/* Returns the code that NCCL 2.13 and newer understand. */
enum harp_nccl_result harp_nccl_result_of(enum harp_status status);

/* Returns what NCCL 2.12 and older understand instead (tables v4 and v5): they know no remote error. */
enum harp_nccl_result harp_nccl_result_old(enum harp_nccl_result result);

#endif
