/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a device's ENIs: those that work first, the nearest to the GPU of this process before others.
 */
#ifndef HARP_NEAR_H
#define HARP_NEAR_H

#include "engine/engine_open.h"

/* Orders ENIs: absent ones last, then by their nearness to this process's GPU; of equally near ones each
 * process of the host begins with another, by its rank, so that all together begin with all. Logs in one INFO
 * line when another than before is first. The first has the control connections, its node the memory of
 * engines without cores, and of paths that are as good as each other its own are taken. Of several address
 * families the first one's comes first, because the first ENIs of all hosts must be of the same, and neither
 * nearness nor rank counts. */
void harp_near_first(struct harp_engine_enis *enis);

#endif
