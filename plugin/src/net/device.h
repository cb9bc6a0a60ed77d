/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of this process: what NCCL knows by a number. A device is some of the configured ENIs, and has
 * engines while anything is open on it (device_engines.h). Devices that are striped over the same ENIs have
 * the same engines, and so the same sessions.
 *
 * Who makes something on a device first holds it, so that the table keeps the device as it is. The owner of
 * contexts (net.c) guards the table and the holds with its lock, but for harp_devices_have and what net.h
 * declares: those read, from any thread, what never changes once it is there. A device's engines have a lock
 * of their own, and a caller may wait for seconds while another is opened or closed (xdp); so
 * that the other devices need not, it is never taken under the lock of contexts. */
#ifndef HARP_DEVICE_H
#define HARP_DEVICE_H

#include "engine/control/handle.h"
#include "engine/engine_open.h"

/* Reads the configuration and offers its ENIs, unless comms still use the devices of an earlier one. Fails
 * with one WARN. NCCL may have unloaded us meanwhile, and then counts devices and merges them anew; or it has
 * kept us, and continues to use the numbers of merged devices: so those keep their numbers, unreported. */
enum harp_status harp_devices_configure(void);

/* Returns whether there is such a device; if not, logs a WARN that names the call, `what`. */
bool harp_devices_have(int dev, const char *what);

/* Makes a device of others, or finds the one that was made of them: harp_net_merge without its lock. */
enum harp_status harp_devices_merge(const int *parts, int part_count, int *dev);

/* Keeps a device's number and interfaces, and the configuration, as they are until it is released as
 * often. */
void harp_devices_hold(int dev);
void harp_devices_release(int dev);

/* The rest is not under the lock of contexts, and for devices that the caller holds. */

/* Counts a user (a listener, a connect under way, a comm) on one of the device's engines, that of the peer to
 * connect to (NULL: none is known) or the one that has fewest, which is started if it doesn't run, with this
 * on_tick (engine.h). NULL, with one WARN, when none can be. */
struct harp_engine *harp_devices_use(int dev, const struct harp_contact *to,
                                     bool (*on_tick)(struct harp_engine *e));

/* Counts another user of an engine of the device. */
void harp_devices_share(int dev, const struct harp_engine *e);

/* Removes a user; the last one stops the engine, so that an idle process has no thread, file or mapping of
 * HARP's, and then it returns true. Where links are closing, the engine's thread does so once they are freed
 * (harp_devices_end_unused). May be called in the engine's own thread, by on_tick. */
bool harp_devices_drop(int dev, struct harp_engine *e);

/* Closes an engine that nobody uses any more, once its closing links are freed; returns whether it did. For
 * its own thread, by on_tick. Waits for nobody, since who has the engines' mutex may wait for that thread: it
 * is called again. */
bool harp_devices_end_unused(struct harp_engine *e);

#endif
