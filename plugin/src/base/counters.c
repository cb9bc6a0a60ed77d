/* SPDX-License-Identifier: Apache-2.0 */
#include "base/counters.h"

const char *harp_drop_name(enum harp_drop drop) {
  static const char *const names[] = {"NONE",
#define X(name, text) #name,
                                      HARP_DROPS(X)
#undef X
  };
  return (unsigned)drop < HARP_DROP_COUNT ? names[drop] : "unknown";
}
