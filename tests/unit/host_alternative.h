/* SPDX-License-Identifier: Apache-2.0 */
/* An alternative name of an interface of the tree, for the tests that look one up: it replaces libc's
 * function in the whole program. */
#ifndef HARP_TEST_HOST_ALTERNATIVE_H
#define HARP_TEST_HOST_ALTERNATIVE_H

#include "unit/host_tree.h"

static const char *tree_alternative; /* another name of eth1 */

unsigned if_nametoindex(const char *name) {
  for (unsigned i = 0; i < tree_eni_count && tree_alternative && !strcmp(name, tree_alternative); i++)
    if (!strcmp(tree_enis[i].name, "eth1")) return (unsigned)tree_enis[i].index;
  return 0;
}

#endif
