#include "server/worker/crash.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "engine/device/thread.h"
#include "engine/engine.h"
#include "server/ipc/stats_page.h"
#include "server/process/clock.h"
#include "server/process/log.h"

enum {
    CRASH_FRAMES_MAX = 64,
    CRASH_OPERATIONS = 8, /* in a report */
    CRASH_ALARM_S = 5,    /* for a report */
    CRASH_PATIENCE_MS = 500,
    CRASH_BUILD_MAX = 64,
};

static const struct {
    int number;
    const char *name;
} crash_signals[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
                     {SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGSYS, "SIGSYS"}};
enum { CRASH_SIGNALS = sizeof crash_signals / sizeof *crash_signals };

/* Written before the handlers are installed, or by the main thread alone. */
static const void *crash_program; /* where this program begins in memory */
static char crash_program_path[512];
static char crash_build[CRASH_BUILD_MAX + 1] = "unknown"; /* the linker's id of this build */
static _Atomic(const struct engine *) crash_engine;
static _Atomic(struct stats_page *) crash_page;

static _Atomic int crash_signal; /* the signal that is being reported; 0: none */

/* ---- the signal ---- */

static const char *crash_signal_name(int number) {
    for (unsigned i = 0; i < CRASH_SIGNALS; i++)
        if (crash_signals[i].number == number)
            return crash_signals[i].name;
    return "unknown";
}

static const char *crash_cause(const siginfo_t *info) {
    static const struct {
        int number, code;
        const char *words;
    } rows[] = {
        {SIGSEGV, SEGV_MAPERR, "nothing is at this address"},
        {SIGSEGV, SEGV_ACCERR, "no right to this address"},
        {SIGBUS, BUS_ADRALN, "misaligned address"},
        {SIGBUS, BUS_ADRERR, "nothing is behind this address"},
        {SIGBUS, BUS_MCEERR_AR, "memory error of the machine"},
        {SIGILL, ILL_ILLOPN, "no such instruction"},
        {SIGFPE, FPE_INTDIV, "integer division by zero"},
        {SIGFPE, FPE_INTOVF, "integer overflow"},
    };
    if (info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE)
        return info->si_pid == getpid() ? "raised by the process itself" : "sent by another process";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].number == info->si_signo && rows[i].code == info->si_code)
            return rows[i].words;
    return "";
}

static uintptr_t crash_counter(const void *context) {
    const ucontext_t *user = context;
#if defined(__x86_64__)
    return (uintptr_t)user->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)user->uc_mcontext.pc;
#else
    (void)user;
    return 0;
#endif
}

static void crash_tell_signal(const siginfo_t *info) {
    char pid[LOG_NUMBER_MAX], tid[LOG_NUMBER_MAX], thread[16 + 1] = "", place[LOG_NUMBER_MAX];
    bool sent = info->si_code <= 0;
    prctl(PR_GET_NAME, thread);
    log_event(LOG_LEVEL_ERROR, "crash", "signal", crash_signal_name(info->si_signo), "cause", crash_cause(info),
              sent ? "sender" : "address",
              sent ? log_number(place, (uint64_t)info->si_pid) : log_address(place, (uintptr_t)info->si_addr), "thread",
              thread, "pid", log_number(pid, (uint64_t)getpid()), "tid", log_number(tid, (uint64_t)syscall(SYS_gettid)),
              "version", TENSORD_VERSION, "build", crash_build, NULL);
}

/* ---- the device ---- */

static void crash_append(char *text, size_t size, const char *more) {
    size_t length = strnlen(text, size - 1), added = strnlen(more, size - 1 - length);
    memcpy(text + length, more, added);
    text[length + added] = 0;
}

/* Leaves the last operation for the front, which reports it to everybody with the worker's end: "matmul of session 4".
 * The label belongs to its owner, so it stands only in the log. */
static void crash_leave_words(struct stats_page *page, const struct history_operation *operation) {
    char number[LOG_NUMBER_MAX], *text = page->crash;
    text[0] = 0;
    crash_append(text, sizeof page->crash, operation->name);
    crash_append(text, sizeof page->crash, " of session ");
    crash_append(text, sizeof page->crash, log_number(number, operation->session));
}

static void crash_tell_operations(const struct engine *engine, struct stats_page *page) {
    struct history_operation operations[CRASH_OPERATIONS];
    unsigned n = engine_last_operations(engine, operations, CRASH_OPERATIONS);
    for (unsigned i = 0; i < n; i++) {
        const struct history_operation *at = &operations[i];
        char count[LOG_NUMBER_MAX], session[LOG_NUMBER_MAX], sequence[LOG_NUMBER_MAX];
        log_event(LOG_LEVEL_ERROR, "crash_operation", "n", log_number(count, i), "operation", at->name, "label",
                  at->label, "session", log_number(session, at->session), "sequence",
                  log_number(sequence, at->sequence), "state", at->done ? "done" : "running", NULL);
    }
    if (page && n > 0 && !operations[0].done)
        crash_leave_words(page, &operations[0]);
}

static void crash_tell_device(const struct stats_page *page) {
    const struct engine_stats *stats = &page->device.engine;
    uint64_t written = atomic_load(&page->written_ns), now = clock_now_ns();
    char age[LOG_NUMBER_MAX], total[LOG_NUMBER_MAX], reserved[LOG_NUMBER_MAX], live[LOG_NUMBER_MAX];
    char queued[LOG_NUMBER_MAX], done[LOG_NUMBER_MAX], sessions[LOG_NUMBER_MAX], stalled[LOG_NUMBER_MAX];
    log_event(LOG_LEVEL_ERROR, "crash_device", "age_ms", log_number(age, now > written ? (now - written) / 1000000 : 0),
              "memory_live", log_number(live, stats->memory_live), "memory_reserved",
              log_number(reserved, stats->memory_reserved), "memory_total", log_number(total, stats->memory_total),
              "queue_depth", log_number(queued, stats->queue_depth), "ops_total", log_number(done, stats->ops_total),
              "sessions", log_number(sessions, stats->sessions), "stalled_ms",
              log_number(stalled, stats->stalled_ns / 1000000), NULL);
}

/* ---- names of functions ---- */

struct symbols_file {
    const uint8_t *bytes;
    uint64_t size;
};

/* A part of the file, at any alignment. NULL: it is not all within the file. */
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

/* ---- the calls that had not returned ---- */

/* What addr2line takes: an offset in the file; for a program that is always loaded at the same place, the address. */
static uint64_t crash_offset(const Dl_info *module, uintptr_t address) {
    const ElfW(Ehdr) *head = module->dli_fbase;
    return head->e_type == ET_EXEC ? address : address - (uintptr_t)head;
}

static void crash_tell_frame(unsigned n, uintptr_t address) {
    char number[LOG_NUMBER_MAX], offset[LOG_NUMBER_MAX], plus[LOG_NUMBER_MAX], symbol[160] = "";
    uint64_t begin;
    Dl_info module;
    if (!dladdr((void *)address, &module) || !module.dli_fbase) {
        log_event(LOG_LEVEL_ERROR, "crash_frame", "n", log_number(number, n), "address", log_address(offset, address),
                  NULL);
        return;
    }
    uint64_t place = crash_offset(&module, address);
    bool own = module.dli_fbase == crash_program;
    const char *path = own ? "/proc/self/exe" : module.dli_fname;
    if (symbols_find(path, place, symbol, sizeof symbol - sizeof plus - 1, &begin)) {
        crash_append(symbol, sizeof symbol, "+");
        crash_append(symbol, sizeof symbol, log_address(plus, place - begin));
    }
    log_event(LOG_LEVEL_ERROR, "crash_frame", "n", log_number(number, n), "module",
              own ? crash_program_path : module.dli_fname, "offset", log_address(offset, place), "function", symbol,
              NULL);
}

/* The handler's own frames come first, and are left out. Every frame but the innermost holds the address to return to,
 * which may already belong to the next line or function; the address before it still belongs to the call. */
static void crash_tell_frames(uintptr_t counter) {
    void *frames[CRASH_FRAMES_MAX];
    int n = backtrace(frames, CRASH_FRAMES_MAX), first = n;
    for (int i = 0; i < n && first == n; i++)
        if ((uintptr_t)frames[i] == counter)
            first = i;
    crash_tell_frame(0, counter);
    if (first == n) /* the program jumped to an address without code */
        first = -1;
    for (int i = first + 1; i < n; i++)
        crash_tell_frame((unsigned)(i - first), (uintptr_t)frames[i] - 1);
}

/* ---- the handler ---- */

static void crash_restore(int number) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(number, &usual, NULL);
}

/* The report hangs: ends the process without the rest of it. */
static void crash_gave_up(int alarm) {
    int number = atomic_load(&crash_signal);
    sigset_t set;
    (void)alarm;
    sigemptyset(&set);
    sigaddset(&set, number);
    crash_restore(number);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
}

static void crash_set_alarm(void) {
    const struct sigaction action = {.sa_handler = crash_gave_up, .sa_flags = SA_ONSTACK};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    alarm(CRASH_ALARM_S);
}

/* All signals of the table are blocked meanwhile: a fault in this function ends the process at once. */
static void crash_handle(int number, siginfo_t *info, void *context) {
    const struct engine *engine = atomic_load(&crash_engine);
    struct stats_page *page = atomic_load(&crash_page);
    int none = 0;
    if (!atomic_compare_exchange_strong(&crash_signal, &none, number))
        for (;;) /* another thread reports, and will end */
            pause();
    crash_set_alarm();
    log_patience(CRASH_PATIENCE_MS);
    crash_tell_signal(info);
    if (engine)
        crash_tell_operations(engine, page);
    if (page)
        crash_tell_device(page);
    crash_tell_frames(crash_counter(context));
    log_event(LOG_LEVEL_ERROR, "crash_end", "signal", crash_signal_name(number), NULL);
    /* The signal is pending until this returns: then the thread is where the fault was, and a core dump shows that. */
    crash_restore(number);
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

/* ---- setting up ---- */

static int crash_find_build(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *head = &info->dlpi_phdr[i];
        const uint8_t *at = (const uint8_t *)(info->dlpi_addr + head->p_vaddr), *end = at + head->p_memsz;
        while (head->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
            const uint8_t *name = at + sizeof *note, *bytes = name + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
                unsigned n = note->n_descsz < CRASH_BUILD_MAX / 2 ? note->n_descsz : CRASH_BUILD_MAX / 2;
                for (unsigned b = 0; b < n; b++)
                    log_text(crash_build + 2 * b, 3, "%02x", bytes[b]);
                return 1;
            }
            at = bytes + ((note->n_descsz + 3) & ~3u);
        }
    }
    return 1; /* the first one is the program itself */
}

static void crash_find_program(void) {
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", crash_program_path, sizeof crash_program_path - 1);
    crash_program_path[n > 0 ? n : 0] = 0;
    if (dladdr((void *)(uintptr_t)crash_find_program, &info))
        crash_program = info.dli_fbase;
    dl_iterate_phdr(crash_find_build, NULL);
}

void crash_init(void) {
    struct sigaction action = {.sa_sigaction = crash_handle, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    void *frame;
    thread_begin(NULL);
    crash_find_program();
    backtrace(&frame, 1); /* loads the unwinder, which allocates memory the first time */
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < CRASH_SIGNALS; i++)
        sigaddset(&action.sa_mask, crash_signals[i].number);
    for (unsigned i = 0; i < CRASH_SIGNALS; i++)
        if (!sigaction(crash_signals[i].number, NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(crash_signals[i].number, &action, NULL);
}

void crash_watch(const struct engine *engine, struct stats_page *page) {
    atomic_store(&crash_engine, engine);
    atomic_store(&crash_page, page);
}
