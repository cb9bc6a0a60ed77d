/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the stack of a rank that a signal kills. */
#ifndef HARP_BOX_CRASH_H
#define HARP_BOX_CRASH_H

/* Installs the handlers, for all threads of the process. */
void box_crash_init(void);

#endif
