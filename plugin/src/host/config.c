/* SPDX-License-Identifier: Apache-2.0 */
/* See config.h.
 *
 * The steps: read the variables; make a draft per instance, from HARP_IFNAME, from the files, or by choice;
 * apply the settings of file and environment; check and complete them by the interfaces of the host. */
#include "host/config.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/shortage.h"
#include "host/choice.h"
#include "host/conf.h"
#include "host/env.h"
#include "host/gpu.h"
#include "host/ifname.h"
#include "host/option.h"

enum {
  PATHS_DEFAULT_MAX = 8,
  PATH_MBPS = 5000, /* lowest per-flow limit of the known clouds */
  CONF_NUMBER_MAX = 9999,
  PLACE_BYTES = HARP_CONF_NAME_BYTES + 12, /* "file:line" */
};

/* An instance as configured, before it is checked against the host. */
struct draft {
  struct harp_conf conf;
  bool is_explicit; /* the interface is named in full: loopback and link-local addresses are allowed */
  char name[sizeof((struct harp_instance *)0)->name];
  int absent_rc; /* 0: its interface works; else the error, and its sentence: */
  struct harp_error absence;
};

struct loader {
  struct harp_config *cfg;
  const struct harp_config_sources *sources;
  struct harp_error *error;
  struct harp_env env;
  int family; /* AF_INET, AF_INET6, or AF_UNSPEC for either */
  struct harp_eni *enis;
  unsigned eni_count;
  unsigned draft_count;
  struct draft drafts[HARP_INSTANCES_MAX];
};

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Writes "file:line" of a key; without the line where the key was not set in a file. */
static const char *place_of(const struct harp_conf *conf, enum harp_setting_id id, char text[PLACE_BYTES]) {
  if (harp_setting_is_set(&conf->values, id))
    snprintf(text, PLACE_BYTES, "%s:%u", conf->file, conf->lines[id]);
  else
    snprintf(text, PLACE_BYTES, "%s", conf->file);
  return text;
}

/* ---- gathering: conf files ---- */

/* Returns the N of "ztcp<N>.conf", -1 when the name does not match ztcp*.conf, -2 when it does and has no
 * valid N. */
static int conf_number(const char *name) {
  size_t length = strlen(name);
  if (length < 9 || strncmp(name, "ztcp", 4) != 0 || strcmp(name + length - 5, ".conf") != 0) return -1;
  char digits[8] = {0};
  unsigned long number;
  if (length - 9 >= sizeof digits) return -2;
  memcpy(digits, name + 4, length - 9);
  if (digits[0] == '0' && digits[1]) return -2; /* so that no two names have one number */
  return harp_option_number(digits, 0, CONF_NUMBER_MAX, &number) ? (int)number : -2;
}

static int compare_int(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

/* Collects the numbers of the conf files, ascending. Returns how many, or -errno. */
static int list_confs(struct loader *loader, const char *dir, int numbers[HARP_INSTANCES_MAX]) {
  char quote[HARP_QUOTE_BYTES];
  int count = 0, rc = 0;
  DIR *stream = opendir(dir);
  if (!stream && (errno == ENOENT || errno == ENOTDIR)) return 0;
  if (!stream) return harp_shortage_set(loader->error, -errno, "%s: cannot read the directory", dir);
  for (const struct dirent *entry; rc == 0 && (entry = readdir(stream));) {
    int number = conf_number(entry->d_name);
    if (number == -1) continue;
    if (number == -2)
      rc = harp_error_set(loader->error, -EINVAL,
                          "%s/%s: expected a name of the form ztcp<N>.conf, N from 0 to %d", dir,
                          harp_error_quote(entry->d_name, quote), CONF_NUMBER_MAX);
    else if (count == HARP_INSTANCES_MAX)
      rc = harp_error_set(loader->error, -E2BIG, "%s: too many ztcp*.conf files: expected at most %d", dir,
                          HARP_INSTANCES_MAX);
    else
      numbers[count++] = number;
  }
  closedir(stream);
  if (rc < 0) return rc;
  qsort(numbers, (size_t)count, sizeof numbers[0], compare_int);
  return count;
}

static int gather_files(struct loader *loader) {
  const char *dir = loader->env.text[HARP_SETTING_CONF_DIR];
  if (!dir) dir = loader->sources->conf_dir;
  int numbers[HARP_INSTANCES_MAX];
  int count = list_confs(loader, dir, numbers);
  if (count < 0) return count;
  if (count == 0)
    return harp_error_set(
        loader->error, -ENOENT,
        "HARP is not configured: no ztcp*.conf in %s; configure it with `harpctl setup`, or set "
        "HARP_IFNAME or NCCL_NET=HARP, or move %s out of the library path to use %s's own sockets",
        dir, harp_plugin_name(), harp_user_name());
  for (int i = 0; i < count; i++) {
    char path[HARP_CONF_NAME_BYTES];
    snprintf(path, sizeof path, "%s/ztcp%d.conf", dir, numbers[i]);
    struct draft *draft = &loader->drafts[i];
    int rc = harp_conf_read(&draft->conf, path, loader->error);
    if (rc < 0) return rc;
    draft->is_explicit = true;
    snprintf(draft->name, sizeof draft->name, "ztcp%d", numbers[i]);
  }
  snprintf(loader->cfg->conf_dir, sizeof loader->cfg->conf_dir, "%s", dir);
  loader->draft_count = (unsigned)count;
  return 0;
}

/* ---- gathering: HARP_IFNAME ---- */

/* Takes over the interfaces that a variable names, or that were chosen for its sake. */
static void take_choices(struct loader *loader, const char *variable,
                         const struct harp_ifname_choice *choices, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    struct draft *draft = &loader->drafts[i];
    snprintf(draft->conf.file, sizeof draft->conf.file, "%s", variable);
    memcpy(draft->conf.values.interface, choices[i].name, sizeof draft->conf.values.interface);
    draft->is_explicit = choices[i].is_explicit;
    snprintf(draft->name, sizeof draft->name, "ifname%u", i);
  }
  loader->draft_count = count;
}

static int gather_ifname(struct loader *loader, const char *variable, const char *text) {
  struct harp_ifname_filter filter;
  struct harp_ifname_choice choices[HARP_INSTANCES_MAX];
  int rc = harp_ifname_parse(&filter, variable, text, loader->error);
  if (rc < 0) return rc;
  rc = harp_ifname_select(&filter, loader->enis, loader->eni_count, loader->family, choices,
                          HARP_INSTANCES_MAX, loader->error);
  if (rc < 0) return rc;
  take_choices(loader, variable, choices, (unsigned)rc);
  return 0;
}

/* ---- gathering: HARP was asked for by name ---- */

static int gather_choice(struct loader *loader, const char *asked_by) {
  struct harp_ifname_choice choices[HARP_INSTANCES_MAX];
  const char *socket_ifname = harp_env_find(loader->sources->environment, "NCCL_SOCKET_IFNAME");
  loader->error->text[0] = 0; /* there are no conf files, which is no error here */
  if (socket_ifname) return gather_ifname(loader, "NCCL_SOCKET_IFNAME", socket_ifname);
  int rc = harp_choice_make(&loader->sources->eni, loader->enis, loader->eni_count, loader->family, choices,
                            HARP_INSTANCES_MAX, loader->error);
  if (rc < 0) return rc;
  take_choices(loader, asked_by, choices, (unsigned)rc);
  return 0;
}

/* ---- the ENI of an instance ---- */

/* Sets the error for a key that contradicts the host: the file is another host's, or interfaces were
 * renamed. */
static int set_contradiction(const struct loader *loader, const struct harp_conf *conf,
                             enum harp_setting_id id, const char *value, const char *have) {
  char place[PLACE_BYTES];
  return harp_error_set(loader->error, -ENODEV, "%s: key '%s' = '%s': expected %s, which interface '%s' has",
                        place_of(conf, id, place), harp_setting_table[id].key, value, have,
                        conf->values.interface);
}

static bool is_link_local(const struct sockaddr_storage *address) {
  return address->ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Finds the address to bind. Returns 0, or -EADDRNOTAVAIL with the sentence in `why` where the interface does
 * not have it (yet); the instance then has the one that the file names, if any. */
static int resolve_address(const struct loader *loader, const struct draft *draft, const struct harp_eni *eni,
                           struct harp_instance *instance, struct harp_error *why) {
  const struct harp_conf *conf = &draft->conf;
  const struct sockaddr_storage *wanted = &conf->values.address;
  char place[PLACE_BYTES], text[HARP_IP_TEXT_BYTES];
  if (harp_setting_is_set(&conf->values, HARP_SETTING_ADDRESS)) {
    if (eni && harp_eni_has_address(eni, wanted, &instance->addr)) return 0;
    if (!is_link_local(wanted))
      instance->addr = *wanted; /* a link-local address needs the interface for its scope */
    return harp_error_set(why, -EADDRNOTAVAIL,
                          "%s: key 'address' = '%s': expected an address that interface '%s' has",
                          place_of(conf, HARP_SETTING_ADDRESS, place), harp_address_ip_text(wanted, text),
                          conf->values.interface);
  }
  if (eni && harp_eni_choose_address(eni, loader->family, draft->is_explicit, &instance->addr) == 0) return 0;
  return harp_error_set(why, -EADDRNOTAVAIL, "%s: interface '%s' has no %s address to use",
                        place_of(conf, HARP_SETTING_INTERFACE, place), conf->values.interface,
                        loader->family == AF_INET    ? "IPv4"
                        : loader->family == AF_INET6 ? "IPv6"
                                                     : "IP");
}

/* Finds the PCI device and its node: from sysfs; by the address in the file where sysfs does not describe
 * this interface. */
static int resolve_pci(const struct loader *loader, const struct harp_conf *conf, const struct harp_eni *eni,
                       struct harp_instance *instance) {
  const char *sysfs_root = loader->sources->eni.sysfs_root;
  harp_eni_pci_path(sysfs_root, eni, instance->pci_path);
  if (harp_setting_is_set(&conf->values, HARP_SETTING_PCI)) {
    char link[PATH_MAX], real[PATH_MAX];
    if (instance->pci_path[0] && strcmp(base_name(instance->pci_path), conf->values.pci) != 0)
      return set_contradiction(loader, conf, HARP_SETTING_PCI, conf->values.pci,
                               base_name(instance->pci_path));
    snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sysfs_root, conf->values.pci);
    if (!instance->pci_path[0] && realpath(link, real) && strlen(real) < sizeof instance->pci_path)
      memcpy(instance->pci_path, real, strlen(real) + 1);
    if (!instance->pci_path[0])
      HARP_INFO("%s: PCI device %s is not visible here; its place on the bus stays unknown", conf->file,
                conf->values.pci);
  }
  instance->numa = harp_setting_is_set(&conf->values, HARP_SETTING_NUMA) ? conf->values.numa
                                                                         : harp_eni_numa(instance->pci_path);
  return 0;
}

/* Checks what the file says of an interface that exists, and takes over what the host says. */
static int resolve_link(const struct loader *loader, const struct harp_conf *conf, const struct harp_eni *eni,
                        struct harp_instance *instance) {
  if (harp_setting_is_set(&conf->values, HARP_SETTING_MAC) &&
      memcmp(conf->values.mac, eni->mac, sizeof eni->mac) != 0) {
    char value[HARP_ENI_MAC_TEXT_BYTES], have[HARP_ENI_MAC_TEXT_BYTES];
    harp_eni_format_mac(conf->values.mac, value);
    harp_eni_format_mac(eni->mac, have);
    return set_contradiction(loader, conf, HARP_SETTING_MAC, value, have);
  }
  if (harp_setting_is_set(&conf->values, HARP_SETTING_MTU) && conf->values.mtu > eni->mtu) {
    char value[16], have[32];
    snprintf(value, sizeof value, "%d", conf->values.mtu);
    snprintf(have, sizeof have, "at most the MTU %d", eni->mtu);
    return set_contradiction(loader, conf, HARP_SETTING_MTU, value, have);
  }
  memcpy(instance->mac, eni->mac, sizeof instance->mac);
  instance->index = eni->index;
  if (!harp_setting_is_set(&conf->values, HARP_SETTING_MTU)) instance->mtu = eni->mtu;
  if (!harp_setting_is_set(&conf->values, HARP_SETTING_SPEED_MBPS))
    instance->speed_mbps = harp_eni_speed_mbps(&loader->sources->eni, eni, &instance->speed_source);
  return resolve_pci(loader, conf, eni, instance);
}

/* Fills in the interface. Where it is absent, the first reason is kept. */
static int resolve_eni(const struct loader *loader, struct draft *draft, struct harp_instance *instance) {
  struct harp_conf *conf = &draft->conf;
  char place[PLACE_BYTES];
  struct harp_error no_address;
  place_of(conf, HARP_SETTING_INTERFACE, place);
  const struct harp_eni *eni = harp_eni_find(loader->enis, loader->eni_count, conf->values.interface);
  if (eni) memcpy(conf->values.interface, eni->name, sizeof eni->name); /* in place of an alternative one */
  memcpy(instance->ifname, conf->values.interface, sizeof instance->ifname);
  instance->speed_source =
      harp_setting_is_set(&conf->values, HARP_SETTING_SPEED_MBPS) ? HARP_SPEED_CONF : HARP_SPEED_ASSUMED;
  if (!harp_setting_is_set(&conf->values, HARP_SETTING_NUMA)) instance->numa = -1;
  int rc = eni ? resolve_link(loader, conf, eni, instance) : 0;
  if (rc < 0) return rc;
  draft->absent_rc = eni ? harp_ifname_check_up(eni, place, &draft->absence)
                         : harp_ifname_missing(conf->values.interface, place, loader->enis, loader->eni_count,
                                               &draft->absence);
  rc = resolve_address(loader, draft, eni, instance, &no_address);
  if (rc < 0 && !draft->absent_rc) {
    draft->absent_rc = rc;
    draft->absence = no_address;
  }
  instance->is_absent = draft->absent_rc != 0;
  instance->is_unnumbered = instance->addr.ss_family == AF_UNSPEC;
  return 0;
}

/* ---- the rest of an instance ---- */

/* Returns the number of paths for a pair of ENIs. With only some of a NIC's queues it needs many ports, so
 * that some of them lead to these queues. */
static unsigned default_paths(const struct harp_instance *instance) {
  if (instance->queues) return HARP_PAIR_PATHS_MAX;
  if (!instance->pci_path[0]) return 1;
  int paths = (instance->speed_mbps - 1) / PATH_MBPS + 1;
  return (unsigned)HARP_MIN(HARP_MAX(paths, 1), PATHS_DEFAULT_MAX);
}

static int resolve_instance(const struct loader *loader, struct draft *draft,
                            struct harp_instance *instance) {
  memcpy(instance->name, draft->name, sizeof instance->name);
  harp_settings_init(&instance->settings);
  harp_settings_overlay(&instance->settings, &draft->conf.values, HARP_SCOPE_ENI);
  harp_settings_overlay(&instance->settings, &loader->env.values, HARP_SCOPE_ENI);
  int rc = resolve_eni(loader, draft, instance);
  if (rc < 0) return rc;
  if (instance->mode == HARP_ENGINE_AUTO)
    instance->mode = instance->cores.count ? HARP_ENGINE_THREAD : HARP_ENGINE_INLINE;
  return 0;
}

/* Completes what an absent interface does not tell by what one that works has. */
static void complete_absent(const struct loader *loader, struct harp_instance *instance,
                            const struct harp_instance *like) {
  bool is_gone = !instance->index;
  if (instance->is_unnumbered)
    instance->addr.ss_family = harp_setting_is_set(&instance->settings, HARP_SETTING_ADDRESS)
                                   ? instance->address.ss_family
                               : loader->family != AF_UNSPEC ? (sa_family_t)loader->family
                                                             : like->addr.ss_family;
  if (instance->is_absent && !instance->mtu) instance->mtu = like->mtu;
  if (instance->is_absent && instance->speed_source != HARP_SPEED_CONF) {
    instance->speed_mbps = like->speed_mbps;
    instance->speed_source = HARP_SPEED_ASSUMED;
  }
  if (harp_setting_is_set(&instance->settings, HARP_SETTING_PATHS)) return;
  instance->paths = is_gone ? like->paths : default_paths(instance);
}

static void log_instance(const struct harp_instance *instance) {
  char ip[INET6_ADDRSTRLEN];
  HARP_INFO("%s: %s %s, MTU %d, %d Mbit/s (%s), %s%s, NUMA node %d, driver %s, %u path%s, %s engine",
            instance->name, instance->ifname, harp_address_ip_text(&instance->addr, ip), instance->mtu,
            instance->speed_mbps, harp_speed_source_name(instance->speed_source),
            instance->pci_path[0] ? "PCI " : "no PCI device",
            instance->pci_path[0] ? base_name(instance->pci_path) : "", instance->numa,
            harp_setting_word(HARP_SETTING_DRIVER, instance->driver), instance->paths,
            instance->paths == 1 ? "" : "s", harp_setting_word(HARP_SETTING_MODE, instance->mode));
}

/* ---- the whole ---- */

/* Checks two instances against each other: different ENIs, equal keys of the whole job. */
static int check_pair(const struct loader *loader, const struct harp_conf *first,
                      const struct harp_conf *second) {
  char place[PLACE_BYTES], other[PLACE_BYTES], expected[24], value[24];
  if (strcmp(first->values.interface, second->values.interface) == 0)
    return harp_error_set(loader->error, -EINVAL,
                          "%s: key 'interface' = '%s': expected another interface, this one is taken by %s",
                          place_of(second, HARP_SETTING_INTERFACE, place), second->values.interface,
                          place_of(first, HARP_SETTING_INTERFACE, other));
  uint64_t both = first->values.set & second->values.set & ~loader->env.values.set;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    if (harp_setting_table[id].scope != HARP_SCOPE_JOB || !(both >> id & 1)) continue;
    harp_settings_format(&first->values, id, expected);
    harp_settings_format(&second->values, id, value);
    if (strcmp(expected, value) != 0)
      return harp_error_set(loader->error, -EINVAL, "%s: key '%s' = '%s': expected '%s' as in %s",
                            place_of(second, id, place), harp_setting_table[id].key, value, expected,
                            place_of(first, id, other));
  }
  return 0;
}

/* Resolves the settings of the whole job: from the variable, else the files, else the table. */
static void resolve_job(struct loader *loader) {
  struct harp_settings *job = &loader->cfg->job;
  harp_settings_init(job);
  for (unsigned i = 0; i < loader->draft_count; i++)
    harp_settings_overlay(job, &loader->drafts[i].conf.values, HARP_SCOPE_JOB);
  harp_settings_overlay(job, &loader->env.values, HARP_SCOPE_JOB);
  for (unsigned i = 0; i < loader->draft_count; i++)
    harp_settings_overlay(&loader->cfg->instances[i].settings, job, HARP_SCOPE_JOB);
}

static void add_stats_dir(struct harp_config *cfg, const char *dir, const char *below) {
  char *to = cfg->stats_dirs[cfg->stats_dir_count];
  int n = snprintf(to, HARP_STATS_DIR_BYTES, "%s%s", dir, below);
  if (n < HARP_STATS_DIR_BYTES) cfg->stats_dir_count++;
}

/* Chooses the configured directory, else the system's and the user's. */
static void choose_stats_dirs(struct harp_config *cfg, const struct loader *loader) {
  const char *named = loader->env.text[HARP_SETTING_STATS_DIR];
  const char *user = harp_env_find(loader->sources->environment, "XDG_RUNTIME_DIR");
  if (named && strcmp(named, "off") != 0) add_stats_dir(cfg, named, "");
  if (named) return;
  add_stats_dir(cfg, HARP_STATS_DIR_DEFAULT, "");
  if (user && user[0] == '/') add_stats_dir(cfg, user, "/harp");
}

/* Chooses the configured directory, else those of the statistics. */
static void choose_dump_dirs(struct harp_config *cfg, const struct loader *loader) {
  const char *named = loader->env.text[HARP_SETTING_DUMP_DIR];
  if (!named) {
    memcpy(cfg->dump_dirs, cfg->stats_dirs, sizeof cfg->dump_dirs);
    cfg->dump_dir_count = cfg->stats_dir_count;
  } else if (strcmp(named, "off") != 0) {
    snprintf(cfg->dump_dirs[0], sizeof cfg->dump_dirs[0], "%s", named);
    cfg->dump_dir_count = 1;
  }
}

/* Reads NCCL_SOCKET_FAMILY as NCCL does: unknown values count as unset. */
static int wanted_family(const char *const *environment) {
  const char *text = harp_env_find(environment, "NCCL_SOCKET_FAMILY");
  if (text && strcmp(text, "AF_INET") == 0) return AF_INET;
  return text && strcmp(text, "AF_INET6") == 0 ? AF_INET6 : AF_UNSPEC;
}

/* Finds this process's place among those of the host, and each ENI's nearness to its GPU: UINT_MAX if the
 * ENI's file has this GPU's number. */
static void find_place(struct loader *loader) {
  struct harp_gpu gpu;
  const struct harp_config_sources *sources = loader->sources;
  struct harp_local local = harp_local_of_process(sources->environment, sources->proc_root);
  unsigned count = loader->cfg->instance_count;
  if (loader->cfg->job.devices == HARP_DEVICES_ENIS) local.sharers = (local.sharers + count - 1) / count;
  for (unsigned i = 0; i < count; i++) loader->cfg->instances[i].local = local;
  if (!harp_gpu_of_process(sources->proc_root, sources->eni.sysfs_root, sources->environment, &local, &gpu))
    return;
  for (unsigned i = 0; i < loader->cfg->instance_count; i++) {
    struct harp_instance *instance = &loader->cfg->instances[i];
    instance->gpu_nearness =
        harp_setting_is_set(&instance->settings, HARP_SETTING_GPU) && instance->gpu == gpu.number
            ? UINT_MAX
            : harp_gpu_nearness(&gpu, instance->pci_path, instance->numa);
  }
}

/* Returns the first interface that works, of these one whose address is not link-local, if there is one;
 * NULL: none works. */
static struct harp_instance *first_that_works(struct harp_config *cfg, unsigned count) {
  struct harp_instance *best = NULL;
  for (unsigned i = 0; i < count; i++) {
    struct harp_instance *instance = &cfg->instances[i];
    if (instance->is_absent) continue;
    if (!is_link_local(&instance->addr)) return instance;
    if (!best) best = instance;
  }
  return best;
}

/* An interface beside others with an address, which has a link-local one alone that nobody has named, has not
 * got its address yet: each interface has a link-local one from the beginning. */
static void leave_link_local(struct draft *draft, struct harp_instance *instance,
                             const struct harp_instance *works) {
  char place[PLACE_BYTES];
  if (is_link_local(&works->addr) || !is_link_local(&instance->addr)) return;
  if (harp_setting_is_set(&instance->settings, HARP_SETTING_ADDRESS)) return;
  if (!draft->absent_rc)
    (void)harp_error_set(&draft->absence, 0, "%s: interface '%s' has no address to use but a link-local one",
                         place_of(&draft->conf, HARP_SETTING_INTERFACE, place), instance->ifname);
  instance->addr = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
  instance->is_absent = instance->is_unnumbered = true;
}

/* Completes the instances, of which those that are absent may join the others later. Fails with the first
 * reason when none works. */
static int complete_instances(struct loader *loader) {
  struct harp_config *cfg = loader->cfg;
  struct harp_instance *works = first_that_works(cfg, loader->draft_count);
  if (!works) {
    *loader->error = loader->drafts[0].absence;
    return loader->drafts[0].absent_rc;
  }
  if (!harp_setting_is_set(&works->settings, HARP_SETTING_PATHS)) works->paths = default_paths(works);
  const struct harp_instance like = *works;
  for (unsigned i = 0; i < loader->draft_count; i++) {
    leave_link_local(&loader->drafts[i], &cfg->instances[i], &like);
    complete_absent(loader, &cfg->instances[i], &like);
    if (cfg->instances[i].is_absent)
      HARP_INFO("%s; continuing without it until it works", loader->drafts[i].absence.text);
  }
  cfg->instance_count = loader->draft_count;
  return 0;
}

static int resolve_instances(struct loader *loader) {
  int rc = 0;
  for (unsigned i = 0; i < loader->draft_count && rc == 0; i++) {
    for (unsigned j = 0; j < i && rc == 0; j++)
      rc = check_pair(loader, &loader->drafts[j].conf, &loader->drafts[i].conf);
    if (rc == 0) rc = resolve_instance(loader, &loader->drafts[i], &loader->cfg->instances[i]);
  }
  return rc < 0 ? rc : complete_instances(loader);
}

static int load_instances(struct loader *loader) {
  int rc = harp_env_read(&loader->env, loader->sources->environment, loader->error);
  if (rc < 0) return rc;
  loader->family = wanted_family(loader->sources->environment);
  const char *ifname = loader->env.text[HARP_SETTING_IFNAME];
  const char *asked_by = harp_choice_asked_by(loader->sources->environment);
  if (!ifname) rc = gather_files(loader);
  bool is_unnamed = rc == -ENOENT && asked_by && !loader->env.text[HARP_SETTING_CONF_DIR];
  if (rc < 0 && !is_unnamed) return rc;
  rc = loader->sources->eni.list(loader->enis, HARP_ENI_LIST_MAX);
  if (rc < 0) return harp_shortage_set(loader->error, rc, "cannot list the network interfaces");
  loader->eni_count = (unsigned)rc;
  rc = ifname       ? gather_ifname(loader, "HARP_IFNAME", ifname)
       : is_unnamed ? gather_choice(loader, asked_by)
                    : 0;
  if (rc == 0) rc = resolve_instances(loader);
  if (rc < 0) return rc;
  HARP_ASSERT(loader->draft_count > 0 && loader->draft_count <= HARP_INSTANCES_MAX);
  resolve_job(loader);
  find_place(loader);
  choose_stats_dirs(loader->cfg, loader);
  choose_dump_dirs(loader->cfg, loader);
  for (unsigned i = 0; i < loader->cfg->instance_count; i++)
    if (!loader->cfg->instances[i].is_absent) log_instance(&loader->cfg->instances[i]);
  return 0;
}

/* ---- later ---- */

bool harp_instance_number(struct harp_instance *instance, const struct harp_eni *enis, unsigned count) {
  const struct harp_eni *eni = harp_eni_find(enis, count, instance->ifname);
  struct sockaddr_storage found;
  bool is_named = harp_setting_is_set(&instance->settings, HARP_SETTING_ADDRESS);
  HARP_ASSERT(instance->is_unnumbered && instance->is_absent);
  if (!eni || !(is_named ? harp_eni_has_address(eni, &instance->address, &found)
                         : !harp_eni_choose_address(eni, instance->addr.ss_family, false, &found)))
    return false;
  instance->addr = found;
  instance->index = eni->index;
  instance->is_unnumbered = false;
  return true;
}

static bool works_now(const struct harp_instance *instance, const struct harp_eni *eni) {
  return eni && !instance->is_unnumbered && harp_eni_is_up(eni) &&
         harp_eni_has_address(eni, &instance->addr, NULL);
}

void harp_instances_refresh(struct harp_instance *instances, unsigned count) {
  struct harp_eni *enis = calloc(HARP_ENI_LIST_MAX, sizeof *enis);
  int found = enis ? harp_eni_list(enis, HARP_ENI_LIST_MAX) : -ENOMEM;
  for (unsigned i = 0; i < count && found >= 0; i++) {
    struct harp_instance *instance = &instances[i];
    const struct harp_eni *eni = harp_eni_find(enis, (unsigned)found, instance->ifname);
    if (instance->is_unnumbered) (void)harp_instance_number(instance, enis, (unsigned)found);
    bool is_absent = !works_now(instance, eni);
    if (eni) instance->index = eni->index;
    if (is_absent && !instance->is_absent)
      HARP_INFO("%s: this interface has no link, or not its address, any more; continuing without it until "
                "it works",
                instance->ifname);
    instance->is_absent = is_absent;
  }
  free(enis);
}

struct harp_config_sources harp_config_sources_system(void) {
  return (struct harp_config_sources){
      .conf_dir = HARP_CONF_DIR_DEFAULT,
      .environment = (const char *const *)environ,
      .eni = harp_eni_source_system,
      .proc_root = "/proc",
  };
}

int harp_config_load_from(struct harp_config *cfg, const struct harp_config_sources *sources,
                          struct harp_error *error) {
  memset(cfg, 0, sizeof *cfg);
  error->text[0] = 0;
  /* They lie on the heap: together they have some 2 MB, which a thread of the host process need not have
   * on its stack. */
  struct loader *loader = calloc(1, sizeof *loader);
  struct harp_eni *enis = calloc(HARP_ENI_LIST_MAX, sizeof *enis);
  int rc = -ENOMEM;
  if (loader && enis) {
    *loader = (struct loader){.cfg = cfg, .sources = sources, .error = error, .enis = enis};
    rc = load_instances(loader);
  } else {
    harp_shortage_set(error, rc, "cannot read the configuration");
  }
  free(enis);
  free(loader);
  if (rc < 0) memset(cfg, 0, sizeof *cfg);
  return rc;
}

int harp_config_load(struct harp_config *cfg, struct harp_error *error) {
  struct harp_config_sources sources = harp_config_sources_system();
  return harp_config_load_from(cfg, &sources, error);
}
