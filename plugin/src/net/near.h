/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a device's ENIs: the nearest to the GPU of this process first. */
#ifndef HARP_NEAR_H
#define HARP_NEAR_H

#include "engine/engine_open.h"

/* Orders ENIs by their nearness to this process's GPU, and equal ones as they were. Logs in one INFO line
 * when another than before is first. The first has the control connections, its node the memory of engines
 * without cores, and of paths that are as good as each other its own are taken. ENIs of several address
 * families stay as they are, because the first ones of all hosts must be of the same. */
void harp_near_first(struct harp_engine_enis *enis);

#endif
