/* SPDX-License-Identifier: Apache-2.0 */
/* Connect and accept of table v4 (NCCL 2.8 to 2.11), whose NCCL expects a comm at the first call: they wait.
 *
 * Two ranks may well sit in connect to each other before either calls accept. That ends well because
 * the engine's passes serve its listeners, whether or not accept is called (engine/control/listener.h). */
#ifndef HARP_NCCL_BLOCKING_H
#define HARP_NCCL_BLOCKING_H

#include "nccl/abi.h"

/* Waits until connected; an error when the peer cannot be reached for the peer timeout. */
enum harp_nccl_result harp_nccl_blocking_connect(int dev, void *handle, void **comm);
/* Waits until somebody has connected; REMOTE_ERROR with one WARN after ten minutes. */
enum harp_nccl_result harp_nccl_blocking_accept(void *listen, void **comm);

#endif
