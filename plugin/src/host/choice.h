/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of interfaces where HARP was asked for by name, and neither conf files nor HARP_IFNAME name
 * them.
 *
 * Rules:
 *   1. An interface fits that is Ethernet, up, has a link and a global address. Of the virtual ones only
 *      those fit that carry the packets of others or of a container unchanged: bond, team, vlan, macvlan,
 *      ipvlan, veth. No bridge or tunnel does.
 *   2. Of those that fit the best sort is used: NICs with bonds, teams and vlans; else macvlan and ipvlan;
 *      else veth. So a host does not use what leads to its containers, and a container uses what it has.
 *   3. One above another that is used is left out: it shares its wire.
 *   4. One with less than a quarter of the speed of the fastest is left out: it is for management. One that
 *      does not tell its speed is used.
 *   5. Whether it reaches a peer is found out when that peer connects (engine/control/candidates.h).
 *
 * Owns no state. Called by config.c at init. */
#ifndef HARP_HOST_CHOICE_H
#define HARP_HOST_CHOICE_H

#include "base/base.h"
#include "base/error.h"
#include "host/eni.h"
#include "host/ifname.h"

/* Returns the variable by which NCCL was told to use HARP: NCCL_NET, with HARP's name, or NCCL_NET_PLUGIN,
 * since NCCL then loads no other plugin. NULL: a library of the default name was found. */
const char *harp_choice_asked_by(const char *const *environment);

/* Chooses among the interfaces, which are ascending by index, with an address of `family` (AF_UNSPEC: any);
 * of more than `max` the first. Logs at INFO the choice, and why the others are left out. Returns the number
 * of choices, at least 1, or -ENODEV with a sentence in the error that has the reason for each. */
int harp_choice_make(const struct harp_eni_source *source, const struct harp_eni *enis, unsigned count,
                     int family, struct harp_ifname_choice *choices, unsigned max, struct harp_error *error);

#endif
