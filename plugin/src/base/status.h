/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a function that can fail: HARP_OK, or a status that names whose fault it is. Set-up code that
 * wraps one system call returns -errno instead. nccl/ maps a status to NCCL's codes. */
#ifndef HARP_STATUS_H
#define HARP_STATUS_H

enum harp_status {
  HARP_OK = 0,
  HARP_ERR_SYSTEM,   /* a local system call, an ENI or memory failed */
  HARP_ERR_REMOTE,   /* the peer ended, closed or stopped answering */
  HARP_ERR_USAGE,    /* the caller's sizes or configuration don't fit */
  HARP_ERR_ARGUMENT, /* an argument is out of range */
  HARP_ERR_INTERNAL, /* the interface was misused, or an impossible state */
};

#endif
