/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

const char *harp_status_name(enum harp_status s) {
  switch (s) {
  case HARP_OK:
    return "ok";
  case HARP_ERR_SYSTEM:
    return "system error";
  case HARP_ERR_REMOTE:
    return "remote error";
  case HARP_ERR_USAGE:
    return "invalid usage";
  case HARP_ERR_ARGUMENT:
    return "invalid argument";
  case HARP_ERR_INTERNAL:
    return "internal error";
  }
  return "unknown status";
}
