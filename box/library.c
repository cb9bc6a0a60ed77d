/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's wheels link the CUDA runtime statically and keep the symbol table. So the code of each of its
 * functions is overwritten with a jump to ours. NVML and the driver are opened by name: dlopen and dlsym are
 * replaced in the library's global offset table. */
#include "library.h"

#include "entry.h"
#include "log.h"
#include "nap.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { JUMP_BYTES = 12 };

static struct library {
  const struct box_elf *file;
  void *handle;
  uintptr_t base;
} libraries[BOX_LIBRARIES_MAX];
static bool is_napping;
_Thread_local int box_library_number;
static const char nvml_handle, driver_handle; /* their addresses stand for the two libraries */

/* ---- dlopen ---- */

static void *open_library(const char *name, int flags) {
  if (name && strstr(name, "libnvidia-ml.so")) return (void *)&nvml_handle;
  if (name && strstr(name, "libcuda.so")) return (void *)&driver_handle;
  /* No RDMA: what the machine has of it would be another network than the one to be measured. */
  if (name && (strstr(name, "libibverbs") || strstr(name, "libmlx5"))) name = "hidden by harp-nccl";
  return dlopen(name, flags);
}

static void *find_in_library(void *library, const char *name) {
  if (library == &nvml_handle) return (void *)box_nvml_find(name);
  if (library == &driver_handle) return (void *)box_driver_find(name);
  return dlsym(library, name);
}

static int close_library(void *library) {
  return library == &nvml_handle || library == &driver_handle ? 0 : dlclose(library);
}

/* ---- redirection ---- */

static bool is_runtime_call(const struct box_symbol *s) {
  return s->is_function && !strncmp(s->name, "cuda", 4) && s->name[4] >= 'A' && s->name[4] <= 'Z';
}

/* movabs $function, %rax; jmp *%rax */
static void write_jump(uintptr_t at, box_function *function) {
  unsigned char code[JUMP_BYTES] = {0x48, 0xb8, [10] = 0xff, 0xe0};
  memcpy(code + 2, &function, sizeof function);
  memcpy((void *)at, code, sizeof code);
}

static int protect_text(const struct library *l, int protection) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t begin = (l->base + l->file->text_begin) & ~(page - 1);
  uintptr_t end = harp_align_up(l->base + l->file->text_end, page);
  if (!mprotect((void *)begin, end - begin, protection)) return 0;
  box_log("the code of %s can't be changed in memory: %s", l->file->path, strerror(errno));
  return -1;
}

static int redirect_runtime(const struct library *l) {
  const struct box_elf *file = l->file;
  int redirected = 0;
  if (protect_text(l, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
  for (size_t i = 0; i < file->symbol_count; i++) {
    const struct box_symbol *s = &file->symbols[i];
    if (!is_runtime_call(s) || s->bytes < JUMP_BYTES) continue;
    if (s->address < file->text_begin || s->address >= file->text_end) continue;
    box_function *function = box_runtime_find(s->name);
    write_jump(l->base + s->address, function ? function : (box_function *)box_runtime_unsupported);
    redirected++;
  }
  if (protect_text(l, PROT_READ | PROT_EXEC)) return -1;
  if (redirected) return 0;
  box_log("%s does not contain the CUDA runtime, as NVIDIA's wheels do", file->path);
  return -1;
}

static void replace_slot(uintptr_t slot, void *function) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  mprotect((void *)(slot & ~(page - 1)), page, PROT_READ | PROT_WRITE);
  memcpy((void *)slot, &function, sizeof function);
}

static void redirect_slots(uintptr_t base, const Elf64_Rela *relocations, size_t bytes,
                           const Elf64_Sym *symbols, const char *names) {
  const struct {
    const char *name;
    void *function;
    bool naps;
  } caught[] = {{"dlopen", (void *)open_library, false},   {"dlsym", (void *)find_in_library, false},
                {"dlclose", (void *)close_library, false}, {"recv", (void *)box_nap_recv, true},
                {"accept", (void *)box_nap_accept, true},  {"sched_yield", (void *)box_nap_yield, true}};
  for (size_t i = 0; i < bytes / sizeof *relocations; i++) {
    uint64_t type = ELF64_R_TYPE(relocations[i].r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
    const char *name = names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
    for (size_t k = 0; k < HARP_ARRAY_COUNT(caught); k++)
      if (!strcmp(caught[k].name, name) && (!caught[k].naps || is_napping))
        replace_slot(base + relocations[i].r_offset, caught[k].function);
  }
}

static void redirect_loading(uintptr_t base, const ElfW(Dyn) * dynamic) {
  const Elf64_Rela *of_calls = NULL, *of_data = NULL;
  const Elf64_Sym *symbols = NULL;
  const char *names = NULL;
  size_t call_bytes = 0, data_bytes = 0;
  for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
    void *at = (void *)d->d_un.d_ptr;
    switch (d->d_tag) {
    case DT_JMPREL:
      of_calls = at;
      break;
    case DT_PLTRELSZ:
      call_bytes = d->d_un.d_val;
      break;
    case DT_RELA:
      of_data = at;
      break;
    case DT_RELASZ:
      data_bytes = d->d_un.d_val;
      break;
    case DT_SYMTAB:
      symbols = at;
      break;
    case DT_STRTAB:
      names = at;
      break;
    default:
      break;
    }
  }
  if (of_calls) redirect_slots(base, of_calls, call_bytes, symbols, names);
  if (of_data) redirect_slots(base, of_data, data_bytes, symbols, names);
}

void box_library_let_nap(void) {
  is_napping = true;
}

int box_library_load(const struct box_elf *elf) {
  struct library *l = &libraries[box_library_number];
  struct link_map *map;
  l->file = elf;
  l->handle = dlopen(elf->path, RTLD_NOW | RTLD_LOCAL);
  if (!l->handle || dlinfo(l->handle, RTLD_DI_LINKMAP, &map)) {
    box_log("%s can't be loaded: %s", elf->path, dlerror());
    return -1;
  }
  l->base = map->l_addr;
  for (int other = 0; other < BOX_LIBRARIES_MAX; other++)
    if (other != box_library_number && libraries[other].handle == l->handle) {
      box_log("%s is the same library twice: a second one needs a file of its own", elf->path);
      return -1;
    }
  if (redirect_runtime(l)) return -1;
  redirect_loading(l->base, map->l_ld);
  return 0;
}

/* ---- looking up ---- */

void *box_library_function(const char *name) {
  return dlsym(libraries[box_library_number].handle, name);
}

void *box_library_symbol(const char *name, size_t *bytes) {
  const struct box_symbol *symbol = box_elf_find(libraries[box_library_number].file, name);
  if (!symbol) return NULL;
  *bytes = symbol->bytes;
  return (void *)(libraries[box_library_number].base + symbol->address);
}

static const struct box_symbol *function_at(const struct library *l, const void *function) {
  return l->file ? box_elf_function_at(l->file, (uintptr_t)function - l->base) : NULL;
}

int box_library_of(const void *function) {
  int number = BOX_LIBRARIES_MAX - 1;
  while (number > 0 && !function_at(&libraries[number], function)) number--;
  return number;
}

const char *box_library_function_name(const void *function) {
  const struct box_symbol *symbol = function_at(&libraries[box_library_of(function)], function);
  return symbol ? symbol->name : NULL;
}

int box_library_version(void) {
  int version = 0;
  int (*get)(int *) = box_library_function("ncclGetVersion");
  if (get) get(&version);
  return version;
}
