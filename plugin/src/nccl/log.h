/* SPDX-License-Identifier: Apache-2.0 */
/* Leads HARP's log lines into the logger that NCCL passes to init. */
#ifndef HARP_NCCL_LOG_H
#define HARP_NCCL_LOG_H

#include "nccl/abi.h"

/* Sends every later line to this logger, from whichever thread logs; NULL drops them. The last init's logger
 * counts: an NCCL passes the same at each. When its library is unloaded, the one that another NCCL passed
 * before it counts. */
void harp_nccl_log_use(harp_nccl_logger logger);

#endif
