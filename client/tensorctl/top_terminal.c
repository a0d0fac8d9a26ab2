#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/control.h"
#include "client/tensorctl/top.h"

enum { PAIR_BAR = 1, PAIR_WARNING };

static SCREEN *terminal;
static sigset_t terminal_signals, terminal_before; /* handled only in top_terminal_wait(); and the mask before */
static volatile sig_atomic_t terminal_ended;       /* the signal that ends the program; 0: none */

static void terminal_end(int number) {
    terminal_ended = number;
}

static void terminal_winch(int number) {
    (void)number;
}

/* All text is UTF-8, whatever locale the environment sets. */
static void terminal_set_locale(void) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* Signals are blocked except during the wait, so that none comes between the check of terminal_ended and the wait. */
static void terminal_take_signals(void) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = terminal_end};
    sigemptyset(&terminal_signals);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        sigaction(ends[i], &action, NULL);
        sigaddset(&terminal_signals, ends[i]);
    }
    action.sa_handler = terminal_winch;
    sigaction(SIGWINCH, &action, NULL);
    sigaddset(&terminal_signals, SIGWINCH);
    sigprocmask(SIG_BLOCK, &terminal_signals, &terminal_before);
}

int top_terminal_open(struct fault *fault) {
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "top needs a terminal; --batch does not");
    terminal_set_locale();
    terminal_take_signals();
    terminal = newterm(NULL, stdout, stdin);
    if (!terminal)
        return fault_set(fault, STATUS_UNSUPPORTED, "this terminal is not known; --batch needs none");
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, true);
    nodelay(stdscr, true);
    set_escdelay(25);
    curs_set(0);
    if (has_colors() && start_color() == OK && use_default_colors() == OK) {
        init_pair(PAIR_BAR, COLOR_GREEN, -1);
        init_pair(PAIR_WARNING, COLOR_RED, -1);
    }
    return STATUS_OK;
}

void top_terminal_close(void) {
    if (!terminal)
        return;
    endwin();
    delscreen(terminal);
    terminal = NULL;
    sigprocmask(SIG_SETMASK, &terminal_before, NULL);
}

static void terminal_put(void *owner, unsigned row, unsigned column, enum top_style style, const char *text) {
    static const chtype looks[] = {
        [TOP_PLAIN] = A_NORMAL,     [TOP_BOLD] = A_BOLD, [TOP_TITLES] = A_UNDERLINE,
        [TOP_SELECTED] = A_REVERSE, [TOP_BAR] = A_BOLD,  [TOP_WARNING] = A_BOLD,
    };
    chtype look = looks[style];
    (void)owner;
    if (has_colors())
        look |= style == TOP_BAR ? COLOR_PAIR(PAIR_BAR) : style == TOP_WARNING ? COLOR_PAIR(PAIR_WARNING) : 0;
    attrset((int)look);
    mvaddstr((int)row, (int)column, text);
}

void top_terminal_show(struct top *top) {
    struct top_canvas canvas = {
        .rows = LINES > 0 ? (unsigned)LINES : 0,
        .columns = COLS > 0 ? (unsigned)COLS : 0,
        .put = terminal_put,
    };
    erase();
    top_draw(top, &canvas);
    attrset(A_NORMAL);
    refresh();
}

static int terminal_key(int key) {
    switch (key) {
    case KEY_UP:
        return TOP_KEY_UP;
    case KEY_DOWN:
        return TOP_KEY_DOWN;
    case KEY_PPAGE:
        return TOP_KEY_PAGE_UP;
    case KEY_NPAGE:
        return TOP_KEY_PAGE_DOWN;
    case KEY_HOME:
        return TOP_KEY_HOME;
    case KEY_END:
        return TOP_KEY_END;
    default:
        return key < 256 ? key : 0;
    }
}

/* Whether the terminal has another size. curses does not know it, because this program handles SIGWINCH. */
static bool terminal_resized(void) {
    int rows = LINES, columns = COLS;
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col ||
        (size.ws_row == rows && size.ws_col == columns))
        return false;
    resizeterm(size.ws_row, size.ws_col);
    return true;
}

enum top_event top_terminal_wait(int64_t deadline_ms, int *what) {
    for (;;) {
        int key = getch();
        int64_t left = deadline_ms - control_now_ms();
        struct timespec timeout = {left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000000 : 0};
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (terminal_ended) {
            *what = terminal_ended;
            return TOP_EVENT_SIGNAL;
        }
        if (terminal_resized() || key == KEY_RESIZE)
            return TOP_EVENT_RESIZE;
        if (key != ERR) {
            *what = terminal_key(key);
            return TOP_EVENT_KEY;
        }
        if (left <= 0)
            return TOP_EVENT_TIME;
        if (ppoll(&input, 1, &timeout, &terminal_before) > 0 && input.revents & (POLLHUP | POLLERR | POLLNVAL)) {
            *what = SIGHUP;
            return TOP_EVENT_SIGNAL;
        }
    }
}
