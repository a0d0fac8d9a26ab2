#include "server/worker/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct symbols_file {
    const uint8_t *bytes;
    uint64_t size;
};

/* NULL where that is not all within the file. It may lie at any address. */
static const uint8_t *symbols_part(const struct symbols_file *file, uint64_t offset, uint64_t bytes) {
    return offset <= file->size && bytes <= file->size - offset ? file->bytes + offset : NULL;
}

static bool symbols_section(const struct symbols_file *file, const ElfW(Ehdr) * head, uint64_t number,
                            ElfW(Shdr) * section) {
    if (number >= head->e_shnum || head->e_shentsize != sizeof *section)
        return false;
    const uint8_t *part = symbols_part(file, head->e_shoff + number * sizeof *section, sizeof *section);
    if (part)
        memcpy(section, part, sizeof *section);
    return part;
}

static bool symbols_name(const struct symbols_file *file, const ElfW(Shdr) * strings, uint64_t offset, char *name,
                         size_t size) {
    const uint8_t *text = offset < strings->sh_size ? symbols_part(file, strings->sh_offset, strings->sh_size) : NULL;
    if (!text)
        return false;
    size_t most = strings->sh_size - offset < size - 1 ? strings->sh_size - offset : size - 1;
    size_t length = strnlen((const char *)text + offset, most);
    memcpy(name, text + offset, length);
    name[length] = 0;
    return length > 0;
}

static bool symbols_search(const struct symbols_file *file, const ElfW(Ehdr) * head, const ElfW(Shdr) * section,
                           uint64_t address, char *name, size_t size, uint64_t *begin) {
    const uint8_t *part = symbols_part(file, section->sh_offset, section->sh_size);
    ElfW(Shdr) strings;
    ElfW(Sym) symbol;
    for (uint64_t i = 0; part && i < section->sh_size / sizeof symbol; i++) {
        memcpy(&symbol, part + i * sizeof symbol, sizeof symbol);
        if ((symbol.st_info & 15) != STT_FUNC || address < symbol.st_value ||
            address - symbol.st_value >= symbol.st_size)
            continue;
        *begin = symbol.st_value;
        return symbols_section(file, head, section->sh_link, &strings) &&
               symbols_name(file, &strings, symbol.st_name, name, size);
    }
    return false;
}

static bool symbols_find_in(const struct symbols_file *file, uint64_t address, char *name, size_t size,
                            uint64_t *begin) {
    static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};
    ElfW(Ehdr) head;
    ElfW(Shdr) section;
    if (file->size < sizeof head || memcmp(file->bytes, ELFMAG, SELFMAG) != 0)
        return false;
    memcpy(&head, file->bytes, sizeof head);
    for (size_t type = 0; type < sizeof types / sizeof *types; type++)
        for (unsigned i = 0; i < head.e_shnum; i++)
            if (symbols_section(file, &head, i, &section) && section.sh_type == types[type] &&
                section.sh_entsize == sizeof(ElfW(Sym)) &&
                symbols_search(file, &head, &section, address, name, size, begin))
                return true;
    return false;
}

bool symbols_find(const char *path, uint64_t address, char *name, size_t size, uint64_t *begin) {
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool regular = fd >= 0 && !fstat(fd, &stat) && S_ISREG(stat.st_mode) && stat.st_size > 0;
    void *bytes = regular ? mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (bytes == MAP_FAILED)
        return false;
    struct symbols_file file = (struct symbols_file){bytes, (uint64_t)stat.st_size};
    bool found = symbols_find_in(&file, address, name, size, begin);
    munmap(bytes, (size_t)stat.st_size);
    return found;
}
