/* SPDX-License-Identifier: Apache-2.0 */
/* See references.h. */
#include "proofs/references.h"

#include "engine/tcp/tcp_path.c"
