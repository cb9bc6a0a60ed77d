/* SPDX-License-Identifier: Apache-2.0 */
/* Fills each version's properties of a device. The caller's struct may hold anything: every byte of it is
 * written. */
#ifndef HARP_NCCL_PROPERTIES_H
#define HARP_NCCL_PROPERTIES_H

#include "nccl/abi_v4.h"

/* Each fills *props for device `dev`; the strings live as long as the process. Returns INVALID_ARGUMENT, with
 * one WARN and *props zeroed, for a device that isn't there. Any thread. */
enum harp_nccl_result harp_nccl_properties_v4(int dev, struct harp_nccl_properties_v4 *props);
enum harp_nccl_result harp_nccl_properties_v6(int dev, struct harp_nccl_properties_v6 *props);
enum harp_nccl_result harp_nccl_properties_v7(int dev, struct harp_nccl_properties_v7 *props);
enum harp_nccl_result harp_nccl_properties_v8(int dev, struct harp_nccl_properties_v8 *props);
enum harp_nccl_result harp_nccl_properties_v9(int dev, struct harp_nccl_properties_v9 *props);
enum harp_nccl_result harp_nccl_properties_v11(int dev, struct harp_nccl_properties_v11 *props);
enum harp_nccl_result harp_nccl_properties_v12(int dev, struct harp_nccl_properties_v12 *props);

#endif
