/* Listen, connect and accept of table v4 (NCCL 2.8 to 2.11), whose NCCL expects a comm at the first call:
 * they wait.
 *
 * Two ranks may well sit in connect to each other before either calls accept, so a waiting connect or accept
 * also drives every other v4 listener of the process, and keeps what it accepted there until it is asked for.
 */
#ifndef HARP_NCCL_BLOCKING_H
#define HARP_NCCL_BLOCKING_H

#include "nccl/abi.h"

/* The handle is 64 bytes and no more is written. */
enum harp_nccl_result harp_nccl_blocking_listen(int dev, void *handle, void **listen);
/* Waits until connected; an error when the peer cannot be reached for the peer timeout. */
enum harp_nccl_result harp_nccl_blocking_connect(int dev, void *handle, void **comm);
/* Waits until somebody has connected; REMOTE_ERROR with one WARN after ten minutes. */
enum harp_nccl_result harp_nccl_blocking_accept(void *listen, void **comm);
enum harp_nccl_result harp_nccl_blocking_close_listen(void *listen);

#endif
