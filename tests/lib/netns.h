/* SPDX-License-Identifier: Apache-2.0 */
/* A network namespace for one test program, made with ip(8), in which devices, addresses and neighbours are
 * the test's own. Needs root. */
#ifndef HARP_TESTS_NETNS_H
#define HARP_TESTS_NETNS_H

#include "base/base.h"

enum { NETNS_LO = 1 }; /* interface number of loopback in every namespace */

/* Moves the program into a namespace of its own where only loopback is, and up. False: it may not. */
bool netns_enter(void);

/* Runs a shell command there; fails the test when that fails. */
void netns_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns the number of an interface; fails the test when it is not there. */
unsigned netns_index(const char *ifname);

#endif
