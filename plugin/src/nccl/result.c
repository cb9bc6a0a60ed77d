/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl/result.h"

enum harp_nccl_result harp_nccl_result_of(enum harp_status status) {
  switch (status) {
  case HARP_OK:
    return HARP_NCCL_SUCCESS;
  case HARP_ERR_SYSTEM:
    return HARP_NCCL_SYSTEM_ERROR;
  case HARP_ERR_REMOTE:
    return HARP_NCCL_REMOTE_ERROR;
  case HARP_ERR_USAGE:
    return HARP_NCCL_INVALID_USAGE;
  case HARP_ERR_ARGUMENT:
    return HARP_NCCL_INVALID_ARGUMENT;
  case HARP_ERR_INTERNAL:
    return HARP_NCCL_INTERNAL_ERROR;
  }
  return HARP_NCCL_INTERNAL_ERROR;
}

enum harp_nccl_result harp_nccl_result_old(enum harp_nccl_result result) {
  return result == HARP_NCCL_REMOTE_ERROR ? HARP_NCCL_SYSTEM_ERROR : result;
}
