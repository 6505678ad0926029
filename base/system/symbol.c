#include "base/system/symbol.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = PATH_MAX + 256 };

/* Where an address lies: the file, and the place in it. */
struct place {
    char file[PATH_MAX];
    uint64_t offset;
};

/* A file in memory. */
struct image {
    unsigned char *bytes; /* only read */
    size_t size;
};

/* One line of /proc/self/maps: "begin-end rights offset device inode path". */
static bool is_in_line(const char *line, uintptr_t address, struct place *out)
{
    unsigned long long begin, end, offset;
    int path = 0;

    if (sscanf(line, /* NOLINT(cert-err34-c): the kernel wrote it */
               "%llx-%llx %*s %llx %*s %*s %n", &begin, &end, &offset, &path) != 3 ||
        path == 0 || address < begin || address >= end || line[path] != '/') {
        return false;
    }
    (void)snprintf(out->file, sizeof(out->file), "%s", line + path);
    out->offset = offset + (address - begin);
    return true;
}

static bool find_place(uintptr_t address, struct place *out)
{
    const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char line[LINE_BYTES], block[4096];
    bool found = false;
    size_t used = 0;
    ssize_t got;

    while (file >= 0 && !found && (got = read(file, block, sizeof(block))) > 0) {
        for (ssize_t i = 0; i < got && !found; i++) {
            if (block[i] != '\n') {
                line[used] = block[i];
                used += used < sizeof(line) - 1;
                continue;
            }
            line[used] = '\0';
            used = 0;
            found = is_in_line(line, address, out);
        }
    }
    if (file >= 0) {
        (void)close(file);
    }
    return found;
}

static bool open_image(const char *path, struct image *out)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    void *bytes = MAP_FAILED;
    struct stat info;

    if (file >= 0 && fstat(file, &info) == 0 && info.st_size > (off_t)sizeof(Elf64_Ehdr)) {
        out->size = (size_t)info.st_size;
        bytes = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (file >= 0) {
        (void)close(file);
    }
    out->bytes = bytes;
    return bytes != MAP_FAILED;
}

/* `count` entries of `each` bytes at that offset, NULL if they are not within the file. */
static const void *part(const struct image *image, uint64_t offset, uint64_t count, size_t each)
{
    return offset <= image->size && offset % 8 == 0 && count <= (image->size - offset) / each
               ? image->bytes + offset
               : NULL;
}

static const Elf64_Ehdr *header_of(const struct image *image)
{
    const Elf64_Ehdr *header = part(image, 0, 1, sizeof(*header));

    return header != NULL && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                   header->e_ident[EI_CLASS] == ELFCLASS64
               ? header
               : NULL;
}

/* The address that the linker gave to what lies at that place of the file. */
static bool linked_address(const struct image *image, uint64_t offset, uint64_t *out)
{
    const Elf64_Ehdr *header = header_of(image);
    const Elf64_Phdr *segments =
        header != NULL ? part(image, header->e_phoff, header->e_phnum, sizeof(*segments)) : NULL;

    for (int i = 0; segments != NULL && i < header->e_phnum; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && offset >= s->p_offset && offset - s->p_offset < s->p_filesz) {
            *out = s->p_vaddr + (offset - s->p_offset);
            return true;
        }
    }
    return false;
}

/* The function at that address in one table of symbols, or NULL. */
static const char *search_table(const struct image *image, const Elf64_Shdr *table,
                                const Elf64_Shdr *names, uint64_t address)
{
    const uint64_t count = table->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbols = part(image, table->sh_offset, count, sizeof(*symbols));
    const bool whole = names->sh_offset <= image->size && names->sh_size > 0 &&
                       names->sh_size <= image->size - names->sh_offset &&
                       image->bytes[names->sh_offset + names->sh_size - 1] == '\0';

    for (uint64_t i = 0; symbols != NULL && whole && i < count; i++) {
        const Elf64_Sym *s = &symbols[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_shndx != SHN_UNDEF &&
            address >= s->st_value && address - s->st_value < s->st_size &&
            s->st_name < names->sh_size) {
            return (const char *)image->bytes + names->sh_offset + s->st_name;
        }
    }
    return NULL;
}

/* The function at that linked address, or NULL. */
static const char *search(const struct image *image, uint64_t address)
{
    const Elf64_Ehdr *header = header_of(image);
    const Elf64_Shdr *sections = part(image, header->e_shoff, header->e_shnum, sizeof(*sections));
    const char *found = NULL;

    for (int i = 0; sections != NULL && i < header->e_shnum && found == NULL; i++) {
        const Elf64_Shdr *s = &sections[i];
        if ((s->sh_type == SHT_SYMTAB || s->sh_type == SHT_DYNSYM) &&
            s->sh_link < header->e_shnum) {
            found = search_table(image, s, &sections[s->sh_link], address);
        }
    }
    return found;
}

static bool is_program(const char *file)
{
    char program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    return length > 0 && strlen(file) == (size_t)length &&
           memcmp(program, file, (size_t)length) == 0;
}

void dp_symbol_name(uintptr_t address, char *out, size_t size)
{
    const char *function = NULL, *name;
    struct place place;
    struct image image;
    uint64_t linked;

    (void)snprintf(out, size, "?");
    if (!find_place(address, &place)) {
        return;
    }
    name = strrchr(place.file, '/') + 1;
    (void)snprintf(out, size, "%s+0x%llx", name, (unsigned long long)place.offset);
    if (!open_image(place.file, &image)) {
        return;
    }
    if (linked_address(&image, place.offset, &linked)) {
        function = search(&image, linked);
    }
    if (function != NULL) {
        const bool own = is_program(place.file);
        (void)snprintf(out, size, "%s%s%s%s", function, own ? "" : " (", own ? "" : name,
                       own ? "" : ")");
    }
    (void)munmap(image.bytes, image.size);
}
