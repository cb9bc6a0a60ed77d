/* SPDX-License-Identifier: Apache-2.0 */
/* See references.h. */
#include "proofs/references.h"

#include "io/page_pipe.c"
