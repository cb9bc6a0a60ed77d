/* SPDX-License-Identifier: Apache-2.0 */
#include "elf.h"

#include "log.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct box_bytes map_file(const char *path) {
  struct box_bytes none = {NULL, 0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st)) {
    box_log("%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return none;
  }
  void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (at == MAP_FAILED) {
    box_log("%s can't be mapped: %s", path, strerror(errno));
    return none;
  }
  return (struct box_bytes){at, (size_t)st.st_size};
}

static const Elf64_Shdr *section_headers(const struct box_elf *elf, unsigned *count, const char **names) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)elf->file.at;
  const Elf64_Shdr *all = (const Elf64_Shdr *)(elf->file.at + head->e_shoff);
  *count = head->e_shnum;
  *names = (const char *)elf->file.at + all[head->e_shstrndx].sh_offset;
  return all;
}

static bool is_elf64(struct box_bytes file) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)file.at;
  return file.count > sizeof *head && !memcmp(head->e_ident, ELFMAG, SELFMAG) &&
         head->e_ident[EI_CLASS] == ELFCLASS64 && head->e_machine == EM_X86_64 &&
         head->e_shoff + head->e_shnum * sizeof(Elf64_Shdr) <= file.count;
}

static int by_address(const void *a, const void *b) {
  const struct box_symbol *x = a, *y = b;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  return strcmp(x->name, y->name);
}

static void read_symbols(struct box_elf *elf, const Elf64_Shdr *table, const Elf64_Shdr *strings) {
  const Elf64_Sym *from = (const Elf64_Sym *)(elf->file.at + table->sh_offset);
  const char *names = (const char *)elf->file.at + strings->sh_offset;
  size_t count = table->sh_size / sizeof *from;
  elf->symbols = box_new(count * sizeof *elf->symbols);
  for (size_t i = 0; i < count; i++) {
    int type = ELF64_ST_TYPE(from[i].st_info);
    if (!from[i].st_value || (type != STT_FUNC && type != STT_OBJECT)) continue;
    elf->symbols[elf->symbol_count++] = (struct box_symbol){
        .name = names + from[i].st_name,
        .address = from[i].st_value,
        .bytes = from[i].st_size,
        .is_function = type == STT_FUNC,
    };
  }
  qsort(elf->symbols, elf->symbol_count, sizeof *elf->symbols, by_address);
}

int box_elf_open(struct box_elf *elf, const char *path) {
  *elf = (struct box_elf){.path = path, .file = map_file(path)};
  if (!elf->file.at) return -1;
  if (!is_elf64(elf->file)) {
    box_log("%s is no 64-bit ELF file for x86-64", path);
    return -1;
  }
  unsigned count;
  const char *names;
  const Elf64_Shdr *all = section_headers(elf, &count, &names);
  for (unsigned i = 0; i < count; i++) {
    if (!strcmp(names + all[i].sh_name, ".text")) {
      elf->text_begin = all[i].sh_addr;
      elf->text_end = all[i].sh_addr + all[i].sh_size;
    }
    if (all[i].sh_type == SHT_SYMTAB) read_symbols(elf, &all[i], &all[all[i].sh_link]);
  }
  if (elf->symbol_count && elf->text_end) return 0;
  box_log("%s has no symbol table; the wheels of NVIDIA have one, stripped libraries have none", path);
  return -1;
}

struct box_bytes box_elf_section(const struct box_elf *elf, const char *name) {
  unsigned count;
  const char *names;
  const Elf64_Shdr *all = section_headers(elf, &count, &names);
  for (unsigned i = 0; i < count; i++) {
    if (strcmp(names + all[i].sh_name, name) || all[i].sh_type == SHT_NOBITS) continue;
    if (all[i].sh_flags & SHF_COMPRESSED) continue;
    return (struct box_bytes){elf->file.at + all[i].sh_offset, all[i].sh_size};
  }
  return (struct box_bytes){NULL, 0};
}

const struct box_symbol *box_elf_find(const struct box_elf *elf, const char *name) {
  for (size_t i = 0; i < elf->symbol_count; i++)
    if (!strcmp(elf->symbols[i].name, name)) return &elf->symbols[i];
  return NULL;
}

const struct box_symbol *box_elf_function_at(const struct box_elf *elf, uint64_t address) {
  size_t low = 0, high = elf->symbol_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (elf->symbols[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < elf->symbol_count && elf->symbols[low].address == address; low++)
    if (elf->symbols[low].is_function) return &elf->symbols[low];
  return NULL;
}
