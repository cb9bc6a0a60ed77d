/* SPDX-License-Identifier: Apache-2.0 */
#include "net/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/identity.h"
#include "base/log.h"
#include "engine/watch/dump.h"
#include "net/device_engines.h"
#include "net/net.h"

enum { DEVICE_NAME_BYTES = 64 };

/* A device of NCCL's; complete before made_count includes it, and unchanged from then on but for its
 * engines. */
struct device {
  char name[DEVICE_NAME_BYTES];
  struct harp_engine_enis enis; /* its connections use these; the first gives it speed and guid */
  unsigned part_count;
  int parts[HARP_NET_PARTS_MAX];
  unsigned hold_count;
  int home;             /* the device whose engines it uses, this one or an earlier one */
  pthread_mutex_t lock; /* guards the engines; only taken by who holds the device */
  struct harp_device_engines engines;
};

/* All of a process. */
static struct {
  struct harp_config config;
  _Atomic int device_count; /* the devices that harp_net_device_count reports */
  _Atomic int
      made_count;    /* these, and those that NCCL may know from before the last context went; never fewer */
  int offered_count; /* the devices by the configuration, before any was merged */
  struct device devices[HARP_DEVICES_MAX];
} table;

/* ---- the table ---- */

static void set_counts(int reported, int made) {
  atomic_store_explicit(&table.made_count, made, memory_order_release);
  atomic_store_explicit(&table.device_count, reported, memory_order_release);
}

/* Adds a device over these ENIs, which NCCL sees from here on. Others of that number or a higher one, which
 * it does not know any more, are forgotten. */
static int add_device(const struct harp_engine_enis *enis, const int *parts, unsigned part_count) {
  int dev = atomic_load_explicit(&table.device_count, memory_order_relaxed);
  struct device *d = &table.devices[dev];
  size_t length = 0;
  HARP_ASSERT(dev < HARP_DEVICES_MAX && !d->hold_count);
  *d = (struct device){
      .enis = *enis, .part_count = part_count, .home = dev, .lock = PTHREAD_MUTEX_INITIALIZER};
  for (unsigned i = 0; i < part_count; i++) d->parts[i] = parts[i];
  for (unsigned i = 0; i < enis->count && length < sizeof d->name; i++)
    length += (size_t)snprintf(d->name + length, sizeof d->name - length, "%s%s", i ? "+" : "",
                               enis->at[i]->ifname);
  set_counts(dev + 1, dev + 1);
  return dev;
}

/* Adds a device for each of some ENIs. All of them use all of these, by the same engines: NCCL opens more
 * connections and channels where it sees more devices, and needs them to keep several interfaces busy. */
static void add_striped_devices(const struct harp_instance *instances, unsigned count) {
  int home = atomic_load_explicit(&table.device_count, memory_order_relaxed);
  for (unsigned i = 0; i < count; i++) {
    struct harp_engine_enis enis = {.count = count};
    for (unsigned k = 0; k < count; k++) enis.at[k] = &instances[(i + k) % count];
    table.devices[add_device(&enis, NULL, 0)].home = home;
  }
}

static bool any_works(const struct harp_instance *instances, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    if (!instances[i].is_absent) return true;
  return false;
}

/* Offers the configured ENIs: each by itself, or striped over as many as an engine can have. A device of
 * absent ones alone could connect nothing. */
static void offer_devices(void) {
  unsigned count = table.config.instance_count, most = 1;
  if (table.config.job.devices == HARP_DEVICES_STRIPED) {
    unsigned devices = (count + HARP_ENGINE_ENIS_MAX - 1) / HARP_ENGINE_ENIS_MAX;
    most = (count + devices - 1) / devices;
  }
  set_counts(0, 0);
  for (unsigned i = 0; i < count; i += most)
    if (any_works(&table.config.instances[i], HARP_MIN(most, count - i)))
      add_striped_devices(&table.config.instances[i], HARP_MIN(most, count - i));
}

int harp_net_device_count(void) {
  return atomic_load_explicit(&table.device_count, memory_order_acquire);
}

bool harp_devices_have(int dev, const char *what) {
  int count = atomic_load_explicit(&table.made_count, memory_order_acquire);
  if (dev >= 0 && dev < count) return true;
  HARP_WARN("%s: there is no device %d; HARP has %d", what, dev, count);
  return false;
}

/* Returns the PCI device of these ENIs, NULL where they have none or several: NICs in different places are
 * near to no GPU in particular, and NCCL then puts the device at the CPU. */
static const char *place_of(const struct harp_engine_enis *enis) {
  const char *first = enis->at[0]->pci_path;
  for (unsigned i = 0; i < enis->count; i++)
    if (strcmp(enis->at[i]->pci_path, first) != 0) return NULL;
  return first[0] ? first : NULL;
}

static int speed_of(const struct device *d) {
  int mbps = 0;
  for (unsigned i = 0; i < d->part_count; i++) mbps += speed_of(&table.devices[d->parts[i]]);
  return d->part_count ? mbps : d->enis.at[0]->speed_mbps;
}

enum harp_status harp_net_device(int dev, struct harp_device *d) {
  if (!harp_devices_have(dev, "properties")) return HARP_ERR_ARGUMENT;
  const struct device *device = &table.devices[dev];
  const struct harp_instance *first = device->enis.at[0];
  uint64_t guid = 0;
  memcpy(&guid, first->mac, sizeof first->mac);
  *d = (struct harp_device){
      .name = device->name,
      .pci_path = place_of(&device->enis),
      .speed_mbps = speed_of(device),
      .port = 0,
      .latency_us = 0, /* NCCL's constant holds it: docs/explanation/decisions/0009-what-nccl-is-told.md */
      .guid = (guid ? guid : (uint64_t)dev) | (uint64_t)(device->enis.count - 1) << 48,
      .part_count = device->part_count,
  };
  memcpy(d->parts, device->parts, sizeof d->parts);
  return HARP_OK;
}

/* Gathers the ENIs of all parts, each once; false when they are too many for one engine. */
static bool gather_enis(const int *parts, int part_count, struct harp_engine_enis *enis) {
  enis->count = 0;
  for (int i = 0; i < part_count; i++) {
    const struct harp_engine_enis *more = &table.devices[parts[i]].enis;
    for (unsigned k = 0; k < more->count; k++) {
      unsigned at = 0;
      while (at < enis->count && enis->at[at] != more->at[k]) at++;
      if (at < enis->count) continue;
      if (enis->count == HARP_ENGINE_ENIS_MAX) return false;
      enis->at[enis->count++] = more->at[k];
    }
  }
  return true;
}

/* NCCL hangs a merged device below the PCI device that its parts have in common. Where a part is at none it
 * loses the device and fails, while parts that we refuse only stay unmerged. */
static bool parts_have_places(const int *parts, int part_count) {
  for (int i = 0; i < part_count; i++) {
    const struct device *d = &table.devices[parts[i]];
    if (place_of(&d->enis)) continue;
    HARP_INFO("makeVDevice: %s is not merged with others, because it has no place on the PCI bus and %s "
              "loses a merged device that has none; `devices = striped` is one over all without its help",
              d->name, harp_user_name());
    return false;
  }
  return true;
}

/* Returns whether the parts are striped over the same ENIs: then a merged device is what each of them is, and
 * NCCL opens fewer connections. NCCL merges devices of one place by itself, and leaves those that we refuse.
 */
static bool parts_are_striped(const int *parts, int part_count) {
  int home = table.devices[parts[0]].home;
  for (int i = 1; i < part_count; i++)
    if (table.devices[parts[i]].home != home) return false;
  HARP_INFO("makeVDevice: %s is not merged with others, because each of them uses all of these interfaces",
            table.devices[parts[0]].name);
  return true;
}

static bool is_made_of(const struct device *d, const int *parts, int part_count) {
  return d->part_count == (unsigned)part_count &&
         memcmp(d->parts, parts, (size_t)part_count * sizeof parts[0]) == 0;
}

/* Returns whether anything is open on a device of this number or a higher one. */
static bool is_held_from(int dev) {
  int made = atomic_load_explicit(&table.made_count, memory_order_relaxed);
  while (dev < made && !table.devices[dev].hold_count) dev++;
  return dev < made;
}

/* Returns whether engines of a device run, which may have outlived all that was open on it. Who has the mutex
 * opens or closes one. */
static bool has_engines(struct device *d) {
  if (pthread_mutex_trylock(&d->lock)) return true;
  bool has = d->engines.count != 0;
  pthread_mutex_unlock(&d->lock);
  return has;
}

/* Returns whether a device of this number or a higher one has to stay as it is. */
static bool is_kept_from(int dev) {
  int made = atomic_load_explicit(&table.made_count, memory_order_relaxed);
  while (dev < made && !table.devices[dev].hold_count && !has_engines(&table.devices[dev])) dev++;
  return dev < made;
}

/* Returns the device that was made of these parts before, -1 if there is none. NCCL merges in the same order
 * again, so that one which is not reported any more gets its number back. */
static int find_merged(const int *parts, int part_count) {
  int reported = harp_net_device_count(),
      made = atomic_load_explicit(&table.made_count, memory_order_relaxed);
  for (int dev = 0; dev < reported; dev++)
    if (is_made_of(&table.devices[dev], parts, part_count)) return dev;
  if (reported == made) return -1;
  bool again = is_made_of(&table.devices[reported], parts, part_count);
  if (again)
    set_counts(reported + 1, made);
  else if (is_kept_from(reported)) /* the number is taken */
    set_counts(made, made);
  return again ? reported : -1;
}

enum harp_status harp_devices_merge(const int *parts, int part_count, int *dev) {
  struct harp_engine_enis enis;
  if (part_count < 1 || part_count > HARP_NET_PARTS_MAX) {
    HARP_WARN("makeVDevice: a device of %d others; HARP merges 1 to %d", part_count, HARP_NET_PARTS_MAX);
    return HARP_ERR_ARGUMENT;
  }
  for (int i = 0; i < part_count; i++)
    if (!harp_devices_have(parts[i], "makeVDevice")) return HARP_ERR_ARGUMENT;
  if (part_count > 1 && (parts_are_striped(parts, part_count) || !parts_have_places(parts, part_count)))
    return HARP_ERR_ARGUMENT;
  enum harp_status status = HARP_ERR_ARGUMENT;
  *dev = find_merged(parts, part_count);
  if (*dev >= 0)
    status = HARP_OK;
  else if (!gather_enis(parts, part_count, &enis))
    HARP_WARN("makeVDevice: more than the %d interfaces that one device can have", HARP_ENGINE_ENIS_MAX);
  else if (harp_net_device_count() == HARP_DEVICES_MAX)
    HARP_WARN("makeVDevice: there are %d devices already, HARP can have no more", HARP_DEVICES_MAX);
  else {
    *dev = add_device(&enis, parts, (unsigned)part_count);
    status = HARP_OK;
  }
  return status;
}

/* ---- configuration ---- */

/* Returns whether the configuration has the same interfaces as another, offered in the same way. */
static bool offers_the_same(const struct harp_config *a, const struct harp_config *b) {
  if (a->instance_count != b->instance_count || a->job.devices != b->job.devices) return false;
  for (unsigned i = 0; i < a->instance_count; i++)
    if (strcmp(a->instances[i].ifname, b->instances[i].ifname) != 0 ||
        a->instances[i].is_absent != b->instances[i].is_absent)
      return false;
  return true;
}

enum harp_status harp_devices_configure(void) {
  static struct harp_config fresh; /* under the lock */
  struct harp_error error;
  int made = atomic_load_explicit(&table.made_count, memory_order_relaxed);
  if (is_held_from(0)) return HARP_OK; /* comms outlived their context: keep what they use */
  if (is_kept_from(0)) { /* engines have outlived them: NCCL counts and merges anew, what they use stays */
    set_counts(table.offered_count, made);
    return HARP_OK;
  }
  int err = harp_config_load(&fresh, &error);
  if (err) {
    HARP_WARN("%s", error.text);
    set_counts(0, 0);
    return HARP_ERR_SYSTEM;
  }
  bool same = offers_the_same(&fresh, &table.config);
  table.config = fresh;
  harp_stats_set_dirs(table.config.stats_dirs, table.config.stats_dir_count);
  harp_dump_set_dirs(table.config.dump_dirs, table.config.dump_dir_count);
  offer_devices();
  table.offered_count = harp_net_device_count();
  if (same) set_counts(harp_net_device_count(), HARP_MAX(made, harp_net_device_count()));
  return HARP_OK;
}

/* ---- engines ---- */

static struct device *home_of(int dev) {
  return &table.devices[table.devices[dev].home];
}

void harp_devices_hold(int dev) {
  table.devices[dev].hold_count++;
}

void harp_devices_release(int dev) {
  HARP_ASSERT(table.devices[dev].hold_count);
  table.devices[dev].hold_count--;
}

struct harp_engine *harp_devices_use(int dev, const struct harp_contact *to,
                                     bool (*on_tick)(struct harp_engine *e)) {
  struct device *d = home_of(dev);
  pthread_mutex_lock(&d->lock);
  d->engines.on_tick = on_tick;
  struct harp_engine *e = harp_device_engines_use(&d->engines, &d->enis, to);
  pthread_mutex_unlock(&d->lock);
  return e;
}

void harp_devices_share(int dev, const struct harp_engine *e) {
  struct device *d = home_of(dev);
  pthread_mutex_lock(&d->lock);
  harp_device_engines_share(&d->engines, e);
  pthread_mutex_unlock(&d->lock);
}

bool harp_devices_drop(int dev, struct harp_engine *e) {
  struct device *d = home_of(dev);
  pthread_mutex_lock(&d->lock);
  bool closed = harp_device_engines_drop(&d->engines, e);
  pthread_mutex_unlock(&d->lock);
  return closed;
}

bool harp_devices_end_unused(struct harp_engine *e) {
  struct harp_device_engines *engines = e->owner;
  struct device *d = HARP_CONTAINER_OF(engines, struct device, engines);
  if (!atomic_load_explicit(&e->is_unused, memory_order_relaxed) || pthread_mutex_trylock(&d->lock))
    return false;
  bool closed = harp_device_engines_end_unused(engines, e);
  pthread_mutex_unlock(&d->lock);
  return closed;
}
